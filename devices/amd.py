"""AMD GPUs by what amdgpu and KFD say in sysfs. Partitions are not told apart yet."""

from __future__ import annotations

import re

from . import drm, sysfs
from .gpu import Detail, DeviceNode, Roots
from .pci import Function

NAME = "amd"
VENDOR_ID = 0x1002
DRIVERS = ("amdgpu",)

_UNIQUE_ID = re.compile(r"[0-9a-f]{16}")


def describe(roots: Roots, function: Function) -> Detail:
    nodes = drm.card_and_render(function.folder)
    notes: list[str] = []
    memory = sysfs.decimal(f"{function.folder}/mem_info_vram_total", notes)
    return Detail(
        nodes=nodes + _compute_node(roots, notes),
        # The module of the kernel's own tree has no version.
        driver_version=sysfs.text(f"{roots.sys}/module/amdgpu/version", notes),
        product=sysfs.text(f"{function.folder}/product_name", notes),
        uuid=_unique_id(f"{function.folder}/unique_id", notes),
        memory=memory if memory and memory > 0 else None,
        notes=tuple(notes),
    )


def _compute_node(roots: Roots, notes: list[str]) -> tuple[DeviceNode, ...]:
    """/dev/kfd is one for all GPUs. It is there before any of them, since the module makes it first."""
    path = f"{roots.sys}/class/kfd/kfd/dev"
    before = len(notes)
    numbers = drm.device_numbers(path, notes)
    if numbers is None:
        reason = "" if len(notes) > before else f" ({path}: missing)"
        notes.append(f"no /dev/kfd: ROCm will not work{reason}")
        return ()
    return (DeviceNode(path="/dev/kfd", major=numbers[0], minor=numbers[1]),)


def _unique_id(path: str, notes: list[str]) -> str | None:
    value = sysfs.text(path, notes)
    if value is None:
        return None
    if _UNIQUE_ID.fullmatch(value) and value.strip("0"):
        return value
    notes.append(f"{path}: {value[:40]!r} is not a unique id")
    return None
