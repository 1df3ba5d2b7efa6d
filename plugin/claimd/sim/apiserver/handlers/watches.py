"""Watches: the events of a kind as lines of JSON, from a version on, with bookmarks.

The store decides which events a selection has. The caller's `encode` decides on the form of an
object. The server's Options have the interval of bookmarks.
"""

from __future__ import annotations

import asyncio
import random
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from claimd.common.http_server import HttpRequest, Send, Stream
from claimd.kubernetes.api.document import Document

from ..catalog import ServedVersion
from ..storage.store import Change, Page, Store, Watcher, watch_event
from ..types import status_errors
from ..types.selectors import Predicate
from ..wire import codec, query
from ..wire.output import in_pieces
from ..wire.resource_request import ResourceRequest

# Encodes an object in the form that the client wants.
Encode = Callable[[Document], bytes]

# The default timeout in seconds is random, so that not all clients reconnect at the same time.
DEFAULT_TIMEOUT = (1800.0, 3600.0)
# Seconds that are added to a timer, so that its time has passed when it fires, despite rounding.
TOO_LATE = 0.001
# The most events whose encoded form is cached.
ENCODED = 512
INITIAL_EVENTS_END = {"annotations": {"k8s.io/initial-events-end": "true"}}
# Releases in which the feature gate WatchList is off.
WITHOUT_WATCH_LIST = ("1.30", "1.31")


@dataclass(frozen=True)
class WatchOptions:
    """The options of a watch."""

    resource_version: str
    timeout_seconds: float
    allow_bookmarks: bool
    # None means that the resource version decides.
    send_initial_events: bool | None

    @classmethod
    def parse(cls, request: HttpRequest, release: str) -> WatchOptions:
        # Refuses a version that is no number.
        query.resource_version(request)
        send_initial_events = None
        if "sendInitialEvents" in request.query:
            send_initial_events = request.flag("sendInitialEvents")
        _check_initial_events(request, release)

        spread = random.uniform(*DEFAULT_TIMEOUT)  # noqa: S311 - no secret
        seconds = query.number(request, "timeoutSeconds") or spread
        return cls(
            request.param("resourceVersion"),
            float(seconds),
            request.flag("allowWatchBookmarks"),
            send_initial_events,
        )

    @property
    def state_first(self) -> bool:
        """True if the watch starts with a synthetic ADDED event for each existing object."""
        if self.send_initial_events is not None:
            return self.send_initial_events
        return self.resource_version in ("", "0")


def _check_initial_events(request: HttpRequest, release: str) -> None:
    given = "sendInitialEvents" in request.query
    match = request.param("resourceVersionMatch")
    problems = []
    if given and match != "NotOlderThan":
        why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        problems.append(("resourceVersionMatch", why))
    if match and not given:
        why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
        problems.append(("resourceVersionMatch", why))
    # Early releases know the parameter, but its feature gate is off.
    if given and release in WITHOUT_WATCH_LIST:
        condition = "unless the WatchList feature gate is enabled"
        why = f"sendInitialEvents is forbidden for watch {condition}"
        problems.append(("sendInitialEvents", why))

    if problems:
        causes = [
            status_errors.Cause("FieldValueForbidden", f"Forbidden: {why}", field)
            for field, why in problems
        ]
        raise query.invalid_options("ListOptions", causes)


class EncodedEvents:
    """The encoded form of the last events, because many clients watch the same objects."""

    def __init__(self) -> None:
        self._lines: OrderedDict[tuple[int, str, str, str], bytes] = OrderedDict()

    def line(
        self,
        change: Change,
        served: ServedVersion,
        form: str,
        encode: Encode,
        predicate: Predicate | None,
    ) -> bytes:
        """Returns the event of a change, or b"" if the selection does not have one."""
        event = watch_event(change, predicate)
        if event is None:
            return b""
        event_type, obj = event
        key = (change.resource_version, served.api_version, form, event_type)
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = encode_event(event_type, encode(obj))
            if len(self._lines) > ENCODED:
                self._lines.popitem(last=False)
        return line


def encode_event(event_type: str, obj: bytes) -> bytes:
    return b'{"type":"%b","object":%b}\n' % (event_type.encode(), obj)


