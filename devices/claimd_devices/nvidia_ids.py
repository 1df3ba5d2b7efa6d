"""Derives generation, placement and memory of NVIDIA GPUs from their PCI ids.

NVIDIA assigns ids in ranges. For an id that is not in the table of `ids`, the range still tells the
generation. Facts that the driver shows do not belong in this module.
"""

from __future__ import annotations

from bisect import bisect_right

from . import ids
from .gpu import UNKNOWN

# The first PCI device id of a range, its generation, and the compilers' name of it.
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

# The CUDA version of each branch of the driver, as nvidia-smi prints it.
_CUDA = {
    450: "11.0", 455: "11.1", 460: "11.2", 465: "11.3", 470: "11.4", 495: "11.5",
    510: "11.6", 515: "11.7", 520: "11.8",
    525: "12.0", 530: "12.1", 535: "12.2", 545: "12.3", 550: "12.4", 555: "12.5",
    560: "12.6", 565: "12.7", 570: "12.8", 575: "12.9",
    580: "13.0", 590: "13.1", 595: "13.2",
}  # fmt: skip

VENDOR_ID = 0x10DE


def family(device_id: int) -> tuple[str, str | None]:
    """Returns the generation and the compute architecture, such as Hopper and sm_90.

    Returns `unknown` and None if no table has the id.
    """
    known = ids.find_device(VENDOR_ID, device_id)
    if known.family != UNKNOWN:
        return known.family, known.architecture
    row = _ROWS[bisect_right(_STARTS, device_id) - 1]
    return row[1], row[2]


def is_integrated(device_id: int) -> bool | None:
    """Returns True if the GPU is part of a processor, as in Thor and GB10.

    None if that is unknown.
    """
    return ids.find_device(VENDOR_ID, device_id).integrated


def memory(device_id: int, product: str | None) -> int | None:
    """Returns the bytes of memory that the driver can use. A program can use slightly fewer.

    The id decides, and also the product's name if boards with one id differ.
    """
    by_id = ids.find_device(VENDOR_ID, device_id).memory
    if by_id is not None or product is None:
        return by_id
    return ids.find_board(VENDOR_ID, device_id, product.removeprefix("NVIDIA ")).memory


def cuda(driver_version: str | None) -> str | None:
    """Returns the CUDA version that belongs to a version of the driver: 13.0 for 580.95.05.

    None if the table does not have its branch.
    """
    branch, _, _ = (driver_version or "").partition(".")
    return _CUDA.get(int(branch)) if branch.isdecimal() and len(branch) < 6 else None
