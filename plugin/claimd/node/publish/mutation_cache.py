"""Our own recent writes, which replace an informer's objects until the informer shows the writes.

A watch lags behind. Right after a write the informer still has the old object, and a decision based
on it would write again. But if another client changes the object after our write, that change must
show at once, even if it restores the old content. The two cases differ by the resourceVersion,
which is "" if there is no object.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

import msgspec

from claimd.kubernetes.api.document import Document


class _Mutation(msgspec.Struct, frozen=True):
    """A write of ours that the informer did not show yet when the answer came."""

    result: Document | None  # None: the object was deleted
    superseded: frozenset[str]  # the earlier versions; an informer that shows one of them lags
    until: float  # when to believe the informer again, by the loop's clock


class MutationCache:
    """The recent writes to one kind of object. Only one write may be running at a time."""

    def __init__(self) -> None:
        self._mutations: dict[str, _Mutation] = {}  # by the object's name

        # The running write: the object's name, the version that the write replaces, and the
        # versions that the informer has shown since the write began.
        self._name = ""
        self._before = ""
        self._shown: set[str] = set()

    @contextlib.contextmanager
    def writing(
        self, name: str, current: Document | None, objects: Mapping[str, Document]
    ) -> Iterator[None]:
        """Encloses the write of one object. `current` is the object as we believe it to be now."""
        self._name = name
        self._before = _version(current)
        self._shown = {_version(objects.get(name))}
        try:
            yield
        finally:
            self._name = ""

    def observe(self, objects: Mapping[str, Document]) -> None:
        """Notes the objects that the informer shows now. Must be called at every change of the
        informer.

        Only at this moment can we see that the informer has caught up with a write: the next change
        may be a revert by another client. The event of a write may also arrive before its answer.
        """
        if self._name:
            self._shown.add(_version(objects.get(self._name)))
        for name, mutation in list(self._mutations.items()):
            if _version(objects.get(name)) not in mutation.superseded:
                del self._mutations[name]

    def on_answer(self, name: str, result: Document | None, until: float) -> None:
        """Notes the answer to the running write.

        `result` is the object as it is now, or None if it is deleted. `until` is the time after
        which the informer is believed again.
        """
        earlier = self._mutations.pop(name, None)
        version = _version(result)

        # The informer was faster than the answer. It shows the write, or a later change.
        if version in self._shown:
            return

        superseded = self._shown | {self._before}
        if earlier is not None:
            superseded |= earlier.superseded
        self._mutations[name] = _Mutation(result, frozenset(superseded - {version}), until)

    def overlay(self, objects: Mapping[str, Document], now: float) -> dict[str, Document]:
        """Returns the informer's objects, with our recent writes in their place."""
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
        """Returns the times at which `overlay` may change although no event arrives."""
        return [mutation.until for mutation in self._mutations.values()]


def _version(object_: Document | None) -> str:
    return str(object_["metadata"]["resourceVersion"]) if object_ else ""
