from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from claimd_devices import sysfs
from claimd_devices.failures import LookFailedError


@pytest.mark.parametrize(
    ("content", "value", "note"),
    [
        (b"NVIDIA L4\n", "NVIDIA L4", None),
        (b"  0x1f \n", "0x1f", None),
        (b"", None, "empty"),
        (b"\n", None, "empty"),
        (b"\xff\xfe\n", None, "is not text"),
        (b"a\x00b\n", None, "is not one line of text"),
        (b"two\nlines\n", None, "is not one line of text"),
    ],
)
def test_text(tmp_path: Path, content: bytes, value: str | None, note: str | None) -> None:
    file = tmp_path / "value"
    file.write_bytes(content)
    notes: list[str] = []
    assert sysfs.text(str(file), notes) == value
    assert [note for note in notes if note.startswith(str(file))] == notes
    assert (note is None and not notes) or (
        note is not None and len(notes) == 1 and note in notes[0]
    )


@pytest.mark.parametrize(
    ("content", "decimal", "hexadecimal"),
    [
        ("-1\n", -1, None),
        ("206141652992\n", 206141652992, None),
        ("0x10de\n", None, 0x10DE),
        ("0x030200\n", None, 0x030200),
        ("10de\n", None, None),
        ("1.5\n", None, None),
        ("9" * 500, None, None),
        ("0x\n", None, None),
    ],
)
def test_numbers(
    tmp_path: Path, content: str, decimal: int | None, hexadecimal: int | None
) -> None:
    file = tmp_path / "value"
    file.write_text(content)
    for read, value in ((sysfs.decimal, decimal), (sysfs.hexadecimal, hexadecimal)):
        notes: list[str] = []
        assert read(str(file), notes) == value
        assert len(notes) == (0 if value is not None else 1)


def test_a_missing_file_is_normal(tmp_path: Path) -> None:
    notes: list[str] = []
    missing = str(tmp_path / "missing")
    for read in (
        sysfs.text,
        sysfs.decimal,
        sysfs.hexadecimal,
        sysfs.lines,
        sysfs.link,
        sysfs.names,
    ):
        assert read(missing, notes) is None
    assert notes == []


