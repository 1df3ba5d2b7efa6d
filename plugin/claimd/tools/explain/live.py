"""The objects of a cluster kept current by watches, and word of each change that may count."""

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

# Seconds of silence that end a watch: bookmarks come about once a minute.
_IDLE = 90.0
# Seconds between two tries at most, and until a try that goes wrong has done so.
_LONGEST_PAUSE = 30.0
_ANSWER = 5.0
# Seconds that one change waits for those that come with it.
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


_Key = tuple[str, str, str]  # path, namespace, name


# Told each object that is read or has changed: its kind, namespace/name, JSON and version; None in
# the place of the JSON of one that is gone.
Observer = Callable[[str, str, "msgspec.Raw | None", str], None]


@contextlib.asynccontextmanager
async def watch_cluster(
    client_: client.Client, scope: sources.Scope, observer: Observer | None = None
) -> AsyncIterator[LiveObjects]:
    """All that counts, kept current as long as the context is open.

    Watches that end are taken up again where they ended, and trouble of the API server is waited
    out; only that of the first lists is an ApiError.
    """
    live = LiveObjects(client_, scope, observer)
    await live.start()
    try:
        yield live
    finally:
        await live.stop()


class LiveObjects:
    """A copy of all that counts, in JSON; `objects` makes what a question takes of it."""

    def __init__(
        self, client_: client.Client, scope: sources.Scope, observer: Observer | None = None
    ) -> None:
        self._client, self._scope = client_, scope
        self._observer = observer
        self._items: dict[_Key, tuple[msgspec.Raw, str, str]] = {}
        self._lists = sources.Lists()
        self._changed = asyncio.Event()
        self._watching: list[asyncio.Task[None]] = []
        self._trouble: dict[str, tuple[str, float]] = {}  # by path, with its time

    def objects(self) -> Objects:
        """As of now; what was made before stays as it was."""
        return self.snapshot()()

    def snapshot(self) -> Callable[[], Objects]:
        """What makes the objects of this moment, later or in another thread."""
        items, unseen = tuple(self._items.values()), tuple(self._lists.unseen)

        def objects() -> Objects:
            made = Objects(subjects=self._scope.subjects)
            made.unseen += unseen
            for item, kind, version in items:
                made.add_json(item, kind, version)
            return made

        return objects

    @property
    def trouble(self) -> Sequence[str]:
        """Why some of it may be old: how the last tries went wrong.

        A watch that stands says nothing for a minute, so what is not said again is over.
        """
        recent = time.monotonic() - _LONGEST_PAUSE - _ANSWER
        return sorted({text for text, moment in self._trouble.values() if moment > recent})

    @property
    def unseen(self) -> Sequence[str]:
        """The collections that the API server does not let us see."""
        return self._lists.unseen

    async def wait_for_change(self) -> None:
        """Returns when something has changed that may count, with what came along with it."""
        waiting = asyncio.ensure_future(self._changed.wait())
        try:
            done, _ = await asyncio.wait(
                [waiting, *self._watching], return_when=asyncio.FIRST_COMPLETED
            )
            for task in done:
                task.result()  # a watch ends by a bug alone
        finally:
            waiting.cancel()
        await asyncio.sleep(_TOGETHER)
        self._changed.clear()

    async def start(self) -> None:
        """Read all collections, and watch them from then on; an ApiError where that fails."""
        self._lists = await sources.read_lists(self._client, self._scope, self._take)
        self._changed.clear()
        self._watching = [asyncio.create_task(self._follow(path)) for path in self._lists.queries]

    async def stop(self) -> None:
        for task in self._watching:
            task.cancel()
        await asyncio.gather(*self._watching, return_exceptions=True)

    def _take(self, path: str, item: msgspec.Raw, kind: str, version: str) -> None:
        """Keep an object; word of it only where something that is read of it is another."""
        metadata = msgspec.json.decode(item, type=_Head).metadata
        key = path, metadata.namespace, metadata.name
        before = self._items.get(key)
        # A copy, or each object would keep the page that it came in.
        self._items[key] = msgspec.Raw(bytes(item)), kind, version
        if self._observer and (before is None or before[0] != item):
            self._observer(kind, _name_of(key), item, version)
        if before is None or _comparable_part(before[0], kind) != _comparable_part(item, kind):
            self._changed.set()

    async def _follow(self, path: str) -> None:
        """Watch a collection for ever."""
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
                if isinstance(error, kube_errors.Gone):
                    versions[path] = ""
            # Also after a clean end: a server that ends each watch at once is sick.
            await asyncio.sleep(backoff.next_delay())

    async def _list_again(self, path: str) -> str:
        """The whole collection once more, as its changes are forgotten."""
        listed: set[_Key] = set()

        def take(_: str, item: msgspec.Raw, kind: str, version: str) -> None:
            metadata = msgspec.json.decode(item, type=_Head).metadata
            listed.add((path, metadata.namespace, metadata.name))
            self._take(path, item, kind, version)

        query = self._lists.queries[path]
        version = await sources.read_list(self._client, path, query, take)
        for key in [key for key in self._items if key[0] == path and key not in listed]:
            self._drop(key)
        return version

    def _drop(self, key: _Key) -> None:
        """Forget an object, if it is there."""
        if (dropped := self._items.pop(key, None)) is not None:
            self._changed.set()
            if self._observer:
                self._observer(dropped[1], _name_of(key), None, dropped[2])

    async def _watch(self, path: str, well: Callable[[], None]) -> None:
        """One watch, to its end.

        However it ends, the next goes on from the version that this one reached: from an older
        one, changes that are long over would come as news.
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
    """namespace/name, or the name alone of what has no namespace."""
    _, namespace, name = key
    return f"{namespace}/{name}" if namespace else name


def _comparable_part(item: msgspec.Raw, kind: str) -> Any:
    """What is read of an object, without its version; itself where it is damaged."""
    if kind not in KINDS:
        return None
    try:
        typed: Any = msgspec.json.decode(item, type=KINDS[kind][1])
    except msgspec.DecodeError:
        return bytes(item)
    metadata = msgspec.structs.replace(typed.metadata, resource_version="", generation=0)
    return msgspec.structs.replace(typed, metadata=metadata)
