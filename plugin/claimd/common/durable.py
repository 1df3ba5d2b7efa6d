"""Files that are replaced as a whole: a reader sees the old content or the new, never a part.

`replace` does it for one file. `Folder` adds that what it says is done survives a loss of power as
well. What the files mean is decided by the callers.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path

UNFINISHED = ".new"  # ends the name of a file while it is being written


def unfinished(file: str) -> str:
    """What a file is called while it is written, for which no reader takes it."""
    return f".{file}{UNFINISHED}"


# A file that was not there before, not even as a link.
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


Mark = tuple[int, int, int]  # inode, size and time of change of a file


def replace(path: str, content: bytes, *, beside: str, mode: int = 0o644, sync: bool) -> Mark:
    """The file at `path` has this content; if this raises OSError, it is what it was before.

    The mark is that of the file that was written, whatever others have done to it since.

    The content is written at `beside`, a name in the same folder that no reader takes for the file
    and no other writer uses now, and renamed. A file that lies there is removed, never written to:
    it may be a link, or be open elsewhere. A process that is killed may leave that file behind: whoever
    owns the folder sweeps it. With `sync` the content is on disk before the name leads to
    it; without, a loss of power may leave the file empty, and the caller must bear that.
    """
    try:
        descriptor = os.open(beside, _NEW, mode)
    except FileExistsError:
        descriptor = _open_again(beside, mode)

    try:
        try:
            if os.write(descriptor, content) != len(content):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), beside)
            if sync:
                os.fsync(descriptor)
            written = _mark_of(os.fstat(descriptor))
        finally:
            os.close(descriptor)
        os.rename(beside, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        raise
    return written


def _open_again(beside: str, mode: int) -> int:
    """Where something lies already: a file that an earlier writer died of, or a trap."""
    status = os.lstat(beside)
    if stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode):
        os.unlink(beside)
        return os.open(beside, _NEW, mode)

    # A pipe keeps us waiting, as a disk would that hangs: so crashes are simulated.
    return os.open(beside, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)


def mark(path: str) -> Mark | None:
    """Another one if somebody changed the file; None if there is none."""
    try:
        return _mark_of(os.stat(path))
    except OSError:
        return None


def _mark_of(status: os.stat_result) -> Mark:
    return status.st_ino, status.st_size, status.st_mtime_ns


class Folder:
    """A folder whose files survive a loss of power, once the method that wrote them has returned.

    A crash at any instruction leaves each file as it was or as it was to be. The methods block for
    as long as the disk takes and may be called from several threads; two of them must not work on
    one name at the same time.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        # Each prepare looks at the folder several times, and a Path is turned into text each time.
        self._text = str(path)

        # One sync of the folder serves all threads whose change was made before it began. The
        # changes ever made to the folder's entries are counted, and how many of them a sync has
        # covered.
        self._changes = 0
        self._synced = 0
        self._counting = threading.Lock()  # guards `_changes`
        self._syncing = threading.Lock()  # held during a sync, guards `_synced`

    def make(self) -> None:
        """Makes the folder if it is missing, and durable what an earlier writer left unsynced."""
        self.path.mkdir(parents=True, exist_ok=True)
        for folder in (self.path, *self.path.parents[:2]):
            _sync(folder)

    def fingerprint(self) -> tuple[int, int] | None:
        """Another one once an entry has come or gone, or the folder was replaced; None: no folder."""
        try:
            status = os.stat(self._text)
        except OSError:
            return None
        return status.st_ino, status.st_mtime_ns

    def write(self, name: str, content: bytes) -> None:
        """The file has this content, durably. If this raises OSError, the content is not there."""
        path = f"{self.path}/{name}"
        beside = f"{self.path}/{unfinished(name)}"
        replace(path, content, beside=beside, mode=0o600, sync=True)

        try:
            self._sync_entries()
        except OSError:
            # The name may or may not survive a loss of power, and the caller takes it for failed:
            # a file that comes and goes would be worse than none.
            os.unlink(path)
            raise

    def rename(self, name: str, to: str) -> None:
        """The file has the other name, durably. A file that is missing is no failure."""
        with contextlib.suppress(FileNotFoundError):
            os.rename(f"{self.path}/{name}", f"{self.path}/{to}")
        self._sync_entries()

    def remove(self, name: str) -> None:
        """The file is gone, durably. A file that is missing is no failure."""
        self.remove_unsynced(name)
        self._sync_entries()

    def remove_unsynced(self, name: str) -> None:
        """Removes a file that does no harm if a loss of power brings it back."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{self.path}/{name}")

    def _sync_entries(self) -> None:
        """Returns when the change that this thread has made is durable."""
        with self._counting:
            self._changes += 1
            our_change = self._changes

        with self._syncing:
            # While we waited for the lock, another thread may have begun a sync after our change.
            if self._synced >= our_change:
                return

            # What is counted now was changed before the sync begins, so the sync covers it.
            with self._counting:
                covered = self._changes
            _sync(self.path)
            self._synced = covered


def _sync(folder: Path) -> None:
    """Makes the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some file systems cannot sync a folder alone. Syncing everything takes longer and promises
        # the same.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
        os.sync()
    finally:
        os.close(descriptor)


async def in_thread(work: Callable[[], object]) -> None:
    """Runs `work` in a thread and returns when it has ended, even if the caller is cancelled.

    A caller that held a lock over the work and let go of it in the middle would let others see half
    of it. So a cancellation is raised only afterwards; whether the work succeeded is lost with it.
    """
    loop = asyncio.get_running_loop()
    ended = _Ending(loop=loop)
    loop.run_in_executor(None, work).add_done_callback(ended.follow)
    await ended


class _Ending(asyncio.Future[None]):
    """The end of some work, which nobody who waits for it can hasten: a task that is cancelled
    meanwhile is told so afterwards.
    """

    def cancel(self, msg: object = None) -> bool:
        return False

    def follow(self, work: asyncio.Future[object]) -> None:
        """The work has ended, and this with it."""
        if work.cancelled():
            # Threads that are being ended have not begun with it.
            super().cancel()
        elif (error := work.exception()) is not None:
            self.set_exception(error)
        else:
            self.set_result(None)
