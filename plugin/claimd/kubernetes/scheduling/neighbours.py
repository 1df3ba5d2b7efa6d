"""What a pod's place has to do with other pods: who it is near to or far from, and how pods spread.

One object for each pod that is to be placed: pods are counted once, and every node is asked then.
By the rules and in the order of the real scheduler, after those of `filters`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from . import filters
from .filters import Refusal

if TYPE_CHECKING:
    from .objects import LabelSelector, Node, Pod, PodAffinityTerm, TopologySpread

Labels = Mapping[str, str]
Domain = tuple[str, str]  # a topology key and its value

_NOT_SPREAD = "node(s) didn't match pod topology spread constraints"


def is_watchful(pod: Pod) -> bool:
    """Whether it keeps others away from where it is, or draws them there."""
    affinity = pod.spec.affinity
    return bool(
        affinity.pod_affinity.required_during_scheduling_ignored_during_execution
        or affinity.pod_affinity.preferred_during_scheduling_ignored_during_execution
        or affinity.pod_anti_affinity.required_during_scheduling_ignored_during_execution
        or affinity.pod_anti_affinity.preferred_during_scheduling_ignored_during_execution
    )


def has_rules(pod: Pod) -> bool:
    """Whether other pods say where it may go, or where it had better."""
    return is_watchful(pod) or bool(pod.spec.topology_spread_constraints)


def depends_on_others(pod: Pod) -> bool:
    """Whether it may find a place when other pods come, and not only when they go."""
    affinity = pod.spec.affinity.pod_affinity
    return bool(
        affinity.required_during_scheduling_ignored_during_execution
        or pod.spec.topology_spread_constraints
    )


class Neighbours:
    def __init__(
        self,
        pod: Pod,
        nodes: Mapping[str, Node],
        pods_by_node: Mapping[str, Sequence[Pod]],
        watchful: Iterable[Pod],
        namespaces: Mapping[str, Labels],
    ) -> None:
        """`nodes` are all of the cluster, by name; `namespaces` their labels.

        `watchful` are the pods on nodes for which `is_watchful` holds.
        """
        self._pod, self._nodes, self._pods_by_node = pod, nodes, pods_by_node
        self._namespaces = namespaces
        affinity = pod.spec.affinity
        self._near = affinity.pod_affinity.required_during_scheduling_ignored_during_execution
        self._far = affinity.pod_anti_affinity.required_during_scheduling_ignored_during_execution
        self._near_domains = self._find_near_domains()
        self._far_domains = self._find_far_domains()
        self._kept_away = self._find_forbidden_domains(watchful)
        self._spreads = [
            _Spread(constraint, pod, nodes, pods_by_node)
            for constraint in pod.spec.topology_spread_constraints
            if constraint.when_unsatisfiable == "DoNotSchedule"
        ]
        self._keys = [spread.constraint.topology_key for spread in self._spreads]
        for spread in self._spreads:
            spread.count(self._keys)

    def refusals(self, node: Node) -> Iterator[Refusal]:
        """Why the other pods keep it from the node, the first reason first."""
        yield from self._refusals_by_spread(node)
        yield from self._refusals_by_affinity(node)

    # ------------------------------------------------------------------ spread

    def _refusals_by_spread(self, node: Node) -> Iterator[Refusal]:
        for spread in self._spreads:
            refusal = spread.refusal(node)
            if refusal is not None:
                yield refusal
                return

    # ------------------------------------------------------------------ near and far

    def _refusals_by_affinity(self, node: Node) -> Iterator[Refusal]:
        """The scheduler says one of these at a time."""
        if self._near and not self._is_near(node):
            asked = ", ".join(describe(term) for term in self._near)
            yield _refusal(
                "node(s) didn't match pod affinity rules",
                f"the pod has to be near to {asked}, and none is here",
                is_resolvable=False,
            )
            return

        for term in self._far:
            if _domain(term, node) in self._far_domains:
                yield _refusal(
                    "node(s) didn't match pod anti-affinity rules",
                    f"the pod keeps away from {describe(term)}, and one is here",
                )
                return

        for label in node.metadata.labels.items():
            other = self._kept_away.get(label)
            if other is not None:
                yield _refusal(
                    "node(s) didn't satisfy existing pods anti-affinity rules",
                    f"pod {other.key} keeps it away from {label[0]}={label[1]}",
                )
                return

    def _is_near(self, node: Node) -> bool:
        domains = [_domain(term, node) for term in self._near]
        if None in domains:
            return False
        if all(domain in self._near_domains for domain in domains):
            return True

        # The first of pods that are to be near to each other has nobody to be near to.
        return not self._near_domains and self._matches_all_terms(self._pod)

    def _find_near_domains(self) -> set[Domain]:
        """Where a pod is that matches all terms: the pod has to be near to one, not to several."""
        found: set[Domain] = set()
        if not self._near:
            return found
        for node, other in self._pods_on_nodes():
            if self._matches_all_terms(other):
                domains = (_domain(term, node) for term in self._near)
                found.update(domain for domain in domains if domain)
        return found

    def _find_far_domains(self) -> set[Domain]:
        """Where a pod is that the pod keeps away from."""
        found: set[Domain] = set()
        if not self._far:
            return found
        for node, other in self._pods_on_nodes():
            for term in self._far:
                domain = _domain(term, node)
                if domain and matches(term, self._pod, other, self._namespaces):
                    found.add(domain)
        return found

    def _find_forbidden_domains(self, watchful: Iterable[Pod]) -> dict[Domain, Pod]:
        """Where a pod is that keeps this one away, and how far that goes."""
        found: dict[Domain, Pod] = {}
        for other in watchful:
            node = self._nodes.get(other.spec.node_name)
            affinity = other.spec.affinity.pod_anti_affinity
            if node is None:
                continue
            for term in affinity.required_during_scheduling_ignored_during_execution:
                domain = _domain(term, node)
                if domain and matches(term, other, self._pod, self._namespaces):
                    found.setdefault(domain, other)
        return found

    def _pods_on_nodes(self) -> Iterator[tuple[Node, Pod]]:
        for name, pods in self._pods_by_node.items():
            if name in self._nodes:
                for pod in pods:
                    yield self._nodes[name], pod

    def _matches_all_terms(self, other: Pod) -> bool:
        return all(matches(term, self._pod, other, self._namespaces) for term in self._near)


class _Spread:
    """One constraint that must hold, with the pods of each domain counted."""

    def __init__(
        self,
        constraint: TopologySpread,
        pod: Pod,
        nodes: Mapping[str, Node],
        pods_by_node: Mapping[str, Sequence[Pod]],
    ) -> None:
        self.constraint = constraint
        self._pod, self._nodes, self._pods_by_node = pod, nodes, pods_by_node
        self._counts: Counter[str] = Counter()

    def count(self, keys: Sequence[str]) -> None:
        """`keys` are those of all constraints: a node that lacks one is in no domain."""
        for name, node in self._nodes.items():
            labels = node.metadata.labels
            if all(key in labels for key in keys) and counts_node(self.constraint, self._pod, node):
                pods = self._pods_by_node.get(name, ())
                value = labels[self.constraint.topology_key]
                self._counts[value] += count_spread(self.constraint, self._pod, pods)

    def refusal(self, node: Node) -> Refusal | None:
        constraint = self.constraint
        key = constraint.topology_key
        value = node.metadata.labels.get(key)
        if value is None:
            return Refusal(
                rule="PodTopologySpread",
                message=f"{_NOT_SPREAD} (missing required label)",
                detail=f"the pod is to be spread over {key}, a label that it does not have",
            )

        fewest = min(self._counts.values(), default=0)
        if len(self._counts) < (constraint.min_domains or 1):
            fewest = 0
        own = selects_for_spread(constraint, self._pod, self._pod.metadata.labels)
        here = self._counts.get(value, 0)
        if here + own - fewest <= constraint.max_skew:
            return None
        return Refusal(
            rule="PodTopologySpread",
            message=_NOT_SPREAD,
            is_resolvable=True,
            detail=(
                f"{key}={value} has {here} of the pods that are to be spread, another has "
                f"{fewest}: they may differ by {constraint.max_skew}"
            ),
        )


def counts_node(constraint: TopologySpread, pod: Pod, node: Node) -> bool:
    """Whether the pods of the node count: by default where the pod's node affinity lets it go."""
    if constraint.node_affinity_policy != "Ignore" and not filters.is_selected(pod, node):
        return False
    return constraint.node_taints_policy != "Honor" or filters.is_tolerating(pod, node)


