"""GPUs for virtual machines: device nodes under vfio-pci, and functions that belong together."""

from __future__ import annotations

import os.path
import re
from collections.abc import Sequence

from . import drm, pci, sysfs, vfio_aliases
from .gpu import NOT_READY, DeviceNode, NotUsable, Roots
from .pci import Function
from .vfio_aliases import Alias

DRIVER = "vfio-pci"

# Besides vfio-pci and its variants: drivers whose devices are not in use on the node, so that they
# may be given away.
_IDLE = ("", "pci-stub")
_BRIDGE = 0x06

# PCI class and subclass of the other functions on a GPU's card: the sound of its screens, and USB
# and UCSI of its USB-C port.
_SOUND, _USB, _SERIAL_BUS = 0x0403, 0x0C03, 0x0C80
_DEVICE = re.compile(r"vfio[0-9]+")


def nodes(roots: Roots, function: Function, notes: list[str]) -> tuple[DeviceNode, ...]:
    """Returns the nodes by which a virtual machine opens the function.

    These are the nodes of the IOMMU group, and the nodes of iommufd if the kernel has it; a virtual
    machine uses either. Raises NotUsable if neither of the two is complete.
    """
    classes = f"{roots.sys}/class"
    group = f"/dev/vfio/{function.iommu_group}"
    container, iommufd = "/dev/vfio/vfio", "/dev/iommu"
    folder_of = {
        group: f"{classes}/vfio/{function.iommu_group}",
        container: f"{classes}/misc/vfio",
        iommufd: f"{classes}/misc/iommu",
    }
    noted = len(notes)
    for name in sysfs.names(f"{function.folder}/vfio-dev", notes) or ():
        if _DEVICE.fullmatch(name):
            folder_of[f"/dev/vfio/devices/{name}"] = f"{function.folder}/vfio-dev/{name}"

    found = []
    # A node whose file is missing or unreadable is left out; the latter is noted.
    for path, folder in folder_of.items():
        numbers = drm.device_numbers(f"{folder}/dev", notes)
        if numbers is not None:
            found.append(DeviceNode(path=path, major=numbers[0], minor=numbers[1]))

    paths = {node.path for node in found}
    has_group = {group, container} <= paths
    has_iommufd = iommufd in paths and any("/devices/" in path for path in paths)
    if not has_group and not has_iommufd:
        if len(notes) > noted:
            raise NotUsable(notes[-1], is_unread=True)
        raise NotUsable(f"{NOT_READY}the kernel has made no nodes for it in /dev/vfio")
    return tuple(sorted(found))


def is_driver(name: str) -> bool:
    """Returns True for vfio-pci and its variants, such as xe-vfio-pci and nvgrace_gpu_vfio_pci.

    Some drivers have the name of their module, with underscores. Others have hyphens in its place.
    """
    plain = name.replace("_", "-")
    return plain == DRIVER or plain.endswith(f"-{DRIVER}")


def driver_for(roots: Roots, address: str, aliases: Sequence[Alias]) -> str:
    """Returns the driver that the kernel has for virtual machines with this function.

    If it is not loaded, this is the name of its module, or vfio-pci. Raises NotUsable if the
    drivers or the ids of the function cannot be read.
    """
    notes: list[str] = []
    modalias = sysfs.text(f"{roots.sys}/bus/pci/devices/{address}/modalias", notes) or ""
    if notes:
        raise NotUsable(f"its ids cannot be read: {notes[0]}", is_unread=True)
    module = vfio_aliases.module_for(modalias, aliases)
    wanted = module.replace("_", "-")
    if wanted == DRIVER:
        return DRIVER

    for name in sysfs.names(f"{roots.sys}/bus/pci/drivers", notes) or ():
        if name.replace("_", "-") == wanted:
            return name
    if notes:
        raise NotUsable(f"the drivers cannot be read: {notes[0]}", is_unread=True)
    return module


def check_loaded(roots: Roots, address: str, aliases: Sequence[Alias]) -> str:
    """Returns the loaded driver that gives this function to virtual machines.

    Raises NotUsable if it is not loaded, or if that cannot be read.
    """
    driver = driver_for(roots, address, aliases)
    notes: list[str] = []
    if sysfs.names(f"{roots.sys}/bus/pci/drivers/{driver}", notes) is None:
        if notes:
            raise NotUsable(f"the driver {driver} cannot be read: {notes[0]}", is_unread=True)
        raise NotUsable(
            f"it is for virtual machines, and {driver} is not loaded: run `modprobe {driver}` on "
            "the node, and name it in /etc/modules-load.d"
        )
    return driver


def functions_of_group(roots: Roots, address: str) -> tuple[str, ...]:
    """Returns the functions that must be given away together with this one, which comes first.

    They are the functions of the same slot and the same IOMMU group, such as the sound of a screen.
    Raises NotUsable if the group has another function that a driver uses, because a virtual machine
    takes the whole group. This includes a function of the same slot that does not belong to a GPU's
    card, or a USB controller with a disk or a network interface. Bridges do not count.
    """
    together = [address]
    bus = f"{roots.sys}/bus/pci/devices"
    group = f"{bus}/{address}/iommu_group"
    for other in _names(f"{group}/devices"):
        # A function with a missing or unreadable class is treated as no bridge and no part of a
        # card.
        class_code = sysfs.hexadecimal(f"{bus}/{other}/class", [])
        if other == address or (class_code is not None and class_code >> 16 == _BRIDGE):
            continue
        driver = driver_of(roots, other)
        is_near = pci.slot(other) == pci.slot(address)
        is_part = is_near and _is_of_a_card(f"{bus}/{other}", (class_code or 0) >> 8)
        if driver not in _IDLE and not is_driver(driver) and not is_part:
            number = os.path.basename(sysfs.link(group, []) or "")
            raise NotUsable(
                f"it shares IOMMU group {number} with {other}, which the driver {driver} uses: "
                "a virtual machine would take both"
            )
        if is_near:
            together.append(other)
    return tuple(together)


def _is_of_a_card(folder: str, kind: int) -> bool:
    """Returns True if a function of this class and subclass may be given away with the GPU."""
    if kind == _USB:
        return not _has_disk_or_network(folder)
    return kind in (_SOUND, _SERIAL_BUS)


def _has_disk_or_network(folder: str) -> bool:
    """Returns True if a USB device below this one is a disk or a network interface.

    The node may need it, so it must not be given away.
    """
    for name in _names(folder):
        path = f"{folder}/{name}"

        # Links lead to other devices.
        if not sysfs.is_folder(path, follow=False):
            continue
        if name in ("block", "net") or _has_disk_or_network(path):
            return True
    return False


def driver_of(roots: Roots, address: str) -> str:
    """Returns the name of the driver of a function; empty if it has none.

    Raises NotUsable if the link is there and is not readable.
    """
    notes: list[str] = []
    link = sysfs.link(f"{roots.sys}/bus/pci/devices/{address}/driver", notes)
    if notes:
        raise NotUsable(f"its driver cannot be read: {notes[0]}", is_unread=True)
    return os.path.basename(link) if link else ""


def _names(folder: str) -> list[str]:
    """Returns the names in a folder; empty if it is missing.

    Raises NotUsable if it is there and is not readable.
    """
    notes: list[str] = []
    names = sysfs.names(folder, notes)
    if notes:
        raise NotUsable(notes[0], is_unread=True)
    return names or []
