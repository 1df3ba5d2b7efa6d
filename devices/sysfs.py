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
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from . import deadline
from .gpu import Roots

_T = TypeVar("_T")
_LIMIT = 1 << 16  # /proc/devices and its like are a few KiB; a file of sysfs has at most one page
_NUMBER = re.compile(r"-?[0-9]{1,18}")
_HEX = re.compile(r"0x[0-9a-f]{1,8}")


_seen: set[tuple[str, bool]] | None = None  # see recording()
_answers: dict[str, int] = {}  # errors that the kernel gave where a tree was captured


@contextmanager
def recording() -> Iterator[set[tuple[str, bool]]]:
    """Everything that is asked of the trees within the block: the path, and whether a link at its
    end is followed.
    """
    global _seen  # noqa: PLW0603  one scan at a time is captured, by a command of its own
    found: set[tuple[str, bool]] = set()
    _seen = found
    try:
        yield found
    finally:
        _seen = None


def replay_errors(errors: Mapping[str, int]) -> None:
    """From now on these paths answer with these errors."""
    _answers.clear()
    _answers.update(errors)


def _note_access(path: str, *, follow: bool = True) -> None:
    if _seen is not None:
        _seen.add((path, follow))
    if path in _answers:
        raise OSError(_answers[path], os.strerror(_answers[path]))


class ScanCache:
    """What all devices of one scan have in common, read once. What is wrong with it is noted for
    each that asks.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[Any, list[str]]] = {}

    def read_once(self, key: str, read: Callable[[list[str]], _T], notes: list[str]) -> _T:
        if key not in self._known:
            found: list[str] = []
            self._known[key] = read(found), found
        value, said = self._known[key]
        notes += said
        known: _T = value
        return known


def module_version(
    roots: Roots, module: str | None, cache: ScanCache, notes: list[str]
) -> str | None:
    """A module of the kernel's own tree has none."""
    path = f"{roots.sys}/module/{module}/version"
    return cache.read_once(path, lambda said: text(path, said), notes)


def lines(path: str, notes: list[str]) -> list[str] | None:
    """The lines of a text file, None if there are none to be had."""
    content = _read(path, notes)
    return content.splitlines() if content is not None else None


def content(path: str, notes: list[str], limit: int = 1 << 22) -> bytes | None:
    """The bytes of a file that is no text, or longer than those of the kernel's trees."""
    try:
        return read(path, limit)
    except OSError as error:
        _note(path, error, notes)
        return None


def text(path: str, notes: list[str]) -> str | None:
    """The value of a file of one line, without the white space around it."""
    value = _read(path, notes)
    if value is not None and not value.isprintable():
        notes.append(f"{path}: {value[:40]!r} is not one line of text")
        return None
    return value


def decimal(path: str, notes: list[str]) -> int | None:
    value = _matching(path, _NUMBER, "a decimal number", notes)
    return int(value) if value is not None else None


def hexadecimal(path: str, notes: list[str]) -> int | None:
    """A number as the kernel prints ids: 0x and hexadecimal digits."""
    value = _matching(path, _HEX, "0x and hex digits", notes)
    return int(value, 16) if value is not None else None


def link(path: str, notes: list[str]) -> str | None:
    """Where a symbolic link points, as it is written there: one readlink, nothing followed."""
    try:
        _note_access(path, follow=False)
        return os.readlink(path)
    except OSError as error:
        if error.errno == errno.EINVAL:
            notes.append(f"{path}: not a symbolic link")
        else:
            _note(path, error, notes)
        return None


def names(folder: str, notes: list[str]) -> list[str] | None:
    """What a folder holds, sorted."""
    try:
        _note_access(folder)
        return sorted(os.listdir(folder))
    except OSError as error:
        _note(folder, error, notes)
        return None


def is_file(path: str) -> bool:
    """Only its being there matters, never what is in it."""
    if _seen is not None:
        _seen.add((path, False))
    return os.path.isfile(path)


def is_folder(path: str) -> bool:
    if _seen is not None:
        _seen.add((path, True))
    return os.path.isdir(path)


def _matching(path: str, pattern: re.Pattern[str], expected: str, notes: list[str]) -> str | None:
    value = _read(path, notes)
    if value is not None and not pattern.fullmatch(value):
        notes.append(f"{path}: {value[:40]!r} is not {expected}")
        return None
    return value


def _read(path: str, notes: list[str]) -> str | None:
    try:
        content = read(path)
    except OSError as error:
        _note(path, error, notes)
        return None
    try:
        value = content.decode().strip()
    except UnicodeDecodeError:
        notes.append(f"{path}: {content[:40]!r} is not text")
        return None
    if not value:
        notes.append(f"{path}: empty")
        return None
    return value


def read(path: str, limit: int = _LIMIT) -> bytes:
    """All of a file, or OSError. The one place where a read of a dead device may hang: see deadline."""
    _note_access(path)
    deadline.begin_read(path)
    try:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            content = os.read(descriptor, limit)
            # A file of procfs may come in pieces; one of sysfs ends here with an empty read.
            while content and len(content) < limit and (more := os.read(descriptor, limit)):
                content += more
            return content
        finally:
            os.close(descriptor)
    finally:
        deadline.end_read()


def _note(path: str, error: OSError, notes: list[str]) -> None:
    if not isinstance(error, FileNotFoundError):
        notes.append(f"{path}: {os.strerror(error.errno) if error.errno else error}")