def test_what_cannot_be_read_is_noted(tmp_path: Path) -> None:
    """The kernel returns EIO, because the first page of a process's memory is not mapped."""
    (tmp_path / "sick").symlink_to("/proc/self/mem")
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("x")
    for name, reason in (
        ("sick", "Input/output error"),
        ("folder", "Is a directory"),
        ("file/x", "Not a directory"),
    ):
        notes: list[str] = []
        assert sysfs.text(str(tmp_path / name), notes) is None
        assert notes == [f"{tmp_path}/{name}: {reason}"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_noted(tmp_path: Path) -> None:
    (tmp_path / "secret").touch(mode=0)
    notes: list[str] = []
    assert sysfs.text(str(tmp_path / "secret"), notes) is None
    assert "Permission denied" in notes[0]


def test_link_and_names(tmp_path: Path) -> None:
    (tmp_path / "driver").symlink_to("../../../bus/pci/drivers/nvidia")
    (tmp_path / "class").touch()
    notes: list[str] = []
    assert sysfs.link(str(tmp_path / "driver"), notes) == "../../../bus/pci/drivers/nvidia"
    assert sysfs.names(str(tmp_path), notes) == ["class", "driver"]
    assert notes == []
    assert sysfs.link(str(tmp_path / "class"), notes) is None
    assert sysfs.names(str(tmp_path / "class"), notes) is None
    assert notes == [f"{tmp_path}/class: not a symbolic link", f"{tmp_path}/class: Not a directory"]


def test_a_file_that_comes_in_pieces_is_read_to_its_end() -> None:
    """The kernel returns this file one page at a time."""
    notes: list[str] = []
    lines = sysfs.lines("/proc/kallsyms", notes) or sysfs.lines("/proc/self/smaps", notes)
    assert lines is not None
    assert sum(map(len, lines)) > 4096


@pytest.mark.parametrize(
    "content",
    [b"", b"\n", b"one line\n", b"no end", b"two\nlines\n", b"x" * 4095 + b"\n", b"x" * 70000],
)
def test_all_of_a_file_is_read_whatever_its_form(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    assert sysfs.read(str(path), 1 << 20) == content


def test_no_more_than_the_limit_is_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 100)
    assert sysfs.read(str(path), 10) == b"x" * 10


def test_what_is_looked_at_is_recorded_while_that_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("1\n")
    (tmp_path / "link").symlink_to("file")
    with sysfs.recording() as accesses:
        sysfs.text(f"{tmp_path}/file", [])
        sysfs.link(f"{tmp_path}/link", [])
        sysfs.names(str(tmp_path), [])
        sysfs.is_file(f"{tmp_path}/f", [])
        sysfs.is_folder(f"{tmp_path}/d")
    sysfs.text(f"{tmp_path}/later", [])
    assert accesses == {
        (f"{tmp_path}/file", True),
        (f"{tmp_path}/link", False),
        (str(tmp_path), True),
        (f"{tmp_path}/f", False),
        (f"{tmp_path}/d", True),
    }


def test_errors_are_replayed_until_others_are(tmp_path: Path) -> None:
    path = f"{tmp_path}/file"
    Path(path).write_text("1\n")
    try:
        sysfs.replay_errors({path: 5})
        with sysfs.recording():
            pass
        notes: list[str] = []
        assert sysfs.decimal(path, notes) is None
        assert notes == [f"{path}: Input/output error"]
    finally:
        sysfs.replay_errors({})
    assert sysfs.decimal(path, []) == 1


def test_what_is_read_once_is_noted_for_each_that_asks() -> None:
    cache = sysfs.ScanCache()
    reads: list[int] = []

    def read(notes: list[str]) -> int:
        reads.append(1)
        notes.append("wrong")
        return 7

    for _ in range(2):
        notes = ["before"]
        assert cache.read_once("key", read, notes) == 7
        assert notes == ["before", "wrong"]
    assert len(reads) == 1
    cache.read_once("other", read, [])
    assert len(reads) == 2


def test_what_a_copy_of_sysfs_is_padded_with_is_no_part_of_it(tmp_path: Path) -> None:
    """Files of sysfs claim the size of a page, which tar fills up with NUL."""
    path = tmp_path / "vendor"
    path.write_bytes(b"0x10de\n".ljust(4096, b"\0"))
    notes: list[str] = []
    assert sysfs.hexadecimal(str(path), notes) == 0x10DE
    assert sysfs.lines(str(path), notes) == ["0x10de"]
    path.write_bytes(b"\0" * 4096)
    assert sysfs.text(str(path), notes) is None
    assert notes == [f"{path}: empty"]
    path.write_bytes(b"0x10\0de\n")
    assert sysfs.text(str(path), notes) is None
    assert notes[1:] == [f"{path}: '0x10\\x00de' is not one line of text"]


def test_a_file_that_may_be_empty_has_no_value_then(tmp_path: Path) -> None:
    path = tmp_path / "product_name"
    notes: list[str] = []
    for content, value in (("\n", None), ("", None), ("MI210\n", "MI210")):
        path.write_text(content)
        assert sysfs.text(str(path), notes, may_be_empty=True) == value
    assert notes == []
    assert sysfs.text(str(tmp_path), notes, may_be_empty=True) is None
    assert notes == [f"{tmp_path}: Is a directory"]


def test_a_lack_of_memory_is_not_taken_for_a_driver_that_was_not_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = sysfs.ScanCache(sysfs.Kept())
    missing = str(tmp_path / "made by the bind")
    assert cache.read_once_per_bind("key", missing, lambda _: "read", []) == "read"

    def lstat(path: str) -> os.stat_result:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM), path)

    monkeypatch.setattr(os, "lstat", lstat)
    with pytest.raises(LookFailedError, match="Cannot allocate memory"):
        cache.read_once_per_bind("key", missing, lambda _: "read", [])
