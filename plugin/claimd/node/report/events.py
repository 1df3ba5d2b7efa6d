"""Kubernetes Events about facts that a person should know: a damaged checkpoint, a vanished GPU.

Events are news, not state. They are sent in the background, and once an hour for each fact. No work
waits for an Event or fails with it. The callers decide which facts need an Event; the log has all
of them.
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

QUEUE_LENGTH = 32  # events that may wait; further ones are dropped
BURST, INTERVAL = 10, 20.0  # events at once, then one in so many seconds

# The longest time that an event waits, in seconds. The time is random: a bad driver release may hit
# a thousand nodes at once, which must not write to the API server at once.
SPREAD = 20.0
FIRST_DELAY, LAST_DELAY = 1.0, 60.0  # seconds between two tries while the API server is away

# Seconds until a fact may be reported again. API servers keep events for as long by default.
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
    """A function that records an event. It never blocks and never fails."""

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
    # The uid is the node's name, as in the kubelet's events: `kubectl describe node` selects by both.
    return ObjectReference(api_version="v1", kind="Node", name=name, uid=name)


class EventRecorder:
    """Sends recorded events while `run` runs. `finish` sends what is left at the end."""

    def __init__(self, resources_: resources.Resources, driver: str, node_: str) -> None:
        self._resources = resources_
        self._driver = driver
        self._node = node_
        self._queue: asyncio.Queue[tuple[str, Document]] = asyncio.Queue(QUEUE_LENGTH)
        self._finishing = asyncio.Event()
        self._recorded: dict[str, None] = {}  # names of events, the oldest first
        self._failures: set[type[Exception]] = set()  # that were logged since the last success

    def record(
        self, about: ObjectReference, reason: str, note: str, *, warning: bool = True
    ) -> None:
        """Records an event, once an hour for each fact. Never blocks and never fails.

        An event is lost if too many wait. `note` is a sentence for a person; only its first 1,024
        bytes are kept.
        """
        now = time.time()

        # The name is derived from the fact. So another process of ours, or a second try, cannot
        # create a second event about it.
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

        # Only the newest names are remembered.
        self._recorded[name] = None
        while len(self._recorded) > REMEMBERED:
            del self._recorded[next(iter(self._recorded))]

    async def run(self) -> None:
        """Sends one event after another, until cancelled."""
        bucket = pacing.TokenBucket(1 / INTERVAL, BURST)
        while True:
            namespace, event = await self._queue.get()
            await pacing.wait(self._finishing, pacing.between(0.0, SPREAD))

            # Events that were recorded during this wait are sent right after.
            await self._send_paced(bucket, namespace, event)
            while not self._queue.empty():
                await self._send_paced(bucket, *self._queue.get_nowait())

    async def finish(self, seconds: float) -> None:
        """Sends the waiting events now. Those not sent within so many seconds are lost."""
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
        """Sends an event until it is stored or refused. Tries again while the API server is away."""
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
        """Logs each kind of failure once: otherwise an API server that is away would fill the log."""
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
