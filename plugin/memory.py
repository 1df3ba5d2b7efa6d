"""What a dead claimd knew of sick GPUs, in one file: the kernel says once that a GPU hangs, and nobody sees one that
is gone. Of another boot nothing is believed.

A file that is lost or damaged costs this knowledge and nothing else, so it is not synced: only a boot loses it then.
"""

from __future__ import annotations

import contextlib
import logging
import os
from pathlib import Path

import msgspec

from devices.health import Memory

log = logging.getLogger(__name__)

FILE = "health.json"


class _Document(msgspec.Struct, frozen=True, kw_only=True):
    boot: str
    memory: Memory


def load(folder: Path, boot: str) -> Memory:
    path = folder / FILE
    try:
        document = msgspec.json.decode(path.read_bytes(), type=_Document)
    except FileNotFoundError:
        return Memory()
    except (OSError, msgspec.DecodeError, ValueError) as error:
        log.warning("what was known of sick GPUs is lost: %s: %s", path, error)
        return Memory()
    return document.memory if boot and document.boot == boot else Memory()


def save(folder: Path, boot: str, memory: Memory) -> None:
    path, new = folder / FILE, folder / f".{FILE}.{os.getpid()}"
    try:
        if memory == Memory():
            path.unlink(missing_ok=True)
            return
        new.write_bytes(msgspec.json.encode(_Document(boot=boot, memory=memory)))
        new.replace(path)
    except OSError as error:
        log.warning("what is known of sick GPUs will not outlive this process: %s", error)
        with contextlib.suppress(OSError):
            new.unlink(missing_ok=True)