def count_spread(constraint: TopologySpread, pod: Pod, pods: Iterable[Pod]) -> int:
    """Pods that the constraint is about. One that selects everything counts none."""
    if is_empty(constraint.label_selector) and not _matched_keys(constraint, pod):
        return 0
    return sum(
        other.metadata.namespace == pod.metadata.namespace
        and not other.metadata.deletion_timestamp
        and selects_for_spread(constraint, pod, other.metadata.labels)
        for other in pods
    )


def selects_for_spread(constraint: TopologySpread, pod: Pod, labels: Labels) -> bool:
    selector = constraint.label_selector
    if selector is None or not filters.selects(selector, labels):
        return False
    return all(labels.get(key) == value for key, value in _matched_keys(constraint, pod).items())


def is_empty(selector: LabelSelector | None) -> bool:
    return selector is not None and not selector.match_labels and not selector.match_expressions


def _matched_keys(constraint: TopologySpread, pod: Pod) -> dict[str, str]:
    """Labels of the pod itself that the others have to have as well."""
    labels = pod.metadata.labels
    return {key: labels[key] for key in constraint.match_label_keys if key in labels}


def matches(
    term: PodAffinityTerm, owner: Pod, other: Pod, namespaces: Mapping[str, Labels]
) -> bool:
    """Whether the other pod is one that the term of the owner is about, wherever it is."""
    if not _is_in_namespaces(term, owner, other.metadata.namespace, namespaces):
        return False
    labels, own = other.metadata.labels, owner.metadata.labels
    if term.label_selector is None or not filters.selects(term.label_selector, labels):
        return False
    same = (key for key in term.match_label_keys if key in own)
    differing = (key for key in term.mismatch_label_keys if key in own)
    return all(labels.get(key) == own[key] for key in same) and all(
        labels.get(key) != own[key] for key in differing
    )


