from __future__ import annotations

import asyncio
import errno
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from claimd_devices import fake, scan
from claimd_devices.failures import LookFailedError
from claimd_devices.gpu import Inventory, Roots, Rules
from claimd_devices.watch import COALESCE, RETRY, UNREAD_SCANS, Watch
from tests.devices.kernel import announce, needs_kernel_events
from tests.devices.trees import Make
from tests.support.limits import without_descriptors

REPOSITORY = Path(__file__).parents[2]
NEVER = 3600.0
pytestmark = pytest.mark.usefixtures("quiet_kernel")


class Changes:
    """The inventories that a listener got, in order."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[Inventory] = asyncio.Queue()

    def __call__(self, inventory: Inventory) -> None:
        self._queue.put_nowait(inventory)

    async def next(self) -> list[str]:
        async with asyncio.timeout(30):
            return [gpu.address for gpu in (await self._queue.get()).gpus]

    def nothing_more(self) -> bool:
        return self._queue.empty()


@asynccontextmanager
async def running(watch: Watch) -> AsyncIterator[Changes]:
    changes = Changes()
    task = asyncio.create_task(watch.run(changes))
    try:
        yield changes
    finally:
        task.cancel()
        await asyncio.wait([task])


class Counted:
    """The real scan with a counter. After `hold`, each scan waits until the test lets it go."""

    def __init__(self) -> None:
        self.begun = 0
        self.most = 0  # at the same time
        self._now = 0
        self._held = False
        self._permits = threading.Semaphore(0)

    def hold(self) -> None:
        self._held = True

    def let_go(self, scans: int = 1) -> None:
        self._permits.release(scans)

    def __call__(self, roots: Roots, rules: Rules) -> Inventory:
        self._now += 1
        self.most = max(self.most, self._now)
        self.begun += 1
        if self._held:
            self._permits.acquire(timeout=30)
        try:
            return scan.scan(roots, rules)
        finally:
            self._now -= 1


async def until(fact: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not fact():
            await asyncio.sleep(0.005)


FIRST, SECOND = "0000:13:00.0", "0000:17:00.0"


async def test_the_clock_alone_sees_a_change(make_tree: Make) -> None:
    tree = make_tree("amd:mi210=2")
    async with running(Watch(tree.roots, Rules(), 0.05)) as changes:
        assert await changes.next() == [FIRST, SECOND]
        fake.unplug(tree.folder, FIRST)
        assert await changes.next() == [SECOND]
        fake.plug(tree.folder, FIRST)
        while await changes.next() != [FIRST, SECOND]:
            pass  # what is half plugged in may have been seen


async def test_what_does_not_change_is_not_told_again(make_tree: Make) -> None:
    tree, counted = make_tree("amd:mi210"), Counted()
    async with running(Watch(tree.roots, Rules(), 0.01, counted)) as changes:
        await changes.next()
        await until(lambda: counted.begun > 5)
        assert changes.nothing_more()


async def test_rules_hold(make_tree: Make) -> None:
    tree = make_tree("amd:mi210=2")
    async with running(Watch(tree.roots, Rules(exclude=(FIRST,)), NEVER)) as changes:
        assert await changes.next() == [SECOND]


async def test_wake_leads_to_one_look_a_burst(make_tree: Make) -> None:
    tree, counted = make_tree("amd:mi210=2"), Counted()
    watch = Watch(tree.roots, Rules(), NEVER, counted)
    async with running(watch) as changes:
        await changes.next()
        fake.unplug(tree.folder, FIRST)
        for _ in range(100):
            watch.wake()
        assert await changes.next() == [SECOND]
        assert counted.begun == 2


async def test_wakes_that_come_one_by_one_cost_few_looks(make_tree: Make) -> None:
    tree, counted = make_tree("amd:mi210=2"), Counted()
    watch = Watch(tree.roots, Rules(), NEVER, counted)
    async with running(watch) as changes:
        await changes.next()
        fake.unplug(tree.folder, FIRST)
        began = time.monotonic()
        for _ in range(20):
            watch.wake()
            await asyncio.sleep(COALESCE / 20)
        passed = time.monotonic() - began
        assert await changes.next() == [SECOND]
        assert counted.begun <= 5 + passed / COALESCE


async def test_a_wake_during_a_scan_is_not_lost(make_tree: Make) -> None:
    tree, counted = make_tree("amd:mi210=2"), Counted()
    watch = Watch(tree.roots, Rules(), NEVER, counted)
    async with running(watch) as changes:
        await changes.next()
        counted.hold()
        watch.wake()
        await until(lambda: counted.begun == 2)
        watch.wake()
        counted.let_go(2)
        await until(lambda: counted.begun == 3)


async def test_a_rescan_is_told_to_the_listener_and_is_the_last(make_tree: Make) -> None:
    tree = make_tree("amd:mi210=2")
    watch = Watch(tree.roots, Rules(), NEVER)
    assert watch.last is None
    async with running(watch) as changes:
        await changes.next()
        fake.unplug(tree.folder, SECOND)
        inventory = await watch.rescan()
        assert [gpu.address for gpu in inventory.gpus] == [FIRST] == await changes.next()
        assert watch.last is inventory
        await watch.rescan()
        assert changes.nothing_more()


async def test_a_listener_that_comes_late_hears_the_last(make_tree: Make) -> None:
    tree = make_tree("amd:mi210")
    watch = Watch(tree.roots, Rules(), NEVER)
    await watch.rescan()
    async with running(watch) as changes:
        assert await changes.next() == [FIRST]


async def test_callers_at_the_same_time_share_one_scan(make_tree: Make) -> None:
    counted = Counted()
    watch = Watch(make_tree("amd:mi210").roots, Rules(), NEVER, counted)
    inventories = await asyncio.gather(*(watch.rescan() for _ in range(32)))
    assert counted.begun == 1
    assert all(inventory is inventories[0] for inventory in inventories)


async def test_a_scan_under_way_does_not_answer_a_later_caller(make_tree: Make) -> None:
    """The scan may have passed the device that the caller asks about."""
    tree, counted = make_tree("amd:mi210=2"), Counted()
    watch = Watch(tree.roots, Rules(), NEVER, counted)
    counted.hold()
    early = asyncio.create_task(watch.rescan())
    await until(lambda: counted.begun == 1)
    late = [asyncio.create_task(watch.rescan()) for _ in range(32)]
    await asyncio.sleep(0)
    counted.let_go()
    await early
    await until(lambda: counted.begun == 2)
    latest = asyncio.create_task(watch.rescan())
    await asyncio.sleep(0)
    counted.let_go(2)
    await asyncio.gather(latest, *late)
    assert counted.begun == 3
    assert counted.most == 1


async def test_a_caller_that_gives_up_takes_nothing_from_the_others(make_tree: Make) -> None:
    counted = Counted()
    watch = Watch(make_tree("amd:mi210").roots, Rules(), NEVER, counted)
    counted.hold()
    callers = [asyncio.create_task(watch.rescan()) for _ in range(2)]
    await until(lambda: counted.begun == 1)
    callers[0].cancel()
    counted.let_go()
    assert [gpu.address for gpu in (await callers[1]).gpus] == [FIRST]
    assert callers[0].cancelled()


async def test_a_scan_that_fails_is_said_and_the_watch_goes_on(
    make_tree: Make, caplog: pytest.LogCaptureFixture
) -> None:
    tree, failures = make_tree("amd:mi210"), [RuntimeError("a mistake")]

    def sick(roots: Roots, rules: Rules) -> Inventory:
        if failures:
            raise failures.pop()
        return scan.scan(roots, rules)

    watch = Watch(tree.roots, Rules(), 0.01, sick)
    async with running(watch) as changes:
        assert await changes.next() == [FIRST]
    assert "the scan failed" in caplog.text
    assert "a mistake" in caplog.text


async def test_rescan_raises_what_the_scan_raised(make_tree: Make) -> None:
    watch = Watch(make_tree("amd:mi210").roots, Rules(include=("nobody",)), NEVER)
    with pytest.raises(ValueError, match="'nobody' is no rule"):
        await watch.rescan()
    assert watch.failure == "", "the hardware could be looked at"


async def test_what_is_wrong_is_said_once(
    make_tree: Make, caplog: pytest.LogCaptureFixture
) -> None:
    tree = make_tree("amd:mi210", "nvidia:l4,driver=nouveau", "bmc:aspeed")
    watch = Watch(tree.roots, Rules(), NEVER)
    unique_id = tree.function(FIRST) / "unique_id"

    async def rescan_log() -> list[tuple[str, str]]:
        caplog.clear()
        with caplog.at_level(logging.INFO, "claimd.devices"):
            await watch.rescan()
        return sorted((record.levelname, record.getMessage()) for record in caplog.records)

    assert await rescan_log() == [
        ("INFO", "0000:00:02.0 is no GPU of ours: an ASPEED server management chip's screen"),
        ("INFO", "gpu-0000-13-00-0 is there"),
        (
            "WARNING",
            "0000:15:00.0 is no GPU of ours: bound to the kernel driver nouveau, expected nvidia",
        ),
    ]
    assert await rescan_log() == []
    unique_id.write_text("")
    note = f"{tree.folder}/sys/bus/pci/devices/{FIRST}/unique_id: empty"
    for _ in range(UNREAD_SCANS - 1):
        assert await rescan_log() == []
    assert await rescan_log() == [("INFO", f"gpu-0000-13-00-0 is there; {note}")]
    assert await rescan_log() == []
    (tree.function("0000:15:00.0") / "driver").unlink()
    assert await rescan_log() == [
        ("WARNING", "0000:15:00.0 is no GPU of ours: bound to no kernel driver, expected nvidia"),
    ]
    fake.unplug(tree.folder, FIRST)
    assert await rescan_log() == [("WARNING", "0000:13:00.0 is gone from the bus")]


@needs_kernel_events
async def test_a_kernel_event_is_seen_without_the_clock(make_tree: Make) -> None:
    tree = make_tree("amd:mi210=2")
    async with running(Watch(tree.roots, Rules(), NEVER)) as changes:
        assert await changes.next() == [FIRST, SECOND]
        fake.unplug(tree.folder, SECOND)
        announce()
        assert await changes.next() == [FIRST]


@needs_kernel_events
async def test_a_burst_of_events_costs_few_scans(make_tree: Make) -> None:
    tree, counted = make_tree("amd:mi210=2"), Counted()
    async with running(Watch(tree.roots, Rules(), NEVER, counted)) as changes:
        await changes.next()
        fake.unplug(tree.folder, SECOND)
        announce(300)
        assert await changes.next() == [FIRST]
        await asyncio.sleep(3 * COALESCE)  # for the scans that must not come
        assert counted.begun <= 3


def test_a_read_that_hangs_does_not_hold_up_the_end(tmp_path: Path) -> None:
    """A file of a dead GPU may block for ever, like a FIFO without a writer."""
    fake.write(tmp_path / "tree", fake.parse(["amd:mi210"]))
    path = tmp_path / "tree/sys/bus/pci/devices/0000:13:00.0/mem_info_vram_total"
    path.unlink()
    os.mkfifo(path)
    program = """
