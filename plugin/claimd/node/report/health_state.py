"""What a successor could not find out about sick GPUs, kept in one file for it.

The kernel says once that a GPU hangs, and nobody sees one that is gone. Of another boot nothing is
believed. A file that is lost or damaged costs this knowledge and nothing else, so it is not synced:
a loss of power ends the boot anyway.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

import msgspec

from claimd.common import durable
from claimd_devices.gpu import Roots
from claimd_devices.health import HealthState

log = logging.getLogger(__name__)

FILE = "health.json"


class _Document(msgspec.Struct, frozen=True, kw_only=True):
    """What the file holds."""

    boot: str
    memory: HealthState


def load(folder: Path, boot_id: str) -> HealthState:
    """What the process before us knew on this boot. A file that cannot be read is logged."""
    try:
        return read(folder, boot_id)
    except (OSError, ValueError) as error:
        log.warning("what was known of sick GPUs is lost: %s", error)
        return HealthState()


def read(folder: Path, boot_id: str) -> HealthState:
    """The same, but raises OSError or ValueError for a file that is there and cannot be read."""
    path = folder / FILE
    try:
        document = msgspec.json.decode(path.read_bytes(), type=_Document)
    except (FileNotFoundError, NotADirectoryError):
        return HealthState()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{path}: {error}") from error

    # Without the kernel's word for it, any boot may be another one.
    if not boot_id or document.boot != boot_id:
        return HealthState()
    return document.memory


def save(folder: Path, boot_id: str, state: HealthState) -> None:
    """Keeps the state for a successor; no file if there is nothing to keep. Never raises."""
    path = folder / FILE
    try:
        if state == HealthState():
            path.unlink(missing_ok=True)
            return
        content = msgspec.json.encode(_Document(boot=boot_id, memory=state))
        # Two instances of an update may save at once, and each is process 1 of its pod.
        unfinished = folder / f".{FILE}.{os.urandom(4).hex()}"
        durable.replace(str(path), content, beside=str(unfinished), sync=False)
    except OSError as error:
        log.warning("what is known of sick GPUs will not outlive this process: %s", error)


def boot_id(roots: Roots) -> str:
    """Which boot this is; empty if the kernel does not tell."""
    try:
        return (roots.proc / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
