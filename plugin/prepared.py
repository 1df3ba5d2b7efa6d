"""What crosses between preparing, reporting and the disk: a prepared claim, and the GPU that stands
behind its device.

Nothing here depends on the boot: a device is known by its PCI address and uuid, its numbers are
looked up anew.
"""

from __future__ import annotations

import msgspec

from devices.gpu import Gpu, Inventory

from . import errors

DEVICE_PATIENCE = 20.0  # seconds to wait for a device that is coming up


class PreparedDevice(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One device of a prepared claim. PCI address and uuid are its identity; what depends on the
    boot is not here.
    """

    requests: tuple[str, ...]
    pool: str
    device: str
    share_id: str | None = None
    admin: bool = False
    address: str
    uuid: str | None = None
    host_cdi: str | None = None  # the device of the host's own CDI spec that comes with it
    environment: dict[str, str] = {}
    permissions: str = "rw"


class PreparedClaim(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What was given to whom."""

    namespace: str
    name: str
    uid: str
    reserved_for: tuple[str, ...] = ()
    prepared_at: str
    devices: tuple[PreparedDevice, ...] = ()

    @property
    def title(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def device_names(self) -> str:
        """For messages."""
        return ", ".join(device.device for device in self.devices) or "no device of ours"


def gpu_of(device: PreparedDevice, inventory: Inventory) -> Gpu:
    """The GPU that was given, as it is now; refused if it is gone or another one stands in its
    place.
    """
    gpu = inventory.named(device.device)
    if gpu is None:
        raise errors.NotReadyError(why_missing(device.device, inventory), patience=DEVICE_PATIENCE)
    if device.uuid and gpu.uuid and device.uuid != gpu.uuid:
        raise errors.ClaimError(
            f"{device.device} at {gpu.address} is another GPU than the one this claim was given: "
            f"uuid {device.uuid} was recorded, {gpu.uuid} is there now; delete the pod to have it allocated anew"
        )
    return gpu


def why_missing(name: str, inventory: Inventory) -> str:
    parts = name.removeprefix("gpu-").split(
        "-"
    )  # those of a partition have its own name behind the address
    address = f"{':'.join(parts[:3])}.{parts[3]}" if len(parts) > 3 else name
    why = next(
        (s.reason for s in inventory.skipped if s.address == address),
        "the kernel shows no such GPU",
    )
    return f"{name} is not available on this node: {why}; `claimd devices -o wide` tells more"
