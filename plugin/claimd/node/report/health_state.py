"""Saves the state of sick GPUs in a file, for a later process that could not detect it again.

The kernel reports only once that a GPU hangs, and a vanished GPU cannot be seen. The file is valid
only within the same boot. If it is lost or damaged, only this state is lost. The file is not
synced, because a loss of power ends the boot anyway.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

from claimd_devices.gpu import Roots
from claimd_devices.health import Event, HealthState

from . import boot_file, clearings

log = logging.getLogger(__name__)

FILE = "health.json"


class _Document(boot_file.Document, frozen=True, kw_only=True):
    """The content of the file."""

    memory: HealthState


def load(folder: Path, boot_id: str) -> HealthState:
    """Returns the state that an earlier process of this boot saved, and what people cleared since.

    Logs a file that cannot be read. The other file counts all the same.
    """
    state = HealthState()
    cleared: tuple[Event, ...] = ()
    try:
        state = _read_saved(folder / FILE, boot_id)
    except (OSError, ValueError) as error:
        log.warning("what was known of sick GPUs is lost: %s", error)
    try:
        cleared = _read_cleared(folder, boot_id)
    except (OSError, ValueError) as error:
        log.warning("what people cleared is lost: %s", error)
    return replace(state, events=(*state.events, *cleared)) if cleared else state


def read_file(folder: Path, boot_id: str) -> HealthState:
    """Returns the state that an earlier process of this boot saved, and what people cleared since.

    Raises OSError or ValueError if the file exists and cannot be read.
    """
    state = _read_saved(folder / FILE, boot_id)
    cleared = _read_cleared(folder, boot_id)
    return replace(state, events=(*state.events, *cleared)) if cleared else state


def _read_cleared(folder: Path, boot_id: str) -> tuple[Event, ...]:
    return tuple(one.event() for one in clearings.read_file(folder, boot_id))


def _read_saved(path: Path, boot_id: str) -> HealthState:
    document = boot_file.load(path, _Document, boot_id)
    return document.memory if document is not None else HealthState()


def save(folder: Path, boot_id: str, state: HealthState) -> None:
    """Saves the state for a later process; removes the file if there is no state. Never raises."""
    path = folder / FILE
    try:
        if state == HealthState():
            path.unlink(missing_ok=True)
            return
        boot_file.save(path, _Document(boot=boot_id, memory=state), sync=False)
    except OSError as error:
        log.warning("what is known of sick GPUs will not outlive this process: %s", error)


def boot_id(roots: Roots) -> str:
    """Returns the kernel's id of this boot; empty if it cannot be read."""
    try:
        return (roots.proc / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
