"""Atomic replacement of files: a reader sees the old content or the new, never a part.

`replace` does it for one file. The changes of a `Folder` also survive a loss of power.
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


def unfinished_name(file: str) -> str:
    """Returns the name of a file while it is being written. Readers ignore files of this name."""
    return f".{file}{UNFINISHED}"


# The name of a file that is written as a probe; a dead writer leaves it to be swept as unfinished.
# Its size is more than a file system keeps in an inode, so that it needs room on the disk.
_PROBE = unfinished_name("probe")
_PROBE_SIZE = 4096

# Creates a new file; fails if there is already a file or a link.
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


Mark = tuple[int, int, int]  # inode, size and modification time of a file


def replace(path: str, content: bytes, *, temporary: str, mode: int = 0o644, sync: bool) -> Mark:
    """Gives the file at `path` this content. Raises OSError and changes nothing if that fails.

    Returns the mark of the file that was written, even if others have changed it since.

    The content is written to `temporary` and then renamed. `temporary` is a path in the same folder that
    readers ignore and that no other writer uses now. An old file there is removed and never written
    to, since it may be a link or open elsewhere. A process that is killed may leave this file
    behind; the owner of the folder must sweep it. With `sync`, the content is on disk before the
    rename. Without, a loss of power may leave the file empty, and the caller must tolerate that.
    """
    try:
        descriptor = os.open(temporary, _NEW, mode)
    except FileExistsError:
        descriptor = _open_again(temporary, mode)

    try:
        try:
            if os.write(descriptor, content) != len(content):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), temporary)
            if sync:
                os.fsync(descriptor)
            written = _mark_of(os.fstat(descriptor))
        finally:
            os.close(descriptor)
        os.rename(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    return written


def _open_again(temporary: str, mode: int) -> int:
    """Opens the file although one exists: a dead writer left it, or it was placed as a trap."""
    status = os.lstat(temporary)
    if stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode):
        os.unlink(temporary)
        return os.open(temporary, _NEW, mode)

    # Tests place a pipe here. It blocks the writer like a disk that hangs, to simulate crashes.
    return os.open(temporary, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)


class NotAFileError(OSError):
    """Something other than a regular file is at the path. `strerror` says what it is."""


# The errors by which the kernel refuses to open something that is not a regular file.
_REFUSED_KINDS = {
    errno.ELOOP: "a link",
    errno.ENXIO: "a socket or a device",
    errno.ENODEV: "a device",
}

_KINDS = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}


def open_regular(path: str) -> int:
    """Opens a regular file for reading; returns its descriptor.

    This never blocks, whatever is at the path, and never follows a link there. Raises NotAFileError
    for anything but a regular file, and OSError as `os.open`.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        kind = _REFUSED_KINDS.get(error.errno or 0)
        if kind is None:
            raise
        raise NotAFileError(error.errno, f"it is {kind}, not a file", path) from error

    try:
        mode = os.fstat(descriptor).st_mode
    except OSError:
        os.close(descriptor)
        raise
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        kind = _KINDS.get(stat.S_IFMT(mode), "a device")
        raise NotAFileError(errno.EINVAL, f"it is {kind}, not a file", path)
    return descriptor


def mark(path: str) -> Mark | None:
    """Returns a value that changes if somebody changes the file; None if there is no file."""
    try:
        return _mark_of(os.stat(path))
    except OSError:
        return None


def _mark_of(status: os.stat_result) -> Mark:
    return status.st_ino, status.st_size, status.st_mtime_ns


class Folder:
    """A folder whose files survive a loss of power, once the method that wrote them has returned.

    A crash at any moment leaves each file with its old or its new content. The methods block as long
    as the disk takes. They may be called from several threads, but not for the same name at the same
    time.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

        # Each prepare looks at the folder several times, and to convert a Path into text costs time.
        self._text = str(path)

        # One sync of the folder covers the changes of all threads that were made before it began. So
        # the changes of the folder's entries are counted, and how many of them a sync has covered.
        self._changes = 0
        self._synced = 0
        self._counting = threading.Lock()  # guards `_changes`
        self._syncing = threading.Lock()  # held during a sync, guards `_synced`

    def make(self) -> None:
        """Creates the folder if it is missing, and syncs what an earlier writer left unsynced."""
        self.path.mkdir(parents=True, exist_ok=True)
        for folder in (self.path, *self.path.parents[:2]):
            sync_folder(folder)

    def fingerprint(self) -> tuple[int, int] | None:
        """Returns a value that changes with the folder's entries; None if there is no folder."""
        try:
            status = os.stat(self._text)
        except OSError:
            return None
        return status.st_ino, status.st_mtime_ns

    def write(self, name: str, content: bytes) -> None:
        """Gives the file this content, durably. Raises OSError if the content is not there."""
        path = f"{self.path}/{name}"
        temporary = f"{self.path}/{unfinished_name(name)}"
        replace(path, content, temporary=temporary, mode=0o600, sync=True)

        try:
            self._sync_entries()
        except OSError:
            # The name may or may not survive a loss of power. The caller believes that the write
            # failed, so the file must not come back.
            os.unlink(path)
            raise

    def rename(self, name: str, to: str) -> None:
        """Renames a file, durably. A missing file is no error."""
        with contextlib.suppress(FileNotFoundError):
            os.rename(f"{self.path}/{name}", f"{self.path}/{to}")
        self._sync_entries()

    def remove(self, name: str) -> None:
        """Removes a file, durably. A missing file is no error."""
        self.remove_unsynced(name)
        self._sync_entries()

    def remove_unsynced(self, name: str) -> None:
        """Removes a file, which a loss of power may bring back."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{self.path}/{name}")

    def probe(self) -> None:
        """Writes a file and removes it, durably. Raises OSError if that is not possible now."""
        self.write(_PROBE, bytes(_PROBE_SIZE))
        self.remove(_PROBE)

    def _sync_entries(self) -> None:
        """Makes this thread's change of the folder durable."""
        with self._counting:
            self._changes += 1
            our_change = self._changes

        with self._syncing:
            # Another thread may have synced after our change, while this one waited for the lock.
            if self._synced >= our_change:
                return

            # The sync covers all changes that are counted before it begins.
            with self._counting:
                covered = self._changes
            sync_folder(self.path)
            self._synced = covered


def sync_folder(folder: Path) -> None:
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

    The caller may hold a lock, and must not release it in the middle of the work. So a cancellation
    is raised only afterwards, and then the result of the work is lost. Otherwise raises what the
    work raises.
    """
    loop = asyncio.get_running_loop()
    ended = _Ending(loop=loop)
    loop.run_in_executor(None, work).add_done_callback(ended.follow)
    await ended


class _Ending(asyncio.Future[None]):
    """The end of some work. A task that awaits it and is cancelled gets the cancellation afterwards."""

    def cancel(self, msg: object = None) -> bool:
        return False

    def follow(self, work: asyncio.Future[object]) -> None:
        """Takes over the result of the work."""
        if work.cancelled():
            # The executor was shut down before the work began.
            super().cancel()
        elif (error := work.exception()) is not None:
            self.set_exception(error)
        else:
            self.set_result(None)
