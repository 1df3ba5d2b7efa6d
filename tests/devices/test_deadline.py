from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from devices import deadline, sysfs
from tests.devices.trees import Make

FIRST, SECOND = "0000:13:00.0", "0000:17:00.0"


def block(path: Path) -> None:
    """A FIFO that nobody writes to."""
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def release(path: Path) -> None:
    with suppress(OSError):  # nobody reads it
        os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))


@pytest.fixture(autouse=True)
def short(tmp_path: Path) -> Iterator[None]:
    """At the end nobody hangs any more."""
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


def test_a_gpu_that_hangs_is_skipped_and_its_neighbour_is_there(tree: Make) -> None:
    made = tree("amd:mi210=2")
    path = made.function(FIRST) / "mem_info_vram_total"
    before, began = left_behind(), time.monotonic()
    block(path)
    inventory = made.scan()
    assert deadline.READ_TIMEOUT <= time.monotonic() - began < 2 * deadline.READ_TIMEOUT
    assert [gpu.address for gpu in inventory.gpus] == [SECOND]
    (skipped,) = inventory.skipped
    assert skipped.address == FIRST
    assert "hangs: a read has not come back for more than 2 s" in skipped.reason
    assert deadline.is_hung(f"{made.roots.sys}/bus/pci/devices/{FIRST}")
    assert not deadline.is_hung(f"{made.roots.sys}/bus/pci/devices/{SECOND}")

    began = time.monotonic()
    assert made.scan() == inventory
    assert time.monotonic() - began < deadline.READ_TIMEOUT, "waited for it again"
    assert left_behind() == before + 1, "one thread waits, however often we look"

    release(path)
    until_gone(before)
    path.unlink()
    path.write_text("68702699520\n")
    assert [gpu.address for gpu in made.scan().gpus] == [FIRST, SECOND]


def test_two_that_hang_cost_a_deadline_each_and_two_threads(tree: Make) -> None:
    made = tree("amd:mi210=3")
    for address in (FIRST, SECOND):
        block(made.function(address) / "vendor")
    before, began = left_behind(), time.monotonic()
    assert [gpu.address for gpu in made.scan().gpus] == ["0000:1b:00.0"]
    assert time.monotonic() - began < 3 * deadline.READ_TIMEOUT
    assert left_behind() == before + 2


def test_a_file_of_nobody_hangs_alone(tree: Make) -> None:
    made = tree("nvidia:h100", "amd:mi210")
    block(made.folder / "proc/driver/nvidia/version")
    gpus = made.scan().gpus
    assert [gpu.vendor for gpu in gpus] == ["nvidia", "amd"]
    assert any("hangs" in note for note in gpus[0].notes)


def test_outside_of_run_nothing_changes(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("7\n")
    notes: list[str] = []
    assert sysfs.decimal(f"{tmp_path}/file", notes) == 7
    assert notes == []
