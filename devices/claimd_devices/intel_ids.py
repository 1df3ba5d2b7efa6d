"""Derives names, generations, tiles and memory of Intel GPUs from their PCI ids.

Intel's drivers do not show these facts.
"""

from __future__ import annotations

from . import ids

VENDOR_ID = 0x8086

_TWO_TILES = (0x0B69, 0x0BD0, 0x0BD4, 0x0BD5, 0x0BD6, 0x0BD7, 0x0BD8)
# A GPU that is part of the processor has always had this address.
_OF_PROCESSOR = "0000:00:02.0"


def product(device_id: int) -> ids.Known:
    """Returns the facts about an id. All of them are unknown if it is not in the table."""
    return ids.find_device(VENDOR_ID, device_id)


def is_integrated(device_id: int, address: str) -> bool | None:
    """Returns True if the GPU is part of the processor, by its id or by its address.

    None if both leave it open.
    """
    known = product(device_id).integrated
    if known is None and address == _OF_PROCESSOR:
        return True
    return known


def tiles(device_id: int) -> int | None:
    """Returns the number of tiles, which i915 does not show; None if the id is unknown.

    The GTs in sysfs cannot be counted instead, because some tiles have two of them.
    """
    if product(device_id).name is None:
        return None
    return 2 if device_id in _TWO_TILES else 1


def memory(device_id: int) -> int | None:
    """Returns the bytes of local memory; None without such memory, or if the id does not tell."""
    return product(device_id).memory
