"""Keeps the node's ResourceSlices equal to the inventory.

The publisher decides when to write: at once after a change, later after a failure, and never too
often, no matter what others do to our slices. `desired` builds the slices, `pool` compares them
with the existing ones, `slice_writer` writes them, and `refusals` remembers what the API server
does not accept. This module knows no hardware.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection
from types import MappingProxyType

from claimd.common import metrics, pacing
from claimd.kubernetes.kube import errors
from claimd.kubernetes.kube.resources import Resources
from claimd_devices.gpu import Inventory

from . import pool, slices
from .desired import DesiredSlices
from .refusals import Refusals
from .slice_writer import OwningNode, SliceWriter

log = logging.getLogger(__name__)

FIRST_DELAY, LAST_DELAY = 0.1, 30.0  # seconds between two attempts that fail

# Seconds until an instance that may not publish looks again whether it may. The disk may have kept
# the publisher from saying for a moment that it publishes, and nobody reports that.
LOOK_AGAIN = 10.0
RATE, BURST = 5.0, 10  # writes a second in the long run, and at once


class Publisher:
    """Publishes the last inventory that was passed to `set`, for as long as `run` runs.

    It is level-triggered: whatever happens to the slices or to requests, `run` looks again until
    the existing slices are the desired ones. `published` is set when this is so for the first time.
    """

    def __init__(
        self,
        resources: Resources,
        driver: str,
        node: str,
        may_publish: Callable[[], bool] = lambda: True,
        options: slices.Options = slices.DEFAULT_OPTIONS,
    ) -> None:
        """Takes `may_publish`, which is asked before each write: only one of several instances may
        write.

        `options` are the choices of the administrator. Those that the API server does not support
        are left out.
        """
        self.published = asyncio.Event()
        self._resources = resources
        self._may_publish = may_publish

        # The desired slices, and the time from which on the existing slices differ (0.0 if they do
        # not).
        self._desired = DesiredSlices(resources, driver, node, options)
        self._changed_at = 0.0

        # The parts that write them.
        self._owner = OwningNode(resources, node)
        self._refusals = Refusals()
        self._writer = SliceWriter(
            resources, driver, self._owner, self._refusals, self._on_fields_dropped
        )
        self._bucket = pacing.TokenBucket(RATE, BURST)

        # When to look again. `_requested` is True after a call of set() or resync(), and not after
        # other changes.
        self._backoff = pacing.Backoff(FIRST_DELAY, LAST_DELAY, jitter=(0.5, 1.0))
        self._changed = asyncio.Event()
        self._requested = asyncio.Event()

    def set(self, inventory: Inventory, taints: slices.Taints = MappingProxyType({})) -> None:
        """Declares what should be published from now on. Returns at once; `run` does the work."""
        self._desired.inventory, self._desired.taints = inventory, taints
        self._rebuild()

    def resync(self) -> None:
        """Makes `run` look again now, for instance because `may_publish` may have changed."""
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
                # Another client wrote the slice. There is nothing to do until the informer shows
                # the new version.
                delay = self._backoff.next_delay()
                level = logging.WARNING if self._backoff.failures > 3 else logging.INFO
                log.log(level, "the slice is not what the watch says, looking again: %s", error)
                await pacing.wait(self._changed, delay)
                self._changed.set()
            except errors.ApiError as error:
                await self._wait_after(error)
                self._changed.set()

    def _rebuild(self) -> None:
        if not self._desired.build():
            return
        self._changed_at = self._changed_at or time.monotonic()
        self._refusals.keep_only(self._desired.device_names)
        self.resync()

    def _on_informer_changed(self) -> None:
        self._writer.on_informer_changed()
        self._changed.set()

    def _on_fields_dropped(self, paths: Collection[str]) -> None:
        if self._desired.withdraw_features(paths):
            self._rebuild()

    async def _wait_after(self, error: errors.ApiError) -> None:
        delay = self._backoff.next_delay()
        if errors.is_transient(error) or isinstance(error, errors.NotFound | errors.Gone):
            delay = pacing.not_before(delay, error.retry_after)
            log.warning("slices not written, next attempt in %.1f s: %s", delay, error)
            await asyncio.sleep(delay)
            return

        # The request would be refused again until a person changes something, here or in the
        # cluster.
        log.error(
            "slices not written, next attempt in %.0f s: %s%s", LAST_DELAY, error, _advice(error)
        )
        await pacing.wait(self._requested, LAST_DELAY)

    # ------------------------------------------------------------ one round

    async def _reconcile(self) -> float | None:
        """Writes until the existing slices are the desired ones.

        Writes one slice at a time and looks again before the next, so that no decision is based on
        old facts. Returns the number of seconds after which to look again even if nothing happens.
        """
        wrote = False
        while True:
            await self._bucket.ready()

            # The Node is looked up even if we may not publish yet, which saves a request later.
            await self._owner.look_up()

            if self._desired.slices is None or not self._resources.slices.synced:
                return None
            if not self._may_publish():
                # The time that another instance needs to publish does not count as ours.
                if self._changed_at:
                    self._changed_at = time.monotonic()
                return LOOK_AGAIN

            for feature in self._desired.features:
                if await feature.learn(self._desired.inventory):
                    # The slices may be stored without fields that are kept now.
                    self._writer.stored.forms.clear()
                    self._rebuild()

            # No await between here and the write: the decision must rest on one moment.
            reduced = self._refusals.remove_rejected(self._desired.slices)
            desired = pool.add_owner(reduced, self._owner.name, self._owner.uid)
            existing = self._writer.existing()
            changes = pool.compare(desired, existing, self._writer.last, self._writer.stored.forms)
            write = self._refusals.next_write(changes)
            if write is None:
                break
            self._bucket.take()
            await self._writer.write(write, existing, changes.target)
            wrote = True

        if not self._refusals.deadlines():
            self._on_settled(changes.target, wrote)
        deadlines = self._refusals.deadlines() + self._writer.deadlines()
        for feature in self._desired.features:
            deadlines += feature.deadlines(self._desired.inventory)
        now = asyncio.get_running_loop().time()
        return max(0.0, min(deadlines) - now) if deadlines else None

    def _on_settled(self, target: pool.Published, wrote: bool) -> None:
        """Notes that all desired slices exist."""
        self._writer.settle(target)
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


def _advice(error: errors.ApiError) -> str:
    if isinstance(error, errors.Forbidden):
        return (
            "; the service account needs get on nodes, and get, list, watch, create, update and "
            "delete on resourceslices, and an admission policy may allow the slices of its own "
            "node only: see deploy/"
        )
    return ""
