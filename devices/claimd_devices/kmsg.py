"""Reads the lines that the kernel itself wrote to its log, with their times.

It reads /dev/kmsg, or uses the system call behind dmesg if /dev/kmsg cannot be opened; the call
needs no device node. Both need CAP_SYSLOG if the administrator has restricted the log. This module
does not know what a line means.

An unprivileged container can get its own text into the log. Writers of /dev/kmsg add whole lines,
and the kernel's own lines contain names of files and programs, which may even contain line ends. So
this module leaves out each line that may not be the kernel's, and readers of a line must match it
from its first character.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import time
from collections.abc import Iterable
from dataclasses import replace

from . import deadline, failures, values
from .gpu import Roots

# A record of /dev/kmsg: facility and level, sequence number, microseconds since the boot, flags,
# then the text. Facts about the device follow in lines of their own that begin with a space.
_RECORD = re.compile(r"([0-9]{1,9}),([0-9]{1,18}),([0-9]{1,18}),([^,;]*)[^;]*;(.*)")
_DEVICE = " DEVICE="
_WHOLE = "-"  # the flag of a record that is a line of its own

# A line of dmesg: facility and level, seconds since the boot, and in some kernels the thread.
_DMESG_LINE = re.compile(r"(<([0-9]{1,9})>\[ *([0-9]{1,12}\.[0-9]{6})\](?:\[ *[TC][0-9]+\])?) (.*)")

_LEVELS = 8  # smaller numbers belong to facility 0, which is the kernel
_READ_ALL = 3  # of syslog(2)

# Bytes of the end of the log that dmesg returns: a whole log of usual size first, new lines later.
_ROOM, _ROOM_LATER = 1 << 18, 1 << 16

# The most records of one call, because a log may grow as fast as we read it.
_MOST_RECORDS = 20_000


_MOST_MARKS = 64


@values.dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line that the kernel wrote."""

    at: float  # seconds since 1970
    text: str
    device: str = ""  # such as +pci:0000:11:00.0; empty if the record names no device

    # Its place in the log of this boot; None: not known. The clock of the log and the time of day
    # drift apart, so only the numbers say which of two lines came first.
    number: int | None = None


