"""Makes the node's ResourceSlices what the inventory says, and keeps them so.

What must be written is decided in `pool`. Here is when: at once after a change, later after a
failure, without the part that the API server refuses (`rejected`), and never too often, whatever
others do to our slices. Requests and the informer, the copy
of what stands, are kube's. Nothing here knows hardware.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType

from claimd.common import metrics, pacing
from claimd.kubernetes.api.document import Document
from claimd.kubernetes.api.resource import ResourceSlice
from claimd.kubernetes.kube import errors
from claimd.kubernetes.kube.resources import Resources
from claimd_devices.gpu import Inventory

from . import pool, rejected, server_features, sharing, slices
from .mutation_cache import MutationCache

log = logging.getLogger(__name__)

FIRST_DELAY, LAST_DELAY = 0.1, 30.0  # seconds between two attempts that fail
RATE, BURST = 5.0, 10  # writes a second in the long run, and at once
# Seconds for which we believe our own write more than an informer that does not show it.
MUTATION_TTL = 60.0

# One write: an object to delete, or a slice to update or create.
Write = ResourceSlice | Document


class Publisher:
    """Publishes what `set` was given last, for as long as `run` runs.

    Level-triggered: whatever happens to the slices or to requests, `run` looks again until what
    stands is what is desired. `published` is set when that was so for the first time.
    """

    def __init__(
        self,
        resources: Resources,
        driver: str,
        node: str,
        may_publish: Callable[[], bool] = lambda: True,
        *,
        numa_list: bool = False,
        sharing_rules: tuple[sharing.Rule, ...] = (),
    ) -> None:
        """`may_publish` is asked before each write: of several instances only one may."""
        self.published = asyncio.Event()
        self._resources = resources
        self._driver = driver
        self._node = node
        self._may_publish = may_publish
        self._numa_list = numa_list
        self._sharing_rules = sharing_rules

        # What is desired: the slices as built, without an owner and with nothing taken out yet.
        self._inventory = Inventory()
        self._taints: slices.Taints = {}
        self._builder = slices.Builder(driver, node)
        self._desired: list[ResourceSlice] | None = None
        self._changed_at = 0.0  # by the clock, if not all of it stands yet
        self._problems: list[str] = []  # what had to be left out; each is logged once

        # What the API server has told us.
        self._node_uid = ""
        self._counters = server_features.CounterSupport(resources, driver, node)
        self._sharing = server_features.SharingSupport(resources, driver, node, sharing_rules)
        self._rejected: list[rejected.RejectedPart] = []
        # By slice, a body and the form in which the API server keeps it.
        self._stored_forms: dict[str, tuple[Document, Document]] = {}
        self._dropped_paths: set[str] = set()  # that were logged
        # Slices that stood, in a form that we know to be the API server's.
        self._verified: set[str] = set()
        # Slices that are refused as they are: until when to leave which body alone.
        self._postponed: dict[str, tuple[float, Document | None]] = {}

        # What we have written.
        self._last: pool.Published | None = None
        self._mutations = MutationCache()
        self._bucket = pacing.TokenBucket(RATE, BURST)

        # When to look again.
        self._backoff = pacing.Backoff(FIRST_DELAY, LAST_DELAY, jitter=(0.5, 1.0))
        self._changed = asyncio.Event()  # something may be other than it was
        self._requested = asyncio.Event()  # the same, by set() or resync()

    def set(self, inventory: Inventory, taints: slices.Taints = MappingProxyType({})) -> None:
        """From now on this is what should be published. Returns at once; `run` does it."""
        self._inventory, self._taints = inventory, taints
        options = slices.Options(
            partitions=self._counters.kept,
            numa_list=self._numa_list,
            sharing=self._sharing_rules if self._sharing.kept else (),
        )
        desired, problems = self._builder.build(inventory, options, taints)

        for problem in problems:
            if problem not in self._problems:
                log.warning("not published as found: %s", problem)
        self._problems = problems

        if desired != self._desired:
            self._desired = desired
            self._changed_at = self._changed_at or time.monotonic()
            devices = {device.name for slice_ in desired for device in slice_.spec.devices}
            self._rejected = [part for part in self._rejected if part.device in devices]
            self.resync()

    def resync(self) -> None:
        """Looks again now, for instance because `may_publish` may have changed."""
        self._requested.set()
        self._changed.set()

    async def run(self) -> None:
        """Reconciles until cancelled. Failures are logged and tried again."""
        self._resources.slices.subscribe(self._on_informer_changed)
        wait: float | None = None
        while True:
            await pacing.wait(self._changed, wait)
            self._changed.clear()
            self._requested.clear()
            try:
                wait = await self._reconcile()
                self._backoff.reset()
            except errors.Conflict as error:
                # Somebody else wrote. The informer will show what: until then there is nothing to
                # be done.
                delay = self._backoff.next_delay()
                level = logging.WARNING if self._backoff.failures > 3 else logging.INFO
                log.log(level, "the slice is not what the watch says, looking again: %s", error)
                await pacing.wait(self._changed, delay)
                self._changed.set()
            except errors.ApiError as error:
                await self._wait_after(error)
                self._changed.set()

    def _on_informer_changed(self) -> None:
        self._mutations.observe(self._resources.slices.objects)
        self._changed.set()

    async def _wait_after(self, error: errors.ApiError) -> None:
        delay = self._backoff.next_delay()
        if errors.is_transient(error) or isinstance(error, errors.NotFound | errors.Gone):
            delay = pacing.not_before(delay, error.retry_after)
            log.warning("slices not written, next attempt in %.1f s: %s", delay, error)
            await asyncio.sleep(delay)
            return

        # It will be refused again until a person changes something, here or in the cluster.
        log.error(
            "slices not written, next attempt in %.0f s: %s%s", LAST_DELAY, error, _advice(error)
        )
        await pacing.wait(self._requested, LAST_DELAY)

    # ------------------------------------------------------------ one round

    async def _reconcile(self) -> float | None:
        """Writes until what stands is what is desired.

        One slice at a time, and looks again before the next, so that nothing is decided on old
        facts. Returns after how many seconds to look again even if nothing happens.
        """
        wrote = False
        while True:
            await self._bucket.ready()

            # Asked even if we may not publish yet: it is one request less when we may.
            if not self._node_uid:
                self._node_uid = await self._resources.node_uid(self._node)

            if self._desired is None or not self._resources.slices.synced:
                return None
            if not self._may_publish():
                # What another instance takes for it is no time of ours.
                if self._changed_at:
                    self._changed_at = time.monotonic()
                return None
            for support in (self._counters, self._sharing):
                if await support.learn(self._inventory):
                    self.set(self._inventory, self._taints)

            # From here to the write nothing is awaited.
            desired = pool.owned(
                rejected.without(self._desired, self._rejected), self._node, self._node_uid
            )
            existing = self._existing()
            changes = pool.compare(desired, existing, self._last, self._stored_forms)
            target = changes.target
            write = self._next_write(changes, target)
            if write is None:
                break
            self._bucket.take()
            await self._write(write, existing, target)
            wrote = True

        self._on_settled(target, wrote)
        now = asyncio.get_running_loop().time()
        deadlines = [until for until, _ in self._postponed.values()] + self._mutations.deadlines()
        return max(0.0, min(deadlines) - now) if deadlines else None

    def _existing(self) -> dict[str, Document]:
        """Our slices as they stand: the informer's, but for what we know better.

        Others' slices are none of our business, even if the API server showed them.
        """
        now = asyncio.get_running_loop().time()
        return {
            name: slice_
            for name, slice_ in self._mutations.overlay(self._resources.slices.objects, now).items()
            if slice_["spec"].get("driver") == self._driver
            and slice_["spec"].get("nodeName") == self._node
        }

    def _next_write(self, changes: pool.Changes, target: pool.Published) -> Write | None:
        """The first thing to write that is not postponed."""
        now = asyncio.get_running_loop().time()
        self._postponed = {
            name: (until, body)
            for name, (until, body) in self._postponed.items()
            if until > now and target.bodies.get(name) == body
        }
        writes: list[Write] = [*changes.delete, *changes.update, *changes.create]
        for write in writes:
            if _name(write) not in self._postponed:
                return write
        return None

    def _on_settled(self, target: pool.Published, wrote: bool) -> None:
        """All is written, but for what is postponed."""
        if self._postponed:
            return
        self._last = target
        self._verified.update(target.bodies)

        if self._changed_at:
            metrics.PUBLISHES.add(time.monotonic() - self._changed_at)
            self._changed_at = 0.0
        if wrote or not self.published.is_set():
            devices = sum(len(body.get("devices", ())) for body in target.bodies.values())
            counts = {
                "slices": len(target.bodies),
                "devices": devices,
                "generation": target.generation,
            }
            log.info("published", extra=counts)
        self.published.set()

    # ------------------------------------------------------------ one write

    async def _write(
        self, write: Write, existing: Mapping[str, Document], target: pool.Published
    ) -> None:
        """Writes one slice and learns from the answer, also from a refusal."""
        name = _name(write)
        current, last = existing.get(name), self._last
        with self._mutations.writing(name, current, self._resources.slices.objects):
            try:
                if not isinstance(write, ResourceSlice):
                    await self._delete(name, write["metadata"], target)
                elif current is None:
                    await self._create(write, target)
                else:
                    await self._update(write, current, target)
            except errors.NotFound:
                # A create names nothing that could be missing, but the Node that owns it.
                if current is None:
                    self._node_uid = ""
                    raise
                self._on_written(name, None)
            except errors.Invalid as error:
                # A write whose outcome is unknown counts as published; this one did not happen.
                self._last = last
                self._on_refused(write, target.bodies.get(name), error)

    async def _delete(self, name: str, metadata: Document, target: pool.Published) -> None:
        self._last = target
        await self._resources.delete_slice(name, metadata["uid"], metadata["resourceVersion"])
        metrics.SLICE_WRITES.add("delete")
        self._on_written(name, None)
        log.info("slice deleted: it is not one of those wanted", extra={"slice": name})

    async def _create(self, slice_: ResourceSlice, target: pool.Published) -> None:
        name = slice_.metadata.name
        if name in self._verified:
            # It stood and is gone. If that is because its Node was replaced, the new Node has to
            # own the next one: look the Node up first, and come again.
            log.info("a slice that was published is gone, creating it again", extra={"slice": name})
            self._verified.discard(name)
            self._node_uid = ""
            return

        self._last = target
        result = await self._resources.create_slice(slice_)
        self._on_stored(slice_, result)
        metrics.SLICE_WRITES.add("create")
        log.info("slice created", extra=_log_fields(slice_))

    async def _update(
        self, slice_: ResourceSlice, current: Document, target: pool.Published
    ) -> None:
        if await self._is_stored_form(slice_, current):
            return

        self._last = target
        result = await self._resources.update_slice(slice_)
        self._on_stored(slice_, result)
        metrics.SLICE_WRITES.add("update")
        log.info("slice updated", extra=_log_fields(slice_))

    async def _is_stored_form(self, slice_: ResourceSlice, current: Document) -> bool:
        """Whether what an earlier process wrote differs only by what the API server drops.

        The API server alone can tell: it is asked once for each slice, by a dry run. Without it,
        every restart would write what is dropped again.
        """
        if slice_.metadata.name in self._verified:
            return False
        desired, stored = pool.body(slice_.spec), pool.body(current["spec"])
        if desired == stored or _device_names(desired) != _device_names(stored):
            return False

        result = await self._resources.update_slice(slice_, dry_run=True)
        if pool.body(result["spec"]) != stored:
            self._verified.add(slice_.metadata.name)
            return False
        self._learn_stored_form(slice_, result)
        return True

    # ------------------------------------------------------------ what an answer tells

    def _on_written(self, name: str, result: Document | None) -> None:
        now = asyncio.get_running_loop().time()
        self._mutations.wrote(name, result, now + MUTATION_TTL)
        if result is None:
            self._stored_forms.pop(name, None)

    def _on_stored(self, sent: ResourceSlice, result: Document) -> None:
        self._on_written(sent.metadata.name, result)
        self._learn_stored_form(sent, result)

    def _learn_stored_form(self, sent: ResourceSlice, result: Document) -> None:
        """Remembers what the API server made of a slice: what it drops is not sent again."""
        name, desired, stored = sent.metadata.name, pool.body(sent.spec), pool.body(result["spec"])
        self._verified.add(name)
        self._stored_forms.pop(name, None)
        if desired == stored:
            return
        self._stored_forms[name] = (desired, stored)

        paths = [
            path for path in pool.differences(desired, stored) if path not in self._dropped_paths
        ]
        self._dropped_paths.update(paths)

        # Without counters nothing keeps a GPU and its parts apart: publish whole GPUs instead.
        if "spec.sharedCounters" in paths and self._counters.dropped():
            self.set(self._inventory, self._taints)
        # A device that is not shared must not say that it is.
        if "spec.devices[*].allowMultipleAllocations" in paths and self._sharing.dropped():
            self.set(self._inventory, self._taints)
        if paths:
            log.warning(
                "the API server does not keep %s as sent, which is accepted: "
                "a feature gate of it may be off",
                ", ".join(paths),
                extra={"slice": name},
            )

    def _on_refused(self, write: Write, body: Document | None, error: errors.Invalid) -> None:
        """Takes out what the API server refuses, so that the rest of the slice is published.

        If it does not say what, or that is out already, this slice is left alone for a while.
        """
        fresh: list[rejected.RejectedPart] = []
        if isinstance(write, ResourceSlice):
            for cause in error.causes:
                part = rejected.part_at(write, cause.field)
                if part is not None and part not in self._rejected + fresh:
                    log.error(
                        "not published, since the API server refuses it: %s: %s",
                        part,
                        cause.message,
                    )
                    fresh.append(part)
        self._rejected += fresh

        if not fresh:
            now = asyncio.get_running_loop().time()
            self._postponed[_name(write)] = (now + LAST_DELAY, body)
            log.error(
                "slice %s refused, next attempt in %.0f s: %s", _name(write), LAST_DELAY, error
            )


def _name(write: Write) -> str:
    if isinstance(write, ResourceSlice):
        return write.metadata.name
    return str(write["metadata"]["name"])


def _device_names(body: Document) -> list[str]:
    return [device["name"] for device in body.get("devices", [])]


def _log_fields(slice_: ResourceSlice) -> dict[str, object]:
    return {"slice": slice_.metadata.name, "generation": slice_.spec.pool.generation}


def _advice(error: errors.ApiError) -> str:
    if isinstance(error, errors.Forbidden):
        return (
            "; the service account needs get on nodes, and get, list, watch, create, update and "
            "delete on resourceslices, and an admission policy may allow the slices of its own "
            "node only: see deploy/"
        )
    return ""
