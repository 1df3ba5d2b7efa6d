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

from .. import errors

RETRY_INTERVAL = 0.01  # seconds between two tries to get the lock
PATIENCE = 20.0  # seconds to wait for another instance to finish its commit
_COUNT_SIZE = 8  # bytes, little-endian


class CommitLock:
    """Held by one process at a time; within the process, its user sees to sharing it."""

    def __init__(self, path: Path) -> None:
        self.seen = -1  # commits that our view of the folder accounts for; -1: we have none yet
        self._folder = path.parent
        # As text: it is opened for each prepare, and a Path is turned into text each time.
        self._path = str(path)
        self._descriptor: int | None = None  # while we hold the lock
        self._announced = False  # since we hold the lock

    async def acquire(self, patience: float) -> None:
        """Takes the lock. ClaimError if another process keeps it for `patience` seconds."""
        descriptor = self._open()
        try:
            await self._wait_for_lock(descriptor, patience)
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor, self._announced = descriptor, False

    def release(self) -> None:
        """Lets go of the lock; closing the file does it."""
        assert self._descriptor is not None
        os.close(self._descriptor)
        self._descriptor = None

    def is_held(self) -> bool:
        """By this process."""
        return self._descriptor is not None

    def count(self) -> int:
        """How many commits were announced, by whomever. Only while the lock is held."""
        assert self._descriptor is not None
        return _read_count(self._descriptor)

    def announce(self) -> None:
        """Tells others to read again. Must come before each change to the folder.

        Before and not after, so that to die in between costs them a look and hides nothing. Once is
        enough while the lock is held: they look when we have let go of it.
        """
        assert self._descriptor is not None, "commit without the lock"
        if self._announced:
            return
        os.pwrite(self._descriptor, (self.seen + 1).to_bytes(_COUNT_SIZE, "little"), 0)

        # Only now: counting what was not written would hide the others' next commit from us.
        self.seen += 1
        self._announced = True

    def others_announced(self) -> bool:
        """Whether the count is another than we last saw. A look that waits for nobody."""
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            # The file is gone. If there was any commit, somebody has taken it away.
            return self.seen > 0
        try:
            return _read_count(descriptor) != self.seen
        finally:
            os.close(descriptor)

    async def _wait_for_lock(self, descriptor: int, patience: float) -> None:
        deadline = time.monotonic() + patience
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise errors.ClaimError(
                        f"another instance of the plugin has held {self._path} for "
                        f"{patience:g} s; is it frozen? `fuser` on that file names it"
                    ) from None
            await asyncio.sleep(RETRY_INTERVAL)

    def _open(self) -> int:
        try:
            return os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            self._folder.mkdir(parents=True, exist_ok=True)
            return os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _read_count(descriptor: int) -> int:
    """0 for a file that is empty: nobody has announced anything yet."""
    return int.from_bytes(os.pread(descriptor, _COUNT_SIZE, 0), "little")
