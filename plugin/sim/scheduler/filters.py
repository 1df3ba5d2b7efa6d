"""Whether a node takes a pod, devices aside: the first rule that says no, in the real scheduler's
order and words.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...allocator import nodes
from . import resources
from .objects import Taint, Toleration

if TYPE_CHECKING:
    from .objects import Node, Pod
    from .world import World

UNSCHEDULABLE = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")


def refusals(world: World, pod: Pod, node: Node) -> list[str]:
    """Why not on this node; nothing if it may."""
    tolerations = pod.spec.tolerations
    if node.spec.unschedulable and not any(tolerates(one, UNSCHEDULABLE) for one in tolerations):
        return ["node(s) were unschedulable"]
    for taint in node.spec.taints:
        if taint.effect in ("NoSchedule", "NoExecute") and not any(
            tolerates(one, taint) for one in tolerations
        ):
            return ["node(s) had untolerated taint(s)"]
    if not _selected(pod, node):
        return ["node(s) didn't match Pod's node affinity/selector"]
    used = world.used[node.metadata.name]
    return resources.lacking(pod, node, used, _by_claims(world, node))


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect not in ("", taint.effect) or toleration.key not in ("", taint.key):
        return False
    if toleration.operator in ("", "Equal"):
        return toleration.value == taint.value
    return toleration.operator == "Exists"


def _selected(pod: Pod, node: Node) -> bool:
    if not pod.spec.node_selector.items() <= node.metadata.labels.items():
        return False
    required = pod.spec.affinity.node_affinity.required_during_scheduling_ignored_during_execution
    try:
        return required is None or nodes.selects(required, node)
    except ValueError:
        # the API server refuses such a selector; one that came by another way selects nothing
        return False


def _by_claims(world: World, node: Node) -> set[str]:
    """Extended resources that a class stands for, where the node offers none itself."""
    offered = node.status.allocatable
    return {name for name in world.published.by_resource if offered.get(name, "0") == "0"}
