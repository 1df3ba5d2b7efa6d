from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from claimd_devices import deadline, kmsg
from claimd_devices.failures import LookFailedError
from claimd_devices.gpu import Roots
from claimd_devices.kmsg import Line, Log
from tests.support.limits import without_descriptors


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    (tmp_path / "dev").mkdir()
    log = Log(Roots.in_folder(tmp_path))
    yield log
    log._close()


def write(tmp_path: Path, *texts: str) -> None:
    now = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000
    with (tmp_path / "dev/kmsg").open("a") as file:
        file.writelines(f"6,1,{now},-;{text}\n" for text in texts)


def test_all_at_first_then_what_is_new(log: Log, tmp_path: Path) -> None:
    write(tmp_path, "one", "two; with a semicolon")
    first = log.read_new_lines()
    assert [line.text for line in first] == ["one", "two; with a semicolon"]
    assert abs(first[0].at - time.time()) < 5
    assert log.read_new_lines() == []
    write(tmp_path, "three")
    with (tmp_path / "dev/kmsg").open("a") as file:
        file.write(" SUBSYSTEM=pci\n DEVICE=+pci:0000:11:00.0\nno record\n")
    assert [line.text for line in log.read_new_lines()] == ["three"]
    assert log.unavailable == ""


def test_a_log_that_is_another_file_now_is_read_from_its_beginning(
    log: Log, tmp_path: Path
) -> None:
    write(tmp_path, "one")
    log.read_new_lines()
    (tmp_path / "dev/kmsg").rename(tmp_path / "old")
    write(tmp_path, "two")
    assert [line.text for line in log.read_new_lines()] == ["two"]


def test_a_tree_without_a_log_has_nothing_to_say(log: Log) -> None:
    assert log.read_new_lines() == []
    assert log.unavailable == ""


def test_a_log_that_cannot_be_read_is_named(log: Log, tmp_path: Path) -> None:
    (tmp_path / "dev/kmsg").symlink_to("/proc/self/mem")
    assert log.read_new_lines() == []
    assert log.unavailable == f"{tmp_path}/dev/kmsg: Input/output error"


def test_a_folder_in_place_of_the_log_is_named(log: Log, tmp_path: Path) -> None:
    (tmp_path / "dev/kmsg").mkdir()
    assert log.read_new_lines() == []
    assert log.unavailable == f"{tmp_path}/dev/kmsg: Is a directory"


@pytest.mark.skipif(os.geteuid() != 0, reason="the kernel's own log takes root")
@pytest.mark.parametrize("dev", ["/dev", "/nowhere"])
def test_the_kernel_s_own_log(dev: str) -> None:
    """Reads the device, or uses the system call behind dmesg if there is no device."""
    log = Log(Roots(dev=Path(dev)))
    mark = f"claimd test {os.urandom(4).hex()}"
    lines = log.read_new_lines()
    assert lines, "the kernel has said something since it began"
    assert 0 < lines[0].at <= lines[-1].at < time.time() + 5
    assert log.unavailable == ""
    Path("/dev/kmsg").write_text(f"{mark}\n")
    assert not [line for line in log.read_new_lines() if mark in line.text], "a program wrote it"


RECORDS = """\
6,100,1500000,-;first
3,101,2500000,-,caller=T17;xe 0000:03:00.0: [drm] second; with a semicolon
 SUBSYSTEM=pci
 DEVICE=+pci:0000:03:00.0
12,102,3500000,-;a program's
 DEVICE=+pci:0000:04:00.0
6,103,4500000,c;goes on
 DEVICE=+pci:0000:05:00.0
no record
4,104,5500000,-;last
""".splitlines()


def test_records_with_what_is_known_of_the_device() -> None:
    assert kmsg.parse_records(RECORDS, 1000.0) == [
        Line(at=1001.5, text="first", number=100),
        Line(
            at=1002.5,
            text="xe 0000:03:00.0: [drm] second; with a semicolon",
            device="+pci:0000:03:00.0",
            number=101,
        ),
        Line(at=1005.5, text="last", number=104),
    ]


DMESG = """\
<6>[    1.500000] first
<3>[    2.500000][   T17] xe 0000:03:00.0: second
<12>[    3.500000] a program's
<6>[    4.500000] a record of two lines
<6>[    4.500000] of which this may be anybody's
<6>[    4.500000] and this
<4>[    4.500000] of another level
<6>[    4.500000] of the first again
no line of the log
<6>[12345.678901] last
"""


def test_lines_of_dmesg() -> None:
    assert kmsg.parse_dmesg(DMESG, 1000.0) == [
        Line(at=1001.5, text="first"),
        Line(at=1002.5, text="xe 0000:03:00.0: second"),
        Line(at=1004.5, text="a record of two lines"),
        Line(at=1004.5, text="of another level"),
        Line(at=1004.5, text="of the first again"),
        Line(at=13345.678901, text="last"),
    ]


