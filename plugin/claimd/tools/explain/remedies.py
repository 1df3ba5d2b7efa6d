"""Changes to a node or a pod that would satisfy a rule of the scheduler which is not about devices."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from claimd.kubernetes.allocator import amounts

if TYPE_CHECKING:
    from claimd.kubernetes.scheduling.filters import Refusal

# Labels that describe the node itself. To change them would not help, as they would be wrong then.
_LABELS_OF_FACT = (
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "node.kubernetes.io/instance-type",
)
# The figures of `resources.Shortage.detail`, and of the same with a device plugin.
_FIGURES = re.compile(
    r"(?P<resource>\S+): the pod requests (?P<requested>\S+)(?P<when> while init container \S+ runs)?, "
    r"(?:the device plugin has )?(?P<left>\S+) of (?P<whole>\S+) (?:are left|free)"
)
# The change for each condition of a node that is ready. The keys begin the refusal's detail.
_CONDITIONS = {
    "its disk is full": "free disk space on",
    "its memory is short": "free memory on",
    "it has too many processes": "end processes on",
    "its network is not set up": "set up the network of",
}


def remedy_for(refusal: Refusal, node: str) -> str:
    """Returns the change that would satisfy the rule, or "" if there is no single change."""
    detail = refusal.detail
    match refusal.rule:
        case "NodeUnschedulable":
            return f"uncordon {node}"
        case "TaintToleration":
            _, separator, taint = detail.rpartition("taint ")
            # A taint that the node controller sets goes away with its condition.
            if separator and not detail.startswith("it"):
                name, _, _ = taint.partition(" is not tolerated")
                return f"tolerate {name}, or remove the taint from {node}"
            for meaning, change in _CONDITIONS.items():
                if detail.startswith(meaning):
                    return f"{change} {node}"
            return f"get {node} ready"
        case "NodeAffinity":
            demand, separator, _ = detail.partition(", it ")
            label = demand.removeprefix("nodeSelector asks for ")
            is_fact = label.partition("=")[0] in _LABELS_OF_FACT
            if separator and label != demand and not is_fact:
                return f"label {node} {label}"
        case "NodeResourcesFit":
            return _remedy_for_resource(refusal, node)
        case "NodePorts":
            return f"free {detail.partition(' is taken')[0]} on {node}"
    return ""


def _remedy_for_resource(refusal: Refusal, node: str) -> str:
    """Returns a remedy from the figures of `resources.Shortage.detail`."""
    match = _FIGURES.match(refusal.detail)
    if match is None:
        return ""

    resource, left, when = match["resource"], match["left"], match["when"] or ""
    is_enough = amounts.parse(match["requested"]) <= amounts.parse(match["whole"])
    # A request that exceeds the whole node cannot be met by freeing resources.
    if left == "0":
        return f"free some {resource} on {node}" if is_enough else ""
    less = f"ask for at most {left} {resource}{when}"
    return f"{less} or free some on {node}" if is_enough else less


def effort(refusal: Refusal) -> int:
    """Returns how hard it is to satisfy the rule: a lower value means a nearer node.

    An administrator can uncordon, untaint or label a node at once. Resources and ports become free
    only when another pod ends. Some rules cannot be satisfied at all.
    """
    if not remedy_for(refusal, "the node"):
        return 4
    return 2 if refusal.rule in ("NodeResourcesFit", "NodePorts") else 1
