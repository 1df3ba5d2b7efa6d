"""The time until a change is seen, the number of scans at rest, and the memory after changes."""

from __future__ import annotations

import asyncio
import gc
import logging
import time
import tracemalloc
from pathlib import Path

import pytest

from claimd_devices import fake, faults, monitor, uevents, watch
from claimd_devices.gpu import Gpu, Inventory, Roots, Rules
from tests.devices.test_watch import FIRST, Counted, running
from tests.devices.trees import Make

NEVER = 3600.0
pytestmark = pytest.mark.usefixtures("quiet_kernel")


async def test_a_burst_of_300_events_costs_few_scans_and_the_last_is_not_lost(
    make_tree: Make,
) -> None:
    tree, counted = make_tree("nvidia:l4=16"), Counted()
    faults.enable(tree.folder)
    event = uevents.message("change", f"/devices/pci0000:10/0000:10:01.0/{FIRST}", "pci")
    async with running(watch.Watch(tree.roots, Rules(), NEVER, counted)) as changes:
        assert len(await changes.next()) == 16
        began = time.monotonic()
        for number in range(300):
            if number == 299:
                fake.unplug(tree.folder, FIRST)
            assert uevents.broadcast(tree.folder, event) == 1
            await asyncio.sleep(0)
        passed = time.monotonic() - began
        while len(await changes.next()) != 15:
            pass  # a look while it was going saw it half gone
        assert counted.begun <= 1 + 3 + passed / watch.COALESCE


async def test_events_that_do_not_end_cost_few_looks(make_tree: Make) -> None:
    """A flickering display causes such events."""
    tree, counted = make_tree("nvidia:l4"), Counted()
    watch_ = watch.Watch(tree.roots, Rules(), NEVER, counted)
    async with running(watch_) as changes:
        await changes.next()
        began = time.monotonic()
        for _ in range(100):
            watch_.wake()
            await asyncio.sleep(0.02)
        passed = time.monotonic() - began
        assert counted.begun <= 5 + 2 * passed / watch.SLOWEST, "after a stall it is quick again"


def gpu(number: int) -> Gpu:
    return Gpu(
        name=f"gpu-0000-{number:02x}-00-0",
        address=f"0000:{number:02x}:00.0",
        vendor="amd",
        vendor_id=0x1002,
        device_id=0x74A1,
        driver="amdgpu",
    )


@pytest.mark.slow
async def test_memory_after_3_000_changes_is_what_it_was_after_100(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "claimd")  # pytest keeps what is logged
    whole = Inventory.from_unsorted(gpu(number) for number in range(16))
    parts = [
        Inventory.from_unsorted(gpu(other) for other in range(16) if other != number)
        for number in range(16)
    ]
    monitor_ = monitor.Monitor(Roots.in_folder(tmp_path), grace=0.0, interval=10.0)

    def change(times: int) -> int:
        for number in range(times):
            monitor_.on_inventory(parts[number % 16])
            path = f"/devices/pci0000:00/0000:{number % 16:02x}:00.0"
            monitor_.on_uevent(
                uevents.Uevent(action="change", subsystem="drm", path=path, wedged="rebind")
            )
            monitor_.on_inventory(whole)
            monitor_.on_uevent(uevents.Uevent(action="bind", subsystem="pci", path=path))
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        few = change(100)
        many = change(750)  # of four changes each
    finally:
        tracemalloc.stop()
    assert many - few < 20_000, f"{few} bytes after 100 changes, {many} after 3,000"


@pytest.mark.slow
async def test_memory_after_300_real_scans_is_what_it_was_after_100(make_tree: Make) -> None:
    tree = make_tree("nvidia:h100=2")
    watch_ = watch.Watch(tree.roots, Rules(), NEVER)
    health = monitor.Monitor(tree.roots, grace=300.0, interval=10.0)

    async def look(times: int) -> int:
        for _ in range(times):
            health.on_inventory(await watch_.rescan())
            await health.check()
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        few = await look(100)
        many = await look(200)
    finally:
        tracemalloc.stop()
    assert many - few < 20_000, f"{few} bytes after 100 scans, {many} after 300"
