"""PodGroups: pods that share claims, and gangs, which are placed together or not at all.

The rules are those of Kubernetes 1.37 with the gates GenericWorkload and DRAWorkloadResourceClaims.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from ..api import core, meta
from . import preemption
from .objects import GROUP, Consumer, Meta, Pod


class GangPolicy(meta.ApiStruct, frozen=True, kw_only=True):
    min_count: int = 1


class SchedulingPolicy(meta.ApiStruct, frozen=True, kw_only=True):
    gang: GangPolicy | None = None


class PodGroupSpec(meta.ApiStruct, frozen=True, kw_only=True):
    scheduling_policy: SchedulingPolicy = SchedulingPolicy()
    resource_claims: list[core.PodResourceClaim] = []
    priority: int | None = None


class PodGroupStatus(meta.ApiStruct, frozen=True, kw_only=True):
    resource_claim_statuses: list[core.PodResourceClaimStatus] = []


class PodGroup(meta.ApiStruct, frozen=True, kw_only=True):
    metadata: Meta
    spec: PodGroupSpec = PodGroupSpec()
    status: PodGroupStatus = PodGroupStatus()

    @property
    def key(self) -> str:
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def min_count(self) -> int:
        """The number of pods that are placed together or not at all; 0 if there is no gang."""
        gang = self.spec.scheduling_policy.gang
        return gang.min_count if gang else 0

    @property
    def as_consumer(self) -> Consumer:
        """The group in the form of a claim's `reservedFor`."""
        metadata = self.metadata
        return Consumer(api_group=GROUP, resource="podgroups", name=metadata.name, uid=metadata.uid)

    def has_claim(self, entry: core.PodResourceClaim) -> bool:
        """Returns True if the entry of a pod stands for a claim of the group.

        It does if the group has the same entry.
        """
        return entry in self.spec.resource_claims


@dataclasses.dataclass(frozen=True, kw_only=True)
class Members:
    """The pods of a group that a scheduler counts: those on nodes, and those that wait for one.

    `ready` are those that wait and may be placed. Pods that have ended are not counted.
    """

    placed: tuple[Pod, ...] = ()
    waiting: tuple[Pod, ...] = ()

    @property
    def count(self) -> int:
        return len(self.placed) + len(self.waiting)

    @property
    def ready(self) -> list[Pod]:
        """The waiting pods that may be placed, in the order of the queue."""
        ready = []
        for pod in self.waiting:
            if not pod.spec.scheduling_gates and not pod.metadata.deletion_timestamp:
                ready.append(pod)
        return sorted(ready, key=queue_position)


def find_members(pods: Iterable[Pod], namespace: str, group: str) -> Members:
    """Returns the pods of the group, without those that another scheduler has to place."""
    placed, waiting = [], []
    for pod in pods:
        if (pod.metadata.namespace, pod.group) != (namespace, group) or pod.has_ended:
            continue
        if pod.spec.node_name:
            placed.append(pod)
        elif pod.spec.scheduler_name in ("", "default-scheduler"):
            waiting.append(pod)
    return Members(placed=tuple(placed), waiting=tuple(waiting))


def queue_position(pod: Pod) -> tuple[int, str, str]:
    """Returns the sort key of a pod in the scheduler's queue."""
    metadata = pod.metadata
    return -preemption.priority_of(pod), metadata.creation_timestamp, metadata.name


def priority_of(group: PodGroup) -> int:
    return group.spec.priority or 0
