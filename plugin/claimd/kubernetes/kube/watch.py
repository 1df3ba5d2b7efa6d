"""A live copy of one collection of objects: it lists, then watches, until it is cancelled.

It is level-triggered: subscribers learn that something changed, and read the copy to see the new
state. The informer does not interpret the objects.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import NoReturn, Protocol, TypeVar

import msgspec

from claimd.common import pacing

from ..api.document import Document
from . import client, errors, nesting

log = logging.getLogger(__name__)

_T = TypeVar("_T")

Sleep = Callable[[float], Awaitable[None]]

# Seconds that a watch must live before the delays that earlier failures caused are reset.
HEALTHY = 10.0
LAST_DELAY = 30.0
# Seconds of silence that end a watch. The server sends a bookmark about once a minute.
IDLE = 90.0
# Seconds after which the server should end a watch. Each node picks a value from this range, so
# that the nodes do not come back at the same time.
SERVER_TIMEOUT = (300.0, 600.0)


class Collection(Protocol):
    """The current path of a collection, and the conversion of its objects.

    If the query has a `limit`, a list is read in pages of so many objects.
    """

    @property
    def path(self) -> str: ...
    @property
    def query(self) -> dict[str, str]: ...
    def convert(self, obj: Document) -> Document | None:
        """Returns the object in the shape that `Informer.objects` should have.

        Returns None for an object that should not be there.
        """


class Finder(Protocol):
    async def __call__(self) -> Collection:
        """Returns the collection. It is called before every list and every watch.

        Two results are equal if they are the same collection in the same version.
        """


class Informer:
    """A live copy of the objects of a collection.

    The keys of `objects` are the objects' names, or namespace/name for objects with a namespace.
    Callers must not change it. It is empty until the first list has succeeded, which sets `synced`.
    While the API server is away or sick, the copy keeps its last state.
    """

    def __init__(
        self,
        client_: client.Client,
        find: Finder,
        *,
        idle: float = IDLE,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self.objects: dict[str, Document] = {}
        self.synced = False
        # Also taken by other callers that list, so that only one list request runs at a time. A
        # list is expensive for an API server that is overloaded.
        self.listing = asyncio.Lock()
        self._client = client_
        self._find = find
        self._idle = idle
        self._sleep = sleep
        # A watch or list has failed, or a watch has ended, since the last healthy watch.
        self._troubled = False
        self._backoff = pacing.Backoff(1.5, LAST_DELAY, jitter=(0.67, 1.0))
        self._subscribers: list[Callable[[], None]] = []

    async def run(self) -> NoReturn:
        """Keeps the copy up to date until it is cancelled, whatever the API server does.

        Only a bug, of this module or of a subscriber, raises an exception.
        """
        while True:
            try:
                collection = await self._find()
                version = await self._list(collection)

                # Each watch continues at the resource version where the previous one ended, so that
                # no event is lost between them. Only a new path or an error makes a list necessary.
                while True:
                    version = await self._follow(collection, version)
                    if await self._find() != collection:
                        # The API server was upgraded: list in the new version of the API.
                        break
            except errors.Gone as error:
                # The server has compacted the resource version that we know. It is healthy.
                log.debug("listing again: %s", error)
                await self._pause()
            except errors.ApiError as error:
                await self._pause(error)

    def subscribe(self, callback: Callable[[], None]) -> None:
        """Has `callback` called after the first list and after each change of `objects`."""
        self._subscribers.append(callback)

    async def _list(self, collection: Collection) -> str:
        """Lists, replaces the whole copy, and returns the resource version to watch from."""
        path, query = collection.path, collection.query
        objects: dict[str, Document] = {}
        async with self.listing:
            while True:
                answer = await self._client.request("GET", path, query=query, timeout=30.0)
                try:
                    page = _decode(answer, _List)
                    for obj in map(collection.convert, page.items or ()):
                        if obj is not None:
                            objects[_key(obj)] = obj
                except _MALFORMED as error:
                    raise errors.Malformed(f"GET {path}: not a list: {error!r}") from error
                if not page.metadata.continue_:
                    break
                query = {**query, "continue": page.metadata.continue_}

        try:
            has_changed = objects != self.objects or not self.synced
        except _MALFORMED as error:
            raise errors.Malformed(f"GET {path}: not a list: {error!r}") from error

        # The first list is a change even if it is empty.
        if has_changed:
            self.objects = objects
            self.synced = True
            self._notify()
        return page.metadata.resource_version

    async def _follow(self, collection: Collection, version: str) -> str:
        """Watches until the server ends the watch.

        Returns the resource version from which the next watch continues.
        """
        loop = asyncio.get_running_loop()
        seconds = pacing.between(*SERVER_TIMEOUT)
        query = {
            **collection.query,
            "watch": "true",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(int(seconds)),
        }
        query.pop("limit", None)

        began = loop.time()
        lines: AsyncGenerator[bytes, None]
        lines = self._client.lines(collection.path, query, idle=self._idle)
        try:
            async with contextlib.aclosing(lines):
                async for line in lines:
                    version = self._apply(collection, line) or version
        finally:
            if loop.time() - began >= HEALTHY:
                self._troubled = False
                self._backoff.reset()

        # Proxies and servers may end a watch at any time. The pause grows if it happens again and
        # again.
        await self._pause()
        return version

    def _apply(self, collection: Collection, line: bytes) -> str:
        """Applies one event to the copy and returns the resource version of the event."""
        operation = f"watching {collection.path}"
        try:
            event = _decode(line, _Event)
            if event.type == "ERROR":
                raise errors.from_status(operation, event.object)
            # A bookmark has only a resource version, so it cannot be converted.
            obj: Document | None = event.object
            if event.type != "BOOKMARK":
                obj = collection.convert(event.object)
            key, version = _key(event.object), _metadata(event.object, "resourceVersion")
            current = self.objects.get(key)
            # Comparing may raise as well: the object may be nested too deeply.
            has_changed = current != obj
        except _MALFORMED as error:
            raise errors.Malformed(f"{operation}: not an event: {error!r}") from error

        if event.type == "DELETED" or obj is None:
            if current is not None:
                del self.objects[key]
                self._notify()
        elif event.type in ("ADDED", "MODIFIED") and has_changed:
            self.objects[key] = obj
            self._notify()
        return version

    def _notify(self) -> None:
        for callback in self._subscribers:
            callback()

    async def _pause(self, error: errors.ApiError | None = None) -> None:
        """Waits before the next request.

        The pause grows with each failure and each end of a watch since the last healthy watch. The
        first regular end of a watch causes no pause.
        """
        if self._troubled:
            delay = self._backoff.next_delay()
        elif error:
            delay = pacing.between(0.1, 0.3)
        else:
            delay = 0.0
        self._troubled = True

        if error:
            delay = pacing.not_before(delay, error.retry_after)
            log.warning(
                "what we know of the cluster may be old, asking again in %.1f s: %s", delay, error
            )
        await self._sleep(delay)


# Exceptions that a malformed answer causes when it is decoded, converted or compared. An object
# that is nested hundreds of levels deep raises RecursionError.
_MALFORMED = (
    *(msgspec.DecodeError, UnicodeDecodeError, RecursionError),
    *(KeyError, TypeError, AttributeError),
)


class _ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")


class _List(msgspec.Struct, frozen=True):
    metadata: _ListMeta
    items: list[Document] | None = None


class _Event(msgspec.Struct, frozen=True):
    type: str
    object: Document


def _decode(text: bytes, type_: type[_T]) -> _T:
    """Decodes an answer or a line. Values that are nested too deeply become texts."""
    try:
        return msgspec.json.decode(text, type=type_)
    except RecursionError:
        return msgspec.json.decode(nesting.without_deep_values(text), type=type_)


def _key(obj: Document) -> str:
    """Returns the key of an object in `Informer.objects`."""
    namespace, name = _metadata(obj, "namespace"), _metadata(obj, "name")
    return f"{namespace}/{name}" if namespace else name


def _metadata(obj: Document, field: str) -> str:
    value: str = obj["metadata"].get(field, "")
    return value
