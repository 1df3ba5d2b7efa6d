"""The cluster at one moment as decisions need it: what is taken of each node and device. Values
only.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec

from ...allocator import Allocator, Classes, features, state, taints
from ...allocator.extended import classes_by_resource
from . import resources
from .objects import Claim, Node, Pod, Rule, Slice

if TYPE_CHECKING:
    from ...api.scheduling import DeviceClass
    from .resources import Amounts


@dataclasses.dataclass(frozen=True)
class Published:
    """What drivers and administrators say of devices: changes rarely, and is costly to prepare."""

    slices: Sequence[Slice] = ()
    rules: Sequence[Rule] = ()
    classes: Sequence[DeviceClass] = ()

    @cached_property
    def tainted(self) -> list[Slice]:
        return taints.apply_rules(self.slices, self.rules)

    @cached_property
    def features(self) -> features.Features:
        return features.in_use(self.slices, ())

    @cached_property
    def by_resource(self) -> dict[str, DeviceClass]:
        return classes_by_resource(self.classes)

    @cached_property
    def class_lister(self) -> Classes:
        return Classes(self.classes)

    @cached_property
    def devices_of(self) -> dict[str, set[tuple[str, str, str]]]:
        """Those without a taint, by the node's name."""
        found: dict[str, set[tuple[str, str, str]]] = {}
        for slice_ in self.tainted:
            spec = slice_.spec
            devices = found.setdefault(spec.node_name, set())
            good = [
                device.name for device in spec.devices if not taints.blocking(device.taints, ())
            ]
            devices.update((spec.driver, spec.pool.name, name) for name in good)
        return found


@dataclasses.dataclass(frozen=True)
class World:
    nodes: Sequence[Node]
    pods: Mapping[str, Pod]  # by uid
    claims: Mapping[str, Claim]  # by namespace/name
    published: Published = Published()

    @classmethod
    def of(
        cls,
        nodes: Iterable[Node],
        pods: Iterable[Pod],
        claims: Iterable[Claim],
        published: Published | None = None,
    ) -> World:
        return cls(
            sorted(nodes, key=lambda node: node.metadata.name),
            {pod.metadata.uid: pod for pod in pods},
            {claim.key: claim for claim in claims},
            published or Published(),
        )

    @cached_property
    def used(self) -> dict[str, Amounts]:
        """What the pods of each node ask for."""
        found: dict[str, Amounts] = {node.metadata.name: {} for node in self.nodes}
        for pod in self.pods.values():
            if pod.spec.node_name in found and not pod.ended:
                resources.add(found[pod.spec.node_name], resources.of_pod(pod))
        return found

    @cached_property
    def enabled(self) -> features.Features:
        return self.published.features | features.in_use((), self.claims.values())

    @cached_property
    def allocated(self) -> state.AllocatedState:
        return state.of_claims(self.claims.values(), self.enabled)

    @cached_property
    def allocator(self) -> Allocator:
        return Allocator(
            class_lister=self.published.class_lister,
            slices=self.published.tainted,
            allocated=self.allocated,
            features=self.enabled,
        )

    def free(self, node: Node) -> int:
        """How many devices of the node are good and nobody's."""
        return len(
            self.published.devices_of.get(node.metadata.name, set()).difference(
                self.allocated.devices
            )
        )

    def pending(self) -> list[Pod]:
        """The pods that want a node, in the order of their turns."""
        waiting = [pod for pod in self.pods.values() if _waits(pod)]
        return sorted(
            waiting,
            key=lambda pod: (-_priority(pod), pod.metadata.creation_timestamp, pod.metadata.name),
        )

    def after(self, pod: Pod, claims: Iterable[Claim], node: str) -> World:
        """As it will be when the pod is on the node and the claims are as given."""
        spec = msgspec.structs.replace(pod.spec, node_name=node)
        pods = {**self.pods, pod.metadata.uid: msgspec.structs.replace(pod, spec=spec)}
        changed = {claim.key: claim for claim in claims}
        new = World(self.nodes, pods, {**self.claims, **changed}, self.published)
        # What is dear to compute is not computed again for what little has changed.
        if "used" in self.__dict__ and node in self.used:
            taken = dict(self.used[node])
            resources.add(taken, resources.of_pod(pod))
            new.__dict__["used"] = {**self.used, node: taken}
        fresh = [
            claim
            for key, claim in changed.items()
            if not (old := self.claims.get(key)) or not old.status.allocation
        ]
        if "allocated" in self.__dict__ and "enabled" in self.__dict__:
            new.__dict__["enabled"] = self.enabled
            new.__dict__["allocated"] = state.together(
                self.allocated, state.of_claims(fresh, self.enabled)
            )
        return new


def _waits(pod: Pod) -> bool:
    spec = pod.spec
    ours = spec.scheduler_name in ("", "default-scheduler")
    return ours and not (
        spec.node_name or spec.scheduling_gates or pod.metadata.deletion_timestamp or pod.ended
    )


_CRITICAL = {"system-node-critical": 2_000_001_000, "system-cluster-critical": 2_000_000_000}


def _priority(pod: Pod) -> int:
    if pod.spec.priority is not None:
        return pod.spec.priority
    return _CRITICAL.get(pod.spec.priority_class_name, 0)