import asyncio, sys, threading
from pathlib import Path
from claimd_devices import scan, watch
from claimd_devices.gpu import Roots, Rules
begun = threading.Event()
def look(roots, rules):
    begun.set()
    return scan.scan(roots, rules)
async def main():
    task = asyncio.create_task(watch.Watch(Roots.in_folder(Path(sys.argv[1])), Rules(), 60, look).run(print))
    await asyncio.to_thread(begun.wait, 30)
    assert begun.is_set() and not task.done()
    task.cancel()
asyncio.run(main())
print("ended")
"""
    arguments = [sys.executable, "-c", program, str(tmp_path / "tree")]
    environment = {"PYTHONPATH": f"{REPOSITORY}/devices"}
    done = subprocess.run(
        arguments, env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "ended\n"


async def test_a_gpu_that_falls_asleep_is_no_change(make_tree: Make) -> None:
    tree = make_tree("amd:mi210=2")
    watch = Watch(tree.roots, Rules(), NEVER)
    heard: list[Inventory] = []
    task = asyncio.create_task(watch.run(heard.append))
    async with asyncio.timeout(30):
        while not heard:
            await asyncio.sleep(0.01)
    (tree.function(FIRST) / "power/runtime_status").write_text("suspended\n")
    for _ in range(2):
        assert (await watch.rescan()).gpus[0].link_width == 16
    task.cancel()
    await asyncio.wait([task])
    assert len(heard) == 1


async def test_a_screen_in_standby_is_no_change(make_tree: Make) -> None:
    """Only the last scan shows that there was a screen: this driver makes no frame buffer."""
    tree = make_tree("nvidia:rtx4090,console", "nvidia:l4")
    watch = Watch(tree.roots, Rules(), NEVER)
    first = await watch.rescan()
    assert [gpu.console for gpu in first.gpus] == [True, False]
    (tree.function("0000:11:00.0") / "drm/card0/card0-DP-1/status").write_text("disconnected\n")
    for _ in range(2):
        assert await watch.rescan() == first


async def test_of_a_gpu_that_was_asleep_from_the_start_the_link_is_told_once_it_wakes(
    make_tree: Make,
) -> None:
    tree = make_tree("amd:mi210")
    status = tree.function(FIRST) / "power/runtime_status"
    status.write_text("suspended\n")
    watch = Watch(tree.roots, Rules(), NEVER)
    assert (await watch.rescan()).gpus[0].link_width is None
    status.write_text("active\n")
    assert (await watch.rescan()).gpus[0].link_width == 16
    assert watch.last is not None
    assert watch.last.gpus[0].link_width == 16


# ---------------------------------------------------------------- scans that fail


async def test_without_descriptors_what_was_seen_last_stays_in_force(make_tree: Make) -> None:
    watch = Watch(make_tree("amd:mi210", "nvidia:l4").roots, Rules(), NEVER)
    failures: list[str] = []
    watch.on_failure = failures.append
    seen = await watch.rescan()
    assert len(seen.gpus) == 2

    with without_descriptors():
        for _ in range(3):
            with pytest.raises(LookFailedError, match="bus/pci/devices: Too many open files"):
                await watch.rescan()
    assert watch.last is seen
    assert len(failures) == 1

    assert await watch.rescan() == seen
    assert failures[1:] == [""]


async def test_a_failed_scan_is_tried_again_after_a_second(make_tree: Make) -> None:
    watch = Watch(make_tree("amd:mi210").roots, Rules(), NEVER)
    failed, healed = asyncio.Event(), asyncio.Event()
    async with running(watch) as changes:
        assert await changes.next() == [FIRST]
        watch.on_failure = lambda failure: (failed if failure else healed).set()
        began = time.monotonic()
        with without_descriptors():
            watch.wake()
            await failed.wait()
        async with asyncio.timeout(30):
            await healed.wait()
        assert time.monotonic() - began >= RETRY
        assert changes.nothing_more()


async def test_without_threads_what_was_seen_last_stays_in_force(make_tree: Make) -> None:
    watch = Watch(make_tree("amd:mi210").roots, Rules(), NEVER)
    seen = await watch.rescan()
    size = threading.stack_size(1 << 46)  # more than there are addresses: no thread can start
    try:
        with pytest.raises(LookFailedError, match="cannot start a thread"):
            await watch.rescan()
    finally:
        threading.stack_size(size)
    assert watch.last is seen
    assert watch.failure
    assert await watch.rescan() == seen


async def test_a_bus_that_cannot_be_listed_is_not_an_empty_bus(make_tree: Make, errors_of) -> None:
    tree = make_tree("amd:mi210")
    watch = Watch(tree.roots, Rules(), NEVER)
    seen = await watch.rescan()
    for error in (errno.EIO, errno.EACCES, errno.ESTALE):
        errors_of({f"{tree.roots.sys}/bus/pci/devices": error})
        with pytest.raises(LookFailedError):
            await watch.rescan()
        assert watch.last is seen


async def test_ids_that_cannot_be_read_are_believed_after_several_scans(
    make_tree: Make, errors_of
) -> None:
    tree = make_tree("amd:mi210", "nvidia:l4")
    watch = Watch(tree.roots, Rules(), NEVER)
    seen = await watch.rescan()
    errors_of({f"{tree.roots.sys}/bus/pci/devices/{FIRST}/vendor": errno.EIO})
    for _ in range(2):
        assert (await watch.rescan()).gpus == seen.gpus

    inventory = await watch.rescan()
    assert [gpu.address for gpu in inventory.gpus] == ["0000:15:00.0"]
    (skipped,) = inventory.skipped
    assert (skipped.address, skipped.is_unread) == (FIRST, True)
    errors_of({})
    assert (await watch.rescan()).gpus == seen.gpus
    errors_of({f"{tree.roots.sys}/bus/pci/devices/{FIRST}/vendor": errno.EIO})
    assert (await watch.rescan()).gpus == seen.gpus


@pytest.mark.parametrize(
    ("gpu", "file"),
    [
        ("nvidia:h100", "proc/driver/nvidia/gpus/{address}/information"),
        ("nvidia:h100", "proc/devices"),
        ("nvidia:h100", "proc/driver/nvidia/capabilities/gpu0/mig"),
        ("nvidia:h100", "sys/bus/pci/devices/{address}/driver"),
        ("amd:mi300x", "sys/bus/pci/devices/{address}/current_compute_partition"),
        ("amd:mi300x", "sys/bus/pci/devices/{address}/drm"),
        ("amd:mi300x", "sys/bus/pci/devices/{address}/drm/renderD128/dev"),
        ("amd:mi300x,mode=cpx", "sys/class/drm/renderD129/dev"),
        ("amd:mi300x", "sys/bus/pci/devices/{address}/mem_info_vram_total"),
        ("intel:b580", "sys/bus/pci/devices/{address}/drm"),
        ("intel:b580", "sys/bus/pci/devices/{address}/driver"),
    ],
)
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOMEM])
async def test_a_file_that_cannot_be_read_is_believed_after_several_scans(
    make_tree: Make, errors_of, gpu: str, file: str, error: int
) -> None:
    tree = make_tree(gpu)
    watch = Watch(tree.roots, Rules(), NEVER)
    seen = await watch.rescan()
    assert seen.gpus
    errors_of({f"{tree.folder}/{file.format(address=seen.gpus[0].address)}": error})
    if error == errno.ENOMEM and file.endswith(("/drm", "/mig", "/driver")):
        # Folders and links are the kernel's own: its lack of memory says nothing about a GPU.
        with pytest.raises(LookFailedError):
            await watch.rescan()
    else:
        for _ in range(UNREAD_SCANS - 1):
            assert await watch.rescan() == seen
        assert await watch.rescan() != seen
    errors_of({})
    assert await watch.rescan() == seen


async def test_a_mig_instance_that_cannot_be_read_is_believed_gone_after_several_scans(
    make_tree: Make, errors_of
) -> None:
    tree = make_tree("nvidia:h100,mig=7")
    watch = Watch(tree.roots, Rules(), NEVER)
    seen = await watch.rescan()
    count = len(seen.gpus)
    (access, *_) = sorted(
        (tree.folder / "proc/driver/nvidia/capabilities").glob("gpu0/mig/*/access")
    )
    errors_of({str(access): errno.EIO})
    for _ in range(UNREAD_SCANS - 1):
        assert await watch.rescan() == seen
    assert len((await watch.rescan()).gpus) == count - 1


async def test_a_gpu_that_is_not_on_the_bus_is_gone_at_once(make_tree: Make) -> None:
    tree = make_tree("amd:mi210", "nvidia:l4")
    watch = Watch(tree.roots, Rules(), NEVER)
    await watch.rescan()
    fake.unplug(tree.folder, FIRST)
    assert [gpu.address for gpu in (await watch.rescan()).gpus] == ["0000:15:00.0"]
