"""A pod or claims put to nodes: the scheduler's rules, then the allocator's about devices.

Nodes that have the same devices in the same state are judged once.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from claimd.kubernetes import allocator
from claimd.kubernetes.allocator import explain, extended, features, nodes, state, taints
from claimd.kubernetes.allocator.identity import DeviceID
from claimd.kubernetes.allocator.requests import claim_name
from claimd.kubernetes.allocator.verdicts import NodeVerdict
from claimd.kubernetes.scheduling import filters, neighbours, node_rules, preemption, resources

from . import preconditions, shapes
from .answer import NodeAnswer

if TYPE_CHECKING:
    from claimd.kubernetes.api.scheduling import (
        Device,
        DeviceTaintRule,
        ResourceClaim,
        ResourceSlice,
    )
    from claimd.kubernetes.scheduling.objects import Claim, Node, Pod
    from claimd.kubernetes.scheduling.resources import Amounts

    from .objects import Objects
    from .preconditions import Preconditions

_READY_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
# Seconds that a node has for itself while any time is left.
_LEAST_SHARE = 0.01


class Cluster:
    """The objects as the rules take them: made once, for all questions that are asked at a time."""

    def __init__(self, objects: Objects, waiting: Sequence[Claim]) -> None:
        """`waiting` are the claims that will be asked about, of any question."""
        self.objects = objects
        slices = objects.slices_for(shapes.attributes_read(waiting, objects.classes))
        self.slices = _apply_taint_rules(slices, objects.rules)
        self.held = explain.gather_holdings(objects.claims)

        # What is asked for may be of a feature that nothing in the cluster has yet.
        self.features = features.detect(_one_of_each(slices), [*objects.claims, *waiting])
        self.allocated = state.gather_from_claims(objects.claims, self.features)
        self.allocator = allocator.Allocator(
            class_lister=allocator.Classes(objects.classes),
            slices=self.slices,
            allocated=self.allocated,
            features=self.features,
        )
        self._shapes = _NodeShapes(self.slices, self.allocated)
        self.resources_of_classes = set(extended.classes_by_resource(objects.classes))
        self.pods_by_node: dict[str, list[Pod]] = {}
        self.used: dict[str, Amounts] = {}
        self._count_pods()
        self._nodes = {node.metadata.name: node for node in objects.nodes}
        self._namespaces = {each.metadata.name: each.metadata.labels for each in objects.namespaces}
        self._watchful = [
            pod
            for pod in objects.pods
            if pod.spec.node_name and not pod.has_ended and neighbours.is_watchful(pod)
        ]

    def _count_pods(self) -> None:
        for pod in self.objects.pods:
            name = pod.spec.node_name
            if name and not pod.has_ended:
                self.pods_by_node.setdefault(name, []).append(pod)
                resources.add(self.used.setdefault(name, {}), resources.pod_requests(pod))
        for placed in self.objects.placed:
            resources.add(self.used.setdefault(placed.node, {}), placed.requests)
            self.pods_by_node.setdefault(placed.node, []).append(placed.pod)

    def neighbours_of(self, pod: Pod) -> neighbours.Neighbours:
        """The cluster's pods as the pod's rules about others see them."""
        return neighbours.Neighbours(
            pod,
            self._nodes,
            self.pods_by_node,
            self._watchful,
            self._namespaces,
        )

    @functools.cached_property
    def lowest_priority(self) -> int | None:
        """Of the pods that are on nodes; None where there are none."""
        objects = self.objects
        on_nodes = [pod for pod in objects.pods if pod.spec.node_name and not pod.has_ended]
        priorities = [*map(preemption.priority_of, on_nodes)]
        priorities += [placed.priority for placed in objects.placed]
        return min(priorities, default=None)

    @functools.cached_property
    def placement(self) -> node_rules.Placement:
        """Which pods are where, each by itself, and which are promised a node."""
        pods_by_node: dict[str, list[Pod]] = {}
        promised: dict[str, list[Pod]] = {}
        for pod in self.objects.pods:
            name = pod.spec.node_name
            if pod.has_ended:
                continue
            if name:
                pods_by_node.setdefault(name, []).append(pod)
            elif pod.status.nominated_node_name:
                promised.setdefault(pod.status.nominated_node_name, []).append(pod)
        for placed in self.objects.placed:
            pods_by_node.setdefault(placed.node, []).append(placed.as_victim())
        return node_rules.Placement(
            nodes=self._nodes,
            pods_by_node=pods_by_node,
            used=self.used,
            watchful=self._watchful,
            namespaces=self._namespaces,
            promised=promised,
            by_class=self.resources_of_classes,
            requests={placed.key: placed.requests for placed in self.objects.placed},
        )

    def shape_of(self, node: Node) -> Hashable:
        """The same for nodes for which the allocator says the same, pools' names aside."""
        return self._shapes.shape_of(node)


