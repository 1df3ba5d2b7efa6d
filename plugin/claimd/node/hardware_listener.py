"""Passes changes of the hardware to the slices, the kubelet's health stream, claims and metrics."""

from __future__ import annotations

import asyncio
import collections
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import field
from pathlib import Path

from claimd.common import metrics
from claimd.kubernetes.api.resource import DeviceTaint
from claimd_devices import monitor, values, watch
from claimd_devices.gpu import Inventory
from claimd_devices.health import HealthReport

from .config import Config
from .kubelet.health import Streams
from .publish import publisher
from .report import announcements, clearings, health, health_state

log = logging.getLogger(__name__)

# Seconds without a successful scan after which an Event is recorded. Shorter trouble is not
# reported.
TELL_AFTER = 10.0


@values.dataclass(slots=True, kw_only=True, eq=False, repr=False)
class HardwareListener:
    """Is called with each new inventory and each new health report.

    Everything that is published comes from the latest inventory and the latest report together.
    `scanned` is set by the first inventory.
    """

    config: Config
    watch: watch.Watch
    monitor: monitor.Monitor
    publisher: publisher.Publisher
    streams: Streams
    announcements: announcements.Announcements

    # Records an Event on the Node: its reason and its note.
    record_event: Callable[[str, str], None]

    # Called when the device numbers in the CDI files may have changed.
    request_restore: Callable[[], None]

    # The folder with the health state of an earlier process, and the boot in which that process
    # ran.
    folder: Path
    boot_id: str

    # The taints of devices whose claims are lost or gone: by the taint's key, then by the device.
    claim_taints: dict[str, Mapping[str, DeviceTaint]] = field(default_factory=dict)

    scanned: asyncio.Event = field(default_factory=asyncio.Event)

    # Fires when the effect of a published taint must change.
    _eviction_timer: asyncio.TimerHandle | None = None

    # Fires when scans have failed for so long that an Event is needed.
    _failure_timer: asyncio.TimerHandle | None = None

    def restore(self) -> None:
        """Reads the health state that an earlier process has saved."""
        self.monitor.restore(health_state.load(self.folder, self.boot_id))
        self.monitor.read_clearings = clearings.Reader(self.folder, self.boot_id).read_events

    async def watch_inventory(self) -> None:
        """Scans the hardware, and scans again after each change. Runs until cancelled."""
        self.watch.on_failure = self._on_failure
        await self.watch.run(self._on_inventory)

    async def watch_health(self) -> None:
        """Keeps the GPUs' health up to date. Runs until cancelled."""
        await self.monitor.run(self._on_health)

    def set_claim_taints(self, key: str, taints: Mapping[str, DeviceTaint]) -> None:
        """Publishes the taints with this key, in place of those before, with those of sick GPUs."""
        self.claim_taints[key] = taints
        self._publish()

    def failed_devices(self) -> dict[str, str]:
        """Returns the devices whose failure keeps new pods away, each with a text for people."""
        if self.config.taint_failed == "none":
            return {}
        return health.failures(self.monitor.last)

    def _on_inventory(self, inventory: Inventory) -> None:
        log.info(
            "%d GPUs; %d other display devices are left alone",
            len(inventory.gpus),
            len(inventory.skipped),
        )
        metrics.GPUS.replace(collections.Counter((gpu.vendor,) for gpu in inventory.gpus))

        # If the inventory changes the GPUs' health, `_on_health` is called and publishes both
        # together.
        if not self.monitor.on_inventory(inventory):
            self._publish()

        # The start restores the claims from the first inventory anyway.
        if self.scanned.is_set():
            self.request_restore()
        self.scanned.set()

    def _on_failure(self, failure: str) -> None:
        """Starts the clock at the first scan that fails, and stops it when one succeeds."""
        if failure and self._failure_timer is None:
            loop = asyncio.get_running_loop()
            self._failure_timer = loop.call_later(TELL_AFTER, self._tell_failure)
        elif not failure and self._failure_timer is not None:
            self._failure_timer.cancel()
            self._failure_timer = None

    def _tell_failure(self) -> None:
        note = (
            f"the hardware could not be looked at for {TELL_AFTER:.0f} s: {self.watch.failure}; "
            "what was seen before stays in force"
        )
        self.record_event("HardwareNotReadable", note)

    def _on_health(self, report: HealthReport) -> None:
        health_state.save(self.folder, self.boot_id, self.monitor.state)

        kinds: collections.Counter[tuple[str, ...]] = collections.Counter()
        for _, findings in report.findings:
            kinds.update((finding.kind, finding.severity) for finding in findings)
        metrics.SICK.replace(kinds)

        self._publish()
        self.announcements.set_health(report)

    def _publish(self) -> None:
        """Passes slices, taints and health on, all for the same moment."""
        inventory = self.watch.last or Inventory()
        report = self.monitor.last
        now = time.time()
        taints = health.taints(
            report, failed=self.config.taint_failed, degraded=self.config.taint_degraded, now=now
        )

        for of_key in self.claim_taints.values():
            for device, taint in of_key.items():
                taints.setdefault(device, []).append(taint)

        # A finding that has just begun does not evict pods yet. Publish again when it does.
        if self._eviction_timer is not None:
            self._eviction_timer.cancel()
            self._eviction_timer = None
        seconds = health.next_eviction(report, now)
        if seconds is not None:
            loop = asyncio.get_running_loop()
            self._eviction_timer = loop.call_later(seconds, self._publish)

        # A taint needs a device. So a GPU that vanished stays published for as long as the report
        # retains it.
        self.publisher.set(Inventory.from_unsorted((*inventory.gpus, *report.retained)), taints)
        self.streams.set(health.of_devices(inventory.gpus, report))
