"""Dialects: devices and configurations in the terms of a vendor's own DRA driver.

claimd can replace such a driver under the same driver name. The name selects the dialect. Each
dialect is a module, which is loaded only if its name is used. Features of claimd itself must not be
in a dialect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from claimd.kubernetes.api.resource import DeviceAttribute, DeviceCapacity
from claimd_devices.gpu import Gpu, Inventory

# A device has at most 32 attributes and capacities. These attributes of ours make room, since no
# vendor's driver has ever had them.
_MAKES_ROOM = {
    "console",
    "ecc",
    "fabricPosition",
    "fabricSize",
    "fabricState",
    "gpuDirect",
    "integrated",
    "kernelModule",
    "libraries",
    "linkSpeed",
    "linkWidth",
    "placement",
    "powerCap",
    "retiredPages",
    "sriovVFs",
    "vbios",
}

_OF_NVIDIA = {"cudaComputeCapability", "cudaDriverVersion"}


class Dialect(Protocol):
    """The contents of a dialect's module."""

    @property
    def VENDOR(self) -> str:
        """The vendor whose GPUs this dialect describes."""

    @property
    def attributes(
        self,
    ) -> Callable[[Mapping[str, DeviceAttribute], Gpu, Gpu | None], dict[str, DeviceAttribute]]:
        """A function that adds the vendor's attributes to those that claimd publishes.

        It gets the GPU, and for a part the whole GPU. It is pure, and guesses no value.
        """

    @property
    def capacities(
        self,
    ) -> Callable[[Mapping[str, DeviceCapacity], Gpu], dict[str, DeviceCapacity]]:
        """A function that adds the vendor's capacities to those that claimd publishes."""

    @property
    def check_config(self) -> Callable[[Mapping[str, object]], None]:
        """A function that accepts those opaque configurations that require no action of ours.

        It raises ClaimError with the reason for all others.
        """


def of_driver(name: str) -> Dialect | None:
    """Returns the dialect of a driver with this name; None if it is claimd's own language."""
    if name == "gpu.nvidia.com":
        from . import nvidia

        return nvidia
    if name == "gpu.amd.com":
        from . import amd

        return amd
    if name == "gpu.intel.com":
        from . import intel

        return intel
    return None


def attributes(
    dialect: Dialect, published: Mapping[str, DeviceAttribute], gpu: Gpu, inventory: Inventory
) -> dict[str, DeviceAttribute]:
    """Returns a GPU's attributes in the vendor's terms."""
    whole = inventory.find_gpu(gpu.parent) if gpu.parent else None
    unwanted = _MAKES_ROOM if gpu.vendor == "nvidia" else _MAKES_ROOM | _OF_NVIDIA
    kept = {name: value for name, value in published.items() if name not in unwanted}
    return dialect.attributes(kept, gpu, whole)
