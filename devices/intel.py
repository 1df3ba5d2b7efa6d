"""Intel GPUs by what i915 and xe say in sysfs. Their names come from a table, since neither driver tells one."""

from __future__ import annotations

import re

from . import drm, sysfs
from .gpu import Detail, Roots
from .pci import Function

NAME = "intel"
VENDOR_ID = 0x8086
DRIVERS = ("i915", "xe")

# Beyond the table a product is unknown, not guessed.
_PRODUCTS = {
    0x0B69: "Data Center GPU Max 1450",
    0x0BD5: "Data Center GPU Max 1550",
    0x0BD9: "Data Center GPU Max 1100",
    0x0BDA: "Data Center GPU Max 1100",
    0x0BDB: "Data Center GPU Max 1100",
    0x4680: "UHD Graphics 770",
    0x56A0: "Arc A770",
    0x56A1: "Arc A750",
    0x56A2: "Arc A580",
    0x56A5: "Arc A380",
    0x56A6: "Arc A310",
    0x56B3: "Arc Pro A60",
    0x56C0: "Data Center GPU Flex 170",
    0x56C1: "Data Center GPU Flex 140",
    0xA780: "UHD Graphics 770",
    0xE20B: "Arc B580",
    0xE20C: "Arc B570",
    0xE211: "Arc Pro B60",
    0xE212: "Arc Pro B50",
    0xE222: "Arc Pro B65",
    0xE223: "Arc Pro B70",
}
_TILE = re.compile(r"tile\d+")


def describe(roots: Roots, function: Function) -> Detail:
    nodes = drm.card_and_render(function.folder)
    notes: list[str] = []
    return Detail(
        nodes=nodes,
        driver_version=sysfs.text(f"{roots.sys}/module/{function.driver}/version", notes),
        product=_PRODUCTS.get(function.device_id),
        memory=_i915_memory(function, notes) if function.driver == "i915" else _xe_memory(function, notes),
        notes=tuple(notes),
    )


def _i915_memory(function: Function, notes: list[str]) -> int | None:
    """Local memory; only the data-centre build of i915 tells it, beside the card or in it."""
    cards = [name for name in sysfs.names(f"{function.folder}/drm", notes) or () if re.fullmatch(r"card\d+", name)]
    for folder in (function.folder, *(f"{function.folder}/drm/{card}" for card in cards)):
        size = sysfs.decimal(f"{folder}/lmem_total_bytes", notes)
        if size and size > 0:
            return size
    return None


def _xe_memory(function: Function, notes: list[str]) -> int | None:
    """The tiles' memory together; None if one of them does not tell, since half a sum would be wrong."""
    tiles = [name for name in sysfs.names(function.folder, notes) or () if _TILE.fullmatch(name)]
    sizes = [sysfs.decimal(f"{function.folder}/{tile}/physical_vram_size_bytes", notes) for tile in tiles]
    known = [size for size in sizes if size and size > 0]
    return sum(known) if known and len(known) == len(sizes) else None
