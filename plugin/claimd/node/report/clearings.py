"""Keeps what a person has cleared: findings of a GPU that are over although no driver says so.

`claimd clear` adds a clearing. A running claimd forgets the findings from before it, and so does each
later process of the same boot, which reads the same lines of the kernel's log.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

import msgspec

from claimd_devices import health

from . import boot_file

log = logging.getLogger(__name__)

FILE = "cleared.json"

# The most clearings that are kept. The oldest ones are dropped.
_MOST = 1000


class Clearing(msgspec.Struct, frozen=True, kw_only=True):
    """The decision of a person that everything reported about a device is over."""

    device: str
    address: str
    instance: int | None = None  # of the MIG instance, if the device is one
    at: float  # seconds since 1970
    by: str
    reason: str = ""

    # The number of the next line of the kernel's log; None: not known.
    number: int | None = None

    def event(self) -> health.Event:
        """Returns the event that ends the findings from before."""
        return health.Event(
            address=self.address,
            kind=health.BOUND,
            at=self.at,
            instance=self.instance,
            number=self.number,
        )

    def sentence(self) -> str:
        """Returns who cleared what, and why."""
        why = f": {self.reason}" if self.reason else ""
        return f"{self.device}: its findings were cleared by {self.by}{why}"


class _Document(boot_file.Document, frozen=True, kw_only=True):
    """The content of the file."""

    clearings: tuple[Clearing, ...]


def read_file(folder: Path, boot_id: str) -> tuple[Clearing, ...]:
    """Returns the clearings of this boot.

    Raises OSError or ValueError if the file exists and cannot be read.
    """
    document = boot_file.load(folder / FILE, _Document, boot_id)
    return document.clearings if document is not None else ()


def add(folder: Path, boot_id: str, clearing: Clearing) -> None:
    """Adds a clearing for the claimd that runs, and for later ones. Raises OSError.

    A file that is damaged is replaced.
    """
    try:
        earlier = read_file(folder, boot_id)
    except ValueError:
        earlier = ()
    document = _Document(boot=boot_id, clearings=(*earlier, clearing)[-_MOST:])
    boot_file.save(folder / FILE, document, sync=True)


class Reader:
    """Reads the clearings again when the file has changed, and logs new ones."""

    def __init__(self, folder: Path, boot_id: str) -> None:
        self._folder, self._boot_id = folder, boot_id
        self._seen: tuple[int, int] | None = None  # inode and change time; None: no file
        self._known: set[Clearing] = set()

    def read_events(self) -> tuple[health.Event, ...]:
        """Returns the events of all clearings if the file has changed, or nothing. Never raises."""
        try:
            status = os.stat(self._folder / FILE)
        except OSError:
            return ()
        mark = status.st_ino, status.st_ctime_ns
        if mark == self._seen:
            return ()

        self._seen = mark
        try:
            clearings = read_file(self._folder, self._boot_id)
        except (OSError, ValueError) as error:
            log.warning("what a person has cleared is not known: %s", error)
            return ()
        for clearing in clearings:
            if clearing not in self._known:
                self._known.add(clearing)
                log.warning("%s", clearing.sentence())
        return tuple(clearing.event() for clearing in clearings)