def _one_of_each(slices: Iterable[ResourceSlice]) -> list[ResourceSlice]:
    """A slice for each list of devices: many may share it."""
    by_devices: dict[object, ResourceSlice] = {}
    for slice_ in slices:
        skipped = tuple(slice_.spec.skip_node_operations)
        by_devices.setdefault((id(slice_.spec.devices), skipped), slice_)
    return list(by_devices.values())


def _apply_taint_rules(
    slices: Sequence[ResourceSlice], rules: Sequence[DeviceTaintRule]
) -> list[ResourceSlice]:
    """As taints.apply_rules(), where slices that share their devices do so afterwards."""
    if not rules:
        return list(slices)

    lists: dict[object, list[Device]] = {}
    tainted = []
    for before, after in zip(slices, taints.apply_rules(slices, rules), strict=True):
        if after is before:
            tainted.append(before)
            continue
        added = tuple(
            tuple(device.taints[len(old.taints) :])
            for old, device in zip(before.spec.devices, after.spec.devices, strict=True)
        )
        devices = lists.setdefault((id(before.spec.devices), added), after.spec.devices)
        spec = msgspec.structs.replace(after.spec, devices=devices)
        tainted.append(msgspec.structs.replace(after, spec=spec))
    return tainted


class _NodeShapes:
    """What the allocator's answer depends on, node by node."""

    def __init__(self, slices: Iterable[ResourceSlice], allocated: state.AllocatedState) -> None:
        self._allocated = allocated
        self._by_node: dict[str, list[ResourceSlice]] = {}
        self._of_all: list[ResourceSlice] = []
        self._by_selector: list[ResourceSlice] = []
        pools: dict[tuple[str, str], set[str]] = {}
        for slice_ in slices:
            spec = slice_.spec
            if spec.node_name:
                self._by_node.setdefault(spec.node_name, []).append(slice_)
            elif spec.all_nodes:
                self._of_all.append(slice_)
            else:
                self._by_selector.append(slice_)
            pools.setdefault((spec.driver, spec.pool.name), set()).add(spec.node_name)
        # Pools with slices of several places: their nodes are each on their own.
        self._spread = {pool for pool, places in pools.items() if len(places) > 1}

    def shape_of(self, node: Node) -> Hashable:
        name = node.metadata.name
        if self._by_selector:
            return name
        slices = self._by_node.get(name, ())
        parts = []
        for slice_ in sorted(slices, key=_slice_order):
            spec = slice_.spec
            if (spec.driver, spec.pool.name) in self._spread:
                return name
            pool = spec.pool
            parts.append(
                (
                    *(spec.driver, pool.generation, pool.resource_slice_count),
                    # Most pools have their node's name, which no rule looks at.
                    "" if pool.name == name else pool.name,
                    *(
                        id(spec.devices),
                        str(spec.shared_counters),
                        tuple(spec.skip_node_operations),
                    ),
                    *(spec.per_device_node_selection and name, self._taken(slice_)),
                )
            )
        # Pools are searched by name, so it counts where this node's stand among those of all.
        order: list[Hashable] = []
        if self._of_all:
            pools = sorted(map(_pool_order, [*self._of_all, *slices]))
            order = ["" if pool[1] == name else pool for pool in pools]
        return tuple(parts), tuple(order), tuple(node.status.declared_features)

    def _taken(self, slice_: ResourceSlice) -> tuple[Hashable, ...]:
        """The slice's devices that are held or shared."""
        spec, allocated = slice_.spec, self._allocated
        taken: list[Hashable] = []
        for device in spec.devices:
            device_id = DeviceID(spec.driver, spec.pool.name, device.name)
            if device_id in allocated.devices:
                taken.append(device.name)
            if device_id in allocated.shared:
                consumed = allocated.capacity.get(device_id, {})
                taken.append((device.name, tuple(sorted(consumed.items()))))
        return tuple(taken)


