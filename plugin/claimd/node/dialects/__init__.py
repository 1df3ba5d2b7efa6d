"""Devices and configurations in the words of a vendor's own DRA driver, whose place claimd can take.

A driver's name says whose words are meant: there is one module for each, which is loaded where that
name is used and nowhere else. What claimd does itself must not go there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from claimd.kubernetes.api.resource import DeviceAttribute, DeviceCapacity
from claimd_devices.gpu import Gpu, Inventory

# A device has 32 attributes and capacities at most. What of ours no vendor has ever had goes.
_MAKES_ROOM = {"console", "integrated", "libraries", "linkSpeed", "linkWidth", "placement", "vbios"}


class Dialect(Protocol):
    """What the module of a vendor has."""

    @property
    def VENDOR(self) -> str:
        """Whose GPUs alone it can speak of."""

    @property
    def attributes(
        self,
    ) -> Callable[[Mapping[str, DeviceAttribute], Gpu, Gpu | None], dict[str, DeviceAttribute]]:
        """The attributes of a device, of the GPU and, for a part, the whole that it is one of.

        Those that claimd publishes are there already. Pure; no value is guessed.
        """

    @property
    def capacities(
        self,
    ) -> Callable[[Mapping[str, DeviceCapacity], Gpu], dict[str, DeviceCapacity]]:
        """The same of the capacities."""

    @property
    def check_config(self) -> Callable[[Mapping[str, object]], None]:
        """Takes an opaque configuration of the vendor's that asks for nothing we would have to do.

        ClaimError for every other one, with the reason.
        """


def of_driver(name: str) -> Dialect | None:
    """Whose words a driver of this name speaks; None where they are our own."""
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
    """What claimd publishes of the GPU in a vendor's words, without what makes room for them."""
    whole = inventory.find_gpu(gpu.parent) if gpu.parent else None
    kept = {name: value for name, value in published.items() if name not in _MAKES_ROOM}
    return dialect.attributes(kept, gpu, whole)
