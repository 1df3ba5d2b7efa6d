"""Where the objects are: one counter of versions, lists as of a version, and the changes since, as
far back as kept.

Objects are never changed, only replaced. What a kind allows is not decided here; there is no HTTP
and no clock.
"""

from __future__ import annotations

import base64
import binascii
import json
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from ....api.document import Document
from ..types import status_errors
from ..types.resource import GroupResource

Key = tuple[str, str]  # namespace, name
Predicate = Callable[[Document], bool]

TOO_OLD_TO_CONTINUE = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)


@dataclass(frozen=True, slots=True)
class Change:
    resource_version: int
    resource: GroupResource
    name: Key
    old: Document | None  # None: created
    new: Document | None  # None: deleted
    last: (
        Document  # what an event shows: for a deletion the last state, with the deletion's version
    )


@dataclass(frozen=True)
class Page:
    items: list[Document]
    resource_version: int
    continue_token: str = ""  # the continue token
    remaining_item_count: int | None = None


@dataclass(eq=False)
class Watcher:
    """Gets the changes of one resource after a version, through `wake` when there are some."""

    resource: GroupResource
    wake: Callable[[], None]
    pending: deque[Change] = field(default_factory=deque)
    overflowed: bool = False  # more came than it took: it has to begin anew


class Store:
    """`window` is how many changes are kept for watches and for lists as of an older version."""

    def __init__(self, window: int = 10_000, first_resource_version: int = 1) -> None:
        self.resource_version = first_resource_version
        self.window = window
        self._objects: dict[GroupResource, dict[Key, Document]] = {}
        self._changes: deque[Change] = deque()
        self._compacted = first_resource_version  # changes up to this version are gone
        self._watchers: set[Watcher] = set()
        self.listeners: list[
            Callable[[Change], None]
        ] = []  # called with each change, within it; they change nothing

    # ------------------------------------------------------------ reading

    def get(self, resource: GroupResource, namespace: str, name: str) -> Document:
        found = self._objects.get(resource, {}).get((namespace, name))
        if found is None:
            raise status_errors.not_found(resource, name)
        return found

    def find(self, resource: GroupResource, namespace: str, name: str) -> Document | None:
        return self._objects.get(resource, {}).get((namespace, name))

    def page(
        self,
        resource: GroupResource,
        namespace: str = "",
        selects: Predicate | None = None,
        limit: int = 0,
        continue_token: str = "",
        at: int | None = None,
    ) -> Page:
        """The objects in the order of their names, as of a version: that of the first page, or
        `at`, or now.
        """
        start: Key = ("", "")
        if continue_token:
            at, start = self._continued(continue_token)
        if at is not None and at > self.resource_version:
            raise status_errors.too_large_version(at, self.resource_version)
        if at is not None and at < self._compacted:
            raise status_errors.expired("The resourceVersion for the provided list is too old.")
        version = self.resource_version if at is None else at
        found = self._as_of(resource, version)
        names = sorted(name for name in found if not namespace or name[0] == namespace)
        names = names[bisect_right(names, start) :] if continue_token else names
        items: list[Document] = []
        for index, name in enumerate(names):
            if limit and len(items) == limit:
                token = _continue_token(version, names[index - 1])
                return Page(items, version, token, None if selects else len(names) - index)
            if selects is None or selects(found[name]):
                items.append(found[name])
        return Page(items, version)

    def _continued(self, continue_token: str) -> tuple[int, Key]:
        try:
            said = base64.urlsafe_b64decode(continue_token.encode()).decode("latin-1")
            version, namespace, name = json.loads(said)
            start = (str(namespace), str(name))
        except ValueError as error:
            why = (
                "illegal base64 data"
                if isinstance(error, binascii.Error)
                else f"invalid character {said[:1]!r}"
            )
            why = why.replace("\\x", "\\u00") + " looking for beginning of value"
            raise status_errors.bad_request(
                f"invalid continue token: continue key is not valid: {why}"
            ) from error
        if int(version) < self._compacted:
            too_old = status_errors.expired(TOO_OLD_TO_CONTINUE)
            too_old.continue_token = _continue_token(self.resource_version, start)
            raise too_old
        return int(version), start

    def _as_of(self, resource: GroupResource, version: int) -> dict[Key, Document]:
        now = self._objects.get(resource, {})
        if version >= self.resource_version:
            return now
        then = dict(now)
        for change in reversed(self._changes):
            if change.resource_version <= version:
                break
            if change.resource == resource:
                if change.old is None:
                    then.pop(change.name, None)
                else:
                    then[change.name] = change.old
        return then

    # ------------------------------------------------------------ writing

    def create(self, resource: GroupResource, obj: Document) -> Document:
        name = key_of(obj)
        if name in self._objects.get(resource, {}):
            raise status_errors.already_exists(resource, name[1])
        return self._write(resource, name, None, obj)

    def replace(self, resource: GroupResource, old: Document, new: Document) -> Document:
        """Puts the new object where the old one is; the same content is no change. `old` must be
        what is stored.
        """
        name = key_of(old)
        if self._objects.get(resource, {}).get(name) is not old:
            why = "the object has been modified; please apply your changes to the latest version and try again"
            raise status_errors.conflict(resource, name[1], why)
        version = old["metadata"]["resourceVersion"]
        same = new | {"metadata": new["metadata"] | {"resourceVersion": version}}
        return old if same == old else self._write(resource, name, old, new)

    def delete(self, resource: GroupResource, old: Document) -> Document:
        """What was there, with the version of its end."""
        name = key_of(old)
        if self._objects.get(resource, {}).get(name) is not old:
            raise status_errors.not_found(resource, name[1])
        del self._objects[resource][name]
        self.resource_version += 1
        last = _with_version(old, self.resource_version)
        self._publish(Change(self.resource_version, resource, name, old, None, last))
        return last

    def _write(
        self, resource: GroupResource, name: Key, old: Document | None, new: Document
    ) -> Document:
        self.resource_version += 1
        stored = _with_version(new, self.resource_version)
        self._objects.setdefault(resource, {})[name] = stored
        self._publish(Change(self.resource_version, resource, name, old, stored, stored))
        return stored

    def restore(self, resource: GroupResource, obj: Document) -> None:
        """An object of an earlier server's, as it was. No change: nobody watches yet."""
        self._objects.setdefault(resource, {})[key_of(obj)] = obj

    def restart(self, version: int) -> None:
        """Goes on from an earlier server's version; what it kept of its changes is gone."""
        self.resource_version = self._compacted = version

    # ------------------------------------------------------------ watching

    def watch(
        self, resource: GroupResource, wake: Callable[[], None], since: int | None = None
    ) -> Watcher:
        """A watcher that has every change after the version, or from now on. 410 if they are not
        all there any more.
        """
        watcher = Watcher(resource, wake)
        if since is not None:
            if since > self.resource_version:
                raise status_errors.too_large_version(since, self.resource_version)
            if since < self._compacted:
                raise status_errors.expired(
                    f"too old resource version: {since} ({self._compacted})"
                )
            watcher.pending.extend(self._since(resource, since))
        self._watchers.add(watcher)
        return watcher

    @property
    def watching(self) -> int:
        return len(self._watchers)

    def stop(self, watcher: Watcher) -> None:
        self._watchers.discard(watcher)

    def compact(self) -> None:
        """Drops every kept change, as a compaction does: watches from before now get 410."""
        self._changes.clear()
        self._compacted = self.resource_version

    def _since(self, resource: GroupResource, version: int) -> Iterator[Change]:
        return (
            change
            for change in self._changes
            if change.resource_version > version and change.resource == resource
        )

    def _publish(self, change: Change) -> None:
        self._changes.append(change)
        while len(self._changes) > self.window:
            self._compacted = self._changes.popleft().resource_version
        for listener in self.listeners:
            listener(change)
        for watcher in self._watchers:
            if watcher.resource == change.resource and not watcher.overflowed:
                watcher.pending.append(change)
                watcher.overflowed = len(watcher.pending) > self.window
                watcher.wake()


def watch_event(change: Change, selects: Predicate | None = None) -> tuple[str, Document] | None:
    """How a watch with this selection sees the change: an object that leaves the selection is
    deleted for it.
    """
    before = change.old is not None and (selects is None or selects(change.old))
    after = change.new is not None and (selects is None or selects(change.new))
    if after:
        return ("MODIFIED" if before else "ADDED"), change.last
    if not before:
        return None
    assert change.old is not None
    return "DELETED", _with_version(change.old, change.resource_version)


def key_of(obj: Document) -> Key:
    metadata = obj["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


def _with_version(obj: Document, version: int) -> Document:
    return obj | {"metadata": obj["metadata"] | {"resourceVersion": str(version)}}


def _continue_token(version: int, name: Key) -> str:
    return base64.urlsafe_b64encode(json.dumps([version, *name]).encode()).decode()
