"""Watches: the events of one kind as lines of JSON, from a version on, with bookmarks.

What a selection lets through is decided in the store; what an object looks like, by who gives
`encode`; how often a bookmark comes, by the server's Options.
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

Encode = Callable[[Document], bytes]  # an object as the client wants to see it

# Seconds of a watch that does not say: spread, so that not all come back at once.
DEFAULT_TIMEOUT = (1800.0, 3600.0)
TOO_LATE = 0.001  # seconds: an alarm rings when its time has passed, whatever clocks round
ENCODED = 512  # events that are kept encoded
INITIAL_EVENTS_END = {"annotations": {"k8s.io/initial-events-end": "true"}}
WITHOUT_WATCH_LIST = ("1.30", "1.31")  # releases whose feature gate WatchList is off


@dataclass(frozen=True)
class WatchOptions:
    resource_version: str
    timeout_seconds: float
    allow_bookmarks: bool
    send_initial_events: bool | None  # None: as the resource version says

    @classmethod
    def of(cls, request: HttpRequest, release: str) -> WatchOptions:
        query.resource_version(request)  # a number, or refused
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
        """Whether everything that is there comes first, as if it were added now."""
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
    """The lines of the last events, since many watch the same."""

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
        """The change as an event; nothing if it is none for this selection."""
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
        """The body of a watch's response.

        `form` tells apart what `encode` makes of an object: watches of the same form share what
        is encoded.
        """
        in_namespace = _in_namespace(request.info.namespace, predicate)
        return _Watch(self, request, in_namespace, options, form, encode).run


class _Watch:
    """One client's watch, from its first event to its last."""

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
        store, resource = self._store, self._served.kind.resource
        woken = asyncio.Event()

        # Of a version of the future nothing is known yet: what comes before it is left out below.
        is_past = not self._options.state_first and 0 < self._version < store.resource_version
        try:
            watcher = store.watch(resource, woken.set, self._version if is_past else None)
        except status_errors.StatusError as error:
            # The response has begun, and with success: a refusal is an event, too.
            await send(encode_event("ERROR", codec.encode(error.status)))
            return

        # The watcher is there before the state is read, and nothing waits in between: so that no
        # change is missed, and none is sent twice.
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
        """Sends what there is each time there is something, and bookmarks in between.

        Ends after the timeout, and for a client that cannot keep up: it has to list anew.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + self._options.timeout_seconds
        with_bookmarks = self._options.allow_bookmarks
        bookmark_due = loop.time() + self._bookmark_interval if with_bookmarks else end

        # One alarm for the next thing that is due by the clock: with a timeout for each event, of
        # hundreds of watches, much would go into setting them.
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
        """The pending changes as lines, as many as this selection lets through."""
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
        """An object of the kind in which nothing is set but the version."""
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
