"""Collections as typed objects, each parsed once, and whether a change may help those that found no
place.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from ...api.document import Document
from ..client import Collection
from .objects import Claim, Node, Pod

log = logging.getLogger(__name__)

T = TypeVar("T")
Helps = Callable[[Any, Any], bool]  # of the object before and after; None where it is not there


class View(Generic[T]):
    """An object that cannot be read counts as absent."""

    def __init__(self, collection: Collection, type_: type[T], helps: Helps) -> None:
        self.values: dict[str, T] = {}
        self.documents: dict[str, Document] = {}
        self._collection = collection
        self._type = type_
        self._helps = helps

    def refresh(self) -> bool:
        """Whether something has changed that may help."""
        helpful = False
        now = self._collection.objects
        for key in [key for key in self.documents if key not in now]:
            del self.documents[key]
            helpful |= self._replace(key, None)
        for key, document in now.items():
            if self.documents.get(key) is not document:
                self.documents[key] = document
                helpful |= self._replace(key, self._parsed(key, document))
        return helpful

    def _replace(self, key: str, new: T | None) -> bool:
        old = self.values.pop(key, None)
        if new is not None:
            self.values[key] = new
        return self._helps(old, new)

    def _parsed(self, key: str, document: Document) -> T | None:
        try:
            return msgspec.json.decode(msgspec.json.encode(document), type=self._type)
        except msgspec.ValidationError as error:
            log.warning("%s %s is passed over: %s", self._collection.kind, key, error)
            return None


def new_spec(old: Any, new: Any) -> bool:
    return old is None or new is None or bool(old.spec != new.spec)


def node_changed(old: Node | None, new: Node | None) -> bool:
    return old is None or new is None or _of_node(old) != _of_node(new)


def _of_node(node: Node) -> object:
    return node.metadata.labels, node.spec, node.status.allocatable


def pod_left(old: Pod | None, new: Pod | None) -> bool:
    """It has had a place, and gives it back."""
    return (
        old is not None
        and bool(old.spec.node_name)
        and not old.ended
        and (new is None or new.ended)
    )


def claim_freed(old: Claim | None, new: Claim | None) -> bool:
    return (
        old is not None
        and bool(old.status.allocation)
        and (new is None or not new.status.allocation)
    )