def test_a_program_s_line_does_not_lend_its_prefix() -> None:
    text = "<12>[    1.000000] a program's\n<6>[    1.000000] the kernel's\n"
    assert [line.text for line in kmsg.parse_dmesg(text, 0.0)] == ["the kernel's"]


def test_what_is_known_of_a_device_belongs_to_a_record() -> None:
    assert kmsg.parse_records([" DEVICE=+pci:0000:03:00.0", "6,1,0,-;first"], 0.0) == [
        Line(at=0.0, text="first", number=1)
    ]


def test_a_read_of_the_log_is_watched_while_it_lasts(log: Log, tmp_path: Path) -> None:
    write(tmp_path, "one")

    def look() -> tuple[int, str | None]:
        return len(log.read_new_lines()), deadline._thread.attempt.path

    assert deadline.run(look) == (1, None)


def test_a_record_that_was_read_in_part_is_read_on(log: Log, tmp_path: Path) -> None:
    path = tmp_path / "dev/kmsg"
    path.write_text("6,1,1000000,-;one\n6,2,20000")
    assert [line.text for line in log.read_new_lines()] == ["one"]
    with path.open("a") as file:
        file.write("00,-;two\n")
    assert [line.text for line in log.read_new_lines()] == ["two"]


def test_the_file_from_before_does_not_stay_open(log: Log, tmp_path: Path) -> None:
    write(tmp_path, "one")
    log.read_new_lines()
    before = len(os.listdir("/proc/self/fd"))
    (tmp_path / "dev/kmsg").rename(tmp_path / "old")
    write(tmp_path, "two")
    assert [line.text for line in log.read_new_lines()] == ["two"]
    assert len(os.listdir("/proc/self/fd")) == before


def test_without_descriptors_no_line_is_lost_and_none_comes_twice(log: Log, tmp_path: Path) -> None:
    write(tmp_path, "one")
    with without_descriptors(), pytest.raises(LookFailedError, match="Too many open files"):
        log.read_new_lines()
    assert [line.text for line in log.read_new_lines()] == ["one"]

    # The log is open now: it is read on without another descriptor.
    write(tmp_path, "two")
    with without_descriptors():
        assert [line.text for line in log.read_new_lines()] == ["two"]
    assert log.unavailable == ""


def test_after_records_that_were_overwritten_the_oldest_left_is_read(
    log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As /dev/kmsg does it: one read fails with EPIPE, and the next one goes on."""
    write(tmp_path, "one")
    log.read_new_lines()
    write(tmp_path, "two")
    read, overruns = os.read, [BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))]

    def read_or_overrun(descriptor: int, size: int) -> bytes:
        if descriptor == log._descriptor and overruns:
            raise overruns.pop()
        return read(descriptor, size)

    monkeypatch.setattr(kmsg.os, "read", read_or_overrun)
    assert [line.text for line in log.read_new_lines()] == ["two"]
    assert overruns == []
    write(tmp_path, "three")
    assert [line.text for line in log.read_new_lines()] == ["three"]
    assert log.unavailable == ""


def test_a_mark_knows_the_first_line_after_it(log: Log, tmp_path: Path) -> None:
    path = tmp_path / "dev/kmsg"
    path.write_text("6,40,1,-;one\n12,41,2,-;a program's\n")
    assert [line.number for line in log.read_new_lines()] == [40]
    assert log.next_number == 42
    mark = log.mark_end()
    assert log.number_at(mark) == 42

    mark = log.mark_end()
    with path.open("a") as file:
        file.write("6,45,3,-;two\n6,46,4,-;three\n")
    log.read_new_lines()
    assert log.number_at(mark) == 45
    path.unlink()
    assert log.mark_end() == -1


@pytest.mark.skipif(os.geteuid() != 0, reason="the kernel's own log takes root")
def test_a_mark_in_the_kernel_s_own_log() -> None:
    log = Log(Roots())
    lines = log.read_new_lines()
    mark = log.mark_end()
    Path("/dev/kmsg").write_text(f"claimd test {os.urandom(4).hex()}\n")
    log.read_new_lines()
    number = log.number_at(mark)
    assert lines[-1].number is not None
    assert lines[-1].number < number < log.next_number


def test_no_line_is_from_the_future(log: Log, tmp_path: Path) -> None:
    ahead = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000 + 69_000_000
    (tmp_path / "dev/kmsg").write_text(f"6,1,{ahead},-;one\n")
    (line,) = log.read_new_lines()
    assert line.at <= time.time()
