"""Informers' objects as typed values, each parsed once.

And queueing hints: whether a change may help pods that found no place.
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
Salvage = Callable[[Document, str], Any]  # of an object and of what is wrong with it
QueueingHint = Callable[[Any, Any], bool]  # of the object before and after; None: not there


class TypedLister(Generic[T]):
    """An object that cannot be read counts as absent, unless something of it can be salvaged."""

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
        """Takes over what the cache has now. Whether something changed that may help."""
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
    """A null is a field that is not there, as clients in Go write and read it."""
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value if item is not None]
    return value


def salvage_claim(document: Document, problem: str) -> UnreadableClaim:
    """The claim with the devices that it holds, each of them whole.

    A device that is given twice is worse than a pod that waits: what cannot be told is held.
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
    """Driver, pool and name of each; None if it cannot be told."""
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
    """Not by the heartbeats of its conditions."""
    if before is None or after is None:
        return True
    return _scheduling_part(before) != _scheduling_part(after)


def _scheduling_part(node: Node) -> object:
    return node.metadata.labels, node.spec, node.status.allocatable


def pod_freed_node(before: Pod | None, after: Pod | None) -> bool:
    """Whether it has had a place on a node, or the promise of one, and gives it back."""
    if before is None or before.has_ended:
        return False
    if not before.spec.node_name:
        promised = before.status.nominated_node_name
        return bool(promised) and (after is None or not after.status.nominated_node_name)
    return after is None or after.has_ended


def pod_came_near(before: Pod | None, after: Pod | None) -> bool:
    """Whether others that want to be near to some pod, or spread with it, may find more now."""
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
    """Or can be read again."""
    if isinstance(before, UnreadableClaim):
        return True
    if before is None or not before.status.allocation:
        return False
    return after is None or not after.status.allocation
