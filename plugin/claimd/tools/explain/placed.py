"""Pods that run on nodes, reduced to the facts that the scheduling of other pods depends on.

A large cluster has many such pods. Equal parts of them are therefore shared.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from claimd.kubernetes.scheduling import preemption, resources
from claimd.kubernetes.scheduling.objects import Condition, Meta, Pod, PodStatus


class PlacedPod(NamedTuple):
    """A pod on a node: its requests, and the properties that preemption looks at.

    `pod` is the pod itself if it opens ports of the node. Otherwise it is a nameless pod that
    stands for all pods of the namespace with the same labels.
    """

    key: str
    node: str
    requests: Mapping[str, int]
    pod: Pod
    priority: int = 0
    started: str = ""
    is_preempted: bool = False

    def as_victim(self) -> Pod:
        """Returns a pod of its own for preemption, without requests. Its uid is its key."""
        _, _, name = self.key.rpartition("/")
        conditions = []
        if self.is_preempted:
            disruption = Condition(
                type=preemption.DISRUPTION_TARGET, status="True", reason=preemption.BY_SCHEDULER
            )
            conditions.append(disruption)

        return msgspec.structs.replace(
            self.pod,
            metadata=msgspec.structs.replace(self.pod.metadata, name=name, uid=self.key),
            spec=msgspec.structs.replace(
                self.pod.spec, node_name=self.node, priority=self.priority
            ),
            status=PodStatus(start_time=self.started, conditions=conditions),
        )


class PodReducer:
    """Reduces pods to PlacedPods that share their equal parts."""

    def __init__(self) -> None:
        # Requests by their text. Many pods have the same.
        self._requests: dict[str, Mapping[str, int]] = {}
        # One pod by namespace, labels and whether it is being deleted.
        self._representatives: dict[tuple[str, str, bool], Pod] = {}

    def reduce(self, pod: Pod) -> PlacedPod:
        """Returns the reduced form of a pod that has a node."""
        requests = resources.pod_requests(pod)
        return PlacedPod(
            pod.key,
            pod.spec.node_name,
            self._requests.setdefault(str(requests), requests),
            pod if pod.host_ports else self._representative_of(pod),
            priority=preemption.priority_of(pod),
            started=pod.status.start_time,
            is_preempted=preemption.is_preempted(pod),
        )

    def _representative_of(self, pod: Pod) -> Pod:
        metadata = pod.metadata
        key = (metadata.namespace, str(metadata.labels), bool(metadata.deletion_timestamp))
        if key not in self._representatives:
            # Rules about other pods look at nothing else.
            shared = Meta(
                namespace=metadata.namespace,
                labels=metadata.labels,
                deletion_timestamp=metadata.deletion_timestamp,
            )
            self._representatives[key] = Pod(metadata=shared)
        return self._representatives[key]
