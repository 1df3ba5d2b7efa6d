"""The rules about other pods: affinity, anti-affinity and topology spread constraints.

There is one `Neighbours` object for each pod to schedule. It counts the cluster's pods once, and
can then be asked about every node. The rules and their order are those of kube-scheduler, which
applies them after the rules of `filters`.
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
# A topology key and its value: the nodes with this label form one topology domain.
Domain = tuple[str, str]

_HOSTNAME = "kubernetes.io/hostname"
_NOT_SPREAD = "node(s) didn't match pod topology spread constraints"


def is_watchful(pod: Pod) -> bool:
    """Returns True if the pod has affinity or anti-affinity, which can affect other pods."""
    affinity = pod.spec.affinity
    return bool(
        affinity.pod_affinity.required_during_scheduling_ignored_during_execution
        or affinity.pod_affinity.preferred_during_scheduling_ignored_during_execution
        or affinity.pod_anti_affinity.required_during_scheduling_ignored_during_execution
        or affinity.pod_anti_affinity.preferred_during_scheduling_ignored_during_execution
    )


def has_rules(pod: Pod) -> bool:
    """Returns True if the choice of a node for the pod depends on other pods."""
    return is_watchful(pod) or bool(pod.spec.topology_spread_constraints)


def depends_on_others(pod: Pod) -> bool:
    """Returns True if not only the end of pods, but also new pods may open a node for the pod."""
    affinity = pod.spec.affinity.pod_affinity
    return bool(
        affinity.required_during_scheduling_ignored_during_execution
        or pod.spec.topology_spread_constraints
    )


class Neighbours:
    """The rules about other pods for one pod to schedule."""

    def __init__(
        self,
        pod: Pod,
        nodes: Mapping[str, Node],
        pods_by_node: Mapping[str, Sequence[Pod]],
        watchful: Iterable[Pod],
        namespaces: Mapping[str, Labels],
    ) -> None:
        """Counts the pods.

        `nodes` are all nodes of the cluster by name, and `namespaces` has the labels of each
        namespace. `watchful` are those pods on nodes for which `is_watchful` is True.
        """
        self._pod, self._nodes, self._pods_by_node = pod, nodes, pods_by_node
        self._namespaces = namespaces

        affinity = pod.spec.affinity
        self._near = affinity.pod_affinity.required_during_scheduling_ignored_during_execution
        self._far = affinity.pod_anti_affinity.required_during_scheduling_ignored_during_execution
        self._near_domains = self._find_near_domains()
        self._far_domains = self._find_far_domains()
        self._kept_away = self._find_forbidden_domains(watchful)

        self._spreads: list[_Spread] = []
        for constraint in pod.spec.topology_spread_constraints:
            if constraint.when_unsatisfiable == "DoNotSchedule":
                self._spreads.append(_Spread(constraint, pod, nodes, pods_by_node))

        # A constraint counts only nodes that have the labels of all constraints.
        keys = [spread.constraint.topology_key for spread in self._spreads]
        for spread in self._spreads:
            spread.count(keys)

    def refusals(self, node: Node) -> Iterator[Refusal]:
        """Yields the reasons why other pods keep the pod from the node, in order."""
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
        """Yields one refusal at most, as the scheduler does."""
        # First the pod's own affinity.
        if self._near and not self._is_near(node):
            asked = " and ".join(describe(term) for term in self._near)
            detail = f"the pod's affinity needs {asked}, and none is here"
            if len(self._near) > 1:
                detail = _describe_common_pod(self._near, is_anywhere=bool(self._near_domains))
            for term in self._near:
                key = term.topology_key
                if key not in node.metadata.labels:
                    detail = f"it has no label {key}: the pod's affinity needs {asked}"
            yield _refusal("node(s) didn't match pod affinity rules", detail, is_resolvable=False)
            return

        # Then the pod's own anti-affinity.
        for term in self._far:
            if _domain(term, node) in self._far_domains:
                yield _refusal(
                    "node(s) didn't match pod anti-affinity rules",
                    f"the pod's anti-affinity keeps it away from {describe(term)}, and one is here",
                )
                return

        # Last the anti-affinity of pods that run already.
        for label in node.metadata.labels.items():
            other = self._kept_away.get(label)
            if other is not None:
                where = f"{label[0]}={label[1]}" if label[0] != _HOSTNAME else "the node"
                yield _refusal(
                    "node(s) didn't satisfy existing pods anti-affinity rules",
                    f"the anti-affinity of running pod {other.key} keeps this pod off {where}",
                )
                return

    def _is_near(self, node: Node) -> bool:
        domains = [_domain(term, node) for term in self._near]
        if None in domains:
            return False
        if all(domain in self._near_domains for domain in domains):
            return True

        # The first pod of a group that wants to stay together has no other to join. It may go
        # anywhere if it matches its own terms.
        return not self._near_domains and self._matches_all_terms(self._pod)

    def _find_near_domains(self) -> set[Domain]:
        """Returns the domains with a pod that the affinity is about.

        A pod counts if it matches all terms. It is not enough if each term has a pod of its own.
        """
        domains: set[Domain] = set()
        if not self._near:
            return domains

        for node, other in self._pods_on_nodes():
            if not self._matches_all_terms(other):
                continue
            for term in self._near:
                domain = _domain(term, node)
                if domain:
                    domains.add(domain)
        return domains

    def _find_far_domains(self) -> set[Domain]:
        """Returns the domains with a pod that the anti-affinity is about."""
        domains: set[Domain] = set()
        if not self._far:
            return domains

        for node, other in self._pods_on_nodes():
            for term in self._far:
                domain = _domain(term, node)
                if domain and matches(term, self._pod, other, self._namespaces):
                    domains.add(domain)
        return domains

    def _find_forbidden_domains(self, watchful: Iterable[Pod]) -> dict[Domain, Pod]:
        """Returns the domains that the anti-affinity of other pods closes, each with such a pod."""
        domains: dict[Domain, Pod] = {}
        for other in watchful:
            node = self._nodes.get(other.spec.node_name)
            affinity = other.spec.affinity.pod_anti_affinity
            if node is None:
                continue

            for term in affinity.required_during_scheduling_ignored_during_execution:
                domain = _domain(term, node)
                if domain and matches(term, other, self._pod, self._namespaces):
                    domains.setdefault(domain, other)
        return domains

    def _pods_on_nodes(self) -> Iterator[tuple[Node, Pod]]:
        for name, pods in self._pods_by_node.items():
            if name in self._nodes:
                for pod in pods:
                    yield self._nodes[name], pod

    def _matches_all_terms(self, other: Pod) -> bool:
        return all(matches(term, self._pod, other, self._namespaces) for term in self._near)


class _Spread:
    """One topology spread constraint that must hold, and its number of pods in each domain."""

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
        """Counts the pods of each domain.

        `keys` are the topology keys of all constraints. A node that lacks one of these labels
        counts for no domain.
        """
        for name, node in self._nodes.items():
            labels = node.metadata.labels
            if not all(key in labels for key in keys):
                continue
            if not counts_node(self.constraint, self._pod, node):
                continue

            pods = self._pods_by_node.get(name, ())
            value = labels[self.constraint.topology_key]
            self._counts[value] += count_spread(self.constraint, self._pod, pods)

    def refusal(self, node: Node) -> Refusal | None:
        """Returns the reason why the pod cannot go to the node; None if it can."""
        constraint = self.constraint
        key = constraint.topology_key
        value = node.metadata.labels.get(key)
        if value is None:
            return Refusal(
                rule="PodTopologySpread",
                message=f"{_NOT_SPREAD} (missing required label)",
                detail=f"it has no label {key}, which the pod's topology spread needs",
            )

        emptiest = min(self._counts, key=lambda name: (self._counts[name], name), default="")
        fewest = self._counts[emptiest]
        if len(self._counts) < (constraint.min_domains or 1):
            # Domains that do not exist yet count as empty.
            fewest, emptiest = 0, "that is to come"

        kind = key.rpartition("/")[2]
        own = selects_for_spread(constraint, self._pod, self._pod.metadata.labels)
        here = self._counts.get(value, 0)
        if here + own - fewest <= constraint.max_skew:
            return None

        # Domains that do not exist yet have no node for the pod.
        allowed = []
        for name, count in self._counts.items():
            if count + own - fewest <= constraint.max_skew:
                allowed.append(name)
        only = f", so only {kind} {emptiest} is allowed" if allowed == [emptiest] else ""

        return Refusal(
            rule="PodTopologySpread",
            message=_NOT_SPREAD,
            is_resolvable=True,
            detail=(
                f"topology spread over {key}: {kind} {value} has {here} of its pods, "
                f"{kind} {emptiest} has "
                f"{fewest}, and maxSkew is {constraint.max_skew}{only}"
            ),
        )


def counts_node(constraint: TopologySpread, pod: Pod, node: Node) -> bool:
    """Returns True if the pods of the node count for the constraint.

    By default they count if the pod's node affinity matches the node, whatever the node's taints.
    """
    if constraint.node_affinity_policy != "Ignore" and not filters.is_selected(pod, node):
        return False
    return constraint.node_taints_policy != "Honor" or filters.is_tolerating(pod, node)


def count_spread(constraint: TopologySpread, pod: Pod, pods: Iterable[Pod]) -> int:
    """Returns the number of pods that the constraint is about.

    Pods of other namespaces and pods that are being deleted do not count. An empty selector counts
    no pods.
    """
    if is_empty(constraint.label_selector) and not _matched_keys(constraint, pod):
        return 0

    count = 0
    for other in pods:
        if other.metadata.namespace != pod.metadata.namespace:
            continue
        if other.metadata.deletion_timestamp:
            continue
        count += selects_for_spread(constraint, pod, other.metadata.labels)
    return count


def selects_for_spread(constraint: TopologySpread, pod: Pod, labels: Labels) -> bool:
    """Returns True if the pod's constraint is about pods with these labels."""
    selector = constraint.label_selector
    if selector is None or not filters.selects(selector, labels):
        return False
    return all(labels.get(key) == value for key, value in _matched_keys(constraint, pod).items())