def _slice_order(slice_: ResourceSlice) -> tuple[str, str, str]:
    return slice_.spec.driver, slice_.spec.pool.name, slice_.metadata.name


def _pool_order(slice_: ResourceSlice) -> tuple[str, str]:
    return slice_.spec.driver, slice_.spec.pool.name


class Question:
    """A pod or claims, to be put to nodes."""

    def __init__(self, cluster: Cluster, pod: Pod | None, found: Preconditions) -> None:
        self._cluster = cluster
        self._pod = pod
        self._waiting, self._allocated = found.waiting, found.allocated
        # What was judged, and by each node's name what it was answered with.
        self._verdicts: dict[Hashable, NodeVerdict] = {}
        self._by_node: dict[str, NodeVerdict] = {}
        self._neighbours = cluster.neighbours_of(pod) if pod else None

    def ask(
        self, places: Sequence[Node], time_limit: float, *, full: bool, always: bool = False
    ) -> list[NodeAnswer]:
        """Each node's answer, in their order.

        `full`: each node is judged by itself. Otherwise one stands for all that have the same
        devices: what those answers say of devices is that node's, which `like` names; only what
        they would get is their own. With `always` devices are told of where the answer is yes, too.
        What is not judged after `time_limit` seconds is unknown.
        """
        end = time.monotonic() + time_limit
        keys = [self._key(node, full) for node in places]
        unjudged = {key for key in keys if key is not None and key not in self._verdicts}

        answers = []
        for node, key in zip(places, keys, strict=True):
            if key is None:
                answers.append(_answer(node, self._refusals(node), None))
                continue
            if key in unjudged:
                # Each gets its share of what is left, so that one node cannot take it all.
                share = (end - time.monotonic()) / len(unjudged)
                self._verdicts[key] = self._judge_within(node, share, always)
                unjudged.remove(key)

            verdict = self._verdicts[key]
            self._by_node[node.metadata.name] = verdict
            answers.append(_answer(node, self._refusals(node), verdict))
        return answers

    def ask_in_full(self, node: Node, time_limit: float) -> NodeAnswer:
        """The node's answer in full, with what would have to change there.

        Of a node that was asked the outcome stays: others are put into words by it.
        """
        claims = self._claims(node)
        if not claims:
            return _answer(node, self._refusals(node), None)

        expired = _expiry_check(time_limit)
        verdict = self._by_node.get(node.metadata.name)
        if verdict is None:
            verdict = self._judge(node, claims, expired, always=False)
        elif verdict.node != node.metadata.name and verdict.outcome in ("no", "error"):
            own = self._judge(node, claims, expired, always=False)
            if own.outcome == verdict.outcome:
                verdict = own

        if not expired():
            cluster = self._cluster
            verdict = explain.add_remedies(
                verdict,
                cluster.allocator,
                node,
                claims,
                cluster.held,
                # The pod needs the devices that it has as much as those that it waits for.
                kept={claim_name(claim) for claim in self._allocated},
                expired=expired,
            )
        return _answer(node, self._refusals(node), verdict)

    def _key(self, node: Node, full: bool) -> Hashable:
        """The same for nodes that are judged once; None where there is nothing to judge."""
        claims = self._claims(node)
        if not claims:
            return None
        if full:
            return node.metadata.name
        return self._cluster.shape_of(node), self._implicit_key(claims)

    def _judge_within(self, node: Node, seconds: float, always: bool) -> NodeVerdict:
        if seconds <= 0:
            return NodeVerdict(
                node=node.metadata.name,
                outcome="unknown",
                summary="not decided: the time was over before this node was looked at",
            )
        expired = _expiry_check(max(seconds, _LEAST_SHARE))
        return self._judge(node, self._claims(node), expired, always)

    def _claims(self, node: Node) -> list[ResourceClaim]:
        """Those that wait, and the one that the pod's extended resources need here."""
        claims: list[ResourceClaim] = [*self._waiting]
        if self._pod:
            classes = self._cluster.objects.classes
            implicit = extended.implicit_claim(self._pod, node, classes)
            if implicit:
                claims.append(implicit)
        return claims

    def _implicit_key(self, claims: Sequence[ResourceClaim]) -> Hashable:
        if len(claims) == len(self._waiting):
            return None
        return msgspec.json.encode(claims[-1].spec)

    def _judge(
        self,
        node: Node,
        claims: Sequence[ResourceClaim],
        expired: Callable[[], bool],
        always: bool,
    ) -> NodeVerdict:
        cluster = self._cluster
        return explain.explain_node(
            cluster.allocator,
            node,
            claims,
            cluster.held,
            always=always,
            expired=expired,
        )

    # The scheduler's rules about pods and nodes

    def _refusals(self, node: Node) -> tuple[filters.Refusal, ...]:
        pod, cluster = self._pod, self._cluster
        elsewhere = tuple(_refusals_by_allocations(self._allocated, node))
        if pod is None:
            return elsewhere

        name, allocatable = node.metadata.name, node.status.allocatable
        by_claims = {
            resource
            for resource in cluster.resources_of_classes
            if allocatable.get(resource, "0") == "0"
        }
        refusals = list(_refusals_by_readiness(node))
        for refusal in filters.refusals(
            pod,
            node,
            used=cluster.used.get(name, {}),
            by_claims=by_claims,
            neighbours=cluster.pods_by_node.get(name, ()),
        ):
            # A node that nobody has described, in a file of slices alone, has resources too.
            if refusal.rule != "NodeResourcesFit" or cluster.objects.nodes:
                refusals.append(refusal)
        if self._neighbours:
            refusals += self._neighbours.refusals(node)
        return (*refusals, *elsewhere)


