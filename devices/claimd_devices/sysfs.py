"""One file, link or folder of the kernel's trees at a time. Whatever is wrong with it costs its
value, never more.

A value that is not there is None, and a missing file is normal. Anything else that is wrong adds a
line to `notes`: empty, not text, unreadable, not what was expected. What a file means must not go
in here.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from . import deadline, failures
from .gpu import Roots

_T = TypeVar("_T")

# Bytes of a file: one of sysfs has at most a page, /proc/devices and its like are a few KiB.
_LIMIT = 1 << 16
_CONTENT_LIMIT = 1 << 22
_PAGE = 4096

# Files of sysfs have the size of a page: a copy by tar is filled up with it.
PADDING = b"\0"

_SHOWN = 40  # characters of a wrong value that a note shows
_NUMBER = re.compile(r"-?[0-9]{1,18}")
_HEX = re.compile(r"0x[0-9a-f]{1,8}")
NO_LINK = "not a symbolic link"


# ---------------------------------------------------------------- one value


def text(path: str, notes: list[str], *, may_be_empty: bool = False) -> str | None:
    """The value of a file of one line, without the white space around it.

    An empty file is noted unless it may be empty.
    """
    value = _read_text(path, notes, may_be_empty=may_be_empty)
    if value is not None and not value.isprintable():
        notes.append(f"{path}: {value[:_SHOWN]!r} is not one line of text")
        return None
    return value


def decimal(path: str, notes: list[str]) -> int | None:
    """A decimal number, which may be negative."""
    value = _matching(path, _NUMBER, "a decimal number", notes)
    return int(value) if value is not None else None


def hexadecimal(path: str, notes: list[str]) -> int | None:
    """A number as the kernel prints ids: 0x and hexadecimal digits."""
    value = _matching(path, _HEX, "0x and hex digits", notes)
    return int(value, 16) if value is not None else None


def lines(path: str, notes: list[str]) -> list[str] | None:
    """The lines of a text file."""
    value = _read_text(path, notes)
    return value.splitlines() if value is not None else None


def content(path: str, notes: list[str], limit: int = _CONTENT_LIMIT) -> bytes | None:
    """The bytes of a file that is no text, or longer than those of the kernel's trees."""
    try:
        return read(path, limit)
    except OSError as error:
        _note(path, error, notes)
        return None


def link(path: str, notes: list[str]) -> str | None:
    """Where a symbolic link points, as it is written there: one readlink, nothing followed."""
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
    """What a folder holds, sorted."""
    try:
        if _is_captured:
            _before_access(folder)
        return sorted(os.listdir(folder))
    except OSError as error:
        failures.check(folder, error)
        _note(folder, error, notes)
        return None


def is_file(path: str) -> bool:
    """Whether there is such a file. Its content does not matter, nor does a capture take it."""
    if _accesses is not None:
        _accesses.add((path, False))
    return stat.S_ISREG(_mode(path))


def is_folder(path: str) -> bool:
    """Whether there is such a folder."""
    if _accesses is not None:
        _accesses.add((path, True))
    return stat.S_ISDIR(_mode(path))


def _mode(path: str) -> int:
    """Returns the mode of what is at the path, following links, or 0 if it cannot be seen."""
    try:
        return os.stat(path).st_mode
    except OSError as error:
        failures.check(path, error)
        return 0


def read(path: str, limit: int = _LIMIT) -> bytes:
    """Returns all of a file. Raises OSError, or LookFailedError if the file could not be opened for a
    reason of claimd's own or of the node's.

    Everything that is read goes through here: where a device is dead, the read may hang, and whoever
    runs this by `deadline.run` is freed of it.
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

        # An error of the read itself may come from the GPU's driver, so it is the file's.
        try:
            content = os.read(descriptor, limit)
            if len(content) < _PAGE and content.find(b"\n") == len(content) - 1:
                return content  # one line, or nothing, that is shorter than any piece: all there is

            # A file of procfs may come in pieces; one of sysfs ends here with an empty read.
            while content and len(content) < limit:
                more = os.read(descriptor, limit)
                if not more:
                    break
                content += more
            return content
        finally:
            os.close(descriptor)
    finally:
        if attempt is not None:
            deadline.end_read(attempt)


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
    if isinstance(error, FileNotFoundError):
        return
    notes.append(f"{path}: {os.strerror(error.errno) if error.errno else error}")


# ---------------------------------------------------------------- once for all devices


class ScanCache:
    """What all devices of one scan have in common, read once."""

    def __init__(self) -> None:
        self._entries: dict[str, tuple[Any, list[str]]] = {}

    def read_once(self, key: str, read: Callable[[list[str]], _T], notes: list[str]) -> _T:
        """What `read` returned at the first call for this key.

        What it noted then is added to the `notes` of every caller, since it is wrong for each.
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
    """The version of a kernel module; those of the kernel's own tree have none."""
    path = f"{roots.sys}/module/{module}/version"
    return cache.read_once(path, lambda notes: text(path, notes), notes)


# ---------------------------------------------------------------- captures

# Whether either of the two below has anything in it: this is asked before every access.
_is_captured = False

# What was looked at while a scan is recorded: the path, and whether a link at its end is followed.
_accesses: set[tuple[str, bool]] | None = None

# Errors that the kernel gave where a tree was captured, by path.
_replayed_errors: dict[str, int] = {}


@contextmanager
def recording() -> Iterator[set[tuple[str, bool]]]:
    """Collects everything that is looked at within the block: the path, and whether a link at its
    end is followed.
    """
    # One scan at a time is recorded, by a command of its own.
    global _accesses, _is_captured
    accesses: set[tuple[str, bool]] = set()
    _accesses, _is_captured = accesses, True
    try:
        yield accesses
    finally:
        _accesses, _is_captured = None, bool(_replayed_errors)


def replay_errors(errors: Mapping[str, int]) -> None:
    """From now on these paths answer with these errors, and no others do."""
    global _is_captured  # noqa: PLW0603
    _replayed_errors.clear()
    _replayed_errors.update(errors)
    _is_captured = _accesses is not None or bool(errors)


def _before_access(path: str, *, follow: bool = True) -> None:
    if _accesses is not None:
        _accesses.add((path, follow))
    if path in _replayed_errors:
        raise OSError(_replayed_errors[path], os.strerror(_replayed_errors[path]))
