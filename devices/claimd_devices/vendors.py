"""The table of vendors whose GPUs claimd knows. docs/new-vendor.md explains how to add one.

A vendor's module has everything that is specific to the vendor, and nothing that is common to all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from . import amd, intel, nvidia
from .gpu import Detail, Roots
from .pci import Function


class Vendor(Protocol):
    """The interface of a vendor's module."""

    @property
    def NAME(self) -> str:
        """The vendor's name in attributes, rules and device classes."""

    @property
    def VENDOR_ID(self) -> int:
        """The vendor's id on the PCI bus."""

    @property
    def DRIVERS(self) -> tuple[str, ...]:
        """The kernel drivers whose GPUs `describe` understands."""

    @property
    def GPU_CLASSES(self) -> tuple[int, ...]:
        """The PCI base classes of the vendor's GPUs. Functions of another class are no GPUs."""

    @property
    def DEVICE_PLUGIN_RESOURCES(self) -> tuple[str, ...]:
        """The prefixes of extended resources by which device plugins offer the same GPUs."""

    @property
    def describe(self) -> Callable[[Roots, Function], Detail]:
        """Returns what the kernel driver shows about one GPU that is bound to it.

        The same trees give the same Detail. Raises NotUsable, with a reason for people, if the
        function is no GPU, or not now. Any other exception costs only this device, except
        LookFailedError, which ends the scan.
        """


VENDORS: tuple[Vendor, ...] = (nvidia, amd, intel)

# Display controllers that are no GPUs: descriptions by PCI vendor id.
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

# Descriptions by vendor and device id, for devices that differ from most of their vendor.
SCREENS_BY_ID = {(0x1B36, 0x0100): "a virtual GPU (QXL)"}
