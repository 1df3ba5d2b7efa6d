"""The program for the containers' loaders, on the host: there and seen to run, or not told."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path

import pytest

from claimd.common import names
from claimd.node.prepare.library_hook import LibraryHook


async def path_of(hook: LibraryHook) -> str | None:
    await hook.ensure()
    return hook.path


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "ours"
    path.write_text("#!/bin/sh\necho one\n")
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "host/claimd"


async def test_it_is_put_where_everybody_may_run_it(program: Path, folder: Path) -> None:
    target = folder / names.LIBRARY_HOOK
    hook = LibraryHook(program, str(folder))
    assert await path_of(hook) == await path_of(hook) == str(target)
    assert target.read_bytes() == program.read_bytes()
    assert (target.stat().st_mode & 0o777, folder.stat().st_mode & 0o777) == (0o755, 0o755)
    assert os.listdir(folder) == [target.name]


async def test_it_is_put_back_and_updated(program: Path, folder: Path) -> None:
    target = folder / names.LIBRARY_HOOK
    hook = LibraryHook(program, str(folder))
    assert not hook.is_disturbed()
    await hook.ensure()
    assert not hook.is_disturbed()
    target.unlink()
    assert hook.is_disturbed()
    assert await path_of(hook) == str(target)
    assert not hook.is_disturbed()
    program.write_text("#!/bin/sh\necho two\n")
    assert await path_of(LibraryHook(program, str(folder))) == str(target)
    assert "two" in target.read_text()
    assert hook.is_disturbed(), "another instance of claimd has a newer one"


async def test_the_same_program_is_not_written_again(program: Path, folder: Path) -> None:
    await LibraryHook(program, str(folder)).ensure()
    before = (folder / names.LIBRARY_HOOK).stat()
    await LibraryHook(program, str(folder)).ensure()
    assert (folder / names.LIBRARY_HOOK).stat().st_ino == before.st_ino


async def test_without_a_folder_there_is_none(program: Path) -> None:
    assert await path_of(LibraryHook(program, "")) is None


async def test_what_cannot_be_run_is_not_told(
    program: Path, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As on a file system where nothing may be run."""
    program.write_text("#!/not/there\n")
    hook = LibraryHook(program, str(folder))
    with caplog.at_level(logging.WARNING):
        assert await path_of(hook) is None
        assert await path_of(hook) is None
    assert [record.getMessage() for record in caplog.records] == [
        "ldconfig in containers will not know the libraries of NVIDIA's driver: "
        f"[Errno 2] No such file or directory: '{folder / names.LIBRARY_HOOK}'"
    ]
    program.write_text("#!/bin/sh\nexit 3\n")
    assert await path_of(LibraryHook(program, str(folder))) is None


async def test_without_the_program_it_is_said_once(
    tmp_path: Path, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hook = LibraryHook(tmp_path / "missing", str(folder))
    with caplog.at_level(logging.WARNING):
        assert [await path_of(hook), await path_of(hook)] == [None, None]
    assert len(caplog.records) == 1
    assert not hook.is_disturbed()


async def test_a_program_that_hangs_holds_nobody_up(program: Path, folder: Path) -> None:
    """It is tried in a thread: whoever else is served by the loop does not notice."""
    begun, go_on = program.with_name("begun"), program.with_name("go-on")
    os.mkfifo(go_on)
    program.write_text(f"#!/bin/sh\n: > {begun}\nread line < {go_on}\n")
    hook = LibraryHook(program, str(folder))
    trying = asyncio.create_task(hook.ensure())
    async with asyncio.timeout(30):
        while not begun.exists():
            await asyncio.sleep(0.01)
    assert not trying.done()
    await asyncio.to_thread(go_on.write_text, "now\n")
    await trying
    assert hook.path is not None


async def test_of_two_instances_the_later_has_its_program_there(
    tmp_path: Path, folder: Path
) -> None:
    """And the earlier leaves it, and has it in its specs: an update does not make them take turns."""
    target = folder / names.LIBRARY_HOOK
    hooks = []
    for number in ("one", "two"):
        program = tmp_path / number
        program.write_text(f"#!/bin/sh\necho {number}\n")
        hooks.append(LibraryHook(program, str(folder)))
        await hooks[-1].ensure()
    for _ in range(3):
        for hook in hooks:
            assert await path_of(hook) == str(target)
            assert not hook.is_disturbed()
    assert "two" in target.read_text()

    # What does not run is nobody's.
    target.write_text("#!/not/there\n")
    assert await path_of(hooks[0]) == str(target)
    assert "one" in target.read_text()


async def test_what_did_not_work_is_tried_again(program: Path, folder: Path) -> None:
    content = program.read_text()
    program.write_text("#!/not/there\n")
    hook = LibraryHook(program, str(folder))
    assert await path_of(hook) is None
    program.write_text(content)
    assert await path_of(hook) is not None


async def test_instances_that_start_at_once_leave_nothing_behind(
    tmp_path: Path, folder: Path
) -> None:
    folder.mkdir(parents=True)
    left = folder / f".{names.LIBRARY_HOOK}-0badcafe"
    left.write_text("")
    os.utime(left, (0, 0))
    hooks = []
    for number in range(8):
        program = tmp_path / str(number)
        program.write_text(f"#!/bin/sh\necho {number}\n")
        hooks.append(LibraryHook(program, str(folder)))
    for _ in range(2):
        await asyncio.gather(*(hook.ensure() for hook in hooks))
    assert {hook.path for hook in hooks} == {str(folder / names.LIBRARY_HOOK)}
    assert os.listdir(folder) == [names.LIBRARY_HOOK]


async def test_several_who_ask_at_once_install_it_once(program: Path, folder: Path) -> None:
    runs = folder.parent / "runs"
    program.write_text(f"#!/bin/sh\necho run >> {runs}\n")
    hook = LibraryHook(program, str(folder))
    await asyncio.gather(*(hook.ensure() for _ in range(5)))
    assert runs.read_text() == "run\n"


async def test_a_program_that_is_still_open_for_writing_is_tried_again(
    program: Path, folder: Path
) -> None:
    """As after a fork in another thread, in the moment in which the program was written."""
    hook = LibraryHook(program, str(folder))
    await hook.ensure()
    (folder / names.LIBRARY_HOOK).touch()  # so that the next call looks again

    writer = os.open(folder / names.LIBRARY_HOOK, os.O_WRONLY)
    closing = asyncio.get_running_loop().call_later(0.1, os.close, writer)
    await hook.ensure()
    assert closing.when() <= asyncio.get_running_loop().time()
    assert hook.path == str(folder / names.LIBRARY_HOOK)
