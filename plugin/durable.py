"""Files of one folder that survive a loss of power: written beside their place, synced, renamed,
and the folder synced.

A crash at any instruction leaves the old file or the new. What the files mean is decided by the
callers.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path

UNFINISHED = ".new"  # ends the name of a file on its way


class Folder:
    """Its methods block for as long as the disk takes, and may be called from several threads."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._changing = threading.Lock()  # guards the count
        self._syncing = threading.Lock()  # held by the one who syncs the folder for all that wait
        self._changes = 0  # to the folder's entries, ever
        self._synced = 0  # how many of them are durable

    def make(self) -> None:
        """Makes the folder if it is not there, and makes durable what a writer may have left
        without a sync.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        for folder in (self.path, *self.path.parents[:2]):
            _sync(folder)

    def mark(self) -> tuple[int, int] | None:
        """Other than before if an entry has come or gone, or if it is another folder."""
        try:
            status = os.stat(self.path)
        except OSError:
            return None
        return status.st_ino, status.st_mtime_ns

    def write(self, name: str, text: bytes) -> None:
        """The file has this content, or this fails and the content is not there."""
        new, path = f"{self.path}/.{name}{UNFINISHED}", f"{self.path}/{name}"
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            try:
                if os.write(descriptor, text) != len(text):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), new)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            os.rename(new, path)
            try:
                self._sync_entries()
            except OSError:
                os.unlink(path)  # not durable, so it must not be there
                raise
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(new)
            raise

    def rename(self, name: str, to: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.rename(f"{self.path}/{name}", f"{self.path}/{to}")
        self._sync_entries()

    def remove(self, name: str) -> None:
        self.drop(name)
        self._sync_entries()

    def drop(self, name: str) -> None:
        """Removes a file that does no harm if it comes back."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{self.path}/{name}")

    def _sync_entries(self) -> None:
        """Returns when the changes that this thread has made are durable. One sync serves all that
        wait for it.
        """
        with self._changing:
            self._changes += 1
            ours = self._changes
        with self._syncing:
            if self._synced >= ours:
                return  # the sync that we have waited for began after our change
            with self._changing:
                changes = self._changes
            _sync(self.path)
            self._synced = changes


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


async def in_thread(work: Callable[[], None]) -> None:
    """Comes back only when the work has ended, even if cancelled: a lock must not be released in
    the middle of it.
    """
    running = asyncio.get_running_loop().run_in_executor(
        None, work
    )  # no task: the loop's end cancels tasks
    try:
        await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        raise
