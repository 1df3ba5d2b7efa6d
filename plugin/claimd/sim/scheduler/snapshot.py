"""The cluster at one moment, with the used resources and devices of each node.

Snapshots are immutable. A decision produces a new snapshot that includes it, which the next
decision uses.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec

from claimd.kubernetes.allocator import Allocator, Classes, features, selectors, state, taints
from claimd.kubernetes.allocator.extended import classes_by_resource
from claimd.kubernetes.scheduling import pod_groups, resources
from claimd.kubernetes.scheduling.neighbours import is_watchful
from claimd.kubernetes.scheduling.node_rules import Placement
from claimd.kubernetes.scheduling.objects import Claim, DisruptionBudget, Node, Pod, Rule, Slice

if TYPE_CHECKING:
    from claimd.kubernetes.api.scheduling import DeviceClass
    from claimd.kubernetes.scheduling.pod_groups import PodGroup
    from claimd.kubernetes.scheduling.resources import Amounts

DeviceId = tuple[str, str, str]  # driver, pool, name


@dataclasses.dataclass(frozen=True)
class PublishedDevices:
    """Devices, taint rules and classes: they change rarely, and are costly to prepare."""

    slices: Sequence[Slice] = ()
    rules: Sequence[Rule] = ()
    classes: Sequence[DeviceClass] = ()
    of_itself: features.Features = features.DEFAULT  # the features that the release enables

    @cached_property
    def tainted_slices(self) -> list[Slice]:
        """The slices with the taints that the rules add to their devices."""
        return taints.apply_rules(self.slices, self.rules)

    @cached_property
    def features(self) -> features.Features:
        return features.detect(self.slices, (), self.of_itself)

    @cached_property
    def class_by_resource(self) -> dict[str, DeviceClass]:
        """The classes that provide an extended resource, by its name."""
        return classes_by_resource(self.classes)

    @cached_property
    def class_lister(self) -> Classes:
        return Classes(self.classes)

    def may_err(self, expression: str) -> bool:
        """Returns True if the selector fails on any device; the answer is cached."""
        result = self._may_err.get(expression)
        if result is None:
            devices = (
                (slice_.spec.driver, device)
                for slice_ in self.slices
                for device in slice_.spec.devices
            )
            result = any(selectors.has_error(expression, *device) for device in devices)
            self._may_err[expression] = result
        return result

    @cached_property
    def _may_err(self) -> dict[str, bool]:
        return {}

    @cached_property
    def untainted_devices(self) -> dict[str, set[DeviceId]]:
        """The devices without blocking taints, by node name."""
        by_node: dict[str, set[DeviceId]] = {}
        for slice_ in self.tainted_slices:
            spec = slice_.spec
            devices = by_node.setdefault(spec.node_name, set())
            for device in spec.devices:
                if not taints.blocking_taint(device.taints, ()):
                    devices.add((spec.driver, spec.pool.name, device.name))
        return by_node


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """The cluster at one moment."""

    nodes: Sequence[Node]
    pods: Mapping[str, Pod]  # by uid
    claims: Mapping[str, Claim]  # by namespace/name
    published: PublishedDevices = PublishedDevices()
    namespaces: Mapping[str, Mapping[str, str]] = dataclasses.field(default_factory=dict)  # labels
    budgets: Sequence[DisruptionBudget] = ()
    groups: Mapping[str, PodGroup] = dataclasses.field(default_factory=dict)  # by namespace/name

    @classmethod
    def from_objects(
        cls,
        nodes: Iterable[Node],
        pods: Iterable[Pod],
        claims: Iterable[Claim],
        published: PublishedDevices | None = None,
        namespaces: Mapping[str, Mapping[str, str]] = types.MappingProxyType({}),
        budgets: Sequence[DisruptionBudget] = (),
    ) -> Snapshot:
        return cls(
            sorted(nodes, key=lambda node: node.metadata.name),
            {pod.metadata.uid: pod for pod in pods},
            {claim.key: claim for claim in claims},
            published or PublishedDevices(),
            namespaces,
            budgets,
        )

    @cached_property
    def nodes_by_name(self) -> dict[str, Node]:
        return {node.metadata.name: node for node in self.nodes}

    @cached_property
    def watchful_pods(self) -> list[Pod]:
        """The placed pods that have affinity or anti-affinity to other pods."""
        pods = self.pods.values()
        placed = [pod for pod in pods if pod.spec.node_name and not pod.has_ended]
        return [pod for pod in placed if is_watchful(pod)]

    @cached_property
    def has_soft_taints(self) -> bool:
        """True if a node has a PreferNoSchedule taint."""
        return any(
            taint.effect == "PreferNoSchedule" for node in self.nodes for taint in node.spec.taints
        )

    @cached_property
    def used_resources(self) -> dict[str, Amounts]:
        """The resources that the pods of each node request, by node name."""
        used: dict[str, Amounts] = {node.metadata.name: {} for node in self.nodes}
        for pod in self.pods.values():
            if pod.spec.node_name in used and not pod.has_ended:
                resources.add(used[pod.spec.node_name], resources.pod_requests(pod))
        return used

    @cached_property
    def pods_by_node(self) -> dict[str, list[Pod]]:
        """The pods that are placed on each node, by node name."""
        by_node: dict[str, list[Pod]] = {}
        for pod in self.pods.values():
            if pod.spec.node_name and not pod.has_ended:
                by_node.setdefault(pod.spec.node_name, []).append(pod)
        return by_node

    @cached_property
    def nominated_pods(self) -> dict[str, list[Pod]]:
        """The pending pods that are nominated for each node, by node name."""
        by_node: dict[str, list[Pod]] = {}
        for pod in self.pods.values():
            node = pod.status.nominated_node_name
            if node and _is_pending(pod):
                by_node.setdefault(node, []).append(_place(pod, node))
        return by_node

    @property
    def placement(self) -> Placement:
        return Placement(
            nodes=self.nodes_by_name,
            pods_by_node=self.pods_by_node,
            used=self.used_resources,
            watchful=self.watchful_pods,
            namespaces=self.namespaces,
            promised=self.nominated_pods,
            by_class=self.published.class_by_resource,
        )

    @cached_property
    def features(self) -> features.Features:
        claims = self.claims.values()
        return self.published.features | features.detect((), claims, self.published.of_itself)

    @cached_property
    def allocated_state(self) -> state.AllocatedState:
        return state.gather_from_claims(self.claims.values(), self.features)

    @cached_property
    def allocator(self) -> Allocator:
        return Allocator(
            class_lister=self.published.class_lister,
            slices=self.published.tainted_slices,
            allocated=self.allocated_state,
            features=self.features,
        )

    def count_free_devices(self, node: Node) -> int:
        """Returns how many untainted devices of the node are not allocated."""
        devices = self.published.untainted_devices.get(node.metadata.name, set())
        return len(devices.difference(self.allocated_state.devices))

    def with_groups(self, groups: Iterable[PodGroup]) -> Snapshot:
        """Returns the snapshot with these PodGroups."""
        return dataclasses.replace(self, groups={group.key: group for group in groups})

    def group_of(self, pod: Pod) -> PodGroup | None:
        """Returns the PodGroup of the pod, or None if it does not exist or the pod has none."""
        return self.groups.get(f"{pod.metadata.namespace}/{pod.group}") if pod.group else None

    def members_of(self, group: PodGroup) -> pod_groups.Members:
        metadata = group.metadata
        return pod_groups.find_members(self.pods.values(), metadata.namespace, metadata.name)

    def pending_pods(self) -> list[Pod]:
        """Returns the unscheduled pods in the order of the queue."""
        pending = [pod for pod in self.pods.values() if _is_pending(pod)]
        return sorted(pending, key=pod_groups.queue_position)

    def with_decision(self, pod: Pod, claims: Iterable[Claim], node: str) -> Snapshot:
        """Returns the snapshot after the pod is placed on the node with these claims.

        Costly values are copied with the small change. Otherwise, a queue of a thousand pods
        would recount the whole cluster a thousand times.
        """
        placed = _place(pod, node)
        pods = {**self.pods, pod.metadata.uid: placed}
        changed = {claim.key: claim for claim in claims}
        claims_after = {**self.claims, **changed}
        after = dataclasses.replace(self, pods=pods, claims=claims_after)

        computed = self.__dict__
        if "used_resources" in computed and node in self.used_resources:
            used_on_node = dict(self.used_resources[node])
            resources.add(used_on_node, resources.pod_requests(pod))
            after.__dict__["used_resources"] = {**self.used_resources, node: used_on_node}

        if "pods_by_node" in computed:
            neighbours = [*self.pods_by_node.get(node, ()), placed]
            after.__dict__["pods_by_node"] = {**self.pods_by_node, node: neighbours}
        for name in ("nodes_by_name", "has_soft_taints"):
            if name in computed:
                after.__dict__[name] = computed[name]
        if "nominated_pods" in computed and not pod.status.nominated_node_name:
            after.__dict__["nominated_pods"] = self.nominated_pods
        if "watchful_pods" in computed:
            watchful = self.watchful_pods
            after.__dict__["watchful_pods"] = (
                [*watchful, placed] if is_watchful(placed) else watchful
            )

        # Allocated devices are added to the known ones, instead of counting all claims again.
        if "allocated_state" in computed and "features" in computed:
            newly_allocated = [
                claim for key, claim in changed.items() if not self._is_allocated(key)
            ]
            more = state.gather_from_claims(newly_allocated, self.features)
            after.__dict__["features"] = self.features
            after.__dict__["allocated_state"] = state.merge(self.allocated_state, more)
        return after

    def with_nomination(self, pod: Pod, node: str) -> Snapshot:
        """Returns the snapshot with the pod's nomination for the node; "" removes it."""
        known = self.pods.get(pod.metadata.uid, pod)
        status = msgspec.structs.replace(known.status, nominated_node_name=node)
        promised = msgspec.structs.replace(known, status=status)
        after = dataclasses.replace(self, pods={**self.pods, pod.metadata.uid: promised})

        # No other cached value depends on nominations.
        for name, value in self.__dict__.items():
            if name not in after.__dict__ and name != "nominated_pods":
                after.__dict__[name] = value
        return after

    def _is_allocated(self, key: str) -> bool:
        claim = self.claims.get(key)
        return claim is not None and claim.status.allocation is not None


def _is_pending(pod: Pod) -> bool:
    spec = pod.spec
    if spec.scheduler_name not in ("", "default-scheduler"):
        return False
    if spec.node_name or spec.scheduling_gates:
        return False
    return not (pod.metadata.deletion_timestamp or pod.has_ended)


def _place(pod: Pod, node: str) -> Pod:
    spec = msgspec.structs.replace(pod.spec, node_name=node)
    return msgspec.structs.replace(pod, spec=spec)
