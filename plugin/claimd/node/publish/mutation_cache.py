"""Our own writes, laid over an informer's copy for as long as it does not show them yet.

A watch lags behind: right after a write, the copy still has the object from before, and whoever
decided on it would write again. What somebody else changes after our write must show, though, at
once and even if the change puts back what was there before. Versions tell the two apart: a
resourceVersion, or "" where there is no object.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

import msgspec

from claimd.kubernetes.api.document import Document


class _Mutation(msgspec.Struct, frozen=True):
    """One write of ours that the informer had not shown when its answer came."""

    result: Document | None  # None: the object was deleted
    superseded: frozenset[str]  # the versions before it: as long as one of them is shown, it lags
    until: float  # when we believe the informer again, whatever it shows; by the loop's clock


class MutationCache:
    """Knows of one kind of object in one informer. One write may be under way at a time."""

    def __init__(self) -> None:
        self._mutations: dict[str, _Mutation] = {}  # by the object's name

        # Of the write under way: its object, the version that it writes over, and the versions that
        # the informer has shown since it began.
        self._name = ""
        self._before = ""
        self._shown: set[str] = set()

    @contextlib.contextmanager
    def writing(
        self, name: str, current: Document | None, objects: Mapping[str, Document]
    ) -> Iterator[None]:
        """While this object is being written. `current` is what we take it to be now."""
        self._name = name
        self._before = _version(current)
        self._shown = {_version(objects.get(name))}
        try:
            yield
        finally:
            self._name = ""

    def observe(self, objects: Mapping[str, Document]) -> None:
        """The informer has changed to this. Must be called at every change.

        This is the moment to see what it has caught up with: the next change may already be that
        somebody takes our write back. The event of a write may also overtake its answer.
        """
        if self._name:
            self._shown.add(_version(objects.get(self._name)))
        for name, mutation in list(self._mutations.items()):
            if _version(objects.get(name)) not in mutation.superseded:
                del self._mutations[name]

    def on_answer(self, name: str, result: Document | None, until: float) -> None:
        """The answer to the write under way: the object as it is now, or None if it is deleted."""
        earlier = self._mutations.pop(name, None)
        version = _version(result)

        # The informer was faster than the answer: it shows the write, or what came after it.
        if version in self._shown:
            return

        superseded = self._shown | {self._before}
        if earlier is not None:
            superseded |= earlier.superseded
        self._mutations[name] = _Mutation(result, frozenset(superseded - {version}), until)

    def overlay(self, objects: Mapping[str, Document], now: float) -> dict[str, Document]:
        """The informer's objects, with our writes over them."""
        view = dict(objects)
        for name, mutation in list(self._mutations.items()):
            if now >= mutation.until:
                del self._mutations[name]
            elif mutation.result is None:
                view.pop(name, None)
            else:
                view[name] = mutation.result
        return view

    def deadlines(self) -> list[float]:
        """When the overlay changes although nothing happens."""
        return [mutation.until for mutation in self._mutations.values()]


def _version(object_: Document | None) -> str:
    return str(object_["metadata"]["resourceVersion"]) if object_ else ""
