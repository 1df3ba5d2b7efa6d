"""What the PCI ids of Intel GPUs tell: names, generations, tiles and memory, which no driver tells."""

from __future__ import annotations

from . import ids

VENDOR_ID = 0x8086

_TWO_TILES = (0x0B69, 0x0BD4, 0x0BD5, 0x0BD6, 0x0BD7, 0x0BD8)
# Where a processor's own GPU has been ever since.
_OF_PROCESSOR = "0000:00:02.0"


def product(device_id: int) -> ids.Known:
    """What the id stands for; nothing but an unknown family where the table ends."""
    return ids.find_device(VENDOR_ID, device_id)


def is_integrated(device_id: int, address: str) -> bool | None:
    """Whether it is a part of the processor: by its id, or by its place; None if neither tells."""
    known = product(device_id).integrated
    if known is None and address == _OF_PROCESSOR:
        return True
    return known


def tiles(device_id: int) -> int | None:
    """i915 does not tell; its GTs are no measure, since some tiles have two."""
    if product(device_id).name is None:
        return None
    return 2 if device_id in _TWO_TILES else 1


def memory(device_id: int) -> int | None:
    """Bytes of local memory; None where there is more than one size, or none."""
    return product(device_id).memory
