"""What PCI ids and compile targets tell of a GPU's generation. Tables only; where they end, it is
`unknown`.

What a driver tells itself must not be repeated here.
"""

from __future__ import annotations

from bisect import bisect_right

from .gpu import UNKNOWN

# The first PCI device id of a generation, its name, what its compilers call it. NVIDIA gives ids in
# rows.
_NVIDIA = (
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
_NVIDIA_STARTS = [row[0] for row in _NVIDIA]
NVIDIA_INTEGRATED = (0x2B00, 0x2E12)  # Thor, GB10: their memory is the machine's

_AMD = {
    "gfx906": "Vega", "gfx900": "Vega", "gfx902": "Vega", "gfx909": "Vega", "gfx90c": "Vega",
    "gfx908": "CDNA", "gfx90a": "CDNA 2", "gfx942": "CDNA 3", "gfx950": "CDNA 4",
    "gfx1010": "RDNA", "gfx1011": "RDNA", "gfx1012": "RDNA",
    "gfx1030": "RDNA 2", "gfx1031": "RDNA 2", "gfx1032": "RDNA 2", "gfx1033": "RDNA 2", "gfx1034": "RDNA 2",
    "gfx1035": "RDNA 2", "gfx1036": "RDNA 2",
    "gfx1100": "RDNA 3", "gfx1101": "RDNA 3", "gfx1102": "RDNA 3", "gfx1103": "RDNA 3",
    "gfx1150": "RDNA 3.5", "gfx1151": "RDNA 3.5", "gfx1152": "RDNA 3.5", "gfx1153": "RDNA 3.5",
    "gfx1200": "RDNA 4", "gfx1201": "RDNA 4",
}  # fmt: skip
# Where KFD does not tell the target.
_AMD_IDS = {
    0x66A1: "Vega", 0x738C: "CDNA", 0x738E: "CDNA", 0x7408: "CDNA 2", 0x740C: "CDNA 2", 0x740F: "CDNA 2",
    0x74A0: "CDNA 3", 0x74A1: "CDNA 3", 0x74A2: "CDNA 3", 0x74A5: "CDNA 3", 0x74A9: "CDNA 3", 0x74B5: "CDNA 3",
    0x74B9: "CDNA 3", 0x75A0: "CDNA 4", 0x75A3: "CDNA 4", 0x75A8: "CDNA 4",
    0x73A1: "RDNA 2", 0x73A3: "RDNA 2", 0x73BF: "RDNA 2", 0x7448: "RDNA 3", 0x744C: "RDNA 3", 0x745E: "RDNA 3",
    0x7460: "RDNA 3", 0x7461: "RDNA 3", 0x747E: "RDNA 3", 0x7480: "RDNA 3", 0x7550: "RDNA 4", 0x7551: "RDNA 4",
    0x7590: "RDNA 4", 0x1586: "RDNA 3.5", 0x150E: "RDNA 3.5", 0x1114: "RDNA 3.5", 0x15BF: "RDNA 3", 0x1900: "RDNA 3",
    0x1681: "RDNA 2", 0x164E: "RDNA 2", 0x1638: "Vega", 0x1636: "Vega", 0x15DD: "Vega", 0x15D8: "Vega",
}  # fmt: skip
_APUS = frozenset((
    0x1114, 0x13C0, 0x1506, 0x150E, 0x1586, 0x15BF, 0x15C8, 0x15D8, 0x15DD, 0x15E7, 0x1636, 0x1638, 0x163F, 0x164C,
    0x164D, 0x164E, 0x164F, 0x1681, 0x1900, 0x1901, 0x1902, 0x74A0,
))  # fmt: skip
_APU_TARGETS = frozenset((
    "gfx902", "gfx909", "gfx90c", "gfx1033", "gfx1035", "gfx1036", "gfx1103", "gfx1150", "gfx1151", "gfx1152",
    "gfx1153",
))  # fmt: skip

# Family, whether it is a part of the processor, architecture, then the ids and their products.
_INTEL_FAMILIES: tuple[tuple[str, bool, str, dict[int, str]], ...] = (
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
_INTEL = {
    device_id: (product, family, integrated, target)
    for family, integrated, target, products in _INTEL_FAMILIES
    for device_id, product in products.items()
}
_INTEL_TWO_TILES = (0x0B69, 0x0BD4, 0x0BD5, 0x0BD6, 0x0BD7, 0x0BD8)
_GIB = 1 << 30
# What is soldered on the board; of an id that is not here there is more than one size.
_INTEL_MEMORY = {
    0x0BD4: 128, 0x0BD5: 128, 0x0BD6: 128, 0x0BD9: 48, 0x0BDA: 48, 0x56A1: 8, 0x56A2: 8,
    0x56A5: 6, 0x56A6: 4, 0xE20B: 12, 0xE20C: 10, 0xE211: 24, 0xE212: 16,
}  # fmt: skip


def nvidia(device_id: int) -> tuple[str, str | None]:
    """Generation and what compilers call it."""
    row = _NVIDIA[bisect_right(_NVIDIA_STARTS, device_id) - 1]
    return row[1], row[2]


def amd(target: str | None, device_id: int) -> str:
    return _AMD.get(target or "") or _AMD_IDS.get(device_id, UNKNOWN)


def is_apu(target: str | None, device_id: int) -> bool:
    return device_id in _APUS or target in _APU_TARGETS


def intel(device_id: int) -> tuple[str | None, str, bool | None, str | None]:
    """Product, family, whether it is a part of the processor, architecture."""
    return _INTEL.get(device_id, (None, UNKNOWN, None, None))


def intel_tiles(device_id: int) -> int | None:
    """i915 does not tell; its gts are no measure, since some tiles have two."""
    if device_id not in _INTEL:
        return None
    return 2 if device_id in _INTEL_TWO_TILES else 1


def intel_memory(device_id: int) -> int | None:
    size = _INTEL_MEMORY.get(device_id)
    return size * _GIB if size else None
