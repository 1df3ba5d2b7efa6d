"""All rules about pods and nodes, except those about devices, applied to one node at a time.

The rules can be asked about the cluster as it is, and about the cluster without some of its pods.
There is one `NodeRules` object for each pod to schedule, so that the other pods are counted once.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from . import filters, neighbours, preemption, resources

if TYPE_CHECKING:
    from .objects import Node, Pod
    from .resources import Amounts


@dataclasses.dataclass(frozen=True, kw_only=True)
class Placement:
    """The pods of the cluster and the nodes that they are on.

    `nodes`, `pods_by_node`, `used` and `promised` are keyed by the node's name. `used` is the sum
    of the requests of the node's pods, and `namespaces` has the labels of each namespace.
    `watchful` are those pods on nodes for which `neighbours.is_watchful` is True. `promised` are
    the pods that were nominated to the node and wait there for preempted pods to end. `by_class`
    has the extended resources that a device class provides on nodes that do not have them.
    `requests` has, by uid, the requests of pods whose objects here do not contain them.
    """

    nodes: Mapping[str, Node]
    pods_by_node: Mapping[str, Sequence[Pod]]
    used: Mapping[str, Amounts]
    watchful: Sequence[Pod] = ()
    namespaces: Mapping[str, Mapping[str, str]] = dataclasses.field(default_factory=dict)
    promised: Mapping[str, Sequence[Pod]] = dataclasses.field(default_factory=dict)
    by_class: Collection[str] = ()
    requests: Mapping[str, Mapping[str, int]] = dataclasses.field(default_factory=dict)


class NodeRules:
    """The rules about the nodes for one pod."""

    def __init__(self, placement: Placement, pod: Pod) -> None:
        self._placement, self._pod = placement, pod
        self._requests: dict[str, Mapping[str, int]] = dict(placement.requests)

        # Most clusters have no affinity at all, and then there is no need to count pods.
        self._neighbours: neighbours.Neighbours | None = None
        if neighbours.has_rules(pod) or placement.watchful:
            self._neighbours = self._neighbours_among(placement.pods_by_node, placement.watchful)

    def refusals(self, node: Node, gone: Collection[str] = ()) -> list[filters.Refusal]:
        """Returns the refusals of the first rule that keeps the pod from this node.

        The list is empty if the node takes the pod. `gone` has the uids of the node's pods that do
        not count. Pods that were nominated to the node and have at least this pod's priority are
        considered, too: the pod must fit both with them and without them.
        """
        priority, uid = preemption.priority_of(self._pod), self._pod.metadata.uid
        name = node.metadata.name
        promised = []
        for other in self._placement.promised.get(name, ()):
            if other.metadata.uid != uid and preemption.priority_of(other) >= priority:
                # Its own anti-affinity counts as if it were on the node.
                spec = msgspec.structs.replace(other.spec, node_name=name)
                promised.append(msgspec.structs.replace(other, spec=spec))

        refusals = self._refusals(node, gone, promised)
        if refusals or not promised:
            return refusals

        # The promised pods may never come, and the pod may need one of them for its own affinity.
        return self._refusals(node, gone, ())

    def _refusals(
        self, node: Node, gone: Collection[str], more: Sequence[Pod]
    ) -> list[filters.Refusal]:
        """Returns the first rule's refusals, without the pods `gone` and with `more` pods."""
        placement, name = self._placement, node.metadata.name
        used, rules_of_others = placement.used.get(name, {}), self._neighbours

        # The filters need the node's pods for host ports only, and few pods open any.
        others: Sequence[Pod] = ()
        if gone or more:
            # The sums and counts that were prepared hold for the real pods only.
            here = placement.pods_by_node.get(name, ())
            others = [*(each for each in here if each.metadata.uid not in gone), *more]
            used = self._sum_of_requests(others)
            rules_of_others = self._neighbours_with(name, others)
        elif self._pod.host_ports:
            others = placement.pods_by_node.get(name, ())

        # A device class provides an extended resource only on nodes that do not have it.
        by_claims = set()
        for resource in placement.by_class:
            if node.status.allocatable.get(resource, "0") == "0":
                by_claims.add(resource)

        refusals = filters.refusals(
            self._pod, node, used=used, by_claims=by_claims, neighbours=others
        )
        if rules_of_others is not None:
            refusals = itertools.chain(refusals, rules_of_others.refusals(node))
        return filters.first_refusals(refusals)

    def _sum_of_requests(self, pods: Iterable[Pod]) -> Amounts:
        total: Amounts = {}
        for pod in pods:
            uid = pod.metadata.uid
            if uid not in self._requests:
                self._requests[uid] = resources.pod_requests(pod)
            resources.add(total, self._requests[uid])
        return total

    def _neighbours_with(self, name: str, pods: Sequence[Pod]) -> neighbours.Neighbours | None:
        """Counts the cluster's pods as if the node of this name had these pods."""
        placement = self._placement
        elsewhere = [each for each in placement.watchful if each.spec.node_name != name]
        watchful = [*elsewhere, *(each for each in pods if neighbours.is_watchful(each))]
        if not (neighbours.has_rules(self._pod) or watchful):
            return None
        return self._neighbours_among({**placement.pods_by_node, name: pods}, watchful)

    def _neighbours_among(
        self, pods_by_node: Mapping[str, Sequence[Pod]], watchful: Sequence[Pod]
    ) -> neighbours.Neighbours:
        placement = self._placement
        return neighbours.Neighbours(
            self._pod, placement.nodes, pods_by_node, watchful, placement.namespaces
        )


def messages(refusals: Iterable[filters.Refusal]) -> list[str]:
    """Returns the different messages: a node counts once for a reason, however often it applies."""
    return list(dict.fromkeys(refusal.message for refusal in refusals))