def is_empty(selector: LabelSelector | None) -> bool:
    """Returns True if the selector exists and has no requirement."""
    return selector is not None and not selector.match_labels and not selector.match_expressions


def _matched_keys(constraint: TopologySpread, pod: Pod) -> dict[str, str]:
    """Returns those labels of the pod that `matchLabelKeys` demands of the other pods, too."""
    labels = pod.metadata.labels
    return {key: labels[key] for key in constraint.match_label_keys if key in labels}


def matches(
    term: PodAffinityTerm, owner: Pod, other: Pod, namespaces: Mapping[str, Labels]
) -> bool:
    """Returns True if the affinity term of the owner is about the other pod, on whichever node."""
    if not _is_in_namespaces(term, owner, other.metadata.namespace, namespaces):
        return False
    labels, own = other.metadata.labels, owner.metadata.labels
    if term.label_selector is None or not filters.selects(term.label_selector, labels):
        return False

    # Keys that the owner itself lacks are ignored.
    for key in term.match_label_keys:
        if key in own and labels.get(key) != own[key]:
            return False
    differing = [key for key in term.mismatch_label_keys if key in own]
    return all(labels.get(key) != own[key] for key in differing)


def _is_in_namespaces(
    term: PodAffinityTerm, owner: Pod, namespace: str, namespaces: Mapping[str, Labels]
) -> bool:
    """Returns True if the term covers the namespace.

    It covers namespaces by name and by labels. Without either it covers the owner's own namespace.
    """
    selector = term.namespace_selector
    if namespace in term.namespaces:
        return True
    if selector is not None:
        return filters.selects(selector, namespaces.get(namespace, {}))
    return not term.namespaces and namespace == owner.metadata.namespace


