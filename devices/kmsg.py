"""The kernel's log, as far as it tells of devices: one line at a time, with when it was written.

/dev/kmsg where it can be opened; else the system call behind dmesg, which needs no device node.
Both take CAP_SYSLOG where the administrator has restricted the log. What a line means must not go
in here.
"""

from __future__ import annotations

import errno
import os
import re
import time
from dataclasses import dataclass

from . import deadline
from .gpu import Roots

_RECORD = re.compile(
    r"(\d+),(\d+),(\d+),[^;]*;(.*)"
)  # priority, number, microseconds since the boot; the text
_LINE = re.compile(r"<\d+>\[\s*(\d+)\.(\d{6})\] (.*)")
_READ_ALL = 3  # of syslog(2)
_ROOM, _ROOM_LATER = (
    1 << 18,
    1 << 16,
)  # bytes of the log's end that are asked for: all of a usual log, and what is new
_AT_ONCE = (
    20_000  # records of a look: a log that grows as fast as we read is no reason to read for ever
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    at: float  # seconds since 1970
    text: str


class Log:
    """`unavailable` says why the log cannot be read; empty if it can."""

    def __init__(self, roots: Roots) -> None:
        self.unavailable = ""
        self._path = os.path.join(roots.dev, "kmsg")
        self._ours = os.fspath(roots.proc) != "/proc"  # a tree of files: its log is a file as well
        self._descriptor = -1
        self._opened: tuple[int, int] | None = None
        self._rest = b""
        self._last = -1.0  # the time since boot of the newest line that was given out

    def fresh(self) -> list[Line]:
        """What was logged since the last call; at the first, all that the kernel still has."""
        try:
            deadline.begin_read(self._path)
            try:
                found = self._records()
            finally:
                deadline.end_read()
            self.unavailable = ""
            return found
        except OSError as error:
            self._close()
            if self._ours:
                self.unavailable = (
                    ""
                    if error.errno == errno.ENOENT
                    else f"{self._path}: {os.strerror(error.errno or 0)}"
                )
                return []
        return self._asked()

    def _records(self) -> list[Line]:
        status = os.stat(self._path)
        if self._opened != (status.st_dev, status.st_ino) or self._descriptor < 0:
            self._close()
            self._descriptor = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            self._opened = status.st_dev, status.st_ino
        began = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
        found: list[Line] = []
        for _ in range(_AT_ONCE):
            try:
                chunk = os.read(self._descriptor, 8192)  # of /dev/kmsg one record
            except BlockingIOError:
                break
            except BrokenPipeError:  # the kernel has thrown away what we were to read next
                continue
            if not chunk:
                break
            *lines, self._rest = (self._rest + chunk).split(b"\n")
            for line in lines:
                if match := _RECORD.match(line.decode(errors="replace")):
                    found.append(Line(at=began + int(match[3]) / 1e6, text=match[4]))
        return found

    def _asked(self) -> list[Line]:
        import ctypes  # here, since a tree of files does without

        room = _ROOM if self._last < 0 else _ROOM_LATER
        buffer = ctypes.create_string_buffer(room)
        libc = ctypes.CDLL(None, use_errno=True)
        length = libc.klogctl(_READ_ALL, buffer, room)
        if length < 0:
            self.unavailable = f"the kernel's log cannot be read ({os.strerror(ctypes.get_errno())}): it takes CAP_SYSLOG"
            return []
        self.unavailable = ""
        began = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
        found = []
        newest = self._last
        for line in buffer.raw[:length].decode(errors="replace").splitlines():
            if (match := _LINE.match(line)) and (
                since := float(f"{match[1]}.{match[2]}")
            ) > self._last:
                found.append(Line(at=began + since, text=match[3]))
                newest = max(newest, since)
        self._last = newest
        return found

    def _close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor, self._opened, self._rest = -1, None, b""
