"""Reads single files, links and folders of the kernel's trees.

An access has one of three bad outcomes:

- The file is not there (ENOENT). This is normal: the value is None, and no note is added.
- The file is there and is not readable, or has an unexpected content. The value is None, and a line
  is added to `notes`: any other OSError, an empty file, no text, or not the expected form.
- We could not look, for a reason of claimd's or of the node's (EMFILE, ENFILE, ENOMEM, EINTR,
  EAGAIN). LookFailedError is raised, because nothing is known about the file.

This module does not know what a file means.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from . import deadline, failures
from .gpu import Roots

_T = TypeVar("_T")

# Bytes that are read of a file. A file of sysfs has at most one page; /proc/devices and similar
# files have a few KiB.
_LIMIT = 1 << 16
_CONTENT_LIMIT = 1 << 22

# The kernel refuses reads of 4 MiB and more of the files in /proc/sys, with ENOMEM.
_LARGEST_READ = 1 << 20

_PAGE = 4096

# A file of sysfs claims the size of a page, so tar fills its copy up with these bytes.
PADDING = b"\0"

_SHOWN = 40  # characters of a wrong value that a note shows
_NUMBER = re.compile(r"-?[0-9]{1,18}")
_HEX = re.compile(r"0x[0-9a-f]{1,8}")
NO_LINK = "not a symbolic link"


# ---------------------------------------------------------------- one value


def text(path: str, notes: list[str], *, may_be_empty: bool = False) -> str | None:
    """Returns the value of a file of one line, without the white space around it.

    None if the file is missing, or is unreadable, or is not one line of text; the last two are
    noted. An empty file gives None too, and is noted unless it may be empty.
    """
    value = _read_text(path, notes, may_be_empty=may_be_empty)
    if value is not None and not value.isprintable():
        notes.append(f"{path}: {value[:_SHOWN]!r} is not one line of text")
        return None
    return value


def decimal(path: str, notes: list[str]) -> int | None:
    """Returns the decimal number in a file, which may be negative. None as for `text`."""
    value = _matching(path, _NUMBER, "a decimal number", notes)
    return int(value) if value is not None else None


def hexadecimal(path: str, notes: list[str]) -> int | None:
    """Returns the number in a file of the form 0x1f, as the kernel prints ids.

    None as for `text`.
    """
    value = _matching(path, _HEX, "0x and hex digits", notes)
    return int(value, 16) if value is not None else None


def lines(path: str, notes: list[str]) -> list[str] | None:
    """Returns the lines of a text file. None as for `text`."""
    value = _read_text(path, notes)
    return value.splitlines() if value is not None else None


def content(path: str, notes: list[str], limit: int = _CONTENT_LIMIT) -> bytes | None:
    """Returns the bytes of a file that may be binary, or larger than a file of the kernel's trees.

    None if the file is missing or unreadable; the latter is noted.
    """
    try:
        return read(path, limit)
    except OSError as error:
        # The file is not there or not readable. `read` raises LookFailedError if we could not look.
        _note(path, error, notes)
        return None


def link(path: str, notes: list[str]) -> str | None:
    """Returns the target of a symbolic link as it is written in the link; follows no further link.

    None if there is no link: nothing is at the path, or the link is unreadable, or the path is not
    a link. The last two are noted. LookFailedError if the kernel could not look.
    """
    try:
        if _is_captured:
            _before_access(path, follow=False)
        return os.readlink(path)
    except OSError as error:
        failures.check(path, error)
        if error.errno == errno.EINVAL:
            notes.append(f"{path}: {NO_LINK}")
        else:
            _note(path, error, notes)
        return None


def names(folder: str, notes: list[str]) -> list[str] | None:
    """Returns the names in a folder, sorted.

    None if the folder is missing or unreadable; the latter is noted. LookFailedError if we could
    not look.
    """
    try:
        if _is_captured:
            _before_access(folder)
        return sorted(os.listdir(folder))
    except OSError as error:
        failures.check(folder, error)
        _note(folder, error, notes)
        return None


def is_file(path: str, notes: list[str]) -> bool:
    """Returns True if there is a regular file at the path. A capture does not take its content.

    False may also mean that it could not be looked at; that is noted.
    """
    return stat.S_ISREG(_mode(path, recorded_follow=False, notes=notes))


def is_folder(path: str, *, follow: bool = True) -> bool:
    """Returns True if there is a folder at the path. False may also mean that a folder above it is
    not readable.

    A link to a folder counts as a folder, unless `follow` is False.
    """
    return stat.S_ISDIR(_mode(path, follow=follow, recorded_follow=follow))


def exists(path: str) -> bool:
    """Returns True if something is at the path. False as for `is_folder`."""
    return _mode(path, recorded_follow=False) != 0


def _mode(
    path: str,
    *,
    follow: bool = True,
    recorded_follow: bool,
    notes: list[str] | None = None,
) -> int:
    """Returns the mode of the file or folder at the path.

    The mode is 0 if the path is not there, or a folder above it is not readable; the latter is
    added to `notes`. Raises LookFailedError if we could not look. `recorded_follow` says whether a
    capture follows a link at the path.
    """
    try:
        if _is_captured:
            _before_access(path, follow=recorded_follow)
        return os.stat(path, follow_symlinks=follow).st_mode
    except OSError as error:
        failures.check(path, error)
        if notes is not None:
            _note(path, error, notes)
        return 0


def read(path: str, limit: int = _LIMIT) -> bytes:
    """Returns the content of a file, at most about `limit` bytes.

    Raises OSError if the file is not there or not readable. Raises LookFailedError if it could not
    be opened for a reason of claimd's or of the node's. All reads of this package use this
    function, because a read of a dead device may hang: `deadline.run` then gives it up.
    """
    if _is_captured:
        _before_access(path)
    attempt = deadline.begin_read(path)
    try:
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except OSError as error:
            failures.check(path, error)
            raise

        # The GPU's driver may answer a read with any error, so an error of the read, unlike one of
        # the open, is always about the file.
        try:
            content = os.read(descriptor, limit)

            # Most files hold one line, or nothing, and are complete after the first read. This
            # saves a system call for each of them.
            if len(content) < _PAGE and content.find(b"\n") == len(content) - 1:
                return content

            # A file of procfs may come in pieces, and a file of sysfs ends with an empty read.
            return read_to_end(descriptor, limit, content)
        finally:
            os.close(descriptor)
    finally:
        if attempt is not None:
            deadline.end_read(attempt)


def read_to_end(descriptor: int, limit: int, content: bytes = b"") -> bytes:
    """Returns `content` and what can still be read from a descriptor, until `limit` is reached."""
    while len(content) < limit:
        more = os.read(descriptor, min(limit, _LARGEST_READ))
        if not more:
            break
        content += more
    return content


def _matching(path: str, pattern: re.Pattern[str], expected: str, notes: list[str]) -> str | None:
    value = _read_text(path, notes)
    if value is not None and not pattern.fullmatch(value):
        notes.append(f"{path}: {value[:_SHOWN]!r} is not {expected}")
        return None
    return value


def _read_text(path: str, notes: list[str], *, may_be_empty: bool = False) -> str | None:
    try:
        content = read(path)
    except OSError as error:
        # The file is not there or not readable. `read` raises LookFailedError if we could not look.
        _note(path, error, notes)
        return None

    try:
        value = content.rstrip(PADDING).decode().strip()
    except UnicodeDecodeError:
        notes.append(f"{path}: {content[:_SHOWN]!r} is not text")
        return None
    if not value:
        if not may_be_empty:
            notes.append(f"{path}: empty")
        return None
    return value


def _note(path: str, error: OSError, notes: list[str]) -> None:
    """Notes why a file is not readable. A missing file is normal and gives no note."""
    if isinstance(error, FileNotFoundError):
        return
    notes.append(f"{path}: {os.strerror(error.errno) if error.errno else error}")


# ---------------------------------------------------------------- once for all devices


# Seconds for which scans keep what a driver is set up for. It changes when the driver is bound
# again, which is seen at once, and otherwise only if a person or a rare error changes it.
KEEP = 300.0


class Kept:
    """Facts that one scan leaves to the next ones, each with what it depends on and its time.

    A later entry with the same key replaces an earlier one, so there are a few for each device.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._entries: dict[str, tuple[object, float, Any]] = {}

    def read_seldom(
        self, key: str, bind: object, read: Callable[[list[str]], _T], notes: list[str]
    ) -> _T:
        """Returns what `read` returned for this key and bind in the last KEEP seconds.

        What comes with a note is not kept, so that the next scan tries again.
        """
        now = self._clock()
        entry = self._entries.get(key)
        if entry is not None and entry[0] == bind and now - entry[1] < KEEP:
            value: _T = entry[2]
            return value
        noted = len(notes)
        value = read(notes)
        if len(notes) == noted:
            self._entries[key] = bind, now, value
        return value


