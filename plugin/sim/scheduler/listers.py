"""Informers' objects as typed values, each parsed once.

And queueing hints: whether a change may help pods that found no place.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from ...api.document import Document
from ...scheduling.objects import Claim, Node, Pod
from ..assume_cache import AssumeCache

log = logging.getLogger(__name__)

T = TypeVar("T")
QueueingHint = Callable[[Any, Any], bool]  # of the object before and after; None: not there


class TypedLister(Generic[T]):
    """An object that cannot be read counts as absent."""

    def __init__(self, cache: AssumeCache, type_: type[T], hint: QueueingHint) -> None:
        self.values: dict[str, T] = {}
        self.documents: dict[str, Document] = {}
        self._cache = cache
        self._type = type_
        self._hint = hint

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
            return msgspec.json.decode(msgspec.json.encode(document), type=self._type)
        except msgspec.ValidationError as error:
            log.warning("%s %s is passed over: %s", self._cache.resource, key, error)
            return None


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
    """Whether it has had a place on a node and gives it back."""
    if before is None or not before.spec.node_name or before.has_ended:
        return False
    return after is None or after.has_ended


def claim_freed_devices(before: Claim | None, after: Claim | None) -> bool:
    if before is None or not before.status.allocation:
        return False
    return after is None or not after.status.allocation
