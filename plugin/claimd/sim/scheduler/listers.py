"""Cached objects as typed values, each parsed once, and queueing hints.

A queueing hint tells whether a change may make an unschedulable pod schedulable.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from claimd.kubernetes.api import scheduling
from claimd.kubernetes.api.document import Document
from claimd.kubernetes.scheduling.objects import (
    Allocation,
    Claim,
    ClaimStatus,
    Meta,
    Node,
    Pod,
    UnreadableClaim,
)

from ..assume_cache import AssumeCache

log = logging.getLogger(__name__)

T = TypeVar("T")
Salvage = Callable[[Document, str], Any]  # takes an object and what is wrong with it
QueueingHint = Callable[[Any, Any], bool]  # takes the object before and after; None if absent


class TypedLister(Generic[T]):
    """The typed values of one resource.

    An unreadable object counts as absent unless it can be salvaged.
    """

    def __init__(
        self,
        cache: AssumeCache,
        type_: type[T],
        hint: QueueingHint,
        salvage: Salvage = lambda _, __: None,
    ) -> None:
        self.values: dict[str, T] = {}
        self.documents: dict[str, Document] = {}
        self._cache = cache
        self._type = type_
        self._hint = hint
        self._salvage = salvage

    def refresh(self) -> bool:
        """Takes over the cache's objects. Returns True if a change may help unschedulable pods."""
        helps = False
        current = self._cache.objects
        for key in [key for key in self.documents if key not in current]:
            del self.documents[key]
            helps |= self._replace(key, None)

        for key, document in current.items():
            if self.documents.get(key) is not document:
                self.documents[key] = document
                helps |= self._replace(key, self._parse(key, document))
        return helps

    def _replace(self, key: str, after: T | None) -> bool:
        before = self.values.pop(key, None)
        if after is not None:
            self.values[key] = after
        return self._hint(before, after)

    def _parse(self, key: str, document: Document) -> T | None:
        try:
            content = msgspec.json.encode(without_nulls(document))
            return msgspec.json.decode(content, type=self._type)
        except msgspec.ValidationError as error:
            log.warning("%s %s cannot be read: %s", self._cache.resource, key, error)
            salvaged: T | None = self._salvage(document, str(error))
            return salvaged


def without_nulls(value: Any) -> Any:
    """Removes nulls, which mean absent fields, as in Go clients."""
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value if item is not None]
    return value


def salvage_claim(document: Document, problem: str) -> UnreadableClaim:
    """Returns the claim with at least the devices that it holds.

    If they cannot be read, it counts as holding unknown devices: a waiting pod is better than a
    device that is allocated twice.
    """
    metadata = document["metadata"]
    devices = _held_devices(without_nulls(document))
    results = [
        scheduling.DeviceRequestAllocationResult(
            request="", driver=driver, pool=pool, device=device
        )
        for driver, pool, device in devices or ()
    ]
    allocation = Allocation(devices=scheduling.DeviceAllocationResult(results=results))
    holds_nothing = devices == []
    return UnreadableClaim(
        metadata=Meta(
            name=metadata["name"],
            namespace=metadata.get("namespace") or "",
            uid=str(metadata.get("uid") or ""),
        ),
        status=ClaimStatus(allocation=None if holds_nothing else allocation),
        problem=problem,
        is_holding_unknown=devices is None,
    )


def _held_devices(document: Document) -> list[tuple[str, str, str]] | None:
    """Returns (driver, pool, name) of each held device, or None if that is unreadable."""
    value: Any = document
    for field in ("status", "allocation", "devices", "results"):
        value = value.get(field, {} if field != "results" else [])
        if not isinstance(value, list if field == "results" else dict):
            return None

    devices: list[tuple[str, str, str]] = []
    for result in value:
        if not isinstance(result, dict):
            return None
        driver, pool, name = result.get("driver"), result.get("pool"), result.get("device")
        if not (isinstance(driver, str) and isinstance(pool, str) and isinstance(name, str)):
            return None
        devices.append((driver, pool, name))
    return devices


def spec_changed(before: Any, after: Any) -> bool:
    return before is None or after is None or bool(before.spec != after.spec)


def node_changed(before: Node | None, after: Node | None) -> bool:
    """Ignores heartbeats: returns True if labels, spec or allocatable have changed."""
    if before is None or after is None:
        return True
    return _scheduling_part(before) != _scheduling_part(after)


def _scheduling_part(node: Node) -> object:
    return node.metadata.labels, node.spec, node.status.allocatable


def pod_freed_node(before: Pod | None, after: Pod | None) -> bool:
    """Returns True if the pod has left its node, or lost its nomination for one."""
    if before is None or before.has_ended:
        return False
    if not before.spec.node_name:
        promised = before.status.nominated_node_name
        return bool(promised) and (after is None or not after.status.nominated_node_name)
    return after is None or after.has_ended


def pod_came_near(before: Pod | None, after: Pod | None) -> bool:
    """Returns True if this pod may help pods with affinity or spread constraints to find a node."""
    if after is None or not after.spec.node_name:
        return False
    return before is None or _neighbourly_part(before) != _neighbourly_part(after)


def _neighbourly_part(pod: Pod) -> object:
    metadata = pod.metadata
    return pod.spec.node_name, metadata.labels, bool(metadata.deletion_timestamp)


def labels_changed(before: Any, after: Any) -> bool:
    if before is None or after is None:
        return True
    return bool(before.metadata.labels != after.metadata.labels)


def claim_freed_devices(before: Claim | None, after: Claim | None) -> bool:
    """Returns True if the claim has released devices, or has become readable again."""
    if isinstance(before, UnreadableClaim):
        return True
    if before is None or not before.status.allocation:
        return False
    return after is None or not after.status.allocation
