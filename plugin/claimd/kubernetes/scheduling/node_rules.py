"""Whether a node takes a pod, devices aside, in the cluster as it is and as it would be.

One object for each pod that is to be placed: what other pods have to do with it is counted once.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from . import filters, neighbours, preemption, resources

if TYPE_CHECKING:
    from .objects import Node, Pod
    from .resources import Amounts


@dataclasses.dataclass(frozen=True, kw_only=True)
class Placement:
    """Which pods are where: `nodes`, `used` and the pods of a node are by the node's name.

    `watchful` are the pods on nodes for which `neighbours.is_watchful` holds, `promised` those that
    wait for room which others make for them, `by_class` the resources that a device class gives
    where a node does not have them. `requests` are those of pods that do not say them, by uid.
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
    def __init__(self, placement: Placement, pod: Pod) -> None:
        self._placement, self._pod = placement, pod
        self._requests: dict[str, Mapping[str, int]] = dict(placement.requests)
        # Most pods have nothing to do with others.
        self._neighbours: neighbours.Neighbours | None = None
        if neighbours.has_rules(pod) or placement.watchful:
            self._neighbours = self._neighbours_among(placement.pods_by_node, placement.watchful)

    def refusals(self, node: Node, gone: Collection[str] = ()) -> list[filters.Refusal]:
        """Why the pod cannot go to this node: what the first rule says that refuses it.

        `gone` are uids of the node's pods that are not counted. Pods that the node is promised to
        count where they have at least this pod's priority: it has to fit with them and without.
        """
        priority, uid = preemption.priority_of(self._pod), self._pod.metadata.uid
        promised = [
            each
            for each in self._placement.promised.get(node.metadata.name, ())
            if each.metadata.uid != uid and preemption.priority_of(each) >= priority
        ]
        refusals = self._refusals(node, gone, promised)
        if refusals or not promised:
            return refusals
        return self._refusals(node, gone, ())

    def _refusals(
        self, node: Node, gone: Collection[str], more: Sequence[Pod]
    ) -> list[filters.Refusal]:
        placement, name = self._placement, node.metadata.name
        used, rules_of_others = placement.used.get(name, {}), self._neighbours
        # Only ports are looked at on them, which few pods have.
        others: Sequence[Pod] = ()
        if gone or more:
            here = placement.pods_by_node.get(name, ())
            others = [*(each for each in here if each.metadata.uid not in gone), *more]
            used = self._sum_of_requests(others)
            rules_of_others = self._neighbours_with(name, others)
        elif self._pod.host_ports:
            others = placement.pods_by_node.get(name, ())

        allocatable = node.status.allocatable
        refusals = filters.refusals(
            self._pod,
            node,
            used=used,
            by_claims={
                resource for resource in placement.by_class if allocatable.get(resource, "0") == "0"
            },
            neighbours=others,
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
        """As if these were the pods of the node of this name."""
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
    """Each once, as a node counts once for a reason."""
    return list(dict.fromkeys(refusal.message for refusal in refusals))
