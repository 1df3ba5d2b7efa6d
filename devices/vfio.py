"""GPUs that vfio-pci holds for virtual machines: the nodes that whoever runs one opens."""

from __future__ import annotations

import re

from . import drm, sysfs
from .gpu import NOT_READY, DeviceNode, NotUsable, Roots
from .pci import Function

DRIVERS = ("vfio-pci", "xe-vfio-pci", "nvgrace-gpu-vfio-pci")

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
