"""A look at folders that others share with us, soon after something in them has changed.

The kernel tells that something has (inotify); what it was is for the look to find. Of a mount over a
folder, or of a parent that was renamed, it tells nothing: so there is a look from time to time all
the same, and often where the kernel has no room for our watches.
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

# Seconds between two looks at least: many changes at once are one look. And where we cannot rely on
# being told.
SPACING = 0.5
# Seconds between two looks at most: the second line.
GLANCE_INTERVAL = 5.0

# Of the kernel's interface, by its names without IN_.
MODIFY, ATTRIB, CLOSE_WRITE = 0x2, 0x4, 0x8
MOVED_FROM, MOVED_TO, CREATE, DELETE = 0x40, 0x80, 0x100, 0x200
DELETE_SELF, MOVE_SELF, ONLYDIR = 0x400, 0x800, 0x01000000
# A process that dies closes its files, so a death is told as well.
EVENTS = MODIFY | ATTRIB | CLOSE_WRITE | MOVED_FROM | MOVED_TO | CREATE | DELETE
MASK = EVENTS | DELETE_SELF | MOVE_SELF | ONLYDIR

_libc = ctypes.CDLL(None, use_errno=True)
_MISSING = (errno.ENOENT, errno.ENOTDIR)
BUFFER = 1 << 16  # bytes of events at a time; what they say is not read


class FolderWatch:
    """Calls `look` for as long as it runs."""

    def __init__(self, folders: Iterable[Path], look: Callable[[], Awaitable[bool]]) -> None:
        """`look` puts right what is wrong, and says whether it need not be called again soon."""
        self._folders = tuple(folders)
        self._look = look
        self._watched: dict[Path, int] = {}  # the kernel's number for each
        self._descriptor: int | None = None
        self._changed = asyncio.Event()
        self._refusal = ""  # why the kernel tells us nothing; logged once

    async def run(self) -> None:
        """The first look is a moment after the start."""
        may_rest = False
        try:
            while True:
                await asyncio.sleep(SPACING)
                if may_rest:
                    await pacing.wait(self._changed, GLANCE_INTERVAL - SPACING)

                # Before the look, so that no change is lost between it and the wait.
                is_told = self._renew()
                may_rest = await self._look() and is_told
        finally:
            self._close()

    def wake(self) -> None:
        """There is something to look at that no folder tells."""
        self._changed.set()

    def _renew(self) -> bool:
        """Watches what stands at the paths now; whether every change in it will be told.

        A folder that is missing is no gap if its parent is one of ours.
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
        """Says whether the folder is there. Watching the same one again changes nothing."""
        assert self._descriptor is not None
        number = _libc.inotify_add_watch(self._descriptor, os.fsencode(folder), MASK)
        if number < 0 and ctypes.get_errno() not in _MISSING:
            raise _os_error()

        # What stood there before may live on under another name.
        before = self._watched.pop(folder, number)
        if before != number:
            _libc.inotify_rm_watch(self._descriptor, before)
        if number < 0:
            return False
        self._watched[folder] = number
        return True

    def _on_event(self, descriptor: int) -> None:
        """The first since the last look. A claim has a dozen more, which wake nobody."""
        asyncio.get_running_loop().remove_reader(descriptor)
        self._changed.set()

    def _forget_events(self, descriptor: int) -> None:
        """Those that the next look answers. If there are more than fit, the next wait is short."""
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
