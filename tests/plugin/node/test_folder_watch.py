"""Looks at shared folders, with the real kernel telling what changes in them.

No look is made for its time alone, unless a test says so: what is awaited comes by an event or never.
"""

import asyncio
import contextlib
import errno
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from claimd.node import folder_watch

PATIENCE = 20.0  # seconds, on a busy machine


class Looks:
    """Counts them, and answers what a test wants."""

    def __init__(self) -> None:
        self.count = 0
        self.may_rest = True
        self._looked = asyncio.Condition()

    async def look(self) -> bool:
        async with self._looked:
            self.count += 1
            self._looked.notify_all()
        return self.may_rest

    async def another(self, count: int = 1) -> None:
        await self.until(self.count + count)

    async def until(self, wanted: int) -> None:
        async with asyncio.timeout(PATIENCE), self._looked:
            await self._looked.wait_for(lambda: self.count >= wanted)


@contextlib.asynccontextmanager
async def looking(*folders: Path) -> AsyncIterator[Looks]:
    """From after the first look on."""
    looks = Looks()
    watch = folder_watch.FolderWatch(folders, looks.look)
    task = asyncio.create_task(watch.run())
    try:
        await looks.another()
        yield looks
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@pytest.fixture(autouse=True)
def _no_look_for_its_time(monkeypatch):
    monkeypatch.setattr(folder_watch, "SPACING", 0.01)
    monkeypatch.setattr(folder_watch, "GLANCE_INTERVAL", 1e6)


def write(path: Path) -> None:
    path.write_text("a")


def rename(path: Path) -> None:
    path.rename(path.with_name("renamed"))


@pytest.mark.parametrize("change", [write, Path.unlink, Path.touch, rename])
async def test_each_change_of_a_file_is_looked_at(tmp_path, change):
    (tmp_path / "file").touch()
    async with looking(tmp_path) as looks:
        change(tmp_path / "file")
        await looks.another()


async def test_many_changes_wake_us_once_a_look(tmp_path, monkeypatch):
    wakes = []
    on_event = folder_watch.FolderWatch._on_event

    def count_wakes(watch: folder_watch.FolderWatch, descriptor: int) -> None:
        wakes.append(descriptor)
        on_event(watch, descriptor)

    monkeypatch.setattr(folder_watch.FolderWatch, "_on_event", count_wakes)
    async with looking(tmp_path) as looks:
        before = looks.count
        for number in range(50):
            write(tmp_path / f"{number}")
            await asyncio.sleep(0)  # a turn of the loop, in which there may be a look
        await looks.until(before + 1)
        assert len(wakes) <= looks.count


async def test_a_change_is_looked_at_once(tmp_path):
    async with looking(tmp_path) as looks:
        write(tmp_path / "file")
        await looks.another()
        before = looks.count
        for _ in range(20):  # there would be a look in each of these times
            await asyncio.sleep(folder_watch.SPACING)
        assert looks.count == before


async def test_what_changes_during_a_look_is_looked_at_again(tmp_path):
    looks = Looks()

    async def changing() -> bool:
        if looks.count < 3:
            (tmp_path / str(looks.count)).touch()
        return await looks.look()

    task = asyncio.create_task(folder_watch.FolderWatch([tmp_path], changing).run())
    await looks.another(4)
    task.cancel()


async def test_a_folder_made_anew_is_watched_again(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    async with looking(tmp_path, folder) as looks:
        folder.rmdir()
        await looks.another()
        folder.mkdir()
        await looks.another()
        (folder / "file").touch()
        await looks.another()


async def test_a_folder_that_another_has_taken_the_place_of_is_told_of_no_more(tmp_path):
    folder, other = tmp_path / "folder", tmp_path / "other"
    folder.mkdir()
    async with looking(tmp_path, folder) as looks:
        folder.rename(other)
        await looks.another()
        folder.mkdir()
        await looks.another()
        (folder / "file").touch()
        await looks.another()
        seen = looks.count
        (other / "file").touch()
        (folder / "second").touch()
        await looks.another()
    assert looks.count == seen + 1


async def test_a_process_that_dies_is_told(tmp_path):
    hold = "import sys; kept = open(sys.argv[1], 'r+'); print(flush=True); sys.stdin.read()"
    path = tmp_path / "lock"
    path.touch()
    with subprocess.Popen(
        [sys.executable, "-c", hold, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        async with looking(tmp_path) as looks:
            process.kill()
            await looks.another()


async def test_looks_go_on_while_something_is_left_to_do(tmp_path):
    looks = Looks()
    looks.may_rest = False
    task = asyncio.create_task(folder_watch.FolderWatch([tmp_path], looks.look).run())
    await looks.another(5)
    task.cancel()


async def test_looks_go_on_while_a_folder_is_missing_whose_parent_nobody_watches(tmp_path):
    async with looking(tmp_path / "a" / "missing") as looks:
        await looks.another(5)


async def test_looks_go_on_where_the_kernel_has_no_room(tmp_path, monkeypatch, caplog):
    def used_up() -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    caplog.set_level("INFO")
    monkeypatch.setattr(folder_watch, "_open", used_up)
    async with looking(tmp_path) as looks:
        await looks.another(5)
    assert [record.message for record in caplog.records] == [
        "looking twice a second, since the kernel does not tell of changes: [Errno 24] Too many open "
        "files (its limits are fs.inotify.max_user_instances and max_user_watches)"
    ]


async def test_a_second_line_looks_without_being_told(tmp_path, monkeypatch):
    monkeypatch.setattr(folder_watch, "GLANCE_INTERVAL", 0.05)
    async with looking(tmp_path) as looks:
        await looks.another(3)


async def test_nothing_stays_open(tmp_path):
    before = len(os.listdir("/proc/self/fd"))
    async with looking(tmp_path):
        assert len(os.listdir("/proc/self/fd")) == before + 1
    assert len(os.listdir("/proc/self/fd")) == before


async def test_a_wait_is_ended_by_hand(tmp_path):
    looks = Looks()
    watch = folder_watch.FolderWatch([tmp_path], looks.look)
    task = asyncio.create_task(watch.run())
    await looks.another()
    watch.wake()
    await looks.another()
    task.cancel()
