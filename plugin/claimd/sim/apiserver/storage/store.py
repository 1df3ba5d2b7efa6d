"""The store of all objects: one counter of resource versions, lists, and the recent changes.

A stored object is a StoredObject. It is never changed, only replaced. The store knows no rules of
kinds, no HTTP and no clock.
"""

from __future__ import annotations

import base64
import binascii
import json
from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from claimd.kubernetes.api.document import Document

from ..types import status_errors
from ..types.resource import GroupResource
from ..types.selectors import Predicate
from ..types.stored_object import StoredObject

# The namespace and name of an object.
Key = tuple[str, str]

TOO_OLD_TO_CONTINUE = (
    "The provided continue parameter is too old to display a consistent list result. You can start "
    "a new list without the continue parameter, or use the continue token in this response to "
    "retrieve the remainder of the results. Continuing with the provided token results in an "
    "inconsistent list - objects that were created, modified, or deleted between the time the "
    "first chunk was returned and now may show up in the list."
)


@dataclass(frozen=True, slots=True)
class Change:
    """One write. `last` is the object of its watch event.

    The event of a deletion shows the last state with the version of the deletion.
    """

    resource_version: int
    resource: GroupResource
    key: Key
    # None if the object is created.
    old: Document | None
    # None if the object is deleted.
    new: Document | None
    last: Document


@dataclass(frozen=True)
class Page:
    """A part of a list. `remaining_item_count` is None if the number is unknown."""

    items: Sequence[Document]
    resource_version: int
    continue_token: str = ""
    remaining_item_count: int | None = None


@dataclass(eq=False)
class Watcher:
    """The queue of one watch: the changes of a resource that have not been sent yet.

    `wake` is called for each change.
    """

    resource: GroupResource
    wake: Callable[[], None]
    pending: deque[Change] = field(default_factory=deque)
    # The queue became too long and lacks changes, so the client must list again.
    overflowed: bool = False


