"""What the PCI ids of Intel GPUs tell: names, generations, tiles and memory, which no driver tells.

Tables and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass

from .gpu import UNKNOWN


@dataclass(frozen=True, slots=True)
class Product:
    """What an id stands for."""

    name: str | None = None
    family: str = UNKNOWN
    integrated: bool | None = None  # whether it is a part of the processor
    architecture: str | None = None


# Family, whether it is a part of the processor, architecture, then the ids and their names.
_FAMILIES: tuple[tuple[str, bool, str, dict[int, str]], ...] = (
    (
        "Data Center GPU Max", False, "xe-hpc",
        {
            0x0B69: "Data Center GPU Max 1450",
            0x0B6E: "Data Center GPU Max 1100C",
            0x0BD4: "Data Center GPU Max 1550VG",
            0x0BD5: "Data Center GPU Max 1550",
            0x0BD6: "Data Center GPU Max 1550",
            0x0BD7: "Data Center GPU Max 1350",
            0x0BD8: "Data Center GPU Max 1350",
            0x0BD9: "Data Center GPU Max 1100",
            0x0BDA: "Data Center GPU Max 1100",
            0x0BDB: "Data Center GPU Max 1100",
        },
    ),
    (
        "Data Center GPU Flex", False, "xe-hpg",
        {
            0x56C0: "Data Center GPU Flex 170",
            0x56C1: "Data Center GPU Flex 140",
            0x56C2: "Data Center GPU Flex 170V",
        },
    ),
    (
        "Arc A", False, "xe-hpg",
        {
            0x5690: "Arc A770M",
            0x5691: "Arc A730M",
            0x5692: "Arc A550M",
            0x5693: "Arc A370M",
            0x5694: "Arc A350M",
            0x56A0: "Arc A770",
            0x56A1: "Arc A750",
            0x56A2: "Arc A580",
            0x56A5: "Arc A380",
            0x56A6: "Arc A310",
            0x56B1: "Arc Pro A40/A50",
            0x56B3: "Arc Pro A60",
        },
    ),
    (
        "Arc B", False, "xe2-hpg",
        {
            0xE20B: "Arc B580",
            0xE20C: "Arc B570",
            0xE211: "Arc Pro B60",
            0xE212: "Arc Pro B50",
            0xE222: "Arc Pro B65",
            0xE223: "Arc Pro B70",
        },
    ),
    (
        "UHD and Iris Xe Graphics", True, "xe-lp",
        {
            0x4626: "UHD Graphics",
            0x4680: "UHD Graphics 770",
            0x4682: "UHD Graphics 730",
            0x4688: "UHD Graphics 770",
            0x4690: "UHD Graphics 770",
            0x4692: "UHD Graphics 730",
            0x46A6: "Iris Xe Graphics",
            0x46A8: "Iris Xe Graphics",
            0x46D0: "UHD Graphics",
            0x46D1: "UHD Graphics",
            0x4C8A: "UHD Graphics 750",
            0x4C90: "UHD Graphics P750",
            0xA780: "UHD Graphics 770",
        },
    ),
)  # fmt: skip
_TWO_TILES = (0x0B69, 0x0BD4, 0x0BD5, 0x0BD6, 0x0BD7, 0x0BD8)

# GiB that are soldered on the board; of an id that is not here there is more than one size.
_MEMORY = {
    0x0BD4: 128, 0x0BD5: 128, 0x0BD6: 128, 0x0BD9: 48, 0x0BDA: 48, 0x56A1: 8, 0x56A2: 8,
    0x56A5: 6, 0x56A6: 4, 0xE20B: 12, 0xE20C: 10, 0xE211: 24, 0xE212: 16,
}  # fmt: skip


def _by_id() -> dict[int, Product]:
    products = {}
    for family, integrated, architecture, names in _FAMILIES:
        for device_id, name in names.items():
            products[device_id] = Product(name, family, integrated, architecture)
    return products


_PRODUCTS = _by_id()
_UNKNOWN_PRODUCT = Product()


def product(device_id: int) -> Product:
    """What the id stands for; nothing but an unknown family where the table ends."""
    return _PRODUCTS.get(device_id, _UNKNOWN_PRODUCT)


def tiles(device_id: int) -> int | None:
    """i915 does not tell; its GTs are no measure, since some tiles have two."""
    if device_id not in _PRODUCTS:
        return None
    return 2 if device_id in _TWO_TILES else 1


def memory(device_id: int) -> int | None:
    """Bytes of local memory; None where there is more than one size, or none."""
    gib = _MEMORY.get(device_id)
    return gib << 30 if gib is not None else None
