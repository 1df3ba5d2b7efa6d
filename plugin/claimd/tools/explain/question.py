"""Tries a pod or claims on nodes: with the scheduler's rules first, then with the allocator's.

The allocator judges nodes with the same devices in the same state only once.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from claimd.common.time_limit import TimeLimit
from claimd.kubernetes import allocator
from claimd.kubernetes.allocator import explain, extended, features, nodes, state, taints
from claimd.kubernetes.allocator.identity import DeviceID
from claimd.kubernetes.allocator.requests import claim_name
from claimd.kubernetes.allocator.verdicts import NodeVerdict
from claimd.kubernetes.scheduling import filters, neighbours, node_rules, preemption, resources
from claimd.kubernetes.scheduling.objects import Allocation, Claim, Meta

from . import preconditions, shapes
from .answer import GangOutcome, NodeAnswer

if TYPE_CHECKING:
    from claimd.kubernetes.api.scheduling import (
        Device,
        DeviceClass,
        DeviceTaintRule,
        ResourceClaim,
        ResourceSlice,
    )
    from claimd.kubernetes.scheduling.objects import Node, Pod
    from claimd.kubernetes.scheduling.resources import Amounts

    from .objects import Objects
    from .preconditions import Preconditions

_READY_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
# The time in seconds that a node gets at least while any time is left.
_LEAST_SHARE = 0.01
_SELECTOR = re.compile(r": selector (?P<number>[1-5])\b")
_ORDINALS = ("first", "second", "third", "fourth", "fifth")


class Cluster:
    """The objects in the form that the rules take. One cluster serves a series of questions."""

    def __init__(self, objects: Objects, waiting: Sequence[Claim]) -> None:
        """Prepares the objects. `waiting` has the claims of all questions that will be asked."""
        self.objects = objects

        # Devices. Only the attributes that the questions look at are decoded.
        slices = objects.slices_for(shapes.attributes_read(waiting, objects.classes))
        self.slices = _apply_taint_rules(slices, objects.rules)
        self.held = explain.gather_holdings(objects.claims)

        # A claim that waits may use a feature that no object in the cluster uses yet.
        self.features = features.detect(
            _one_of_each(slices), [*objects.claims, *waiting], _rules_of(objects.release)
        )
        self.allocated = state.gather_from_claims(objects.claims, self.features)
        self.allocator = allocator.Allocator(
            class_lister=allocator.Classes(objects.classes),
            slices=self.slices,
            allocated=self.allocated,
            features=self.features,
        )
        self._shapes = _NodeShapes(self.slices, self.allocated)

        # Whether the gangs that questions were about fit as a whole, by the key of their group.
        self.gangs: dict[str, GangOutcome] = {}

        # Pods and their requests.
        self.classes_by_resource = extended.classes_by_resource(objects.classes)
        self.pods_by_node: dict[str, list[Pod]] = {}
        self.used: dict[str, Amounts] = {}
        self._count_pods()
        self._nodes = {node.metadata.name: node for node in objects.nodes}
        self._namespaces = {each.metadata.name: each.metadata.labels for each in objects.namespaces}
        self._watchful: list[Pod] = []
        for pod in objects.pods:
            if pod.spec.node_name and not pod.has_ended and neighbours.is_watchful(pod):
                self._watchful.append(pod)

    def _count_pods(self) -> None:
        """Fills `pods_by_node` and `used` with the pods that run on nodes."""
        for pod in self.objects.pods:
            name = pod.spec.node_name
            if name and not pod.has_ended:
                self.pods_by_node.setdefault(name, []).append(pod)
                resources.add(self.used.setdefault(name, {}), resources.pod_requests(pod))
        for placed in self.objects.placed:
            resources.add(self.used.setdefault(placed.node, {}), placed.requests)
            self.pods_by_node.setdefault(placed.node, []).append(placed.pod)

    def neighbours_of(self, pod: Pod) -> neighbours.Neighbours:
        """Counts the cluster's pods for this pod's rules about other pods."""
        return neighbours.Neighbours(
            pod,
            self._nodes,
            self.pods_by_node,
            self._watchful,
            self._namespaces,
        )

    @functools.cached_property
    def lowest_priority(self) -> int | None:
        """The lowest priority among the pods on nodes; None if there are no such pods."""
        objects = self.objects
        priorities = [placed.priority for placed in objects.placed]
        for pod in objects.pods:
            if pod.spec.node_name and not pod.has_ended:
                priorities.append(preemption.priority_of(pod))
        return min(priorities, default=None)

    @functools.cached_property
    def placement(self) -> node_rules.Placement:
        """The pods and nodes in the form that `preemption` needs: one Pod object for each pod."""
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
            by_class=self.classes_by_resource,
            requests={placed.key: placed.requests for placed in self.objects.placed},
        )

    def shape_of(self, node: Node) -> Hashable:
        """Returns a key that is equal for nodes with the same verdict, without names of pools."""
        return self._shapes.shape_of(node)


def _one_of_each(slices: Iterable[ResourceSlice]) -> list[ResourceSlice]:
    """Returns one slice for each different list of devices, which many slices may share."""
    by_devices: dict[object, ResourceSlice] = {}
    for slice_ in slices:
        skipped = tuple(slice_.spec.skip_node_operations)
        by_devices.setdefault((id(slice_.spec.devices), skipped), slice_)
    return list(by_devices.values())


def _apply_taint_rules(
    slices: Sequence[ResourceSlice], rules: Sequence[DeviceTaintRule]
) -> list[ResourceSlice]:
    """Applies the taint rules, so that slices with a common list of devices still share one.

    A common list is how `_NodeShapes` recognizes nodes with the same devices.
    """
    if not rules:
        return list(slices)

    lists: dict[object, list[Device]] = {}
    tainted = []
    for before, after in zip(slices, taints.apply_rules(slices, rules), strict=True):
        if after is before:
            tainted.append(before)
            continue

        # Slices share a list if they did before and their devices got the same taints.
        added = []
        for old, device in zip(before.spec.devices, after.spec.devices, strict=True):
            added.append(tuple(device.taints[len(old.taints) :]))
        key = id(before.spec.devices), tuple(added)
        devices = lists.setdefault(key, after.spec.devices)
        spec = msgspec.structs.replace(after.spec, devices=devices)
        tainted.append(msgspec.structs.replace(after, spec=spec))
    return tainted


class _NodeShapes:
    """The shapes of nodes: everything about a node that the allocator's verdict depends on."""

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

        # Pools that span several nodes. These nodes cannot share an answer.
        self._spread = {pool for pool, places in pools.items() if len(places) > 1}

    def shape_of(self, node: Node) -> Hashable:
        """Returns the shape of a node; its name if it cannot share an answer."""
        name = node.metadata.name
        # A selector can tell apart any two nodes.
        if self._by_selector:
            return name

        slices = self._by_node.get(name, ())
        parts: list[Hashable] = []
        for slice_ in sorted(slices, key=_slice_order):
            spec, pool = slice_.spec, slice_.spec.pool
            if (spec.driver, pool.name) in self._spread:
                return name

            # Most pools are named after their node, and no rule looks at that name.
            pool_name = "" if pool.name == name else pool.name
            part = (
                spec.driver,
                pool_name,
                pool.generation,
                pool.resource_slice_count,
                id(spec.devices),
                str(spec.shared_counters),
                tuple(spec.skip_node_operations),
                spec.per_device_node_selection and name,
                self._taken_devices(slice_),
            )
            parts.append(part)

        # The allocator tries pools in the order of their names. The place of this node's pools
        # among those of all nodes is therefore part of the shape.
        order: list[Hashable] = []
        if self._of_all:
            pools = sorted(map(_pool_order, [*self._of_all, *slices]))
            order = ["" if pool[1] == name else pool for pool in pools]
        return tuple(parts), tuple(order), tuple(node.status.declared_features)

    def _taken_devices(self, slice_: ResourceSlice) -> tuple[Hashable, ...]:
        """Returns the devices of the slice that claims hold or share, with the shared amounts."""
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