class Log:
    """The kernel log of the node. `unavailable` says why it cannot be read; empty if it can."""

    def __init__(self, roots: Roots) -> None:
        self.unavailable = ""
        self._path = os.path.join(roots.dev, "kmsg")

        # The log of a fake or captured tree is an ordinary file, and dmesg would show another
        # machine.
        self._is_tree = os.fspath(roots.proc) != "/proc"
        self._descriptor = -1
        self._opened: tuple[int, int] | None = None
        self._rest = b""  # the first part of a record that was read in part
        self._newest = -1.0  # of the newest line from dmesg, in seconds since the boot

        # The number of the line that comes next, as far as we have read.
        self.next_number = 0
        self._marks: set[int] = set()  # descriptors of `mark_end`

    def __del__(self) -> None:
        self._close()
        for mark in self._marks:
            os.close(mark)

    def read_new_lines(self) -> list[Line]:
        """Returns the lines since the last call. The first call returns all lines that the kernel
        has.

        If the log cannot be read, `unavailable` says why, and the next call tries again. Raises
        LookFailedError if we could not look; no line is lost then.
        """
        try:
            attempt = deadline.begin_read(self._path)
            try:
                lines = self._read_records()
            finally:
                if attempt is not None:
                    deadline.end_read(attempt)
        except OSError as error:
            # The log is not there, or not readable, or hangs. On a machine, dmesg is tried next. In
            # a tree, a missing log is normal.
            self._close()
            if not self._is_tree:
                return self._read_dmesg()
            is_missing = error.errno == errno.ENOENT
            reason = f"{self._path}: {os.strerror(error.errno or 0)}"
            self.unavailable = "" if is_missing else reason
            return []
        self.unavailable = ""

        # The clock of the log drifts, and nothing is from the future.
        now = time.time()
        return [line if line.at <= now else replace(line, at=now) for line in lines]

    def mark_end(self) -> int:
        """Returns a descriptor at the end of the log, for `number_at`; -1 if it cannot be opened.

        Does not block. There are at most _MOST_MARKS at a time.
        """
        if len(self._marks) >= _MOST_MARKS:
            return -1
        try:
            mark = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return -1
        try:
            os.lseek(mark, 0, os.SEEK_END)
        except OSError:
            os.close(mark)
            return -1
        self._marks.add(mark)
        return mark

    def number_at(self, mark: int) -> int:
        """Closes a mark. Returns the number of the first line after it.

        Must come after `read_new_lines`: if no line came after the mark, it is the next number.
        """
        text = ""
        try:
            with contextlib.suppress(BrokenPipeError):
                text = os.read(mark, 8192).decode(errors="replace")

            # If the kernel has dropped the line, the next read gives the oldest that it still has.
            text = text or os.read(mark, 8192).decode(errors="replace")
        except OSError:
            pass
        finally:
            self._marks.discard(mark)
            os.close(mark)
        match = _RECORD.match(text)
        return int(match[2]) if match is not None else self.next_number

    def _read_records(self) -> list[Line]:
        # A tree may get a new log, for example when it is written again.
        try:
            status = os.stat(self._path)
            if self._opened != (status.st_dev, status.st_ino) or self._descriptor < 0:
                self._close()
                self._descriptor = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
                self._opened = status.st_dev, status.st_ino
        except OSError as error:
            failures.check(self._path, error)
            raise

        boot = _boot_time()
        lines: list[Line] = []
        for _ in range(_MOST_RECORDS):
            try:
                # A read of /dev/kmsg returns one record.
                chunk = os.read(self._descriptor, 8192)
            except BlockingIOError:
                break
            except BrokenPipeError:
                # The kernel has overwritten the records that were next. The next read goes on with
                # the oldest record that is left.
                continue
            if not chunk:
                break
            *whole, self._rest = (self._rest + chunk).split(b"\n")
            texts = [line.decode(errors="replace") for line in whole]
            lines += parse_records(texts, boot)
            self._count(texts)
        return lines

    def _count(self, texts: list[str]) -> None:
        """Notes the number of the newest record, of the kernel or of a program."""
        for text in reversed(texts):
            match = _RECORD.match(text)
            if match is not None:
                self.next_number = int(match[2]) + 1
                return

    def _read_dmesg(self) -> list[Line]:
        # Imported late, because a tree of files does not need it.
        import ctypes

        room = _ROOM if self._newest < 0 else _ROOM_LATER
        buffer = ctypes.create_string_buffer(room)
        libc = ctypes.CDLL(None, use_errno=True)
        length = libc.klogctl(_READ_ALL, buffer, room)
        if length < 0:
            reason = os.strerror(ctypes.get_errno())
            self.unavailable = f"the kernel's log cannot be read ({reason}): it takes CAP_SYSLOG"
            return []

        self.unavailable = ""

        # dmesg returns the whole end of the log each time, so lines that are known are left out.
        boot = _boot_time()
        text = buffer.raw[:length].decode(errors="replace")
        fresh = [line for line in parse_dmesg(text, boot=0.0) if line.at > self._newest]
        self._newest = max((line.at for line in fresh), default=self._newest)
        return [replace(line, at=boot + line.at) for line in fresh]

    def _close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor, self._opened, self._rest = -1, None, b""


def parse_records(lines: Iterable[str], boot: float) -> list[Line]:
    """Returns the kernel's own lines among lines of /dev/kmsg.

    `boot` is the time of the boot in seconds since 1970. The kernel escapes line ends within a text
    as \\x0a, so no text can start a record. A record that continues the line of another one is left
    out, because any program may have chosen the text at its start.
    """
    found: list[Line] = []
    is_ours = False
    for line in lines:
        match = _RECORD.fullmatch(line)
        if match is not None:
            is_ours = int(match[1]) < _LEVELS and match[4] == _WHOLE
            if is_ours:
                at = boot + int(match[3]) / 1e6
                found.append(Line(at=at, text=match[5], number=int(match[2])))
        elif is_ours and line.startswith(_DEVICE):
            found[-1] = replace(found[-1], device=line.removeprefix(_DEVICE))
    return found


def parse_dmesg(text: str, boot: float) -> list[Line]:
    """Returns the kernel's own lines in the output of dmesg.

    `boot` is the time of the boot in seconds since 1970. If the text of a record contains a line
    end, the rest of it looks like a line of its own with the same time and level. So of lines with
    the same time and level only the first one is taken.
    """
    found: list[Line] = []
    prefix = ""
    for line in text.split("\n"):
        match = _DMESG_LINE.fullmatch(line)
        if match is None or match[1] == prefix:
            continue
        prefix = match[1]
        if int(match[2]) < _LEVELS:
            found.append(Line(at=boot + float(match[3]), text=match[4]))
    return found


def _boot_time() -> float:
    """Returns the time of the boot in seconds since 1970."""
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