class ScanCache:
    """Facts that all devices of one scan have in common. Each is read once."""

    def __init__(self, kept: Kept | None = None) -> None:
        self._entries: dict[str, tuple[Any, list[str]]] = {}
        self._kept = kept

    def read_seldom(
        self, key: str, bind: object, read: Callable[[list[str]], _T], notes: list[str]
    ) -> _T:
        """Returns what `read` returns, or what an earlier scan has kept, as `Kept.read_seldom`.

        Without `kept` in the call of the scan, each scan reads.
        """
        if self._kept is None:
            return read(notes)
        return self._kept.read_seldom(key, bind, read, notes)

    def read_once_per_bind(
        self, key: str, made_by_bind: str, read: Callable[[list[str]], _T], notes: list[str]
    ) -> _T:
        """Returns what `read` returns, or what an earlier scan has kept of the same bind.

        `made_by_bind` is a folder that the driver makes when it has taken the device up, and that
        goes when the driver is unbound. Without `kept` in the call of the scan, each scan reads.
        """
        if self._kept is None:
            return read(notes)
        try:
            status = os.lstat(made_by_bind)
        except OSError as error:
            failures.check(made_by_bind, error)
            return read(notes)
        return self._kept.read_seldom(key, (status.st_ino, status.st_ctime_ns), read, notes)

    def read_once(self, key: str, read: Callable[[list[str]], _T], notes: list[str]) -> _T:
        """Returns what `read` returned in the first call with this key.

        The notes of that call are added to the `notes` of every caller, because every device lacks
        what could not be read.
        """
        if key not in self._entries:
            first_notes: list[str] = []
            self._entries[key] = read(first_notes), first_notes
        entry, entry_notes = self._entries[key]
        notes += entry_notes
        value: _T = entry
        return value


