"""Devices and configurations in the words of a vendor's own DRA driver, whose place claimd can take.

A driver's name says whose words are meant: there is one module for each, which is loaded where that
name is used and nowhere else. What claimd does itself must not go there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from devices.gpu import Gpu

from ..api.resource import DeviceAttribute, DeviceCapacity

NOT_KNOWN = "0.0.0"  # of a version, as everywhere: below every other


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
    return None