def describe(term: PodAffinityTerm) -> str:
    """Describes the pods that a term is about, for people."""
    labels = _describe_labels(term)
    pods = f"pods with {labels}" if labels else "any pod"
    return f"{pods} by {term.topology_key}"


def _describe_common_pod(terms: Sequence[PodAffinityTerm], *, is_anywhere: bool) -> str:
    """Says that a single pod must match all terms, and that there is no such pod.

    If `is_anywhere`, such a pod is somewhere else in the cluster.
    """
    keys = {term.topology_key for term in terms}
    labels = [_describe_labels(term) for term in terms]
    number, each = ("two", "both") if len(terms) == 2 else (str(len(terms)), "all of them")
    if len(keys) > 1 or not all(labels):
        asked = " and ".join(describe(term) for term in terms)
        return f"the pod's affinity needs {asked}, and no single pod here matches {each}"

    key = keys.pop()
    place = "node" if key == _HOSTNAME else key.rpartition("/")[2]
    own = "the node" if key == _HOSTNAME else f"the node's {place}"
    where = f"{own} has no such pod" if is_anywhere else f"no {place} has such a pod"
    return (
        f"the pod's {number} affinity terms over {key} ({'; '.join(labels)}) need one and the same "
        f"pod that matches {each}, and {where}"
    )


def _describe_labels(term: PodAffinityTerm) -> str:
    shown = []
    if term.label_selector:
        selector = term.label_selector
        shown += [f"{key}={value}" for key, value in sorted(selector.match_labels.items())]
        for requirement in selector.match_expressions:
            values = f" ({', '.join(requirement.values)})" if requirement.values else ""
            shown.append(f"{requirement.key} {requirement.operator}{values}")
    return ", ".join(shown)


def _domain(term: PodAffinityTerm, node: Node) -> Domain | None:
    value = node.metadata.labels.get(term.topology_key)
    return None if value is None else (term.topology_key, value)


def _refusal(message: str, detail: str, *, is_resolvable: bool = True) -> Refusal:
    return Refusal(
        rule="InterPodAffinity", message=message, detail=detail, is_resolvable=is_resolvable
    )
