"""Saves the state of sick GPUs in a file, for a later process that could not detect it again.

The kernel reports only once that a GPU hangs, and a vanished GPU cannot be seen. The file is valid
only within the same boot. If it is lost or damaged, only this state is lost. The file is not
synced, because a loss of power ends the boot anyway.
"""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from pathlib import Path

import msgspec

from claimd.common import durable
from claimd_devices.gpu import Roots
from claimd_devices.health import Event, HealthState

from . import clearings

log = logging.getLogger(__name__)

FILE = "health.json"


class _Document(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the file."""

    boot: str
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
    try:
        document = msgspec.json.decode(path.read_bytes(), type=_Document)
    except (FileNotFoundError, NotADirectoryError):
        return HealthState()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{path}: {error}") from error

    # If the kernel does not identify the boot, it may be a different one.
    if not boot_id or document.boot != boot_id:
        return HealthState()
    return document.memory


def save(folder: Path, boot_id: str, state: HealthState) -> None:
    """Saves the state for a later process; removes the file if there is no state. Never raises."""
    path = folder / FILE
    try:
        if state == HealthState():
            path.unlink(missing_ok=True)
            return
        content = msgspec.json.encode(_Document(boot=boot_id, memory=state))

        # Two instances may save at once during an update. Their process ids cannot distinguish
        # them: each is process 1 of its pod.
        unfinished = folder / f".{FILE}.{os.urandom(4).hex()}"
        durable.replace(str(path), content, temporary=str(unfinished), sync=False)
    except OSError as error:
        log.warning("what is known of sick GPUs will not outlive this process: %s", error)


def boot_id(roots: Roots) -> str:
    """Returns the kernel's id of this boot; empty if it cannot be read."""
    try:
        return (roots.proc / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
