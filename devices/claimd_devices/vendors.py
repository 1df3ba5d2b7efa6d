"""The vendors whose GPUs claimd knows, a row each. docs/new-vendor.md tells how to add one.

A vendor's own module says all that is particular to it; what is the same for all must not go there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from . import amd, intel, nvidia
from .gpu import Detail, Roots
from .pci import Function


class Vendor(Protocol):
    """What the module of a vendor has."""

    @property
    def NAME(self) -> str:
        """What attributes, rules and device classes call it."""

    @property
    def VENDOR_ID(self) -> int:
        """Its id on the PCI bus."""

    @property
    def DRIVERS(self) -> tuple[str, ...]:
        """The kernel drivers whose GPUs it can describe."""

    @property
    def GPU_CLASSES(self) -> tuple[int, ...]:
        """The base classes of PCI that its GPUs have; what has another is something else."""

    @property
    def DEVICE_PLUGIN_RESOURCES(self) -> tuple[str, ...]:
        """How the resources begin that others hand out the same GPUs as, besides us."""

    @property
    def describe(self) -> Callable[[Roots, Function], Detail]:
        """What the kernel driver tells of one GPU that is bound to it.

        Same trees, same Detail. NotUsable with a reason for people where it is no GPU, or not now;
        whatever else it raises costs this device alone.
        """


VENDORS: tuple[Vendor, ...] = (nvidia, amd, intel)

# Display controllers that are no GPUs, by their vendor's id on the PCI bus, and what they are.
SCREENS = {
    0x1A03: "an ASPEED server management chip's screen",
    0x102B: "a Matrox server management chip's screen",
    0x1013: "a Cirrus Logic screen, of an old server or an emulated one",
    0x19E5: "a Huawei server management chip's screen",
    0x1234: "an emulated screen (QEMU, Bochs)",
    0x1AF4: "a virtual GPU (virtio)",
    0x1B36: "an emulated device (QEMU)",
    0x15AD: "a virtual GPU (VMware)",
    0x1414: "a virtual GPU (Hyper-V)",
    0x80EE: "a virtual GPU (VirtualBox)",
    0x1D0F: "a virtual screen (Amazon EC2)",
}

# Those that are something else than what most of their vendor are.
SCREENS_BY_ID = {(0x1B36, 0x0100): "a virtual GPU (QXL)"}
