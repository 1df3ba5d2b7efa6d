"""A lock for a folder that several processes change, with a count of the changes.

The lock is a flock on a file, so the kernel releases it when its holder dies. The file contains the
number of commits that were ever announced. A process that takes the lock compares this count with
the one that it last saw. If they are the same, it need not read the folder again.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path

from claimd.common import errors

# Seconds between two tries to get the lock.
RETRY_INTERVAL = 0.01

# Seconds to wait for another instance to finish its commit.
PATIENCE = 20.0

# Bytes of the count, which is little-endian.
_COUNT_SIZE = 8


class CommitLock:
    """A lock that one process holds at a time. SharedLock is for several calls of one process."""

    def __init__(self, path: Path) -> None:
        # The number of commits that the caller has read from the folder. -1 before the first read.
        self.seen = -1

        # The path is used in each prepare, and as a Path it would be converted to text each time.
        self._folder = path.parent
        self._path = str(path)

        # The file stays open from the first use on; `_file` has its device and inode.
        self._descriptor: int | None = None
        self._file: tuple[int, int] | None = None

        self._is_held = False
        self._announced = False  # True if we have announced a commit since we took the lock

    def __del__(self) -> None:
        self._close()

    async def acquire(self, patience: float) -> None:
        """Takes the lock. Raises ClaimError if another process holds it for `patience` seconds."""
        deadline = time.monotonic() + patience
        while not self.try_acquire():
            if time.monotonic() > deadline:
                raise errors.ClaimError(
                    f"another instance of the plugin has held {self._path} for "
                    f"{patience:g} s; is it frozen? `fuser` on that file names it"
                )
            await asyncio.sleep(RETRY_INTERVAL)

    def try_acquire(self) -> bool:
        """Takes the lock if no other process holds it; returns True if we have it now."""
        descriptor = self._descriptor
        if descriptor is None:
            descriptor = self._current() or self._create()
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            # Another file may be at the path now. The next try locks that one.
            self._current()
            return False

        # The file may have been removed before we locked it. Another instance may then have created
        # a new file and locked it, so our lock is useless.
        try:
            current = self._current()
        except OSError:
            if self._descriptor is not None:
                self._unlock()
            raise
        if current != descriptor:
            if current is None:
                self._close()
            return False
        self._is_held, self._announced = True, False
        return True

    def release(self) -> None:
        """Releases the lock."""
        self._is_held = False
        self._unlock()

    def _unlock(self) -> None:
        assert self._descriptor is not None
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        except OSError:
            # Closing the file releases the lock, too.
            self._close()

    def is_held(self) -> bool:
        """Returns True if this process holds the lock."""
        return self._is_held

    def count(self) -> int:
        """Returns how many commits all processes have announced. The lock must be held."""
        assert self._descriptor is not None
        return _read_count(self._descriptor)

    def announce(self) -> None:
        """Makes other processes read the folder again. Must come before each change to the folder.

        If we die before the change, the others read the folder once for nothing. In the opposite
        order they would not notice our change. Further calls while the lock is held do nothing,
        since the others read the folder only after we have released the lock.
        """
        assert self._is_held, "commit without the lock"
        assert self._descriptor is not None
        if self._announced:
            return
        os.pwrite(self._descriptor, (self.seen + 1).to_bytes(_COUNT_SIZE, "little"), 0)

        # If the write had failed, counting it would hide the next commit of another process from
        # us.
        self.seen += 1
        self._announced = True

    def others_announced(self) -> bool:
        """Returns True if the count differs from the one that we last saw. Takes no lock."""
        if self._is_held:
            return self.count() != self.seen
        try:
            descriptor = self._current()
        except OSError:
            # The path cannot be looked at. The file that is open has the count all the same.
            descriptor = self._descriptor
        if descriptor is None:
            # There is no file, or we cannot open it. Others have removed or replaced it if there
            # ever was a commit.
            return self.seen > 0
        return _read_count(descriptor) != self.seen

    def _current(self) -> int | None:
        """Returns a descriptor of the file that is at the path now, or None if there is no file.

        The file stays open between calls. It is opened again only if another one is at the path. If
        that one cannot be opened, none is open afterwards.
        """
        try:
            status = os.stat(self._path)
            if self._file != (status.st_dev, status.st_ino):
                self._replace(self._open_other())
        except FileNotFoundError:
            return None
        return self._descriptor

    def _open_other(self) -> int:
        try:
            return os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            self._close()
            raise

    def _create(self) -> int:
        self._folder.mkdir(parents=True, exist_ok=True)
        return self._replace(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))

    def _replace(self, descriptor: int) -> int:
        """Closes the file that was open, and keeps this one open."""
        self._close()
        status = os.fstat(descriptor)
        self._descriptor, self._file = descriptor, (status.st_dev, status.st_ino)
        return descriptor

    def _close(self) -> None:
        """Closes the file, which releases the lock if we hold it."""
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor = self._file = None


class SharedLock(CommitLock):
    """A lock that the calls of one process share. The first call takes it, the last releases it."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.users = 0
        self.patience = PATIENCE
        self._entering = asyncio.Lock()

    async def enter(self, begin: Callable[[], None]) -> None:
        """Takes the lock and calls `begin`, or joins the calls that hold the lock already.

        Releases the lock if `begin` raises. Raises ClaimError as `acquire` does.
        """
        # Nearly always the lock is free and no call waits for it. Then no await is needed.
        if self.users == 0 and not self._entering.locked() and self.try_acquire():
            self._begin(begin)
            self.users = 1
            return

        async with self._entering:
            if self.users == 0:
                await self.acquire(self.patience)
                self._begin(begin)
            self.users += 1

    def leave(self, end: Callable[[], None]) -> None:
        """Calls `end` and releases the lock if no other call holds it."""
        self.users -= 1
        if self.users == 0:
            end()
            self.release()

    def _begin(self, begin: Callable[[], None]) -> None:
        try:
            begin()
        except BaseException:
            self.release()
            raise


def _read_count(descriptor: int) -> int:
    """Returns the count in the file. An empty file means that no commit was announced yet."""
    return int.from_bytes(os.pread(descriptor, _COUNT_SIZE, 0), "little")