def _refusals_by_readiness(node: Node) -> Iterator[filters.Refusal]:
    """A node that is not ready has a taint that says so, a moment later."""
    if any(taint.key in _READY_TAINTS for taint in node.spec.taints):
        return
    for condition in node.status.conditions:
        if condition.type == "Ready" and condition.status != "True":
            why = condition.message or condition.reason
            yield filters.Refusal(
                rule="TaintToleration",
                message="node(s) had untolerated taint(s)",
                detail=f"it is not ready: {why}" if why else "it is not ready",
            )


def _refusals_by_allocations(claims: Sequence[Claim], node: Node) -> Iterator[filters.Refusal]:
    """Claims whose devices cannot be used on this node."""
    for claim in claims:
        selector = claim.status.allocation.node_selector if claim.status.allocation else None
        if selector is None:
            continue
        try:
            here = nodes.selects(selector, node)
        except ValueError:
            here = False
        if not here:
            place = preconditions.allocated_on(claim)
            yield filters.Refusal(
                rule="DynamicResources",
                message="resourceclaim not available on the node",
                detail=f"claim {claim_name(claim)} is allocated on {place}",
            )


def _answer(
    node: Node, refusals: tuple[filters.Refusal, ...], verdict: NodeVerdict | None
) -> NodeAnswer:
    name = node.metadata.name
    details = tuple(refusal.detail for refusal in refusals)
    if verdict is None:
        return NodeAnswer(
            node=name,
            outcome="no" if refusals else "yes",
            summary="; ".join(details),
            refusals=details,
            refused_by=refusals,
        )
    summary = "; ".join(filter(None, (*details, verdict.summary)))
    return NodeAnswer(
        node=name,
        outcome="no" if refusals else verdict.outcome,
        devices=verdict.outcome,
        summary=summary,
        refusals=details,
        refused_by=refusals,
        allocation=tuple(_own_devices(verdict.allocation, verdict.node, name)),
        claims=verdict.claims,
        pools=verdict.pools,
        shortage=verdict.shortage,
        like="" if verdict.node == name else verdict.node,
        ends_search=verdict.ends_search and not refusals,
    )


def _own_devices(devices: Iterable[DeviceID], judged: str, node: str) -> Iterator[DeviceID]:
    """The node's devices in place of those of the node that was judged for it.

    Pools that nodes share have the same name for both, and nodes are only alike where the others
    are named after them.
    """
    for device in devices:
        yield device._replace(pool=node) if device.pool == judged else device


def _expiry_check(seconds: float) -> Callable[[], bool]:
    end = time.monotonic() + seconds
    return lambda: time.monotonic() > end
