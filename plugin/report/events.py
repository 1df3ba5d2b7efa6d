"""Kubernetes Events about what a person should know: a damaged record, a GPU that is gone, a claim
that we collected.

An event is news, not state: it is sent apart from the work, rarely, once an hour for each fact, and
nothing waits for it or fails with it. What is worth an event is decided by the callers; the log has
everything.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from dataclasses import dataclass
from typing import Any, Protocol

from .. import names, pacing, timestamps
from ..kube import errors as kube_errors
from ..kube import resources

log = logging.getLogger(__name__)

ROOM = 32  # events that wait; what comes when they are that many is dropped
BURST, PAUSE = 10, 20.0  # events at once, then one in so many seconds
FIRST_DELAY, LAST_DELAY = 1.0, 60.0  # seconds between two tries while the API server is away
# seconds for which a fact is no news any more; API servers keep an event for as long by default
HOUR = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectReference:
    """The object that an event is about."""

    api_version: str
    kind: str
    namespace: str = ""
    name: str
    uid: str


class RecordEvent(Protocol):
    def __call__(
        self, about: ObjectReference, reason: str, note: str, *, warning: bool = True
    ) -> None: ...


def discard(about: ObjectReference, reason: str, note: str, *, warning: bool = True) -> None:
    """Tells nobody."""


def claim(namespace: str, name: str, uid: str) -> ObjectReference:
    return ObjectReference(
        api_version="resource.k8s.io/v1",
        kind="ResourceClaim",
        namespace=namespace,
        name=name,
        uid=uid,
    )


def node(name: str) -> ObjectReference:
    # Its name for the uid, as the kubelet does it: `kubectl describe node` asks for both.
    return ObjectReference(api_version="v1", kind="Node", name=name, uid=name)


class EventRecorder:
    def __init__(self, resources_: resources.Resources, driver: str, node_: str) -> None:
        self._resources = resources_
        self._driver = driver
        self._node = node_
        self._waiting: asyncio.Queue[tuple[str, dict[str, Any]]] = asyncio.Queue(
            ROOM
        )  # namespace and event
        self._recorded: dict[
            str, None
        ] = {}  # names of the events of this hour and the last, oldest first
        self._failed: set[type[Exception]] = set()  # failures that the log has already

    def record(
        self, about: ObjectReference, reason: str, note: str, *, warning: bool = True
    ) -> None:
        """Never blocks and never fails. `note` is a sentence for a person."""
        now = time.time()
        fact = f"{int(now // HOUR)} {about} {reason} {note}".encode()
        # The name says what the fact is, so that another process of ours, or a second try, makes no
        # second event of it.
        name = names.shorten(about.name, 230) + "." + hashlib.sha256(fact).hexdigest()[:16]
        if name in self._recorded:
            return
        event = _event(
            name,
            about,
            now,
            reason=reason,
            note=note.encode()[:1024].decode(errors="ignore"),
            warning=warning,
        )
        event |= {
            "reportingController": self._driver,
            "reportingInstance": names.shorten(self._node, 128),
        }
        try:
            self._waiting.put_nowait((about.namespace or "default", event))
        except asyncio.QueueFull:
            log.debug("too many events wait, not told: %s: %s", reason, note)
            return
        self._recorded[name] = None
        while len(self._recorded) > 1000:
            del self._recorded[next(iter(self._recorded))]

    async def run(self) -> None:
        bucket = pacing.TokenBucket(1 / PAUSE, BURST)
        while True:
            namespace, event = await self._waiting.get()
            await bucket.ready()
            bucket.take()
            await self._send(namespace, event)

    async def _send(self, namespace: str, event: dict[str, Any]) -> None:
        backoff = pacing.Backoff(FIRST_DELAY, LAST_DELAY)
        while True:
            try:
                await self._resources.create_event(namespace, event)
            except kube_errors.AlreadyExists:
                return
            except kube_errors.ApiError as error:
                if type(error) not in self._failed:
                    self._failed.add(type(error))
                    log.warning(
                        "event %s was not written, further failures are not logged: %s",
                        event["reason"],
                        error,
                    )
                if not kube_errors.is_transient(error):
                    return
                await asyncio.sleep(max(backoff.next_delay(), error.retry_after or 0.0))
            else:
                self._failed.clear()
                return


def _event(
    name: str, about: ObjectReference, now: float, *, reason: str, note: str, warning: bool
) -> dict[str, Any]:
    regarding = {
        "apiVersion": about.api_version,
        "kind": about.kind,
        "name": about.name,
        "uid": about.uid,
    }
    if about.namespace:
        regarding["namespace"] = about.namespace
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": about.namespace or "default"},
        "eventTime": timestamps.rfc3339(now, digits=6),
        "regarding": regarding,
        "type": "Warning" if warning else "Normal",
        "reason": reason,
        "action": reason,
        "note": note,
    }