def _is_in_namespaces(
    term: PodAffinityTerm, owner: Pod, namespace: str, namespaces: Mapping[str, Labels]
) -> bool:
    """By name or by labels; by default in that of the term's owner alone."""
    selector = term.namespace_selector
    if namespace in term.namespaces:
        return True
    if selector is not None:
        return filters.selects(selector, namespaces.get(namespace, {}))
    return not term.namespaces and namespace == owner.metadata.namespace


def describe(term: PodAffinityTerm) -> str:
    """The pods that a term is about, for people."""
    shown = []
    if term.label_selector:
        selector = term.label_selector
        shown += [f"{key}={value}" for key, value in sorted(selector.match_labels.items())]
        for requirement in selector.match_expressions:
            values = f" ({', '.join(requirement.values)})" if requirement.values else ""
            shown.append(f"{requirement.key} {requirement.operator}{values}")
    pods = f"pods with {', '.join(shown)}" if shown else "any pod"
    return f"{pods} by {term.topology_key}"


def _domain(term: PodAffinityTerm, node: Node) -> Domain | None:
    value = node.metadata.labels.get(term.topology_key)
    return None if value is None else (term.topology_key, value)


def _refusal(message: str, detail: str, *, is_resolvable: bool = True) -> Refusal:
    return Refusal(
        rule="InterPodAffinity", message=message, detail=detail, is_resolvable=is_resolvable
    )
