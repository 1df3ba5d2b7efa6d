"""Which of the nodes that would do a pod prefers: taints, affinities and spreading as scores.

With the scheduler's weights. Only what a pod or its future neighbours ask for: how much room nodes
have is the caller's to compare.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from ..allocator import nodes as node_selectors
from ..api.core import NodeSelector
from . import filters, neighbours
from .neighbours import Labels

if TYPE_CHECKING:
    from .objects import Node, Pod, PodAffinityTerm, TopologySpread

_HIGHEST = 100
_HOST = "kubernetes.io/hostname"
_TAINTS, _NODES, _SPREAD, _PODS = 3, 2, 2, 2  # weights
_REQUIRED_WEIGHT = 1  # of another pod's required affinity


def has_preferences(pod: Pod) -> bool:
    """Whether the pod itself prefers anything."""
    affinity = pod.spec.affinity.node_affinity
    has_terms = affinity.preferred_during_scheduling_ignored_during_execution
    return bool(has_terms) or neighbours.has_rules(pod)


def scores(
    pod: Pod,
    feasible: Sequence[Node],
    nodes: Mapping[str, Node],
    pods_by_node: Mapping[str, Sequence[Pod]],
    watchful: Iterable[Pod],
    namespaces: Mapping[str, Labels],
) -> dict[str, int]:
    """By the name of every node that would do; the highest is the best."""
    total = dict.fromkeys((node.metadata.name for node in feasible), 0)
    for weight, found in (
        (_TAINTS, _score_taints(pod, feasible)),
        (_NODES, _score_node_affinity(pod, feasible)),
        (_SPREAD, _score_spread(pod, feasible, nodes, pods_by_node)),
        (_PODS, _score_pods(pod, feasible, nodes, pods_by_node, watchful, namespaces)),
    ):
        for name, score in found.items():
            total[name] += weight * score
    return total


def _score_taints(pod: Pod, feasible: Sequence[Node]) -> dict[str, int]:
    """The fewer taints PreferNoSchedule that are not tolerated, the better."""
    counts = {node.metadata.name: filters.count_unwelcome_taints(pod, node) for node in feasible}
    highest = max(counts.values(), default=0)
    if not highest:
        return {}
    return {name: _HIGHEST - _HIGHEST * count // highest for name, count in counts.items()}


def _score_node_affinity(pod: Pod, feasible: Sequence[Node]) -> dict[str, int]:
    affinity = pod.spec.affinity.node_affinity
    terms = affinity.preferred_during_scheduling_ignored_during_execution
    if not terms:
        return {}

    weights: dict[str, int] = {}
    for node in feasible:
        weight = 0
        for term in terms:
            selector = NodeSelector(node_selector_terms=[term.preference])
            try:
                weight += term.weight if node_selectors.selects(selector, node) else 0
            except ValueError:
                continue  # one that came by another way than the API server prefers nothing
        weights[node.metadata.name] = weight
    highest = max(weights.values(), default=0)
    if not highest:
        return {}
    return {name: _HIGHEST * weight // highest for name, weight in weights.items()}


def _score_spread(
    pod: Pod,
    feasible: Sequence[Node],
    nodes: Mapping[str, Node],
    pods_by_node: Mapping[str, Sequence[Pod]],
) -> dict[str, int]:
    """The fewer pods are in the domain, the better, by all constraints that need not hold."""
    constraints = [
        constraint
        for constraint in pod.spec.topology_spread_constraints
        if constraint.when_unsatisfiable == "ScheduleAnyway"
    ]
    keys = [constraint.topology_key for constraint in constraints]
    judged = [node for node in feasible if all(key in node.metadata.labels for key in keys)]
    if not constraints or not judged:
        return {}

    raw = dict.fromkeys((node.metadata.name for node in judged), 0.0)
    for constraint in constraints:
        counts = _count_domains(constraint, pod, judged, nodes, pods_by_node, keys)
        weight = math.log(len(counts) + 2)
        for node in judged:
            count = counts[node.metadata.labels[constraint.topology_key]]
            raw[node.metadata.name] += count * weight + constraint.max_skew - 1

    rounded = {name: math.floor(score + 0.5) for name, score in raw.items()}
    lowest, highest = min(rounded.values()), max(rounded.values())
    if not highest:
        return dict.fromkeys(rounded, _HIGHEST)
    return {
        name: _HIGHEST * (highest + lowest - score) // highest for name, score in rounded.items()
    }


def _count_domains(
    constraint: TopologySpread,
    pod: Pod,
    judged: Sequence[Node],
    nodes: Mapping[str, Node],
    pods_by_node: Mapping[str, Sequence[Pod]],
    keys: Sequence[str],
) -> dict[str, int]:
    """Pods by domain, of the domains that the nodes are in."""
    key = constraint.topology_key
    counts = dict.fromkeys((node.metadata.labels[key] for node in judged), 0)
    for name, node in nodes.items():
        labels = node.metadata.labels
        if labels.get(key) not in counts or not all(each in labels for each in keys):
            continue
        if key == _HOST or neighbours.counts_node(constraint, pod, node):
            pods = pods_by_node.get(name, ())
            counts[labels[key]] += neighbours.count_spread(constraint, pod, pods)
    return counts


def _score_pods(
    pod: Pod,
    feasible: Sequence[Node],
    nodes: Mapping[str, Node],
    pods_by_node: Mapping[str, Sequence[Pod]],
    watchful: Iterable[Pod],
    namespaces: Mapping[str, Labels],
) -> dict[str, int]:
    """What the pod and the others say of each other, summed up over their domains."""
    sums: dict[tuple[str, str], int] = {}

    def add(term: PodAffinityTerm, weight: int, owner: Pod, other: Pod, node: Node) -> None:
        value = node.metadata.labels.get(term.topology_key)
        if value is not None and neighbours.matches(term, owner, other, namespaces):
            domain = (term.topology_key, value)
            sums[domain] = sums.get(domain, 0) + weight

    own = _preferred_terms(pod)
    if own:
        for name, others in pods_by_node.items():
            if name in nodes:
                for other in others:
                    for term, weight in own:
                        add(term, weight, pod, other, nodes[name])

    for other in watchful:
        node = nodes.get(other.spec.node_name)
        if node is None:
            continue
        required = other.spec.affinity.pod_affinity
        for term in required.required_during_scheduling_ignored_during_execution:
            add(term, _REQUIRED_WEIGHT, other, pod, node)
        for term, weight in _preferred_terms(other):
            add(term, weight, other, pod, node)

    if not sums:
        return {}
    raw = {
        node.metadata.name: sum(sums.get(label, 0) for label in node.metadata.labels.items())
        for node in feasible
    }
    lowest, highest = min(raw.values(), default=0), max(raw.values(), default=0)
    if lowest == highest:
        return {}
    spread = highest - lowest
    return {name: int(_HIGHEST * ((score - lowest) / spread)) for name, score in raw.items()}


def _preferred_terms(pod: Pod) -> list[tuple[PodAffinityTerm, int]]:
    """What it prefers to be near to, with the weight; what it prefers to be far from, below 0."""
    affinity = pod.spec.affinity
    near = affinity.pod_affinity.preferred_during_scheduling_ignored_during_execution
    far = affinity.pod_anti_affinity.preferred_during_scheduling_ignored_during_execution
    return [
        *((each.pod_affinity_term, each.weight) for each in near),
        *((each.pod_affinity_term, -each.weight) for each in far),
    ]
