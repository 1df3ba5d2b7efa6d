"""What PCI ids tell of GPUs: names, generations, where they are, and memory that drivers do not tell.

The table beside this file is written by `make ids` from the lists that others keep. It is looked
through for the ids of this machine alone, and not kept in memory.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path

from .gpu import UNKNOWN

_TABLE = Path(__file__).with_name("ids.tsv")


@dataclass(frozen=True, slots=True)
class Known:
    """What the table has of an id. None: it does not tell."""

    name: str | None = None
    family: str = UNKNOWN
    architecture: str | None = None
    integrated: bool | None = None
    memory: int | None = None  # bytes
    is_package: bool = False  # integrated, and what its machine is built around


_NOTHING = Known()
_PLACEMENTS = {"integrated": True, "package": True, "discrete": False}


def find_device(vendor_id: int, device_id: int) -> Known:
    """What is known of all GPUs of a PCI id; nothing where the table ends."""
    return _look_up(f"{vendor_id:04x}:{device_id:04x}")


def find_revision(vendor_id: int, device_id: int, revision: int) -> Known:
    """The name of the one model that has a revision of the chip, if the table tells them apart."""
    return _look_up(f"{vendor_id:04x}:{device_id:04x}:{revision:02x}")


def find_board(vendor_id: int, device_id: int, name: str) -> Known:
    """The memory of a board by its driver's name too, for ids of boards with several sizes."""
    return _look_up(f"{vendor_id:04x}:{device_id:04x}:{name}")


@functools.lru_cache(maxsize=256)
def _look_up(key: str) -> Known:
    """The row of a key. Each is looked for once in the life of the process: a scan asks again."""
    try:
        table = _TABLE.read_bytes()
    except OSError:
        return _NOTHING
    _, known, rest = table.partition(f"\n{key}\t".encode(errors="replace"))
    if not known:
        return _NOTHING

    columns, _, _ = rest.partition(b"\n")
    name, family, architecture, placement, gib = columns.decode().split("\t")
    return Known(
        name=name or None,
        family=family or UNKNOWN,
        architecture=architecture or None,
        integrated=_PLACEMENTS.get(placement),
        memory=int(gib) << 30 if gib else None,
        is_package=placement == "package",
    )
