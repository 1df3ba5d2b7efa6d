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
    machine takes either.
    """
    classes = f"{roots.sys}/class"
    places = {
        f"/dev/vfio/{function.iommu_group}": f"{classes}/vfio/{function.iommu_group}",
        "/dev/vfio/vfio": f"{classes}/misc/vfio",
        "/dev/iommu": f"{classes}/misc/iommu",
    }
    for name in sysfs.names(f"{function.folder}/vfio-dev", notes) or ():
        if _DEVICE.fullmatch(name):
            places[f"/dev/vfio/devices/{name}"] = f"{function.folder}/vfio-dev/{name}"
    found = []
    for path, place in places.items():
        numbers = drm.device_numbers(f"{place}/dev", notes)
        if numbers is not None:
            found.append(DeviceNode(path=path, major=numbers[0], minor=numbers[1]))
    paths = {node.path for node in found}
    grouped = {f"/dev/vfio/{function.iommu_group}", "/dev/vfio/vfio"} <= paths
    if not grouped and not ("/dev/iommu" in paths and any("/devices/" in path for path in paths)):
        raise NotUsable(f"{NOT_READY}the kernel has made no nodes for it in /dev/vfio")
    return tuple(sorted(found))
