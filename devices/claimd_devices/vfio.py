"""GPUs for virtual machines: the nodes of one that vfio-pci holds, and what would go with it."""

from __future__ import annotations

import os.path
import re

from . import drm, pci, sysfs
from .gpu import NOT_READY, DeviceNode, NotUsable, Roots
from .pci import Function

DRIVER = "vfio-pci"

# The kernel names Grace's driver after its module, with underscores.
DRIVERS = (DRIVER, "xe-vfio-pci", "nvgrace_gpu_vfio_pci", "nvgrace-gpu-vfio-pci")

# Drivers that stand in nobody's way: what they have, nobody uses.
_IDLE = ("", "pci-stub", *DRIVERS)
_BRIDGE = 0x06

# Class and subclass of what stands on a GPU's card beside it: sound of its screens, USB and UCSI of
# its USB-C port.
_SOUND, _USB, _SERIAL_BUS = 0x0403, 0x0C03, 0x0C80
_DEVICE = re.compile(r"vfio[0-9]+")


def nodes(roots: Roots, function: Function, notes: list[str]) -> tuple[DeviceNode, ...]:
    """Those of the group's interface, and those of iommufd where the kernel has it: a virtual
    machine takes either. NotUsable if neither is whole.
    """
    classes = f"{roots.sys}/class"
    group = f"/dev/vfio/{function.iommu_group}"
    container, iommufd = "/dev/vfio/vfio", "/dev/iommu"
    folder_of = {
        group: f"{classes}/vfio/{function.iommu_group}",
        container: f"{classes}/misc/vfio",
        iommufd: f"{classes}/misc/iommu",
    }
    for name in sysfs.names(f"{function.folder}/vfio-dev", notes) or ():
        if _DEVICE.fullmatch(name):
            folder_of[f"/dev/vfio/devices/{name}"] = f"{function.folder}/vfio-dev/{name}"

    found = []
    for path, folder in folder_of.items():
        numbers = drm.device_numbers(f"{folder}/dev", notes)
        if numbers is not None:
            found.append(DeviceNode(path=path, major=numbers[0], minor=numbers[1]))

    paths = {node.path for node in found}
    has_group = {group, container} <= paths
    has_iommufd = iommufd in paths and any("/devices/" in path for path in paths)
    if not has_group and not has_iommufd:
        raise NotUsable(f"{NOT_READY}the kernel has made no nodes for it in /dev/vfio")
    return tuple(sorted(found))


def check_loaded(roots: Roots) -> None:
    """NotUsable if the kernel has no vfio-pci to give a GPU to."""
    if not sysfs.is_folder(f"{roots.sys}/bus/pci/drivers/{DRIVER}"):
        raise NotUsable(
            f"it is for virtual machines, and {DRIVER} is not loaded: run `modprobe {DRIVER}` on "
            "the node, and name it in /etc/modules-load.d"
        )


def functions_of_group(roots: Roots, address: str) -> tuple[str, ...]:
    """The functions that are given away with this one, which comes first: those of its slot, such
    as the one that makes a screen's sound, as far as they are in its IOMMU group.

    NotUsable if the group has another device that a driver uses: a virtual machine takes all of it.
    So is one of its slot that is no part of a GPU's card, as a board's chip may have them, or that
    has a disk or the network. Bridges do not count.
    """
    together = [address]
    bus = f"{roots.sys}/bus/pci/devices"
    group = f"{bus}/{address}/iommu_group"
    for other in sysfs.names(f"{group}/devices", []) or ():
        class_code = sysfs.hexadecimal(f"{bus}/{other}/class", [])
        if other == address or (class_code is not None and class_code >> 16 == _BRIDGE):
            continue
        driver = driver_of(roots, other)
        is_near = pci.slot(other) == pci.slot(address)
        is_part = is_near and _is_of_a_card(f"{bus}/{other}", (class_code or 0) >> 8)
        if driver not in _IDLE and not is_part:
            number = os.path.basename(sysfs.link(group, []) or "")
            raise NotUsable(
                f"it shares IOMMU group {number} with {other}, which the driver {driver} uses: "
                "a virtual machine would take both"
            )
        if is_near:
            together.append(other)
    return tuple(together)


def _is_of_a_card(folder: str, kind: int) -> bool:
    """Whether a function of this class and subclass goes with the GPU, whatever driver has it."""
    if kind == _USB:
        return not _has_disk_or_network(folder)
    return kind in (_SOUND, _SERIAL_BUS)


def _has_disk_or_network(folder: str) -> bool:
    """Whether a device below this one, on a USB port, is one that the node may need."""
    for name in sysfs.names(folder, []) or ():
        path = f"{folder}/{name}"
        if os.path.islink(path) or not os.path.isdir(path):
            continue
        if name in ("block", "net") or _has_disk_or_network(path):
            return True
    return False


def driver_of(roots: Roots, address: str) -> str:
    """The driver that a function is bound to; empty if there is none."""
    link = sysfs.link(f"{roots.sys}/bus/pci/devices/{address}/driver", [])
    return os.path.basename(link) if link else ""
