"""What a dead claimd knew of sick GPUs, in one file: the kernel says once that a GPU hangs, and
nobody sees one that is gone. Of another boot nothing is believed.

A file that is lost or damaged costs this knowledge and nothing else, so it is not synced: only a
boot loses it then.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

import msgspec

from devices.gpu import Roots
from devices.health import HealthState

from .. import durable

log = logging.getLogger(__name__)

FILE = "health.json"


class _Document(msgspec.Struct, frozen=True, kw_only=True):
    boot: str
    memory: HealthState


def load(folder: Path, boot: str) -> HealthState:
    try:
        return read(folder, boot)
    except (OSError, ValueError) as error:
        log.warning("what was known of sick GPUs is lost: %s", error)
        return HealthState()


def read(folder: Path, boot: str) -> HealthState:
    """OSError or ValueError for a file that is there and cannot be read."""
    try:
        document = msgspec.json.decode((folder / FILE).read_bytes(), type=_Document)
    except (FileNotFoundError, NotADirectoryError):
        return HealthState()
    except msgspec.DecodeError as error:
        raise ValueError(f"{folder / FILE}: {error}") from error
    return document.memory if boot and document.boot == boot else HealthState()


def boot_id(roots: Roots) -> str:
    """Empty if the kernel does not tell."""
    try:
        return (roots.proc / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def save(folder: Path, boot: str, memory: HealthState) -> None:
    path, new = folder / FILE, folder / f".{FILE}.{os.getpid()}"
    try:
        if memory == HealthState():
            path.unlink(missing_ok=True)
            return
        content = msgspec.json.encode(_Document(boot=boot, memory=memory))
        durable.replace(str(path), content, beside=str(new), sync=False)
    except OSError as error:
        log.warning("what is known of sick GPUs will not outlive this process: %s", error)
