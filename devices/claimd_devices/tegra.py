"""Finds the GPU inside a Jetson's processor, which has NVIDIA's driver nvgpu and is not on the PCI bus.

claimd leaves it alone and says so. A container needs dozens of nodes and libraries for it, which
differ between releases, and only lists of NVIDIA's own name them. A Jetson Thor is another case:
its GPU is on the PCI bus and has the driver of other GPUs.
"""

from __future__ import annotations

import re

from . import sysfs
from .gpu import Roots, Skipped

# The name that nvgpu has among the drivers of platform devices, since the Tegra K1.
_DRIVER = "bus/platform/drivers/gk20a"
_DEVICE = re.compile(r"[0-9a-f]{4,12}\.[a-z0-9_-]{1,32}")  # 17000000.gpu


def skipped(roots: Roots) -> list[Skipped]:
    """Returns the GPUs of this kind, with the reason why claimd does not publish them."""
    names = sysfs.names(f"{roots.sys}/{_DRIVER}", []) or ()
    reason = (
        "the GPU of a Jetson's processor (driver nvgpu), which is not on the PCI bus: the nodes and "
        "libraries that a container needs are known to NVIDIA's container toolkit alone; NVIDIA's "
        "device plugin can offer it"
    )
    return [Skipped(address=name, reason=reason) for name in names if _DEVICE.fullmatch(name)]
