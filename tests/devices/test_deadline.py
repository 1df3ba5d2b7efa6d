from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from claimd_devices import deadline, sysfs
from tests.devices.trees import Make

FIRST, SECOND = "0000:13:00.0", "0000:17:00.0"


def block(path: Path) -> None:
    """Makes a FIFO without a writer, which blocks its readers."""
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def release(path: Path) -> None:
    with suppress(OSError):  # nobody reads it
        os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))


@pytest.fixture(autouse=True)
def short(tmp_path: Path) -> Iterator[None]:
    """Shortens the deadline, and frees all blocked readers at the end."""
    yield
    for path in tmp_path.rglob("*"):
        if path.is_fifo():
            release(path)


def left_behind() -> int:
    return sum(thread.name == "deadline" for thread in threading.enumerate())


def until_gone(before: int) -> None:
    deadline = time.monotonic() + 30
    while left_behind() > before:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_work_that_does_not_hang_gives_what_it_gives() -> None:
    assert deadline.run(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        deadline.run(lambda: 1 // 0)


def test_a_gpu_that_hangs_is_skipped_and_its_neighbour_is_there(make_tree: Make) -> None:
    tree = make_tree("amd:mi210=2")
    path = tree.function(FIRST) / "mem_info_vram_total"
    before, began = left_behind(), time.monotonic()
    block(path)
    inventory = tree.scan()
    assert deadline.READ_TIMEOUT <= time.monotonic() - began < 2 * deadline.READ_TIMEOUT
    assert [gpu.address for gpu in inventory.gpus] == [SECOND]
    (skipped,) = inventory.skipped
    assert skipped.address == FIRST
    assert "hangs: a read has not come back for more than 2 s" in skipped.reason
    assert deadline.is_hung(f"{tree.roots.sys}/bus/pci/devices/{FIRST}")
    assert not deadline.is_hung(f"{tree.roots.sys}/bus/pci/devices/{SECOND}")

    began = time.monotonic()
    assert tree.scan() == inventory
    assert time.monotonic() - began < deadline.READ_TIMEOUT, "waited for it again"
    assert left_behind() == before + 1, "one thread waits, however often we look"

    release(path)
    until_gone(before)
    path.unlink()
    path.write_text("68702699520\n")
    assert [gpu.address for gpu in tree.scan().gpus] == [FIRST, SECOND]


@pytest.mark.slow
def test_two_that_hang_cost_a_deadline_each_and_two_threads(make_tree: Make) -> None:
    tree = make_tree("amd:mi210=3")
    for address in (FIRST, SECOND):
        block(tree.function(address) / "vendor")
    before, began = left_behind(), time.monotonic()
    assert [gpu.address for gpu in tree.scan().gpus] == ["0000:1b:00.0"]
    assert time.monotonic() - began < 3 * deadline.READ_TIMEOUT
    assert left_behind() == before + 2


def test_a_file_of_nobody_hangs_alone(make_tree: Make) -> None:
    tree = make_tree("nvidia:h100", "amd:mi210")
    block(tree.folder / "proc/driver/nvidia/version")
    gpus = tree.scan().gpus
    assert [gpu.vendor for gpu in gpus] == ["nvidia", "amd"]
    assert any("hangs" in note for note in gpus[0].notes)


def test_outside_of_run_nothing_changes(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("7\n")
    notes: list[str] = []
    assert sysfs.decimal(f"{tmp_path}/file", notes) == 7
    assert notes == []


# ---------------------------------------------------------------- reads, one by one


class Reads:
    """Work that reads several paths. Some reads wait until the test releases them."""

    def __init__(self, *hanging: str) -> None:
        self.gates = {path: threading.Event() for path in hanging}
        self.begun: list[str] = []

    def read(self, path: str) -> str:
        """Reads as claimd_devices.sysfs does."""
        attempt = deadline.begin_read(path)
        self.begun.append(path)
        try:
            if path in self.gates:
                self.gates[path].wait(60)
        finally:
            if attempt is not None:
                deadline.end_read(attempt)
        return path

    def all_of(self, *paths: str) -> list[str]:
        """Returns the paths that can be read."""
        done = []
        for path in paths:
            with suppress(deadline.DeadlineExceeded):
                done.append(self.read(path))
        return done

    def release(self) -> None:
        for gate in self.gates.values():
            gate.set()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(deadline, "READ_TIMEOUT", 0.05)
    before = left_behind()
    yield
    until_gone(before)
    assert deadline._hung == {}, "what comes back is not remembered"


def test_more_that_hangs_than_threads_may_be_left_behind(
    quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deadline, "MAX_HUNG_THREADS", 2)
    paths = [f"/t/file-{number}" for number in range(3)]
    reads, before = Reads(*paths), left_behind()
    try:
        with pytest.raises(deadline.DeadlineExceeded, match="has not come back for more than 0.05"):
            deadline.run(lambda: reads.all_of(*paths))
        assert left_behind() - before == 2
        assert [deadline.is_hung(path) for path in paths] == [True, True, False]
        assert deadline.run(lambda: reads.all_of(*paths[:2], "/t/other")) == ["/t/other"]
    finally:
        reads.release()


def test_what_hangs_takes_all_files_of_its_device_and_no_others(quick: None) -> None:
    device = "/t/sys/bus/pci/devices/0000:13:00.0"
    reads = Reads(f"{device}/vendor")
    others = ["/t/sys/bus/pci/devices/0000:13:00.1/vendor", "/u/sys/devices/0000:13:00.0/vendor"]
    try:
        read = deadline.run(lambda: reads.all_of(f"{device}/vendor", f"{device}/class", *others))
        assert read == others
        assert deadline.is_hung("/t/proc/driver/nvidia/gpus/0000:13:00.0")
        assert not deadline.is_hung("/t/sys/bus/pci/devices")
        with pytest.raises(deadline.DeadlineExceeded):
            deadline.begin_read(f"{device}/class")
        assert deadline.begin_read("/t/elsewhere") is None, "nothing is watched outside of run"
    finally:
        reads.release()


def test_work_that_is_slow_without_a_read_is_waited_for(quick: None) -> None:
    slow = threading.Event()

    def work() -> str:
        slow.wait(0.2)
        return "done"

    assert deadline.run(work) == "done"


def test_a_thread_that_nobody_waits_for_ends_at_its_next_read(quick: None) -> None:
    reads = Reads("/t/hangs")
    after = []

    def work() -> list[str]:
        done = reads.all_of("/t/hangs", "/t/next")
        after.append(done)
        return done

    assert deadline.run(work) == ["/t/next"]
    reads.release()
    until_gone(left_behind() - 1)
    assert after == [["/t/next"]], "the thread that was left behind went no further"
    assert reads.begun == ["/t/hangs", "/t/next"]


# ---------------------------------------------------------------- next to the event loop


async def test_a_thread_beside_the_loop_gives_what_the_work_gives() -> None:
    threads = []

    def work() -> int:
        threads.append(threading.current_thread())
        return 7

    assert await deadline.run_in_thread(work) == 7
    assert [(thread.name, thread.daemon) for thread in threads] == [("scan", True)]
    with pytest.raises(ZeroDivisionError):
        await deadline.run_in_thread(lambda: 1 // 0)


async def test_a_result_that_nobody_waits_for_is_dropped(caplog: pytest.LogCaptureFixture) -> None:
    gate = threading.Event()
    future = deadline.run_in_thread(lambda: gate.wait(30))
    future.cancel()
    gate.set()
    assert await deadline.run_in_thread(lambda: 1) == 1
    await asyncio.sleep(0)
    assert future.cancelled()
    assert caplog.text == ""


def test_threads_of_both_kinds_do_not_hold_up_the_end() -> None:
    names: dict[str, bool] = {}

    def work() -> None:
        names[threading.current_thread().name] = threading.current_thread().daemon

    deadline.run(work)
    assert names == {"deadline": True}
