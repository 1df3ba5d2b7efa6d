"""Keeps the node's Inventory current: a look after every uevent, by the clock, and whenever
somebody asks.

Level, not edge: every look is a whole scan, compared with the last one. What a GPU is must not be
decided here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from . import deadline, scan, uevents
from .gpu import Gpu, Inventory, Roots, Rules

_log = logging.getLogger("claimd.devices")
FIRST, COALESCE = (
    0.01,
    0.1,
)  # seconds from an event to the look: after a calm, and while events keep coming
SLOWEST = 0.4  # while they do not end
CALM = 1.0  # seconds without an event

Listener = Callable[[Inventory], None]
Scan = Callable[[Roots, Rules], Inventory]


class Watch:
    """The one place that scans while the program runs."""

    def __init__(
        self,
        roots: Roots,
        rules: Rules,
        period: float,
        scan: Scan = scan.scan,
        on_uevent: uevents.OnUevent = lambda _: None,
    ) -> None:
        """`on_uevent` is given every event of the kernel as it comes."""
        self._on_uevent = on_uevent
        self._roots = roots
        self._rules = rules
        self._period = period
        self._scan = scan
        self._again = asyncio.Event()
        self._running: asyncio.Future[Inventory] | None = None
        self._waiting: asyncio.Task[Inventory] | None = None
        self._listeners: list[Listener] = []
        self._said: dict[str, str] = {}
        self.last: Inventory | None = None

    def wake(self) -> None:
        """Look again soon. From the loop's thread; calls in a burst cost one look."""
        self._again.set()

    async def rescan(self) -> Inventory:
        """A scan that begins after this call. Callers at the same time share it, and listeners hear
        of it as well.

        A scan that is under way does not count: it may have passed the device that the caller asks
        about.
        """
        if self._waiting is None:
            self._waiting = asyncio.create_task(self._next())
        return await asyncio.shield(self._waiting)

    async def run(self, changed: Listener) -> None:
        """Calls `changed` with the first Inventory and with every one that differs from the last,
        until cancelled.
        """
        self._listeners.append(changed)
        try:
            if self.last is not None:
                changed(self.last)
            with uevents.listening(self.wake, self._on_uevent, self._roots):
                await self._look()
                await self._look_again_and_again()
        finally:
            self._listeners.remove(changed)

    async def _look_again_and_again(self) -> None:
        """The first event after a calm leads to a look at once; what follows it waits, longer and
        longer: one change in the hardware is a burst of events.
        """
        clock = asyncio.get_running_loop().time
        pause, heard = FIRST, clock() - CALM
        while True:
            try:
                async with asyncio.timeout(self._period):
                    await self._again.wait()
                pause = FIRST if clock() - heard >= CALM else min(max(COALESCE, pause * 2), SLOWEST)
                await asyncio.sleep(pause)
                heard = clock()
            except TimeoutError:
                pass
            self._again.clear()
            await self._look()

    async def _look(self) -> None:
        try:
            await self.rescan()
        except Exception:  # noqa: BLE001  a mistake of ours must not end the watch
            _log.exception("the scan failed; the next one may do better")

    async def _next(self) -> Inventory:
        """Waits for the scan under way, then runs the one that the callers share."""
        if self._running is not None:
            await asyncio.wait([self._running])
        self._waiting = None
        self._running = running = deadline.run_in_thread(
            lambda: self._scan(self._roots, self._rules)
        )
        try:
            inventory = await running
        finally:
            if self._running is running:  # the next one may have begun already
                self._running = None
        if inventory != self.last:
            self._tell(inventory)
        return inventory

    def _tell(self, inventory: Inventory) -> None:
        self.last = inventory
        self._report(inventory)
        for listener in tuple(self._listeners):
            listener(inventory)

    def _report(self, inventory: Inventory) -> None:
        """Says what is new of a device, once."""
        said: dict[str, str] = {}
        for skipped in inventory.skipped:
            said[skipped.address] = skipped.reason
            if self._said.get(skipped.address) != skipped.reason:
                level = logging.INFO if skipped.expected else logging.WARNING
                _log.log(level, "%s is no GPU of ours: %s", skipped.address, skipped.reason)
        for gpu in inventory.gpus:
            key = (
                gpu.name if gpu.kind == "partition" else gpu.address
            )  # parts have the address of their GPU
            said[key] = words = "; ".join((f"{gpu.name} is there", *_ways(gpu), *gpu.notes))
            if self._said.get(key) != words:
                _log.info("%s", words)
        for address in self._said.keys() - said.keys() - {"*"}:
            _log.warning("%s is gone from the bus", address)
        self._said = said


def _ways(gpu: Gpu) -> tuple[str, ...]:
    return (f"libraries: {gpu.libraries.reason}",) if gpu.libraries else ()
