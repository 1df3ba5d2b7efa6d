"""The tolerations that the DaemonSet controller gives to every pod that it creates."""

from __future__ import annotations

from ..api.document import Document

# The node lifecycle controller sets these taints. A daemon runs on a node in spite of them, as the
# node often needs the daemon to recover.
_TOLERATED_TAINTS = (
    ("not-ready", "NoExecute"),
    ("unreachable", "NoExecute"),
    ("disk-pressure", "NoSchedule"),
    ("memory-pressure", "NoSchedule"),
    ("pid-pressure", "NoSchedule"),
    ("unschedulable", "NoSchedule"),
)


def pod_tolerations(template_spec: Document) -> list[Document]:
    """Returns the tolerations of a DaemonSet's pods: the template's own, then the automatic ones.

    `template_spec` is the spec of the DaemonSet's pod template, which stays as it is.
    """
    tolerations: list[Document] = [*(template_spec.get("tolerations") or ())]
    for name, effect in _TOLERATED_TAINTS:
        key = f"node.kubernetes.io/{name}"
        tolerations.append({"key": key, "operator": "Exists", "effect": effect})
    return tolerations