class Watches:
    """All watches of the server."""

    def __init__(self, store: Store, bookmark_interval: float) -> None:
        self.store = store
        self.bookmark_interval = bookmark_interval
        self.encoded = EncodedEvents()

    def stream(
        self,
        request: ResourceRequest,
        predicate: Predicate | None,
        options: WatchOptions,
        form: str,
        encode: Encode,
    ) -> Stream:
        """Returns the body of a watch's response.

        `form` identifies the form of objects that `encode` returns. Watches with the same form
        share their encoded events.
        """
        in_namespace = _in_namespace(request.info.namespace, predicate)
        return _Watch(self, request, in_namespace, options, form, encode).run


class _Watch:
    """The watch of one client, from its first event to its last."""

    def __init__(
        self,
        watches: Watches,
        request: ResourceRequest,
        predicate: Predicate | None,
        options: WatchOptions,
        form: str,
        encode: Encode,
    ) -> None:
        self._store, self._encoded = watches.store, watches.encoded
        self._bookmark_interval = watches.bookmark_interval
        self._served, self._namespace = request.served, request.info.namespace
        self._predicate, self._options = predicate, options
        self._form, self._encode = form, encode
        self._version = int(options.resource_version or 0)

    async def run(self, send: Send) -> None:
        """Sends events until the timeout, or until the client cannot keep up."""
        store, resource = self._store, self._served.kind.resource
        woken = asyncio.Event()

        # A future version has no changes yet, so watch from now on. `_take` skips earlier versions.
        is_past = not self._options.state_first and 0 < self._version < store.resource_version
        try:
            watcher = store.watch(resource, woken.set, self._version if is_past else None)
        except status_errors.StatusError as error:
            # The response has begun with status 200, so a refusal must be an event.
            await send(encode_event("ERROR", codec.encode(error.status)))
            return

        # Register the watcher before the read of the state, without an await in between. So no
        # change is lost and none is sent twice.
        try:
            if self._options.state_first:
                page = store.page(resource, self._namespace, self._predicate)
                await send.pieces(in_pieces(self._initial_events(page)))
            await self._follow(watcher, woken, send)
        finally:
            store.stop(watcher)

    def _initial_events(self, page: Page) -> Iterator[bytes]:
        for obj in page.items:
            yield encode_event("ADDED", self._encode(obj))
        if self._options.allow_bookmarks and self._options.send_initial_events:
            yield self._bookmark(page.resource_version, INITIAL_EVENTS_END)

    async def _follow(self, watcher: Watcher, woken: asyncio.Event, send: Send) -> None:
        """Sends events as they come, and bookmarks in between.

        Ends at the timeout. Ends early for a client that cannot keep up, which must then list
        again.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + self._options.timeout_seconds
        with_bookmarks = self._options.allow_bookmarks
        bookmark_due = loop.time() + self._bookmark_interval if with_bookmarks else end

        # One timer for the next timed action. With hundreds of watches, a timeout for each wait
        # would be expensive.
        alarm = loop.call_at(min(end, bookmark_due) + TOO_LATE, woken.set)
        try:
            while (now := loop.time()) < end:
                woken.clear()
                if watcher.overflowed:
                    return
                if watcher.pending:
                    lines = self._take(watcher)
                    if lines:
                        await send(lines)
                    continue

                if with_bookmarks and now >= bookmark_due:
                    bookmark_due = now + self._bookmark_interval
                    alarm = loop.call_at(min(end, bookmark_due) + TOO_LATE, woken.set)
                    await send(self._bookmark(self._store.resource_version, {}))
                    continue
                await woken.wait()
        finally:
            alarm.cancel()

    def _take(self, watcher: Watcher) -> bytes:
        """Returns the pending changes as the events of this selection."""
        lines = []
        while watcher.pending:
            change = watcher.pending.popleft()
            if change.resource_version > self._version:
                lines.append(
                    self._encoded.line(
                        change, self._served, self._form, self._encode, self._predicate
                    )
                )
        return b"".join(lines)

    def _bookmark(self, version: int, metadata: Document) -> bytes:
        """Returns a bookmark: an object with a resource version and no other content."""
        served = self._served
        type_meta = {"kind": served.kind.resource.kind, "apiVersion": served.api_version}
        metadata = {"resourceVersion": str(version)} | metadata
        bookmark = type_meta | served.empty | {"metadata": metadata}
        return encode_event("BOOKMARK", codec.encode(bookmark))


def _in_namespace(namespace: str, predicate: Predicate | None) -> Predicate | None:
    if not namespace:
        return predicate

    def selects(obj: Document) -> bool:
        is_inside = obj["metadata"].get("namespace") == namespace
        return is_inside and (predicate is None or predicate(obj))

    return selects
