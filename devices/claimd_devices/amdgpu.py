"""Reads a chip and the nodes of its partitions from amdgpu's own files in sysfs.

KFD shows more, but fails with EPERM for GPUs that the device cgroup of the reader does not allow,
as in an unprivileged pod. The partition mode is read in `amd`, and KFD's files in `kfd`.
"""

from __future__ import annotations

import re

from . import drm, sysfs, values
from .gpu import NOT_READY, DeviceNode, NotUsable, Roots, Setup
from .pci import Function

_RENDER = re.compile(r"renderD([0-9]{1,7})")

# The platform devices of partitions. Older kernels have a dot before the number.
_PARTITION = re.compile(r"/platform/amdgpu_xcp[_.]([0-9]{1,4})/")

_MOST_PARTITIONS = 8
_VERSION = ("major", "minor", "revision")

# The compile target by the version of the graphics core.
_TARGETS = {
    "9.0.1": "gfx900", "9.1.0": "gfx902", "9.2.1": "gfx904", "9.2.2": "gfx902", "9.3.0": "gfx90c",
    "9.4.0": "gfx906", "9.4.1": "gfx908", "9.4.2": "gfx90a", "9.4.3": "gfx942", "9.4.4": "gfx942",
    "9.5.0": "gfx950",
    "10.1.1": "gfx1012", "10.1.2": "gfx1011", "10.1.3": "gfx1013", "10.1.4": "gfx1013",
    "10.1.10": "gfx1010", "10.3.0": "gfx1030", "10.3.1": "gfx1033", "10.3.2": "gfx1031",
    "10.3.3": "gfx1035", "10.3.4": "gfx1032", "10.3.5": "gfx1034", "10.3.6": "gfx1036",
    "10.3.7": "gfx1036",
    "11.0.0": "gfx1100", "11.0.1": "gfx1103", "11.0.2": "gfx1102", "11.0.3": "gfx1101",
    "11.0.4": "gfx1103", "11.5.0": "gfx1150", "11.5.1": "gfx1151", "11.5.2": "gfx1152",
    "11.5.3": "gfx1153", "12.0.0": "gfx1200", "12.0.1": "gfx1201",
}  # fmt: skip


# ---------------------------------------------------------------- the chip


@values.dataclass(frozen=True, slots=True, kw_only=True)
class Cores:
    """The graphics cores of a GPU, from the table in its firmware."""

    target: str | None = None  # the compile target: gfx942
    dies: int | None = None  # that compute; more than one only in Instinct GPUs


def cores(folder: str, notes: list[str]) -> Cores:
    """Reads the folder ip_discovery of a GPU. Older chips do not have it; then all is unknown."""
    discovery = f"{folder}/ip_discovery/die"
    versions = set()
    dies = 0
    for die in sysfs.names(discovery, notes) or ():
        for instance in sysfs.names(f"{discovery}/{die}/GC", notes) or ():
            place = f"{discovery}/{die}/GC/{instance}"
            if _is_harvested(f"{place}/harvest", notes):
                continue
            dies += 1
            numbers = [sysfs.decimal(f"{place}/{name}", notes) for name in _VERSION]
            versions.add(".".join(str(number) for number in numbers))

    # All cores of a chip are alike.
    target = _TARGETS.get(versions.pop()) if len(versions) == 1 else None
    return Cores(target=target, dies=dies or None)


def _is_harvested(path: str, notes: list[str]) -> bool:
    """Returns True if the maker has turned the core off. Older kernels do not list such cores."""
    value = sysfs.hexadecimal(path, notes)
    return value is not None and value != 0


# ---------------------------------------------------------------- the setup

_MICROWATTS = 1_000_000

# The page, its size, and its state: reserved, pending, or failed.
_BAD_PAGE = re.compile(rb"0x[0-9a-f]{1,16} : 0x[0-9a-f]{1,16} : [RPF]")


def setup(function: Function, notes: list[str]) -> Setup | None:
    """Returns how the board is set up: error correction, pages that are no longer used, power.

    None for a virtual function. The driver makes files about the errors of the memory only where
    correction is on; their absence says nothing, because small GPUs have none.
    """
    if function.physical is not None:
        return None
    has_ecc = sysfs.is_file(f"{function.folder}/ras/umc_err_count", notes)
    pages = None
    if has_ecc:
        content = sysfs.content(f"{function.folder}/ras/gpu_vram_bad_pages", notes)
        if content is not None:
            pages = _count_pages(content, notes)
    return Setup(
        ecc=has_ecc or None,
        retired_pages=pages,
        power_cap=_power_cap(function, notes),
    )


