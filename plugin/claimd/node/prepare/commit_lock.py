"""A lock on a folder that several processes change, and a count that tells each what it missed.

The lock is a flock on a file, so the kernel releases it when its holder dies. The file's content is
the number of commits that were ever announced. Whoever takes the lock compares it with the number
that it last saw, and need not read the folder again if they are the same.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import time
from pathlib import Path

from claimd.common import errors

RETRY_INTERVAL = 0.01  # seconds between two tries to get the lock
PATIENCE = 20.0  # seconds to wait for another instance to finish its commit
_COUNT_SIZE = 8  # bytes, little-endian


class CommitLock:
    """Held by one process at a time; within the process, its user sees to sharing it."""

    def __init__(self, path: Path) -> None:
        self.seen = -1  # commits that our view of the folder accounts for; -1: we have none yet
        self._folder = path.parent
        # As text: it is looked at in each prepare, and a Path is turned into text each time.
        self._path = str(path)
        self._descriptor: int | None = None  # open from the first look on
        self._file: tuple[int, int] | None = None  # device and inode of what is open
        self._is_held = False
        self._announced = False  # since we hold the lock

    def __del__(self) -> None:
        self._close()

    async def acquire(self, patience: float) -> None:
        """Takes the lock. ClaimError if another process keeps it for `patience` seconds."""
        deadline = time.monotonic() + patience
        while not self.try_acquire():
            if time.monotonic() > deadline:
                raise errors.ClaimError(
                    f"another instance of the plugin has held {self._path} for "
                    f"{patience:g} s; is it frozen? `fuser` on that file names it"
                )
            await asyncio.sleep(RETRY_INTERVAL)

    def try_acquire(self) -> bool:
        """Takes the lock if no other process has it; whether we have it now."""
        descriptor = self._descriptor
        if descriptor is None:
            descriptor = self._current() or self._create()
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            # It may not be the lock any more. Then the next try is for the one that is.
            self._current()
            return False

        # Another instance may have found the path empty, and hold a new file.
        current = self._current()
        if current != descriptor:
            if current is None:
                self._close()
            return False
        self._is_held, self._announced = True, False
        return True

    def release(self) -> None:
        """Lets go of the lock."""
        assert self._descriptor is not None
        self._is_held = False
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        except OSError:
            # To close the file lets go of it, too.
            self._close()

    def is_held(self) -> bool:
        """By this process."""
        return self._is_held

    def count(self) -> int:
        """How many commits were announced, by whomever. Only while the lock is held."""
        assert self._descriptor is not None
        return _read_count(self._descriptor)

    def announce(self) -> None:
        """Tells others to read again. Must come before each change to the folder.

        Before and not after, so that to die in between costs them a look and hides nothing. Once is
        enough while the lock is held: they look when we have let go of it.
        """
        assert self._is_held, "commit without the lock"
        assert self._descriptor is not None
        if self._announced:
            return
        os.pwrite(self._descriptor, (self.seen + 1).to_bytes(_COUNT_SIZE, "little"), 0)

        # Only now: counting what was not written would hide the others' next commit from us.
        self.seen += 1
        self._announced = True

    def others_announced(self) -> bool:
        """Whether the count is another than we last saw. A look that waits for nobody."""
        if self._is_held:
            return self.count() != self.seen
        try:
            descriptor = self._current()
        except OSError:
            descriptor = None
        if descriptor is None:
            # The file is gone. If there was any commit, somebody has taken it away.
            return self.seen > 0
        return _read_count(descriptor) != self.seen

    def _current(self) -> int | None:
        """The file that stands at the path now, open; None if there is none.

        It stays open from look to look, unless somebody has put another in its place.
        """
        try:
            status = os.stat(self._path)
            if self._file != (status.st_dev, status.st_ino):
                self._keep(os.open(self._path, os.O_RDWR | os.O_CLOEXEC))
        except FileNotFoundError:
            return None
        return self._descriptor

    def _create(self) -> int:
        self._folder.mkdir(parents=True, exist_ok=True)
        return self._keep(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))

    def _keep(self, descriptor: int) -> int:
        self._close()
        status = os.fstat(descriptor)
        self._descriptor, self._file = descriptor, (status.st_dev, status.st_ino)
        return descriptor

    def _close(self) -> None:
        """Not while we hold the lock, which would be let go of."""
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor = self._file = None


def _read_count(descriptor: int) -> int:
    """0 for a file that is empty: nobody has announced anything yet."""
    return int.from_bytes(os.pread(descriptor, _COUNT_SIZE, 0), "little")
