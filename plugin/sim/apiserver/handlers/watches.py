"""Watches: the events of one kind as lines of JSON, from a version on, with bookmarks, for as long
as asked.

What a selection lets through is decided in the store; how an object is written, by who gives us
`shown`.
"""

from __future__ import annotations

import asyncio
import random
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from .... import pacing
from ....api.document import Document
from ..catalog import ServedVersion
from ..storage.store import Change, Predicate, Store, watch_event
from ..types import status_errors
from ..types.resource import GroupResource
from ..wire import codec, query
from ..wire.http import HttpRequest, Send
from ..wire.resource_request import ResourceRequest

Shown = Callable[[Document], Document]

LONGEST = (1800.0, 3600.0)  # seconds of a watch that does not say
KEPT = 512  # encoded events
ENDS = {"annotations": {"k8s.io/initial-events-end": "true"}}


@dataclass(frozen=True)
class Wanted:
    version: str
    seconds: float
    bookmarks: bool
    initial: bool | None  # whether everything that is there comes first; None: as the version says

    @classmethod
    def of(cls, request: HttpRequest, release: str) -> Wanted:
        query.version_of(request)
        version, match = (
            request.param("resourceVersion"),
            request.param("resourceVersionMatch"),
        )
        bookmarks = request.flag("allowWatchBookmarks")
        said = "sendInitialEvents" in request.query
        initial = request.flag("sendInitialEvents") if said else None
        causes = []
        if said and match != "NotOlderThan":
            causes.append(
                (
                    "resourceVersionMatch",
                    "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
                )
            )
        if match and not said:
            why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
            causes.append(("resourceVersionMatch", why))
        if said and release in ("1.30", "1.31"):
            why = "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled"
            causes.append(("sendInitialEvents", why))
        if causes:
            listed = [
                status_errors.Cause("FieldValueForbidden", f"Forbidden: {why}", at)
                for at, why in causes
            ]
            raise status_errors.invalid(
                GroupResource("ListOptions", query.OPTIONS_GROUP, "ListOptions"), "", listed
            )
        seconds = query.number(request, "timeoutSeconds") or random.uniform(*LONGEST)  # noqa: S311 - spreads load
        return cls(version, float(seconds), bookmarks, initial)

    @property
    def everything_first(self) -> bool:
        return self.version in ("", "0") if self.initial is None else self.initial


class Lines:
    """Encoded events, since many watch the same."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[int, str, str, str], bytes] = OrderedDict()

    def of(
        self,
        change: Change,
        served: ServedVersion,
        form: str,
        shown: Shown,
        selects: Predicate | None,
    ) -> bytes | None:
        found = watch_event(change, selects)
        if found is None:
            return None
        what, obj = found
        key = (change.resource_version, served.api_version, form, what)
        line = self._kept.get(key)
        if line is None:
            line = self._kept[key] = event(what, shown(obj))
            if len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return line


def event(what: str, obj: Document) -> bytes:
    return codec.encode({"type": what, "object": obj}) + b"\n"


class Watches:
    def __init__(self, store: Store, bookmark_every: float) -> None:
        self._store = store
        self._every = bookmark_every
        self._lines = Lines()

    def stream(
        self,
        request: ResourceRequest,
        selects: Predicate | None,
        wants: Wanted,
        form: str,
        shown: Shown,
    ) -> Callable[[Send], Awaitable[None]]:
        """`form` tells apart what `shown` makes of an object, for those that ask for the same."""
        served, resource = request.served, request.served.kind.resource
        selects = _within(request.info.namespace, selects)
        wanted = int(wants.version or 0)

        async def run(send: Send) -> None:
            store = self._store
            woken = asyncio.Event()
            # Of a version of the future nothing is known yet: what comes before it is left out.
            past = not wants.everything_first and 0 < wanted < store.resource_version
            try:
                watcher = store.watch(resource, woken.set, wanted if past else None)
            except status_errors.StatusError as error:
                await send(event("ERROR", error.status))
                return
            try:
                if wants.everything_first:
                    there = store.page(resource, request.info.namespace, selects)
                    end = (
                        _bookmark(served, there.resource_version, ENDS)
                        if wants.bookmarks and wants.initial
                        else b""
                    )
                    if first := b"".join(event("ADDED", shown(obj)) for obj in there.items) + end:
                        await send(first)

                def lines() -> bytes | None:
                    if watcher.overflowed:
                        return None
                    parts = []
                    while watcher.pending:
                        change = watcher.pending.popleft()
                        if change.resource_version > wanted:
                            parts.append(self._lines.of(change, served, form, shown, selects))
                    return b"".join(part for part in parts if part)

                await self._follow(served, wants, woken, lines, send)
            finally:
                store.stop(watcher)

        return run

    async def _follow(
        self,
        served: ServedVersion,
        wants: Wanted,
        woken: asyncio.Event,
        lines: Callable[[], bytes | None],
        send: Send,
    ) -> None:
        """Sends what there is each time there is something, and a bookmark when there was nothing
        for long.

        Ends for who cannot keep up: they list anew.
        """
        loop = asyncio.get_running_loop()
        end, mark = loop.time() + wants.seconds, loop.time() + self._every
        while (now := loop.time()) < end:
            woken.clear()
            found = lines()
            if found is None:
                return
            if found:
                await send(found)
                continue
            if wants.bookmarks and now >= mark:
                mark = now + self._every
                await send(_bookmark(served, self._store.resource_version, {}))
            until = min(end, mark) if wants.bookmarks else end
            await pacing.wait(woken, until - now)


def _within(namespace: str, selects: Predicate | None) -> Predicate | None:
    if not namespace:
        return selects

    def inside(obj: Document) -> bool:
        return bool(obj["metadata"].get("namespace") == namespace) and (
            selects is None or selects(obj)
        )

    return inside


def _bookmark(served: ServedVersion, version: int, metadata: Document) -> bytes:
    """An object of the kind in which nothing is set."""
    obj = {"kind": served.kind.resource.kind, "apiVersion": served.api_version} | served.empty
    return event("BOOKMARK", obj | {"metadata": {"resourceVersion": str(version)} | metadata})
