"""Kubernetes Events about what a person should know: a damaged checkpoint, a GPU that is gone.

An event is news, not state: it is sent apart from the work, rarely, once an hour for each fact, and
nothing waits for it or fails with it. What is worth an event is decided by the callers; the log has
everything.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import time
from typing import Protocol

import msgspec

from claimd.common import names, pacing, timestamps
from claimd.kubernetes.api.document import Document
from claimd.kubernetes.kube import errors as kube_errors
from claimd.kubernetes.kube import resources

log = logging.getLogger(__name__)

QUEUE_LENGTH = 32  # events that wait; what is recorded when they are that many is dropped
BURST, INTERVAL = 10, 20.0  # events at once, then one in so many seconds
# Seconds, at most, that news waits, drawn anew each time: what a bad driver release does to a thousand
# nodes in one moment must not be told to the API server in one moment.
SPREAD = 20.0
FIRST_DELAY, LAST_DELAY = 1.0, 60.0  # seconds between two tries while the API server is away
# Seconds for which a fact is no news any more. API servers keep an event for as long by default.
HOUR = 3600
REMEMBERED = 1000  # events whose name is remembered
NOTE_LIMIT = 1024  # bytes, of the API


class ObjectReference(msgspec.Struct, frozen=True, kw_only=True):
    """The object that an event is about."""

    api_version: str
    kind: str
    namespace: str = ""
    name: str
    uid: str


class RecordEvent(Protocol):
    """How an event is recorded. Never blocks and never fails."""

    def __call__(
        self, about: ObjectReference, reason: str, note: str, *, warning: bool = True
    ) -> None: ...


def discard(about: ObjectReference, reason: str, note: str, *, warning: bool = True) -> None:
    """Records nothing, for parts that run without an API server."""


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
    """Sends what was recorded, for as long as `run` runs. `finish` is for the end of it."""

    def __init__(self, resources_: resources.Resources, driver: str, node_: str) -> None:
        self._resources = resources_
        self._driver = driver
        self._node = node_
        self._queue: asyncio.Queue[tuple[str, Document]] = asyncio.Queue(QUEUE_LENGTH)
        self._finishing = asyncio.Event()
        self._recorded: dict[str, None] = {}  # names of events, the oldest first
        self._failures: set[type[Exception]] = set()  # that the log has, since the last success

    def record(
        self, about: ObjectReference, reason: str, note: str, *, warning: bool = True
    ) -> None:
        """Records an event, once an hour. Never blocks and never fails: what is too much is lost.

        `note` is a sentence for a person, of which the first 1,024 bytes are kept.
        """
        now = time.time()

        # The name says what the fact is, so that another process of ours, or a second try, makes no
        # second event of it.
        fact = f"{int(now // HOUR)} {about} {reason} {note}"
        digest = hashlib.sha256(fact.encode()).hexdigest()[:16]
        name = f"{names.shorten(about.name, 230)}.{digest}"
        if name in self._recorded:
            return

        event = _event(name, about, now, reason=reason, note=note, warning=warning)
        event["reportingController"] = self._driver
        event["reportingInstance"] = names.shorten(self._node, 128)
        try:
            self._queue.put_nowait((about.namespace or "default", event))
        except asyncio.QueueFull:
            log.debug("too many events wait, not told: %s: %s", reason, note)
            return

        self._recorded[name] = None
        while len(self._recorded) > REMEMBERED:
            del self._recorded[next(iter(self._recorded))]

    async def run(self) -> None:
        """Sends one event after the other, until cancelled."""
        bucket = pacing.TokenBucket(1 / INTERVAL, BURST)
        while True:
            namespace, event = await self._queue.get()
            await pacing.wait(self._finishing, pacing.between(0.0, SPREAD))

            # What was recorded meanwhile needs no moment of its own.
            await self._send_paced(bucket, namespace, event)
            while not self._queue.empty():
                await self._send_paced(bucket, *self._queue.get_nowait())

    async def finish(self, seconds: float) -> None:
        """Sends what waits at once. What is not sent within so many seconds is lost."""
        self._finishing.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._queue.join()

    async def _send_paced(
        self, bucket: pacing.TokenBucket, namespace: str, event: Document
    ) -> None:
        await bucket.ready()
        bucket.take()
        await self._send(namespace, event)
        self._queue.task_done()

    async def _send(self, namespace: str, event: Document) -> None:
        """Returns when the event is stored or refused; tries again while the API server is away."""
        backoff = pacing.Backoff(FIRST_DELAY, LAST_DELAY, jitter=(0.8, 1.2))
        while True:
            try:
                await self._resources.create_event(namespace, event)
            except kube_errors.AlreadyExists:
                return
            except kube_errors.ApiError as error:
                self._log_failure(event, error)
                if not kube_errors.is_transient(error):
                    return
                delay = backoff.next_delay()
                await asyncio.sleep(pacing.not_before(delay, error.retry_after))
            else:
                self._failures.clear()
                return

    def _log_failure(self, event: Document, error: kube_errors.ApiError) -> None:
        """Once for each kind of failure: an API server that is away would fill the log."""
        if type(error) in self._failures:
            return
        self._failures.add(type(error))
        log.warning(
            "event %s was not written, further failures are not logged: %s", event["reason"], error
        )


def _event(
    name: str, about: ObjectReference, now: float, *, reason: str, note: str, warning: bool
) -> Document:
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
        "note": note.encode()[:NOTE_LIMIT].decode(errors="ignore"),
    }
