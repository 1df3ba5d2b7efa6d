"""Keeps the node's Inventory current. It scans after uevents, periodically, and on request.

The watch is level-triggered: every scan covers the whole node, and its result is compared with the
last one. A scan that failed changes nothing: the last Inventory stays valid. This module does not
know what a GPU is.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable

from . import deadline, scan, uevents
from .failures import LookFailedError
from .gpu import Gpu, Inventory, Roots, Rules

_log = logging.getLogger("claimd.devices")

# Seconds from an event to the scan. The first event after CALM seconds without one waits for FIRST.
# While events keep coming, the pause starts at COALESCE and doubles up to SLOWEST.
FIRST = 0.01
COALESCE = 0.1
SLOWEST = 0.4
CALM = 1.0

# Seconds after a failed scan until the next one, doubled each time up to the second figure.
RETRY = 1.0
SLOWEST_RETRY = 30.0

# A GPU whose files cannot be read any more stays in the Inventory as it was for so many scans, one
# RETRY apart.
UNREAD_SCANS = 3

Listener = Callable[[Inventory], None]
Scan = Callable[[Roots, Rules], Inventory]


class Watch:
    """Runs all scans of the program.

    `last` is the last Inventory, or None before the first scan.
    """

    def __init__(
        self,
        roots: Roots,
        rules: Rules,
        period: float,
        scan: Scan = scan.scan,
        on_uevent: uevents.OnUevent = lambda _: None,
    ) -> None:
        """Scans at least every `period` seconds, and passes every uevent to `on_uevent`."""
        self.last: Inventory | None = None
        self._on_uevent = on_uevent
        self._roots = roots
        self._period = period
        self._scan = functools.partial(scan, roots, rules)
        self._wake = asyncio.Event()
        self._running: asyncio.Future[Inventory] | None = None
        self._waiting: asyncio.Task[Inventory] | None = None
        self._listeners: list[Listener] = []

        # The last message that was logged about each device, by its address or name.
        self._logged: dict[str, str] = {}

        # Why the last scan failed; empty after one that did not. `on_failure` is called with each
        # change.
        self.failure = ""
        self.on_failure: Callable[[str], None] = lambda _: None
        self._retry = RETRY

        # How many scans in a row could not read a GPU that was there, by address.
        self._unread: dict[str, int] = {}

    def wake(self) -> None:
        """Requests a scan soon.

        A burst of calls costs one scan. Must be called in the loop's thread.
        """
        self._wake.set()

    def is_outdated(self, address: str) -> bool:
        """Returns True if the last scan failed, or could not read the device at this address.

        `last` has older facts about the device then, or none.
        """
        return bool(self.failure) or address in self._unread

    async def rescan(self) -> Inventory:
        """Returns the result of a scan that begins after this call. Raises the error of that scan.

        Concurrent callers share a scan, and listeners get its result as well. A scan that runs
        already does not count, because it may have passed the device that the caller asks about.
        The scan goes on if a caller is cancelled.
        """
        if self._waiting is None:
            self._waiting = asyncio.create_task(self._next_scan())
        return await asyncio.shield(self._waiting)

    async def run(self, changed: Listener) -> None:
        """Calls `changed` with the first Inventory and then with every different one.

        Runs until it is cancelled. A scan that fails is logged, and the next one follows.
        """
        self._listeners.append(changed)
        try:
            if self.last is not None:
                changed(self.last)
            with uevents.listening(self.wake, self._on_uevent, self._roots):
                await self._scan_and_log()
                await self._scan_whenever_woken()
        finally:
            self._listeners.remove(changed)

    async def _scan_whenever_woken(self) -> None:
        """Scans after events and periodically, until it is cancelled.

        One change of the hardware causes a burst of events. The first event after a calm leads to a
        scan at once; while more events follow, the pauses before the scans grow.
        """
        clock = asyncio.get_running_loop().time
        pause, woken_at = FIRST, clock() - CALM
        while True:
            seconds = self._seconds_to_next_scan()
            try:
                async with asyncio.timeout(seconds):
                    await self._wake.wait()
            except TimeoutError:
                pass
            else:
                if clock() - woken_at >= CALM:
                    pause = FIRST
                else:
                    pause = min(max(COALESCE, pause * 2), SLOWEST)
                await asyncio.sleep(pause)
                woken_at = clock()

            # The flag is cleared before the scan: an event that comes during the scan may not be
            # visible in its result, and must lead to another scan.
            self._wake.clear()
            await self._scan_and_log()

    def _seconds_to_next_scan(self) -> float:
        """Returns the period, or less while a scan failed or a GPU could not be read."""
        if self.failure:
            return min(self._retry, self._period)
        return min(RETRY, self._period) if self._unread else self._period

    async def _scan_and_log(self) -> None:
        try:
            await self.rescan()
        except LookFailedError:
            self._retry = min(self._retry * 2, SLOWEST_RETRY)
        except Exception:  # noqa: BLE001  a mistake of ours must not end the watch
            _log.exception("the scan failed; the next one may do better")

    async def _next_scan(self) -> Inventory:
        """Waits for the scan that runs, then runs the scan that the waiting callers share."""
        if self._running is not None:
            await asyncio.wait([self._running])

        # Later callers need a later scan: this one may pass their device before they ask.
        self._waiting = None
        running: asyncio.Future[Inventory] | None = None
        try:
            running = deadline.run_in_thread(self._scan)
            self._running = running
            inventory = await running
        except LookFailedError as error:
            # We could not look, so nothing new is known. The last Inventory stays valid.
            self._set_failure(str(error))
            raise
        finally:
            if self._running is running:  # the next one may have begun already
                self._running = None

        self._retry = RETRY
        self._set_failure("")
        inventory = self._with_unread_of_last(inventory)

        # Facts that one scan cannot see come from the last Inventory.
        if self.last is not None and any(gpu.is_asleep for gpu in inventory.gpus):
            inventory = scan.with_links_of(self.last, inventory)
        if self.last is not None and any(gpu.console for gpu in self.last.gpus):
            inventory = scan.with_consoles_of(self.last, inventory)

        if inventory != self.last:
            self.last = inventory
            self._log_news(inventory)
            for listener in tuple(self._listeners):
                listener(inventory)
        return inventory

    def _set_failure(self, failure: str) -> None:
        """Logs and reports a new reason why scans fail. An empty reason means that they succeed
        again.
        """
        if failure == self.failure:
            return
        if failure:
            _log.warning("the look at the hardware failed, trying again: %s", failure)
        else:
            _log.info("the hardware can be looked at again")
        self.failure = failure
        self.on_failure(failure)

    def _with_unread_of_last(self, inventory: Inventory) -> Inventory:
        """Returns the inventory, in which GPUs that could not be read are as in the last one.

        One failed read does not mean that a GPU, a part of it or a fact is gone. The error is
        believed after UNREAD_SCANS such scans in a row.
        """
        unread = self._unread_addresses(inventory)
        last = self.last.gpus if self.last is not None else ()
        kept: list[Gpu] = []
        counts: dict[str, int] = {}
        for gpu in last:
            count = self._unread.get(gpu.address, 0) + 1
            if gpu.address in unread and count < UNREAD_SCANS:
                counts[gpu.address] = count
                kept.append(gpu)
        self._unread = counts
        if not kept:
            return inventory

        others = [gpu for gpu in inventory.gpus if gpu.address not in counts]
        skipped = [other for other in inventory.skipped if other.address not in counts]
        return Inventory.from_unsorted([*others, *kept], skipped)

    def _unread_addresses(self, inventory: Inventory) -> set[str]:
        """Returns the addresses of devices with a file that could not be read in this scan.

        A GPU that is found nevertheless has a note about the file. Only notes that the last
        Inventory does not have count, because some files can never be read.
        """
        unread = {skipped.address for skipped in inventory.skipped if skipped.is_unread}
        for gpu in inventory.gpus:
            before = self.last.find_gpu(gpu.name) if self.last is not None else None
            if before is not None and not set(gpu.notes) <= set(before.notes):
                unread.add(gpu.address)
        return unread

    def _log_news(self, inventory: Inventory) -> None:
        """Logs a line for each device whose message differs from the one logged last."""
        logged: dict[str, str] = {}
        for skipped in inventory.skipped:
            logged[skipped.address] = skipped.reason
            if self._logged.get(skipped.address) != skipped.reason:
                level = logging.INFO if skipped.expected else logging.WARNING
                _log.log(level, "%s is no GPU of ours: %s", skipped.address, skipped.reason)

        for gpu in inventory.gpus:
            # The key is the address, as that of skipped devices. Partitions share the address of
            # their GPU, so their keys are their names.
            key = gpu.name if gpu.kind == "partition" else gpu.address
            logged[key] = _sentence(gpu)
            if self._logged.get(key) != logged[key]:
                _log.info("%s", logged[key])

        # The address * belongs to no device. It stands for a missing bus.
        for address in self._logged.keys() - logged.keys() - {"*"}:
            _log.warning("%s is gone from the bus", address)
        self._logged = logged


def _sentence(gpu: Gpu) -> str:
    parts = [f"{gpu.name} is there"]
    if gpu.libraries is not None:
        parts.append(f"libraries: {gpu.libraries.reason}")
    return "; ".join([*parts, *gpu.notes])
