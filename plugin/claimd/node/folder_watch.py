"""Watches folders that we share with other processes, and calls a function after changes.

inotify reports that something has changed, and the function finds out what. inotify does not report
a mount over a folder or a renamed parent, so the function is also called from time to time. If the
kernel has no room for our watches, it is called often.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
import logging
import os
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

from claimd.common import pacing

log = logging.getLogger(__name__)

# The least seconds between two looks, so that many changes at once cause one look. It is also the
# interval if the kernel does not report changes.
SPACING = 0.5

# The most seconds between two looks, in case a change was not reported.
GLANCE_INTERVAL = 5.0

# The kernel's constants, without the prefix IN_.
MODIFY, ATTRIB, CLOSE_WRITE = 0x2, 0x4, 0x8
MOVED_FROM, MOVED_TO, CREATE, DELETE = 0x40, 0x80, 0x100, 0x200
DELETE_SELF, MOVE_SELF, ONLYDIR = 0x400, 0x800, 0x01000000

# A process that dies closes its files, so its death is reported, too.
EVENTS = MODIFY | ATTRIB | CLOSE_WRITE | MOVED_FROM | MOVED_TO | CREATE | DELETE
MASK = EVENTS | DELETE_SELF | MOVE_SELF | ONLYDIR

_libc = ctypes.CDLL(None, use_errno=True)
_MISSING = (errno.ENOENT, errno.ENOTDIR)
BUFFER = 1 << 16  # bytes of events that are read at a time and ignored


class FolderWatch:
    """Calls a function after changes in some folders while `run` runs."""

    def __init__(self, folders: Iterable[Path], look: Callable[[], Awaitable[bool]]) -> None:
        """Takes `look`, which repairs what is wrong, and returns False to be called again soon."""
        self._folders = tuple(folders)
        self._look = look
        self._watched: dict[Path, int] = {}  # the kernel's watch descriptor of each
        self._descriptor: int | None = None
        self._changed = asyncio.Event()
        self._refusal = ""  # why the kernel does not report changes; logged once

    async def run(self) -> None:
        """Looks until cancelled. The first look is a moment after the start."""
        may_rest = False
        try:
            while True:
                await asyncio.sleep(SPACING)
                if may_rest:
                    await pacing.wait(self._changed, GLANCE_INTERVAL - SPACING)

                # The watches are renewed before the look, so that no change after it is lost.
                is_told = self._renew()
                may_rest = await self._look() and is_told
        finally:
            self._close()

    def wake(self) -> None:
        """Requests a look although no folder has changed."""
        self._changed.set()

    def _renew(self) -> bool:
        """Watches the folders that are at the paths now.

        Returns True if the kernel will report every change. A missing folder is no gap if its parent
        is watched.
        """
        self._changed.clear()
        try:
            if self._descriptor is None:
                self._descriptor = _open()
            self._forget_events(self._descriptor)
            asyncio.get_running_loop().add_reader(
                self._descriptor, self._on_event, self._descriptor
            )
            missing = [folder for folder in self._folders if not self._watch(folder)]
        except OSError as error:
            if self._refusal != str(error):
                log.info(
                    "looking twice a second, since the kernel does not tell of changes: %s "
                    "(its limits are fs.inotify.max_user_instances and max_user_watches)",
                    error,
                )
            self._refusal = str(error)
            return False
        return all(folder.parent in self._watched for folder in missing)

    def _watch(self, folder: Path) -> bool:
        """Watches one folder. Returns False if it is missing. May be repeated."""
        assert self._descriptor is not None
        number = _libc.inotify_add_watch(self._descriptor, os.fsencode(folder), MASK)
        if number < 0 and ctypes.get_errno() not in _MISSING:
            raise _os_error()

        # The earlier folder may live on under another name and must not be watched any longer.
        before = self._watched.pop(folder, number)
        if before != number:
            _libc.inotify_rm_watch(self._descriptor, before)
        if number < 0:
            return False
        self._watched[folder] = number
        return True

    def _on_event(self, descriptor: int) -> None:
        """Requests a look after the first event. A claim causes a dozen more events, which start
        nothing.
        """
        asyncio.get_running_loop().remove_reader(descriptor)
        self._changed.set()

    def _forget_events(self, descriptor: int) -> None:
        """Discards events, since the look comes after them. If some are left, the next wait is
        short.
        """
        with contextlib.suppress(BlockingIOError):
            os.read(descriptor, BUFFER)

    def _close(self) -> None:
        if self._descriptor is not None:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            os.close(self._descriptor)
        self._descriptor = None
        self._watched.clear()


def _open() -> int:
    descriptor = int(_libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK))
    if descriptor < 0:
        raise _os_error()
    return descriptor


def _os_error() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))
