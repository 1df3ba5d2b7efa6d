"""Derives names, generation, size and placement of AMD GPUs from compile targets and PCI ids.

Facts that the driver shows do not belong in this module.
"""

from __future__ import annotations

from . import ids

# The generation by compile target.
_BY_TARGET = {
    "gfx906": "Vega", "gfx900": "Vega", "gfx902": "Vega", "gfx909": "Vega", "gfx90c": "Vega",
    "gfx908": "CDNA", "gfx90a": "CDNA 2", "gfx942": "CDNA 3", "gfx950": "CDNA 4",
    "gfx1010": "RDNA", "gfx1011": "RDNA", "gfx1012": "RDNA",
    "gfx1030": "RDNA 2", "gfx1031": "RDNA 2", "gfx1032": "RDNA 2", "gfx1033": "RDNA 2",
    "gfx1034": "RDNA 2", "gfx1035": "RDNA 2", "gfx1036": "RDNA 2",
    "gfx1100": "RDNA 3", "gfx1101": "RDNA 3", "gfx1102": "RDNA 3", "gfx1103": "RDNA 3",
    "gfx1150": "RDNA 3.5", "gfx1151": "RDNA 3.5", "gfx1152": "RDNA 3.5", "gfx1153": "RDNA 3.5",
    "gfx1200": "RDNA 4", "gfx1201": "RDNA 4",
}  # fmt: skip
VENDOR_ID = 0x1002

_APU_TARGETS = frozenset((
    "gfx902", "gfx909", "gfx90c", "gfx1033", "gfx1035", "gfx1036",
    "gfx1103", "gfx1150", "gfx1151", "gfx1152", "gfx1153",
))  # fmt: skip

# The compile targets of Instinct chips without a table of their cores, by PCI id.
_TARGETS = {
    **dict.fromkeys((0x66A0, 0x66A1, 0x66A2, 0x66A3, 0x66A7, 0x66AF), "gfx906"),
    0x738C: "gfx908",
    0x738E: "gfx908",
    0x7408: "gfx90a",
    0x740C: "gfx90a",
    0x740F: "gfx90a",
}

# The numbers of compute units and of dies that compute, of Instinct GPUs by PCI id. None: the chip
# is never divided. Ids that are not here belong to chips of different sizes.
_SIZES: dict[int, tuple[int, int | None]] = {
    0x738C: (120, None),  # MI100
    0x7408: (110, None),  # MI250X
    0x740F: (104, None),  # MI210
    0x74A0: (228, 6),  # MI300A
    0x74A1: (304, 8),  # MI300X
    0x74A2: (80, 4),  # MI308X
    0x74A5: (304, 8),  # MI325X
    0x74A8: (80, 4),  # MI308X HF
    0x74A9: (304, 8),  # MI300X HF
    0x74B5: (304, 8),  # MI300X VF
    0x74B6: (80, 4),  # MI308X VF
    0x74B9: (304, 8),  # MI325X VF
    0x74BD: (304, 8),  # MI300X HF VF
    0x75A0: (256, 8),  # MI350X
    0x75A3: (256, 8),  # MI355X
    0x75B0: (256, 8),  # MI350X VF
    0x75B3: (256, 8),  # MI355X VF
}
_NO_SIZE = (None, None)


def target(device_id: int) -> str | None:
    """Returns the compile target of a chip without a table of its cores, or None."""
    return _TARGETS.get(device_id)


def compute_units(device_id: int) -> int | None:
    """Returns the number of compute units, or None if the id does not determine it."""
    return _SIZES.get(device_id, _NO_SIZE)[0]


def dies(device_id: int) -> int | None:
    """Returns the number of dies that compute, or None if the id does not determine it."""
    return _SIZES.get(device_id, _NO_SIZE)[1]


def family(target: str | None, device_id: int) -> str:
    """Returns the generation, by the compile target or else by the id.

    It is `unknown` if no table has it.
    """
    by_target = _BY_TARGET.get(target) if target else None
    return by_target or ids.find_device(VENDOR_ID, device_id).family


def is_integrated(target: str | None, device_id: int) -> bool | None:
    """Returns True if the GPU is part of a processor and uses the machine's memory.

    None if that is unknown. A target belongs to one chip, which is either part of a processor or
    not.
    """
    by_id = ids.find_device(VENDOR_ID, device_id).integrated
    if by_id is not None:
        return by_id
    if target in _APU_TARGETS:
        return True
    return False if target in _BY_TARGET else None


def product(device_id: int, revision: int | None) -> str | None:
    """Returns the product's name by id and revision, for boards that do not store their name."""
    by_revision = ids.Known()
    if revision is not None:
        by_revision = ids.find_revision(VENDOR_ID, device_id, revision)
    return by_revision.name or ids.find_device(VENDOR_ID, device_id).name
