"""What compile targets and PCI ids tell of AMD GPUs: their generation, their size, which are APUs.

Tables and nothing else. What a driver tells itself must not be repeated here.
"""

from __future__ import annotations

from .gpu import UNKNOWN

# The generation, by the target that compilers are told.
_BY_TARGET = {
    "gfx906": "Vega", "gfx900": "Vega", "gfx902": "Vega", "gfx909": "Vega", "gfx90c": "Vega",
    "gfx908": "CDNA", "gfx90a": "CDNA 2", "gfx942": "CDNA 3", "gfx950": "CDNA 4",
    "gfx1010": "RDNA", "gfx1011": "RDNA", "gfx1012": "RDNA",
    "gfx1030": "RDNA 2", "gfx1031": "RDNA 2", "gfx1032": "RDNA 2", "gfx1033": "RDNA 2", "gfx1034": "RDNA 2",
    "gfx1035": "RDNA 2", "gfx1036": "RDNA 2",
    "gfx1100": "RDNA 3", "gfx1101": "RDNA 3", "gfx1102": "RDNA 3", "gfx1103": "RDNA 3",
    "gfx1150": "RDNA 3.5", "gfx1151": "RDNA 3.5", "gfx1152": "RDNA 3.5", "gfx1153": "RDNA 3.5",
    "gfx1200": "RDNA 4", "gfx1201": "RDNA 4",
}  # fmt: skip
# The same by PCI device id, for where KFD does not tell the target.
_BY_ID = {
    0x66A1: "Vega", 0x738C: "CDNA", 0x738E: "CDNA", 0x7408: "CDNA 2", 0x740C: "CDNA 2", 0x740F: "CDNA 2",
    0x74A0: "CDNA 3", 0x74A1: "CDNA 3", 0x74A2: "CDNA 3", 0x74A5: "CDNA 3", 0x74A9: "CDNA 3", 0x74B5: "CDNA 3",
    0x74B9: "CDNA 3", 0x75A0: "CDNA 4", 0x75A3: "CDNA 4", 0x75A8: "CDNA 4",
    0x73A1: "RDNA 2", 0x73A3: "RDNA 2", 0x73BF: "RDNA 2", 0x7448: "RDNA 3", 0x744C: "RDNA 3", 0x745E: "RDNA 3",
    0x7460: "RDNA 3", 0x7461: "RDNA 3", 0x747E: "RDNA 3", 0x7480: "RDNA 3", 0x7550: "RDNA 4", 0x7551: "RDNA 4",
    0x7590: "RDNA 4", 0x1586: "RDNA 3.5", 0x150E: "RDNA 3.5", 0x1114: "RDNA 3.5", 0x15BF: "RDNA 3", 0x1900: "RDNA 3",
    0x1681: "RDNA 2", 0x164E: "RDNA 2", 0x1638: "Vega", 0x1636: "Vega", 0x15DD: "Vega", 0x15D8: "Vega",
}  # fmt: skip

_APU_IDS = frozenset((
    0x1114, 0x13C0, 0x1506, 0x150E, 0x1586, 0x15BF, 0x15C8, 0x15D8, 0x15DD, 0x15E7, 0x1636, 0x1638, 0x163F, 0x164C,
    0x164D, 0x164E, 0x164F, 0x1681, 0x1900, 0x1901, 0x1902, 0x74A0,
))  # fmt: skip
_APU_TARGETS = frozenset((
    "gfx902", "gfx909", "gfx90c", "gfx1033", "gfx1035", "gfx1036", "gfx1103", "gfx1150", "gfx1151", "gfx1152",
    "gfx1153",
))  # fmt: skip

# Of Instincts: what compilers are told, where the chip has no table of its cores; how many compute
# units there are, and on how many dies. Other ids come with several sizes.
_TARGETS = {
    0x738C: "gfx908",
    0x738E: "gfx908",
    0x7408: "gfx90a",
    0x740C: "gfx90a",
    0x740F: "gfx90a",
}
_COMPUTE_UNITS = {
    0x738C: 120, 0x7408: 110, 0x740F: 104, 0x74A0: 228, 0x74A1: 304, 0x74A2: 80, 0x74A5: 304, 0x74A8: 80,
    0x74A9: 304, 0x75A0: 256, 0x75A3: 256,
}  # fmt: skip
_DIES = {
    0x74A0: 6, 0x74A1: 8, 0x74A2: 4, 0x74A5: 8, 0x74A8: 4, 0x74A9: 8, 0x75A0: 8, 0x75A3: 8,
}  # fmt: skip


def target(device_id: int) -> str | None:
    """What compilers are told of a chip that does not tell its cores."""
    return _TARGETS.get(device_id)


def compute_units(device_id: int) -> int | None:
    """How many the GPU has, where the id leaves no choice."""
    return _COMPUTE_UNITS.get(device_id)


def dies(device_id: int) -> int | None:
    """On how many dies it computes, where the id leaves no choice."""
    return _DIES.get(device_id)


def family(target: str | None, device_id: int) -> str:
    """The generation by the compile target, else by the PCI id; `unknown` where the tables end."""
    by_target = _BY_TARGET.get(target) if target else None
    return by_target or _BY_ID.get(device_id, UNKNOWN)


def is_apu(target: str | None, device_id: int) -> bool:
    """Whether it is a part of a processor, with the machine's memory."""
    return device_id in _APU_IDS or target in _APU_TARGETS
