"""A copy of the cluster's objects that watches keep current, with a signal on each change."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from claimd.common import pacing
from claimd.kubernetes.api.meta import ApiStruct

from . import sources
from .objects import KINDS, Objects

if TYPE_CHECKING:
    from claimd.kubernetes.kube import client

# Seconds of silence after which a watch counts as broken: bookmarks come about once a minute.
_IDLE = 90.0
# The longest pause in seconds between two tries, and the time in which a try fails.
_LONGEST_PAUSE = 30.0
_ANSWER = 5.0
# Seconds for which a change waits for others that belong to it.
_TOGETHER = 0.2


class _Meta(ApiStruct, frozen=True, kw_only=True):
    name: str = ""
    namespace: str = ""
    resource_version: str = ""


class _Head(ApiStruct, frozen=True, kw_only=True):
    metadata: _Meta = _Meta()
    api_version: str = ""
    kind: str = ""


class _WatchEvent(msgspec.Struct, frozen=True):
    type: str
    object: msgspec.Raw


# The path of the collection, the namespace and the name.
_Key = tuple[str, str, str]


# Called for each object that is listed or has changed, with its kind, namespace/name, JSON and
# version. The JSON is None if the object was deleted.
Observer = Callable[[str, str, "msgspec.Raw | None", str], None]


@contextlib.asynccontextmanager
async def watch_cluster(
    client_: client.Client, scope: sources.Scope, observer: Observer | None = None
) -> AsyncIterator[LiveObjects]:
    """Keeps a copy of the relevant objects current while the context is open.

    A watch that ends is continued from its last resource version. Errors of the API server are
    retried. Only an error of the first lists is raised, as an ApiError.
    """
    live = LiveObjects(client_, scope, observer)
    await live.start()
    try:
        yield live
    finally:
        await live.stop()


class LiveObjects:
    """A copy of the relevant objects in JSON. `objects` decodes them for a question."""

    def __init__(
        self, client_: client.Client, scope: sources.Scope, observer: Observer | None = None
    ) -> None:
        self._client, self._scope = client_, scope
        self._observer = observer
        self._items: dict[_Key, tuple[msgspec.Raw, str, str]] = {}
        self._lists = sources.Lists()
        self._changed = asyncio.Event()
        self._watching: list[asyncio.Task[None]] = []
        # By path: the last error and its time.
        self._trouble: dict[str, tuple[str, float]] = {}

    def objects(self) -> Objects:
        """Returns the objects as of now. Objects that were returned earlier do not change."""
        return self.snapshot()()

    def snapshot(self) -> Callable[[], Objects]:
        """Returns a function that decodes the objects of this moment.

        The function may be called later, and in another thread.
        """
        items, unseen = tuple(self._items.values()), tuple(self._lists.unseen)
        server_release = self._lists.server_release
        serves_groups = self._lists.serves_groups

        def objects() -> Objects:
            decoded = Objects(subjects=self._scope.subjects, server_release=server_release)
            decoded.unseen += unseen
            decoded.serves_groups = serves_groups
            for item, kind, version in items:
                decoded.add_json(item, kind, version)
            return decoded

        return objects

    @property
    def trouble(self) -> Sequence[str]:
        """The recent errors of the watches. Because of them some objects may be out of date."""
        # A healthy watch may be silent for a minute, so an error that does not recur counts as
        # over.
        recent = time.monotonic() - _LONGEST_PAUSE - _ANSWER
        return sorted({text for text, moment in self._trouble.values() if moment > recent})

    @property
    def unseen(self) -> Sequence[str]:
        """The collections that the API server does not let us read."""
        return self._lists.unseen

    async def wait_for_change(self) -> None:
        """Waits for a change that may affect an answer, and for the changes that come with it."""
        waiting = asyncio.ensure_future(self._changed.wait())
        try:
            done, _ = await asyncio.wait(
                [waiting, *self._watching], return_when=asyncio.FIRST_COMPLETED
            )
            for task in done:
                # Raises the exception of a watch: the tasks end only through a bug.
                task.result()
        finally:
            waiting.cancel()
        await asyncio.sleep(_TOGETHER)
        self._changed.clear()

    async def start(self) -> None:
        """Lists all collections and starts to watch them; raises ApiError if a list fails."""
        self._lists = await sources.read_lists(self._client, self._scope, self._take)
        self._changed.clear()
        self._watching = [asyncio.create_task(self._follow(path)) for path in self._lists.queries]

    async def stop(self) -> None:
        """Ends the watches."""
        for task in self._watching:
            task.cancel()
        await asyncio.gather(*self._watching, return_exceptions=True)

    def _take(self, path: str, item: msgspec.Raw, kind: str, version: str) -> None:
        """Stores an object.

        The observer is called if the JSON differs. The signal is set only if a field differs that
        explain reads: a kubelet updates the status of its node every few minutes.
        """
        metadata = msgspec.json.decode(item, type=_Head).metadata
        key = path, metadata.namespace, metadata.name
        before = self._items.get(key)
        # A Raw is a view of the whole page that was received. A copy lets the page be freed.
        self._items[key] = msgspec.Raw(bytes(item)), kind, version
        if self._observer and (before is None or before[0] != item):
            self._observer(kind, _name_of(key), item, version)
        if before is None or _comparable_part(before[0], kind) != _comparable_part(item, kind):
            self._changed.set()

    async def _follow(self, path: str) -> None:
        """Watches a collection until the task is cancelled."""
        from claimd.kubernetes.kube import errors as kube_errors  # loaded with the client

        backoff = pacing.Backoff(0.5, _LONGEST_PAUSE, jitter=(0.67, 1.0))
        versions = self._lists.versions
        while True:
            try:
                if not versions[path]:
                    versions[path] = await self._list_again(path)
                await self._watch(path, backoff.reset)
            except kube_errors.ApiError as error:
                self._trouble[path] = str(error), time.monotonic()
                # The API server has forgotten the version, so the collection must be listed again.
                if isinstance(error, kube_errors.Gone):
                    versions[path] = ""

            # A server may also end each watch at once without an error.
            await asyncio.sleep(backoff.next_delay())

    async def _list_again(self, path: str) -> str:
        """Lists the whole collection, drops objects that are gone, and returns its version."""
        listed: set[_Key] = set()

        def take(_: str, item: msgspec.Raw, kind: str, version: str) -> None:
            metadata = msgspec.json.decode(item, type=_Head).metadata
            listed.add((path, metadata.namespace, metadata.name))
            self._take(path, item, kind, version)

        query = self._lists.queries[path]
        version = await sources.read_list(self._client, path, query, take)
        for key in list(self._items):
            if key[0] == path and key not in listed:
                self._drop(key)
        return version

    def _drop(self, key: _Key) -> None:
        """Removes an object, if it is there."""
        if (dropped := self._items.pop(key, None)) is not None:
            self._changed.set()
            if self._observer:
                self._observer(dropped[1], _name_of(key), None, dropped[2])

    async def _watch(self, path: str, well: Callable[[], None]) -> None:
        """Runs one watch to its end, and calls `well` for each event.

        The version is stored after each event, however the watch ends. If the next watch began at
        an older version, it would report past changes as new.
        """
        from claimd.kubernetes.kube import errors as kube_errors  # as above

        query = self._lists.queries[path] | {
            "watch": "true",
            "resourceVersion": self._lists.versions[path],
            "allowWatchBookmarks": "true",
        }
        async with contextlib.aclosing(self._client.lines(path, query, idle=_IDLE)) as lines:
            async for line in lines:
                try:
                    event = msgspec.json.decode(line, type=_WatchEvent)
                    head = msgspec.json.decode(event.object, type=_Head)
                except (msgspec.DecodeError, RecursionError) as error:
                    raise kube_errors.Malformed(f"watching {path}: no event: {error}") from error
                if event.type == "ERROR":
                    status = msgspec.json.decode(event.object)
                    raise kube_errors.from_status(f"watching {path}", status)

                # An event proves that the watch works.
                well()
                self._trouble.pop(path, None)
                if event.type == "DELETED":
                    key = path, head.metadata.namespace, head.metadata.name
                    self._drop(key)
                elif event.type != "BOOKMARK":
                    api_version = head.api_version.rpartition("/")[2]
                    self._take(path, event.object, head.kind, api_version)
                if head.metadata.resource_version:
                    self._lists.versions[path] = head.metadata.resource_version


def _name_of(key: _Key) -> str:
    """Returns namespace/name, or the name alone if the object has no namespace."""
    _, namespace, name = key
    return f"{namespace}/{name}" if namespace else name


def _comparable_part(item: msgspec.Raw, kind: str) -> Any:
    """Returns the fields that explain reads, without versions; the JSON itself if it is damaged."""
    if kind not in KINDS:
        return None
    try:
        typed: Any = msgspec.json.decode(item, type=KINDS[kind][1])
    except msgspec.DecodeError:
        return bytes(item)
    metadata = msgspec.structs.replace(typed.metadata, resource_version="", generation=0)
    return msgspec.structs.replace(typed, metadata=metadata)
