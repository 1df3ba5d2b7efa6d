"""A live copy of one collection: list, then watch, for ever. What the objects mean is decided
elsewhere.

Level, not edge: whoever reads the copy is told that something changed, not what.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import NoReturn, Protocol

import msgspec

from .. import pacing
from ..api.document import Document
from . import client, errors

log = logging.getLogger(__name__)

Sleep = Callable[[float], Awaitable[None]]

HEALTHY = 10.0  # seconds that a watch must have lived for the trouble before it to be forgotten
LONGEST_PAUSE = 30.0
LONGEST_ASKED = 60.0  # of what a server may ask us to wait
IDLE = 90.0  # seconds of silence that end a watch; bookmarks come about once a minute
SERVER_TIMEOUT = (
    300.0,
    600.0,
)  # seconds after which the server is asked to end a watch, spread over the nodes


class Collection(Protocol):
    """Where the collection is, as of now, and how its objects come into our shape."""

    @property
    def path(self) -> str: ...
    @property
    def query(self) -> dict[str, str]: ...
    def convert(self, obj: Document) -> Document: ...


class Finder(Protocol):
    async def __call__(self) -> Collection:
        """Asked before every list and every watch; the same collection compares equal."""


class Informer:
    """`objects` by name, or namespace/name where they have a namespace, as the API server last told
    us.

    Who subscribes is called after they have changed.
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
        self.synced = False  # until the first list has arrived
        self.listing = (
            asyncio.Lock()
        )  # for lists of others as well: a sick API server is asked for one at a time
        self._client = client_
        self._find = find
        self._idle = idle
        self._sleep = sleep
        self._troubled = False  # since the last healthy watch
        self._backoff = pacing.Backoff(1.5, LONGEST_PAUSE, jitter=(0.67, 1.0))
        self._subscribers: list[Callable[[], None]] = []

    async def run(self) -> NoReturn:
        """Keeps the copy true until cancelled, whatever the API server does."""
        while True:
            try:
                collection = await self._find()
                version = await self._list(collection)
                while True:
                    version = await self._follow(collection, version)
                    if await self._find() != collection:
                        break  # the API server was upgraded: list in the new version
            except errors.Gone as error:
                log.debug("listing anew: %s", error)
                await self._pause()
            except errors.ApiError as error:
                await self._pause(error)

    def subscribe(self, changed: Callable[[], None]) -> None:
        """`changed` is called from the loop: when the first list has arrived, and after every
        change.
        """
        self._subscribers.append(changed)

    async def _list(self, collection: Collection) -> str:
        """Replaces the whole copy. Returns the version to watch from."""
        async with self.listing:
            answer = await self._client.request(
                "GET", collection.path, query=collection.query, timeout=30.0
            )
        try:
            document = msgspec.json.decode(answer, type=_List)
            fresh = {_key(obj): obj for obj in map(collection.convert, document.items or ())}
        except _MALFORMED as error:
            raise errors.Malformed(f"GET {collection.path}: not a list: {error!r}") from error
        if fresh != self.objects or not self.synced:
            self.objects = fresh
            self.synced = True
            self._tell()
        return document.metadata.resource_version

    def _tell(self) -> None:
        for changed in self._subscribers:
            changed()

    async def _follow(self, collection: Collection, version: str) -> str:
        """One watch, to its clean end. Returns the version to go on from."""
        loop = asyncio.get_running_loop()
        seconds = random.uniform(*SERVER_TIMEOUT)  # noqa: S311 - spreads load, hides nothing
        query = {
            **collection.query,
            "watch": "true",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(int(seconds)),
        }
        began = loop.time()
        lines: AsyncGenerator[bytes, None] = self._client.lines(
            collection.path, query, idle=self._idle
        )
        try:
            async with contextlib.aclosing(lines):
                async for line in lines:
                    version = self._take(collection, line) or version
        finally:
            if loop.time() - began >= HEALTHY:
                self._troubled = False
                self._backoff.reset()
        await self._pause()
        return version

    def _take(self, collection: Collection, line: bytes) -> str:
        """One event; the version that it brings us to."""
        try:
            event = msgspec.json.decode(line, type=_Event)
            if event.type == "ERROR":
                raise errors.from_status(f"watching {collection.path}", event.object)
            obj = event.object if event.type == "BOOKMARK" else collection.convert(event.object)
            name, version = _key(obj), _meta(obj, "resourceVersion")
        except _MALFORMED as error:
            raise errors.Malformed(
                f"watching {collection.path}: not an event: {error!r}"
            ) from error
        known = self.objects.get(name)
        if event.type == "DELETED" and known is not None:
            del self.objects[name]
            self._tell()
        elif event.type in ("ADDED", "MODIFIED") and known != obj:
            self.objects[name] = obj
            self._tell()
        return version

    async def _pause(self, error: errors.ApiError | None = None) -> None:
        """Waits longer the more has gone wrong without a healthy watch between. The first clean end
        costs nothing.
        """
        if self._troubled:
            pause = self._backoff.next_delay()
        else:
            pause = random.uniform(0.1, 0.3) if error else 0.0  # noqa: S311 - as above
        self._troubled = True
        if error:
            pause = max(pause, min(error.retry_after or 0.0, LONGEST_ASKED))
            log.warning(
                "what we know of the cluster may be old, asking again in %.1f s: %s", pause, error
            )
        await self._sleep(pause)


_MALFORMED = (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError, AttributeError)


class _ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""


class _List(msgspec.Struct, frozen=True):
    metadata: _ListMeta
    items: list[Document] | None = None


class _Event(msgspec.Struct, frozen=True):
    type: str
    object: Document


def _key(obj: Document) -> str:
    namespace, name = _meta(obj, "namespace"), _meta(obj, "name")
    return f"{namespace}/{name}" if namespace else name


def _meta(obj: Document, name: str) -> str:
    value: str = obj["metadata"].get(name, "")
    return value
