"""A live copy of one collection: list, then watch, for ever.

Level, not edge: whoever reads the copy is told that something changed, not what. What the objects
mean is decided elsewhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import NoReturn, Protocol

import msgspec

from claimd.common import pacing

from ..api.document import Document
from . import client, errors

log = logging.getLogger(__name__)

Sleep = Callable[[float], Awaitable[None]]

# Seconds that a watch must have lived for the trouble before it to be forgotten.
HEALTHY = 10.0
LAST_DELAY = 30.0
# Seconds of silence that end a watch. Bookmarks come about once a minute.
IDLE = 90.0
# Seconds after which the server is asked to end a watch, spread over the nodes.
SERVER_TIMEOUT = (300.0, 600.0)


class Collection(Protocol):
    """Where the collection is, as of now, and how its objects come into our shape."""

    @property
    def path(self) -> str: ...
    @property
    def query(self) -> dict[str, str]: ...
    def convert(self, obj: Document) -> Document: ...


class Finder(Protocol):
    async def __call__(self) -> Collection:
        """Called before every list and every watch; the same collection compares equal."""


class Informer:
    """The objects of a collection, as the API server last told of them.

    `objects` has them by name, or by namespace/name where they have a namespace; nobody else may
    change it. It is empty until `synced`, which is true from the first list on. While the API
    server is away or sick, it stays as it was.
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
        # For the lists of others as well: a sick API server is asked for one at a time.
        self.listing = asyncio.Lock()
        self._client = client_
        self._find = find
        self._idle = idle
        self._sleep = sleep
        self._troubled = False  # since the last healthy watch
        self._backoff = pacing.Backoff(1.5, LAST_DELAY, jitter=(0.67, 1.0))
        self._subscribers: list[Callable[[], None]] = []

    async def run(self) -> NoReturn:
        """Keeps the copy true until cancelled, whatever the API server does.

        Only a bug ends it, ours or that of a subscriber.
        """
        while True:
            try:
                collection = await self._find()
                version = await self._list(collection)

                # Each watch goes on where the one before it has ended, so that nothing is missed
                # between the two. Only another place or an error costs a new list.
                while True:
                    version = await self._follow(collection, version)
                    if await self._find() != collection:
                        break  # the API server was upgraded: list in the new version
            except errors.Gone as error:
                # The server has forgotten the version that we know, which is no trouble of its.
                log.debug("listing anew: %s", error)
                await self._pause()
            except errors.ApiError as error:
                await self._pause(error)

    def subscribe(self, changed: Callable[[], None]) -> None:
        """`changed` is called from the loop, when `objects` has changed and on the first list."""
        self._subscribers.append(changed)

    async def _list(self, collection: Collection) -> str:
        """Replaces the whole copy. Returns the resource version to watch from."""
        path = collection.path
        async with self.listing:
            answer = await self._client.request("GET", path, query=collection.query, timeout=30.0)

        try:
            document = msgspec.json.decode(answer, type=_List)
            converted = map(collection.convert, document.items or ())
            objects = {_key(obj): obj for obj in converted}
            is_news = objects != self.objects or not self.synced
        except _MALFORMED as error:
            raise errors.Malformed(f"GET {path}: not a list: {error!r}") from error

        if is_news:
            self.objects = objects
            self.synced = True
            self._notify()
        return document.metadata.resource_version

    async def _follow(self, collection: Collection, version: str) -> str:
        """One watch, to its clean end. Returns the resource version to go on from."""
        loop = asyncio.get_running_loop()
        seconds = pacing.between(*SERVER_TIMEOUT)
        query = {
            **collection.query,
            "watch": "true",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(int(seconds)),
        }

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

        # Proxies and servers end watches as they like. Those that do it again and again are sick.
        await self._pause()
        return version

    def _apply(self, collection: Collection, line: bytes) -> str:
        """Takes one event into the copy; the resource version that it brings us to."""
        operation = f"watching {collection.path}"
        try:
            event = msgspec.json.decode(line, type=_Event)
            if event.type == "ERROR":
                raise errors.from_status(operation, event.object)
            # A bookmark has nothing but a resource version, so there is nothing to convert.
            obj = event.object
            if event.type != "BOOKMARK":
                obj = collection.convert(obj)
            key, version = _key(obj), _metadata(obj, "resourceVersion")
            current = self.objects.get(key)
            is_news = current != obj
        except _MALFORMED as error:
            raise errors.Malformed(f"{operation}: not an event: {error!r}") from error

        if event.type == "DELETED" and current is not None:
            del self.objects[key]
            self._notify()
        elif event.type in ("ADDED", "MODIFIED") and is_news:
            self.objects[key] = obj
            self._notify()
        return version

    def _notify(self) -> None:
        for changed in self._subscribers:
            changed()

    async def _pause(self, error: errors.ApiError | None = None) -> None:
        """Waits longer, the more has gone wrong without a healthy watch between.

        The first clean end of a watch costs nothing.
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


# What is nested hundreds of levels deep can be too deep for whoever reads or compares it.
_MALFORMED = (
    *(msgspec.DecodeError, UnicodeDecodeError, RecursionError),
    *(KeyError, TypeError, AttributeError),
)


class _ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""


class _List(msgspec.Struct, frozen=True):
    metadata: _ListMeta
    items: list[Document] | None = None


class _Event(msgspec.Struct, frozen=True):
    type: str
    object: Document


def _key(obj: Document) -> str:
    namespace, name = _metadata(obj, "namespace"), _metadata(obj, "name")
    return f"{namespace}/{name}" if namespace else name


def _metadata(obj: Document, field: str) -> str:
    value: str = obj["metadata"].get(field, "")
    return value
