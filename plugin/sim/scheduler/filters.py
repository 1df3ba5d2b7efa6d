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
    from .snapshot import Snapshot

UNSCHEDULABLE = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")


def filter_node(snapshot: Snapshot, pod: Pod, node: Node) -> list[str]:
    """Why the pod cannot go to this node; nothing if it may."""
    tolerations = pod.spec.tolerations
    if node.spec.unschedulable and not _tolerated(UNSCHEDULABLE, tolerations):
        return ["node(s) were unschedulable"]

    for taint in node.spec.taints:
        if taint.effect in ("NoSchedule", "NoExecute") and not _tolerated(taint, tolerations):
            return ["node(s) had untolerated taint(s)"]

    if not _matches_node_selector(pod, node):
        return ["node(s) didn't match Pod's node affinity/selector"]

    used = snapshot.used[node.metadata.name]
    return resources.insufficient(pod, node, used, _given_by_claims(snapshot, node))


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect not in ("", taint.effect) or toleration.key not in ("", taint.key):
        return False
    if toleration.operator in ("", "Equal"):
        return toleration.value == taint.value
    return toleration.operator == "Exists"


def _tolerated(taint: Taint, tolerations: list[Toleration]) -> bool:
    return any(tolerates(toleration, taint) for toleration in tolerations)


def _matches_node_selector(pod: Pod, node: Node) -> bool:
    if not pod.spec.node_selector.items() <= node.metadata.labels.items():
        return False

    affinity = pod.spec.affinity.node_affinity
    required = affinity.required_during_scheduling_ignored_during_execution
    try:
        return required is None or nodes.selects(required, node)
    except ValueError:
        # The API server refuses such a selector; one that came by another way selects nothing.
        return False


def _given_by_claims(snapshot: Snapshot, node: Node) -> set[str]:
    """Extended resources that a class stands for, where the node offers none itself."""
    allocatable = node.status.allocatable
    return {
        name for name in snapshot.published.class_by_resource if allocatable.get(name, "0") == "0"
    }
