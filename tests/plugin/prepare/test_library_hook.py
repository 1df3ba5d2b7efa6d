"""The program for the containers' loaders, on the host: there and seen to run, or not told."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from plugin import names
from plugin.prepare.library_hook import LibraryHook


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "ours"
    path.write_text("#!/bin/sh\necho one\n")
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "host/claimd"


def test_it_is_put_where_everybody_may_run_it(program: Path, folder: Path) -> None:
    target = folder / names.LIBRARY_HOOK
    hook = LibraryHook(program, str(folder))
    assert hook.path() == hook.path() == str(target)
    assert target.read_bytes() == program.read_bytes()
    assert (target.stat().st_mode & 0o777, folder.stat().st_mode & 0o777) == (0o755, 0o755)
    assert os.listdir(folder) == [target.name]


def test_it_is_put_back_and_updated(program: Path, folder: Path) -> None:
    target = folder / names.LIBRARY_HOOK
    hook = LibraryHook(program, str(folder))
    assert not hook.disturbed()
    hook.path()
    assert not hook.disturbed()
    target.unlink()
    assert hook.disturbed()
    assert hook.path() == str(target)
    assert not hook.disturbed()
    program.write_text("#!/bin/sh\necho two\n")
    assert LibraryHook(program, str(folder)).path() == str(target)
    assert "two" in target.read_text()
    assert hook.disturbed(), "another instance of claimd has a newer one"


def test_the_same_program_is_not_written_again(program: Path, folder: Path) -> None:
    LibraryHook(program, str(folder)).path()
    before = (folder / names.LIBRARY_HOOK).stat()
    LibraryHook(program, str(folder)).path()
    assert (folder / names.LIBRARY_HOOK).stat().st_ino == before.st_ino


def test_without_a_folder_there_is_none(program: Path) -> None:
    assert LibraryHook(program, "").path() is None


def test_what_cannot_be_run_is_not_told(
    program: Path, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As on a file system where nothing may be run."""
    program.write_text("#!/not/there\n")
    hook = LibraryHook(program, str(folder))
    with caplog.at_level(logging.WARNING):
        assert hook.path() is None
        assert hook.path() is None
    assert [record.getMessage() for record in caplog.records] == [
        "ldconfig in containers will not know the libraries of NVIDIA's driver: "
        f"[Errno 2] No such file or directory: '{folder / names.LIBRARY_HOOK}'"
    ]
    program.write_text("#!/bin/sh\nexit 3\n")
    assert LibraryHook(program, str(folder)).path() is None


def test_without_the_program_it_is_said_once(
    tmp_path: Path, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hook = LibraryHook(tmp_path / "missing", str(folder))
    with caplog.at_level(logging.WARNING):
        assert [hook.path(), hook.path()] == [None, None]
    assert len(caplog.records) == 1
    assert not hook.disturbed()