def _rules_of(release: int | None) -> features.Features:
    """Returns the gates of 1.37, with the rules of 1.38 if the release has them or is not known.

    They count a capacity that others have under both its names, so they do not promise too much.
    """
    if release is None or release >= 38:
        return features.DEFAULT | {features.RULES_OF_1_38}
    return features.DEFAULT


def _slice_order(slice_: ResourceSlice) -> tuple[str, str, str]:
    return slice_.spec.driver, slice_.spec.pool.name, slice_.metadata.name


def _pool_order(slice_: ResourceSlice) -> tuple[str, str]:
    return slice_.spec.driver, slice_.spec.pool.name


class Question:
    """A pod or claims, with the question whether they fit on nodes."""

    def __init__(self, cluster: Cluster, pod: Pod | None, found: Preconditions) -> None:
        self._cluster = cluster
        self._pod = pod
        self._waiting, self._allocated = found.waiting, found.allocated
        # The verdicts by shape and claims, and the verdict that each node was answered with.
        self._verdicts: dict[Hashable, NodeVerdict] = {}
        self._by_node: dict[str, NodeVerdict] = {}
        self._neighbours = cluster.neighbours_of(pod) if pod else None

    def ask(
        self, places: Sequence[Node], time_limit: float, *, full: bool, always: bool = False
    ) -> list[NodeAnswer]:
        """Returns the answer of each node, in the given order.

        With `full` each node is judged. Otherwise one node is judged for all nodes with
        the same devices. An answer then names the judged node in `like`, and its details about
        devices are those of the judged node; only `allocation` is the node's own. With `always` the
        details are also in answers whose outcome is yes. After `time_limit` seconds the outcome of
        nodes that were not judged is unknown.
        """
        limit = TimeLimit(time_limit)
        keys = [self._key(node, full) for node in places]
        unjudged = {key for key in keys if key is not None and key not in self._verdicts}

        answers = []
        for node, key in zip(places, keys, strict=True):
            if key is None:
                answers.append(_answer(node, self._refusals(node), None))
                continue

            if key in unjudged:
                # The remaining time is shared, so that one node cannot use it up.
                share = limit.remaining / len(unjudged)
                self._verdicts[key] = self._judge_within(node, share, always)
                unjudged.remove(key)

            verdict = self._verdicts[key]
            self._by_node[node.metadata.name] = verdict
            answers.append(_answer(node, self._refusals(node), verdict))
        return answers

    def ask_in_full(self, node: Node, time_limit: float) -> NodeAnswer:
        """Returns the answer of one node in full, with the changes that would help there.

        The outcome of a node that was asked before does not change, because the answer as a whole
        is already built on it.
        """
        claims = self._claims(node)
        if not claims:
            return _answer(node, self._refusals(node), None)

        # The node's own devices are better than those of a node that was judged in its place.
        expired = TimeLimit(time_limit).is_over
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
                # A remedy must not take away devices that the pod has already.
                kept=set(map(claim_name, self._allocated)),
                expired=expired,
            )
        return _answer(node, self._refusals(node), verdict)

    def allocate(self, node: Node) -> list[Claim] | None:
        """Returns the claims with the devices that they get on the node; None if they get none."""
        claims = self._claims(node)
        results = self._cluster.allocator.allocate(node, claims) if claims else []
        if results is None:
            return None
        allocated = []
        for claim, result in zip(claims, results, strict=True):
            # The claim for extended resources has no object yet.
            known = claim
            if not isinstance(known, Claim):
                known = Claim(metadata=Meta(name=claim_name(claim)), spec=claim.spec)
            allocation = Allocation(devices=result.devices, node_selector=result.node_selector)
            status = msgspec.structs.replace(known.status, allocation=allocation)
            allocated.append(msgspec.structs.replace(known, status=status))
        return allocated

    def _key(self, node: Node, full: bool) -> Hashable:
        """Returns the key under which the node's verdict is kept.

        Nodes with the same key get the same verdict. With `full` each node has its own key. Returns
        None if the pod needs no devices on the node.
        """
        claims = self._claims(node)
        if not claims:
            return None
        if full:
            return node.metadata.name
        return self._cluster.shape_of(node), self._implicit_key(claims)

    def _judge_within(self, node: Node, seconds: float, always: bool) -> NodeVerdict:
        """Judges a node in this time, but not at all if no time is left."""
        if seconds <= 0:
            return NodeVerdict(
                node=node.metadata.name,
                outcome="unknown",
                summary="not decided: the time was over before this node was looked at",
            )
        expired = TimeLimit(max(seconds, _LEAST_SHARE)).is_over
        return self._judge(node, self._claims(node), expired, always)

    def _claims(self, node: Node) -> list[ResourceClaim]:
        """Returns the waiting claims, and the claim for extended resources on this node, if any."""
        claims: list[ResourceClaim] = [*self._waiting]
        if self._pod:
            classes = self._cluster.objects.classes
            implicit = extended.implicit_claim(self._pod, node, classes)
            if implicit:
                claims.append(implicit)
        return claims

    def _implicit_key(self, claims: Sequence[ResourceClaim]) -> Hashable:
        """Returns the spec of the claim for extended resources, which depends on the node."""
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
        """Returns the refusals by all rules that are not about free devices."""
        pod, cluster = self._pod, self._cluster
        elsewhere = tuple(_refusals_by_allocations(self._allocated, node))
        if pod is None:
            return elsewhere

        # A device class provides an extended resource only on nodes that do not have it.
        name = node.metadata.name
        by_claims = set()
        for resource in cluster.classes_by_resource:
            if node.status.allocatable.get(resource, "0") == "0":
                by_claims.add(resource)

        refusals = list(_refusals_by_readiness(node))
        for refusal in filters.refusals(
            pod,
            node,
            used=cluster.used.get(name, {}),
            by_claims=by_claims,
            neighbours=cluster.pods_by_node.get(name, ()),
        ):
            # In a file with slices alone, the resources of the nodes are not known.
            if refusal.rule != "NodeResourcesFit" or cluster.objects.nodes:
                refusals.append(_with_class(refusal, cluster.classes_by_resource))

        if self._neighbours:
            refusals += self._neighbours.refusals(node)
        return (*refusals, *elsewhere)


