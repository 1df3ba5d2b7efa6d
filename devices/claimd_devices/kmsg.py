"""The kernel's log, as far as the kernel itself wrote it: one line at a time, with when.

/dev/kmsg where it can be opened; else the system call behind dmesg, which needs no device node.
Both take CAP_SYSLOG where the administrator has restricted the log. What a line means must not go
in here.

A container without any right can have text of its own put into the log: whoever may write to
/dev/kmsg writes lines, and the name of a file or program stands in the kernel's own lines, where it
may even bring line ends. So what only may be the kernel's is left out here, and whoever judges a
line goes by how it begins.
"""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Iterable
from dataclasses import replace

from . import deadline, values
from .gpu import Roots

# Of /dev/kmsg: facility and level, number, microseconds since the boot, flags; then the text. What
# is known of the device follows in lines of their own, which begin with a space.
_RECORD = re.compile(r"([0-9]{1,9}),[0-9]+,([0-9]{1,18}),([^,;]*)[^;]*;(.*)")
_DEVICE = " DEVICE="
_WHOLE = "-"  # the flag of a record that goes on no other's line

# Of dmesg: facility and level, seconds since the boot, where the kernel is built for it the thread.
_DMESG_LINE = re.compile(r"(<([0-9]{1,9})>\[ *([0-9]{1,12}\.[0-9]{6})\](?:\[ *[TC][0-9]+\])?) (.*)")

_LEVELS = 8  # below it, facility and level are of the kernel's own facility
_READ_ALL = 3  # of syslog(2)

# Bytes of the log's end that are asked for: all of a usual log, later what is new.
_ROOM, _ROOM_LATER = 1 << 18, 1 << 16

# Records of one look: a log that grows as fast as we read is no reason to read for ever.
_MOST_RECORDS = 20_000


@values.dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line that the kernel wrote, from its first character on."""

    at: float  # seconds since 1970
    text: str
    device: str = ""  # the device that it is about, as +pci:0000:11:00.0; empty where none is told


class Log:
    """The node's kernel log. `unavailable` says why it cannot be read; empty if it can."""

    def __init__(self, roots: Roots) -> None:
        self.unavailable = ""
        self._path = os.path.join(roots.dev, "kmsg")
        self._is_tree = os.fspath(roots.proc) != "/proc"  # whose log is a file as well
        self._descriptor = -1
        self._opened: tuple[int, int] | None = None
        self._rest = b""  # of a record that was read in part
        self._newest = -1.0  # seconds since the boot of the newest line that dmesg gave

    def read_new_lines(self) -> list[Line]:
        """What was logged since the last call; at the first, all that the kernel still has.

        Never raises for what is wrong with the log: `unavailable` says it, and the next call tries
        again.
        """
        try:
            attempt = deadline.begin_read(self._path)
            try:
                lines = self._read_records()
            finally:
                if attempt is not None:
                    deadline.end_read(attempt)
        except OSError as error:
            self._close()
            if not self._is_tree:
                return self._read_dmesg()
            is_missing = error.errno == errno.ENOENT
            reason = f"{self._path}: {os.strerror(error.errno or 0)}"
            self.unavailable = "" if is_missing else reason
            return []
        self.unavailable = ""
        return lines

    def _read_records(self) -> list[Line]:
        status = os.stat(self._path)
        if self._opened != (status.st_dev, status.st_ino) or self._descriptor < 0:
            self._close()
            self._descriptor = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            self._opened = status.st_dev, status.st_ino

        boot = _boot_time()
        lines: list[Line] = []
        for _ in range(_MOST_RECORDS):
            try:
                chunk = os.read(self._descriptor, 8192)  # of /dev/kmsg one record
            except BlockingIOError:
                break
            except BrokenPipeError:  # the kernel has thrown away what we were to read next
                continue
            if not chunk:
                break
            *whole, self._rest = (self._rest + chunk).split(b"\n")
            lines += parse_records([line.decode(errors="replace") for line in whole], boot)
        return lines

    def _read_dmesg(self) -> list[Line]:
        # Not above: a tree of files does without.
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
    """What the kernel wrote among lines of /dev/kmsg; `boot` is its time in seconds since 1970.

    The kernel writes line ends within a text as \\x0a, so nobody's text begins a record. One that
    goes on another's line begins with text that may be anybody's, and is left out.
    """
    found: list[Line] = []
    is_ours = False
    for line in lines:
        match = _RECORD.fullmatch(line)
        if match is not None:
            is_ours = int(match[1]) < _LEVELS and match[3] == _WHOLE
            if is_ours:
                found.append(Line(at=boot + int(match[2]) / 1e6, text=match[4]))
        elif is_ours and line.startswith(_DEVICE):
            found[-1] = replace(found[-1], device=line.removeprefix(_DEVICE))
    return found


def parse_dmesg(text: str, boot: float) -> list[Line]:
    """What the kernel wrote in the text of dmesg; `boot` is its time in seconds since 1970.

    A line end within a record's text begins a line there which looks like one of the kernel's, but
    for having the very same time and level: of such lines only the first is taken.
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
    """In seconds since 1970."""
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
