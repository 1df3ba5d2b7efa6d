"""Taints of nodes by what their kubelets say of them.

No pod is to come to a node that is not ready. Not here: that a kubelet has fallen silent, and the
end of pods on a node that is not ready.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...api.document import Document
from .. import requests
from ..requests import Request
from .objects import Objects, status_of

PREFIX = "node.kubernetes.io/"
PRESSURES = {
    "MemoryPressure": "memory-pressure",
    "DiskPressure": "disk-pressure",
    "PIDPressure": "pid-pressure",
    "NetworkUnavailable": "network-unavailable",
}
OURS = frozenset(
    PREFIX + name for name in (*PRESSURES.values(), "not-ready", "unreachable", "unschedulable")
)


def sync(objects: Objects) -> Iterator[Request]:
    """Adds and takes away the taints that are ours, and leaves those of others alone."""
    for node in objects["nodes"].values():
        spec = node.get("spec") or {}
        present = spec.get("taints") or []
        wanted = set(_wanted_keys(node))

        # A taint that stays keeps its place and what else it says, its time for one.
        taints = [taint for taint in present if not _is_ours(taint) or taint["key"] in wanted]
        kept_keys = {taint["key"] for taint in taints if _is_ours(taint)}
        for key in sorted(wanted - kept_keys):
            taints.append({"key": key, "effect": "NoSchedule"})

        if taints != present:
            changed = {name: value for name, value in spec.items() if name != "taints"}
            if taints:
                changed["taints"] = taints
            yield requests.update("nodes", node | {"spec": changed})


def _is_ours(taint: Document) -> bool:
    return taint["key"] in OURS and taint.get("effect") == "NoSchedule"


def _wanted_keys(node: Document) -> Iterator[str]:
    conditions = {
        condition["type"]: condition["status"]
        for condition in status_of(node).get("conditions") or ()
    }
    ready = conditions.get("Ready", "False")
    if ready == "Unknown":
        yield PREFIX + "unreachable"
    elif ready != "True":
        yield PREFIX + "not-ready"

    if (node.get("spec") or {}).get("unschedulable"):
        yield PREFIX + "unschedulable"

    for condition, name in PRESSURES.items():
        if conditions.get(condition) == "True":
            yield PREFIX + name