class Store:
    """All objects, and the last `window` changes.

    Watches and lists of an older version go back as far as these changes do. Writes are
    compare-and-swap: `old` must be the very object that is stored.
    """

    def __init__(self, window: int = 10_000, first_resource_version: int = 1) -> None:
        self.resource_version = first_resource_version
        self.window = window
        # Called with each change before the write returns. A listener must not write.
        self.listeners: list[Callable[[Change], None]] = []
        self._objects: dict[GroupResource, dict[Key, Document]] = {}
        # The sorted keys of each resource, because lists are sorted. They are kept between
        # requests: there are thousands of objects, and each write adds at most one.
        self._keys: dict[GroupResource, list[Key]] = {}
        self._listed: dict[GroupResource, list[Document]] = {}
        self._changes: deque[Change] = deque()
        # Changes up to this version are dropped.
        self._compacted = first_resource_version
        self._watchers: dict[GroupResource, set[Watcher]] = {}

    # ------------------------------------------------------------ reading

    def get(self, resource: GroupResource, namespace: str, name: str) -> Document:
        """Returns the object, or raises a 404."""
        obj = self.find(resource, namespace, name)
        if obj is None:
            raise status_errors.not_found(resource, name)
        return obj

    def find(self, resource: GroupResource, namespace: str, name: str) -> Document | None:
        """Returns the object, or None."""
        return self._objects.get(resource, {}).get((namespace, name))

    def page(
        self,
        resource: GroupResource,
        namespace: str = "",
        predicate: Predicate | None = None,
        limit: int = 0,
        continue_token: str = "",
        exact: int | None = None,
    ) -> Page:
        """Returns one page of the objects, sorted by namespace and name.

        All pages of a list show the same version: the current one of the first page, or `exact`.
        Without a limit the list is one page. Raises a 410 for a version that is compacted, and a
        504 for one that does not exist yet.
        """
        after: Key = ("", "")
        if continue_token:
            exact, after = self._parse_continue_token(continue_token)
        version = self.resource_version if exact is None else exact
        if version > self.resource_version:
            raise status_errors.resource_version_too_large(version, self.resource_version)
        if exact is not None and version < self._compacted:
            raise status_errors.expired_version(
                "The resourceVersion for the provided list is too old."
            )

        objects, keys = self._as_of(resource, version)
        if namespace:
            keys = keys[bisect_left(keys, (namespace,)) : bisect_left(keys, (f"{namespace}\0",))]
        if continue_token:
            keys = keys[bisect_right(keys, after) :]

        if not limit and predicate is None:
            return Page(self._all(resource, objects, keys), version)

        items: list[Document] = []
        for index, key in enumerate(keys):
            if limit and len(items) == limit:
                token = _continue_token(version, keys[index - 1])
                # With a predicate the number of remaining matches is unknown.
                remaining = None if predicate else len(keys) - index
                return Page(items, version, token, remaining)
            if predicate is None or predicate(objects[key]):
                items.append(objects[key])
        return Page(items, version)

    def _parse_continue_token(self, token: str) -> tuple[int, Key]:
        """Returns the version of the list, and the key after which it continues."""
        text = ""
        try:
            text = base64.urlsafe_b64decode(token.encode()).decode("latin-1")
            parsed, namespace, name = json.loads(text)
            version, after = int(parsed), (str(namespace), str(name))
        except (ValueError, TypeError, OverflowError, RecursionError) as error:
            why = "illegal base64 data"
            if not isinstance(error, binascii.Error):
                # Go quotes a byte that is not ASCII in this way.
                why = f"invalid character {text[:1]!r}".replace("\\x", "\\u00")
            why = f"continue key is not valid: {why} looking for beginning of value"
            raise status_errors.bad_request(f"invalid continue token: {why}") from error

        if version < self._compacted:
            too_old = status_errors.expired_version(TOO_OLD_TO_CONTINUE)
            too_old.continue_token = _continue_token(self.resource_version, after)
            raise too_old
        return version, after

    def _all(
        self, resource: GroupResource, objects: dict[Key, Document], keys: Sequence[Key]
    ) -> Sequence[Document]:
        """Returns the objects of these keys.

        For all current objects of a resource this is the same list until one of them changes.
        """
        if keys is not self._keys.get(resource):
            return [objects[key] for key in keys]
        if resource not in self._listed:
            self._listed[resource] = [objects[key] for key in keys]
        return self._listed[resource]

    def _as_of(
        self, resource: GroupResource, version: int
    ) -> tuple[dict[Key, Document], Sequence[Key]]:
        """Returns the objects of a version, and their sorted keys."""
        now = self._objects.get(resource, {})
        if version >= self.resource_version:
            return now, self._keys.get(resource, ())

        # Undo the changes since that version, the latest one first.
        then = dict(now)
        for change in reversed(self._changes):
            if change.resource_version <= version:
                break
            if change.resource != resource:
                continue
            if change.old is None:
                then.pop(change.key, None)
            else:
                then[change.key] = change.old
        return then, sorted(then)

    # ------------------------------------------------------------ writing

    def create(self, resource: GroupResource, obj: Document) -> Document:
        """Stores a new object and returns it. Raises a 409 if one of this name exists."""
        key = key_of(obj)
        if key in self._objects.get(resource, {}):
            raise status_errors.already_exists(resource, key[1])
        return self._write(resource, key, None, obj)

    def replace(self, resource: GroupResource, old: Document, new: Document) -> Document:
        """Replaces an object and returns the stored one. Equal content makes no new version."""
        key = key_of(old)
        if self._objects.get(resource, {}).get(key) is not old:
            raise status_errors.modified_conflict(resource, key[1])
        version = old["metadata"]["resourceVersion"]
        same_version = new | {"metadata": new["metadata"] | {"resourceVersion": version}}
        if same_version == old:
            return old
        return self._write(resource, key, old, new)

    def delete(self, resource: GroupResource, old: Document) -> Document:
        """Removes an object. Returns its last state with the version of the deletion."""
        key = key_of(old)
        if self._objects.get(resource, {}).get(key) is not old:
            raise status_errors.not_found(resource, key[1])
        del self._objects[resource][key]

        keys = self._keys[resource]
        del keys[bisect_left(keys, key)]
        self._listed.pop(resource, None)

        self.resource_version += 1
        last = StoredObject(_with_version(old, self.resource_version))
        _supersede(old)
        self._publish(Change(self.resource_version, resource, key, old, None, last))
        return last

    def _write(
        self, resource: GroupResource, key: Key, old: Document | None, new: Document
    ) -> Document:
        self.resource_version += 1
        stored = StoredObject(_with_version(new, self.resource_version))
        if old is not None:
            _supersede(old)
        self._insert(resource, key, stored)
        self._publish(Change(self.resource_version, resource, key, old, stored, stored))
        return stored

    def _insert(self, resource: GroupResource, key: Key, stored: StoredObject) -> None:
        objects = self._objects.setdefault(resource, {})
        if key not in objects:
            insort(self._keys.setdefault(resource, []), key)
        objects[key] = stored
        self._listed.pop(resource, None)

    # ------------------------------------------------------------ objects of an earlier server

    def restore(self, resource: GroupResource, obj: Document) -> None:
        """Puts an object of an earlier server back, without a change for watchers."""
        self._insert(resource, key_of(obj), StoredObject(obj))

    def restart(self, resource_version: int) -> None:
        """Continues from the version of an earlier server. The changes up to it are dropped."""
        self.resource_version = self._compacted = resource_version

    # ------------------------------------------------------------ watching

    def watch(
        self, resource: GroupResource, wake: Callable[[], None], since: int | None = None
    ) -> Watcher:
        """Returns a watcher that gets every change after the version, or every change from now on.

        Raises a 410 if some of these changes are dropped, and a 504 for a version that does not
        exist yet.
        """
        watcher = Watcher(resource, wake)
        if since is not None:
            if since > self.resource_version:
                raise status_errors.resource_version_too_large(since, self.resource_version)
            if since < self._compacted:
                message = f"too old resource version: {since} ({self._compacted})"
                raise status_errors.expired_version(message)
            watcher.pending.extend(self._changes_since(resource, since))
        self._watchers.setdefault(resource, set()).add(watcher)
        return watcher

    @property
    def watching(self) -> int:
        """The number of watchers."""
        return sum(map(len, self._watchers.values()))

    def stop(self, watcher: Watcher) -> None:
        self._watchers[watcher.resource].discard(watcher)

    def compact(self) -> None:
        """Drops all changes. A watch from an earlier version gets a 410."""
        self._changes.clear()
        self._compacted = self.resource_version

    def _changes_since(self, resource: GroupResource, version: int) -> Iterator[Change]:
        for change in self._changes:
            if change.resource_version > version and change.resource == resource:
                yield change

    def _publish(self, change: Change) -> None:
        self._changes.append(change)
        while len(self._changes) > self.window:
            self._compacted = self._changes.popleft().resource_version
        for listener in self.listeners:
            listener(change)

        for watcher in self._watchers.get(change.resource, ()):
            if not watcher.overflowed:
                watcher.pending.append(change)
                watcher.overflowed = len(watcher.pending) > self.window
                watcher.wake()


def watch_event(change: Change, predicate: Predicate | None = None) -> tuple[str, Document] | None:
    """Returns the event that a watch with this selection gets for a change, or None.

    An object that leaves the selection is deleted for the watch, and one that enters it is added.
    """
    before = change.old is not None and (predicate is None or predicate(change.old))
    after = change.new is not None and (predicate is None or predicate(change.new))
    if after:
        return ("MODIFIED" if before else "ADDED"), change.last
    if not before:
        return None
    assert change.old is not None
    return "DELETED", _with_version(change.old, change.resource_version)


def key_of(obj: Document) -> Key:
    metadata = obj["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


def _supersede(old: Document) -> None:
    assert isinstance(old, StoredObject), "the store makes all stored objects"
    old.supersede()


def _with_version(obj: Document, resource_version: int) -> Document:
    return obj | {"metadata": obj["metadata"] | {"resourceVersion": str(resource_version)}}


def _continue_token(resource_version: int, last: Key) -> str:
    return base64.urlsafe_b64encode(json.dumps([resource_version, *last]).encode()).decode()