def _count_pages(content: bytes, notes: list[str]) -> int | None:
    """Counts the pages in a list of the driver, one a line. None if it is no such list."""
    lines = [line for line in content.splitlines() if line.strip()]
    if all(_BAD_PAGE.fullmatch(line.strip()) for line in lines):
        return len(lines)
    notes.append("gpu_vram_bad_pages is no list of pages")
    return None


def _power_cap(function: Function, notes: list[str]) -> int | None:
    """Returns the limit of the board's power in watts. A sleeping GPU is not asked: it would wake."""
    if function.link.is_asleep:
        return None
    for monitor in sysfs.names(f"{function.folder}/hwmon", notes) or ():
        value = sysfs.decimal(f"{function.folder}/hwmon/{monitor}/power1_cap", notes)
        if value is not None and value > 0:
            return value // _MICROWATTS
    return None


# ---------------------------------------------------------------- the partitions


def partition_nodes(
    roots: Roots, function: Function, own: tuple[DeviceNode, ...], count: int
) -> list[DeviceNode]:
    """Returns the render nodes of the first `count` partitions, in their order.

    The first partition has the function's own node, which is in `own`. The others have nodes of
    platform devices. Raises NotUsable if it is uncertain which nodes belong to the GPU.
    """
    first = _render_node(own)
    devices = _devices_behind(roots, function, first)
    if len(devices) < count - 1:
        raise NotUsable(
            f"{NOT_READY}it is divided into {count} partitions, but {len(devices)} devices of "
            f"amdgpu_xcp come after {first.path.rpartition('/')[2]}"
        )

    # The numbers have gaps, or there are too many devices, if the drivers of several GPUs were
    # bound at the same time. Then the order does not tell the owners.
    numbers = [device.number for device in devices]
    gapless = list(range(numbers[0], numbers[0] + len(numbers)))
    if numbers != gapless or len(numbers) >= _MOST_PARTITIONS:
        raise NotUsable(
            "which devices of amdgpu_xcp are its partitions is not certain: the driver has not "
            "taken up the GPUs one after the other, and KFD's files cannot be read"
        )
    return [first, *(_checked_node(roots, device) for device in devices[: count - 1])]


def can_be_divided(roots: Roots, function: Function, own: tuple[DeviceNode, ...]) -> bool:
    """Returns True if the driver has made devices for partitions, even if the GPU is whole now."""
    return bool(_devices_behind(roots, function, _render_node(own)))


@values.dataclass(frozen=True, slots=True, kw_only=True)
class _Device:
    """A render node, by its link in /sys/class/drm."""

    minor: int
    number: int  # of a partition's platform device; -1 for other render nodes


def _render_node(own: tuple[DeviceNode, ...]) -> DeviceNode:
    return next(node for node in own if "/renderD" in node.path)


def _devices_behind(roots: Roots, function: Function, first: DeviceNode) -> list[_Device]:
    """Returns the platform devices that the driver made for partitions of this GPU, in their order.

    The driver makes the same number for each GPU, whatever its partition mode, right after the
    GPU's own node. No file tells the owner of a platform device. The order of the nodes does, if
    the driver has initialized one GPU after the other.
    """
    listed = function.cache.read_once(
        "amdgpu_xcp", lambda notes: _list_render_devices(roots, notes), []
    )
    behind: list[_Device] = []
    is_behind = False
    for device in listed:
        if device.number >= 0 and is_behind:
            behind.append(device)
        elif device.number < 0:
            is_behind = device.minor == first.minor
    return behind


def _list_render_devices(roots: Roots, notes: list[str]) -> list[_Device]:
    """Returns all render nodes of the machine, sorted by minor number."""
    folder = f"{roots.sys}/class/drm"
    found = []
    # A missing or unreadable folder or link leaves devices out. Then `partition_nodes` finds too
    # few of them and raises NotUsable.
    for name in sysfs.names(folder, notes) or ():
        match = _RENDER.fullmatch(name)
        if match is None:
            continue
        partition = _PARTITION.search(sysfs.link(f"{folder}/{name}", notes) or "")
        number = int(partition[1]) if partition else -1
        found.append(_Device(minor=int(match[1]), number=number))
    return sorted(found, key=lambda device: device.minor)


def _checked_node(roots: Roots, device: _Device) -> DeviceNode:
    """Returns the node of a device.

    Raises NotUsable if its numbers are unreadable or unexpected.
    """
    name = f"renderD{device.minor}"
    path = f"{roots.sys}/class/drm/{name}/dev"
    trouble: list[str] = []
    numbers = drm.device_numbers(path, trouble)
    if trouble:
        raise NotUsable("; ".join(trouble), is_unread=True)
    if numbers != (drm.MAJOR, device.minor):
        raise NotUsable(f"{path}: not the numbers of {name}")
    return DeviceNode(path=f"/dev/dri/{name}", major=drm.MAJOR, minor=device.minor)