def module_version(
    roots: Roots, module: str | None, cache: ScanCache, notes: list[str]
) -> str | None:
    """Returns the version of a kernel module. Modules of the kernel's own tree have none."""
    path = f"{roots.sys}/module/{module}/version"
    return cache.read_once(path, lambda notes: text(path, notes), notes)


# ---------------------------------------------------------------- captures

# True if one of the two collections below is in use. It is checked before every access, and one
# flag is faster than two collections.
_is_captured = False

# The accesses of the scan that is being recorded: the path, and whether a link at its end is
# followed.
_accesses: set[tuple[str, bool]] | None = None

# The errors that the kernel returned on the machine of a capture, by path.
_replayed_errors: dict[str, int] = {}


@contextmanager
def recording() -> Iterator[set[tuple[str, bool]]]:
    """Collects the accesses within the block: paths, and whether a link at the end is followed."""
    # A process records one scan at a time, so module variables do.
    global _accesses, _is_captured
    accesses: set[tuple[str, bool]] = set()
    _accesses, _is_captured = accesses, True
    try:
        yield accesses
    finally:
        _accesses, _is_captured = None, bool(_replayed_errors)


def replay_errors(errors: Mapping[str, int]) -> None:
    """Makes reads of these paths fail with these errors from now on, and no other reads."""
    global _is_captured  # noqa: PLW0603
    _replayed_errors.clear()
    _replayed_errors.update(errors)
    _is_captured = _accesses is not None or bool(errors)


def _before_access(path: str, *, follow: bool = True) -> None:
    if _accesses is not None:
        _accesses.add((path, follow))
    if path in _replayed_errors:
        raise OSError(_replayed_errors[path], os.strerror(_replayed_errors[path]))