def _with_class(refusal: filters.Refusal, classes: Mapping[str, DeviceClass]) -> filters.Refusal:
    """Returns the refusal with the class that has the name of the resource, if there is one."""
    class_ = classes.get(refusal.message.removeprefix("Insufficient "))
    if class_ is None:
        return refusal
    figures, _, _ = refusal.detail.rpartition(" are left")
    asked, separator, left = figures.rpartition(", ")
    if not separator:
        return refusal
    detail = (
        f"{asked}, the device plugin has {left} free; on such a node the plugin takes precedence "
        f"over class {class_.metadata.name}"
    )
    return dataclasses.replace(refusal, detail=detail)


def _refusals_by_readiness(node: Node) -> Iterator[filters.Refusal]:
    """Yields a refusal if the node is not ready and does not have the taint yet.

    The node controller adds the taint a moment after the condition has changed.
    """
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
    """Yields a refusal for each claim whose devices cannot be used on this node."""
    for claim in claims:
        selector = claim.status.allocation.node_selector if claim.status.allocation else None
        if selector is None:
            continue

        try:
            is_selected = nodes.selects(selector, node)
        except ValueError:
            # The selector was read from a file and is invalid, so it selects no node.
            is_selected = False
        if not is_selected:
            place = preconditions.allocated_on(claim)
            yield filters.Refusal(
                rule="DynamicResources",
                message="resourceclaim not available on the node",
                detail=f"claim {claim_name(claim)} is allocated on {place}",
            )


def _answer(
    node: Node, refusals: tuple[filters.Refusal, ...], verdict: NodeVerdict | None
) -> NodeAnswer:
    """Combines the refusals with the allocator's verdict, None if no devices are needed."""
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
    of_devices = verdict.summary
    if verdict.outcome == "error":
        of_devices = _SELECTOR.sub(_name_selector, of_devices)
    summary = "; ".join(filter(None, (*details, of_devices)))
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


def _name_selector(match: re.Match[str]) -> str:
    """Returns the selector in words: we count from 1, and the scheduler's messages from 0."""
    return f": its {_ORDINALS[int(match['number']) - 1]} selector"


def _own_devices(devices: Iterable[DeviceID], judged: str, node: str) -> Iterator[DeviceID]:
    """Yields the node's own devices in place of those of the judged node."""
    # Nodes have the same shape only if their other pools are shared or have the same names.
    for device in devices:
        yield device._replace(pool=node) if device.pool == judged else device
