"""The scheduler's scores: which node a pod prefers by taints, affinities and topology spread.

The weights are those of kube-scheduler. The scores cover only the preferences of the pod and of the
pods that run already. The caller compares the free resources of the nodes.
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
# The weights of the scheduler's plugins.
_TAINTS, _NODES, _SPREAD, _PODS = 3, 2, 2, 2
# The weight of a required affinity term of a pod that runs already.
_REQUIRED_WEIGHT = 1


def has_preferences(pod: Pod) -> bool:
    """Returns True if the pod itself prefers some nodes to others."""
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
    """Returns the score of each feasible node by name. The highest score is the best.

    `nodes`, `pods_by_node`, `watchful` and `namespaces` are those of the whole cluster, as in
    `node_rules.Placement`.
    """
    weighted = (
        (_TAINTS, _score_taints(pod, feasible)),
        (_NODES, _score_node_affinity(pod, feasible)),
        (_SPREAD, _score_spread(pod, feasible, nodes, pods_by_node)),
        (_PODS, _score_pods(pod, feasible, nodes, pods_by_node, watchful, namespaces)),
    )

    # A plugin that has no opinion scores no node.
    total = dict.fromkeys((node.metadata.name for node in feasible), 0)
    for weight, by_name in weighted:
        for name, score in by_name.items():
            total[name] += weight * score
    return total


def _score_taints(pod: Pod, feasible: Sequence[Node]) -> dict[str, int]:
    """Scores nodes by the PreferNoSchedule taints that the pod does not tolerate.

    Fewer such taints are better.
    """
    counts = {node.metadata.name: filters.count_unwelcome_taints(pod, node) for node in feasible}
    highest = max(counts.values(), default=0)
    if not highest:
        return {}
    return {name: _HIGHEST - _HIGHEST * count // highest for name, count in counts.items()}


def _score_node_affinity(pod: Pod, feasible: Sequence[Node]) -> dict[str, int]:
    """Scores nodes by the sum of the weights of the preferred terms that match them."""
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
                # The API server refuses such a term. One that was read from a file matches no node.
                continue
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
    """Scores nodes by the ScheduleAnyway constraints: fewer pods in the domain are better."""
    constraints = []
    for constraint in pod.spec.topology_spread_constraints:
        if constraint.when_unsatisfiable == "ScheduleAnyway":
            constraints.append(constraint)

    # A node that lacks the label of one constraint gets no score at all.
    keys = [constraint.topology_key for constraint in constraints]
    judged = [node for node in feasible if all(key in node.metadata.labels for key in keys)]
    if not constraints or not judged:
        return {}

    raw = dict.fromkeys((node.metadata.name for node in judged), 0.0)
    for constraint in constraints:
        counts = _count_domains(constraint, pod, judged, nodes, pods_by_node, keys)
        # The more domains there are, the fewer pods each has, so the more a pod weighs.
        weight = math.log(len(counts) + 2)
        for node in judged:
            count = counts[node.metadata.labels[constraint.topology_key]]
            raw[node.metadata.name] += count * weight + constraint.max_skew - 1

    # Go rounds halves up, Python's round() to the even number.
    rounded = {name: math.floor(score + 0.5) for name, score in raw.items()}
    lowest, highest = min(rounded.values()), max(rounded.values())
    if not highest:
        return dict.fromkeys(rounded, _HIGHEST)

    # Few pods are good, so the scale is turned around.
    scores_by_name = {}
    for name, score in rounded.items():
        scores_by_name[name] = _HIGHEST * (highest + lowest - score) // highest
    return scores_by_name


def _count_domains(
    constraint: TopologySpread,
    pod: Pod,
    judged: Sequence[Node],
    nodes: Mapping[str, Node],
    pods_by_node: Mapping[str, Sequence[Pod]],
    keys: Sequence[str],
) -> dict[str, int]:
    """Returns the number of the constraint's pods in each domain of the judged nodes."""
    key = constraint.topology_key
    counts = dict.fromkeys((node.metadata.labels[key] for node in judged), 0)
    for name, node in nodes.items():
        labels = node.metadata.labels
        if labels.get(key) not in counts or not all(each in labels for each in keys):
            continue

        # For single hosts the scheduler counts the node's pods whatever the inclusion policies say.
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
    """Scores nodes by the affinity terms of the pod and of the pods that run already."""
    # The sum of the weights in each domain. Anti-affinity has negative weights.
    sums: dict[tuple[str, str], int] = {}

    def add(term: PodAffinityTerm, weight: int, owner: Pod, other: Pod, node: Node) -> None:
        value = node.metadata.labels.get(term.topology_key)
        if value is not None and neighbours.matches(term, owner, other, namespaces):
            domain = (term.topology_key, value)
            sums[domain] = sums.get(domain, 0) + weight

    # What the pod prefers of the others.
    own = _preferred_terms(pod)
    if own:
        for name, others in pods_by_node.items():
            if name not in nodes:
                continue
            for other in others:
                for term, weight in own:
                    add(term, weight, pod, other, nodes[name])

    # What the others prefer of the pod.
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

    # A node's labels are the domains that it is in.
    raw = {}
    for node in feasible:
        labels = node.metadata.labels
        raw[node.metadata.name] = sum(sums.get(label, 0) for label in labels.items())
    lowest, highest = min(raw.values(), default=0), max(raw.values(), default=0)
    if lowest == highest:
        return {}

    spread = highest - lowest
    return {name: int(_HIGHEST * ((score - lowest) / spread)) for name, score in raw.items()}


def _preferred_terms(pod: Pod) -> list[tuple[PodAffinityTerm, int]]:
    """Returns the pod's preferred terms with their weights, negative for anti-affinity."""
    affinity = pod.spec.affinity
    near = affinity.pod_affinity.preferred_during_scheduling_ignored_during_execution
    far = affinity.pod_anti_affinity.preferred_during_scheduling_ignored_during_execution
    terms = [(each.pod_affinity_term, each.weight) for each in near]
    terms += [(each.pod_affinity_term, -each.weight) for each in far]
    return terms
