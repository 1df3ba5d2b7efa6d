"""Files of the host whose names come from a process or from another file.

A stranger who could choose such a name could let doctor wait at a pipe, read a device, or search
the whole disk. So a file must belong to root and be an ordinary file, which is known before it is
opened. All files of one look together have a budget.
"""

from __future__ import annotations

import os
import posixpath
import stat
import time

from claimd_devices import sysfs
from claimd_devices.host_files import HostFiles

MOST_BYTES = 1 << 18  # of one file; those of distributions have a few KiB
MOST_FILES = 64
MOST_NAMES = 10_000  # in the folders that were listed
MOST_SECONDS = 5.0


class NotReadError(Exception):
    """A file is not read, for a reason of ours: nothing is known about its content."""


class RootFiles:
    """Reads the host's files for one look, within its budget."""

    def __init__(self, files: HostFiles) -> None:
        self._files = files
        self._read = self._listed = 0
        self._ends = time.monotonic() + MOST_SECONDS

    def exists(self, path: str) -> bool:
        """Returns True if the path leads to something."""
        return self._files.real(path) is not None

    def is_folder(self, path: str) -> bool:
        """Returns True if there is a folder at the path. A link to a folder is no folder."""
        above, name = posixpath.split(path)
        place = self._files.real(above)
        if place is None:
            return False
        return sysfs.is_folder(f"{self._files.host}{place}/{name}", follow=False)

    def names(self, folder: str) -> list[str]:
        """Returns the names in a folder, sorted, or no names if it cannot be read.

        Raises NotReadError if the budget is used up.
        """
        self._check_time()
        names = self._files.names(folder)[1]
        self._listed += len(names) + 1
        if self._listed > MOST_NAMES:
            raise NotReadError(f"more than {MOST_NAMES:,} names would have to be looked at")
        return names

    def content(self, path: str) -> bytes:
        """Returns the bytes of a file.

        Raises OSError if it is missing or not readable. Raises NotReadError if it is not an
        ordinary file of root (or of the user who runs us), if it is too long, or if the budget is
        used up.
        """
        self._check_time()
        self._read += 1
        if self._read > MOST_FILES:
            raise NotReadError(f"more than {MOST_FILES} files would have to be read")

        place = self._files.real(path)
        if place is None:
            raise FileNotFoundError(path)
        return _read_ordinary(f"{self._files.host}{place}", path)

    def _check_time(self) -> None:
        if time.monotonic() > self._ends:
            raise NotReadError(f"it takes more than {MOST_SECONDS:g} s to read everything")


def _read_ordinary(place: str, path: str) -> bytes:
    """Reads the file at a place without links, whose path on the host is `path`."""
    # To open a device can already do something: a watchdog begins to count. A path descriptor opens
    # nothing, and keeps the file that was looked at.
    descriptor = os.open(place, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise NotReadError(f"{path} is not an ordinary file")
        if status.st_uid not in (0, os.geteuid()):
            raise NotReadError(f"{path} is not root's")
        if status.st_size > MOST_BYTES:
            raise NotReadError(f"{path} has {status.st_size:,} bytes, more than {MOST_BYTES:,}")

        # A file on a network file system may still let a read wait.
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        opened = os.open(f"/proc/self/fd/{descriptor}", flags)
        try:
            return sysfs.read_to_end(opened, MOST_BYTES)
        finally:
            os.close(opened)
    finally:
        os.close(descriptor)
