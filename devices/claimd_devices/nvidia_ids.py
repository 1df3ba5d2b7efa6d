"""What the PCI ids of NVIDIA GPUs tell of their generation, their place and their memory.

NVIDIA gives ids in rows: where the table of `ids` ends, the row still tells the generation. What
the driver tells itself must not be repeated here.
"""

from __future__ import annotations

from bisect import bisect_right

from . import ids
from .gpu import UNKNOWN

# The first PCI device id of a row, the generation of the row, what its compilers call it.
_ROWS = (
    (0x0000, UNKNOWN, None),
    (0x15F0, "Pascal", "sm_60"),
    (0x1600, UNKNOWN, None),
    (0x1B00, "Pascal", "sm_61"),
    (0x1D81, "Volta", "sm_70"),
    (0x1E00, "Turing", "sm_75"),
    (0x2080, "Ampere", "sm_80"),
    (0x2100, UNKNOWN, None),
    (0x2180, "Turing", "sm_75"),
    (0x2200, "Ampere", "sm_86"),
    (0x2300, "Hopper", "sm_90"),
    (0x2400, "Ampere", "sm_86"),
    (0x2600, "Ada Lovelace", "sm_89"),
    (0x2900, "Blackwell", "sm_100"),
    (0x2A00, UNKNOWN, None),
    (0x2B80, "Blackwell", "sm_120"),
    (0x2E00, UNKNOWN, None),
    (0x2E12, "Blackwell", "sm_121"),
    (0x2E13, UNKNOWN, None),
    (0x2F00, "Blackwell", "sm_120"),
    (0x3000, UNKNOWN, None),
    (0x3180, "Blackwell", "sm_103"),
    (0x3200, UNKNOWN, None),
)
_STARTS = [row[0] for row in _ROWS]

VENDOR_ID = 0x10DE


def family(device_id: int) -> tuple[str, str | None]:
    """The generation, and what compilers call it; `unknown` and None where the tables end."""
    known = ids.find_device(VENDOR_ID, device_id)
    if known.family != UNKNOWN:
        return known.family, known.architecture
    row = _ROWS[bisect_right(_STARTS, device_id) - 1]
    return row[1], row[2]


def is_integrated(device_id: int) -> bool | None:
    """Whether it is a part of a processor, as of Thor and GB10; None where the table ends."""
    return ids.find_device(VENDOR_ID, device_id).integrated


def memory(device_id: int, product: str | None) -> int | None:
    """Bytes on the board, by the id, and by the driver's name where boards of one id differ.

    A program finds a little less.
    """
    by_id = ids.find_device(VENDOR_ID, device_id).memory
    if by_id is not None or product is None:
        return by_id
    return ids.find_board(VENDOR_ID, device_id, product.removeprefix("NVIDIA ")).memory
