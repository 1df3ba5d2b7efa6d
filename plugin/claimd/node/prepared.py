"""What crosses between preparing, reporting and the disk: a prepared claim and its devices.

Nothing here depends on the boot. A device is known by its PCI address and uuid; the numbers of its
device nodes are looked up anew each time, since another boot gives them to other GPUs.
"""

from __future__ import annotations

import msgspec

from claimd.common import errors
from claimd_devices.gpu import Gpu, Inventory

DEVICE_PATIENCE = 20.0  # seconds to wait for a device that is coming up


class ClaimRef(msgspec.Struct, frozen=True):
    """A claim as the kubelet names it."""

    namespace: str
    name: str
    uid: str


class Binding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a function of the PCI bus was bound to before vfio-pci had it."""

    address: str
    driver: str = ""  # empty: none
    override: str = ""  # driver_override, empty: none
    device: str = ""  # its PCI vendor and device; empty: not known


class Passthrough(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A device that is bound to vfio-pci for this claim: what has to be undone.

    Empty until it is known, which is before the first function is touched.
    """

    boot_id: str = msgspec.field(default="", name="bootID")  # on which it was so
    functions: tuple[Binding, ...] = ()  # the GPU's own first


class PreparedDevice(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One device of a prepared claim, as its checkpoint keeps it."""

    requests: tuple[str, ...]  # of the claim, that it was allocated for; names without subrequests
    subrequests: dict[str, str] = {}  # by request, the alternative of it that was allocated
    pool: str
    device: str
    share_id: str | None = None
    consumed_capacity: dict[str, str] = {}  # of a share: how much it has of what, as quantities
    admin: bool = False  # for admin access, beside whoever else has the device
    address: str
    uuid: str | None = None
    host_cdi: str | None = None  # the device of the host's own CDI spec that comes with it
    environment: dict[str, str] = {}
    permissions: str = "rw"  # on the device nodes
    # What its container wants of NVIDIA's user space beside compute and utility.
    capabilities: tuple[str, ...] = ()
    passthrough: Passthrough | None = None
    mps: str = ""  # the folder of the MPS daemon that its containers are clients of


class PreparedClaim(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What was given to whom. The claim may have devices of other drivers, which are not here."""

    namespace: str
    name: str
    uid: str
    pod_claim_name: str | None = None  # in the pod that it was made for, if it is of a template
    reserved_for: tuple[str, ...] = ()  # such as "pods/NAME UID"
    prepared_at: str  # RFC 3339
    devices: tuple[PreparedDevice, ...] = ()

    @property
    def title(self) -> str:
        """The claim as people name it, for messages."""
        return f"{self.namespace}/{self.name}"

    @property
    def goes_with_its_pod(self) -> bool:
        """Whether Kubernetes deletes the claim when one pod has come to its end: it was made for that
        pod, and nobody else has it. One that was made for a group of pods outlives each of them.
        """
        consumers = self.reserved_for
        is_of_one_pod = len(consumers) == 1 and consumers[0].startswith("pods/")
        return self.pod_claim_name is not None and is_of_one_pod

    @property
    def has_passthrough(self) -> bool:
        """Whether a device of it is bound to vfio-pci for it."""
        return any(device.passthrough is not None for device in self.devices)

    @property
    def is_mps_client(self) -> bool:
        """Whether its containers are clients of an MPS daemon of the node."""
        return any(device.mps for device in self.devices)

    @property
    def device_names(self) -> str:
        """For messages."""
        return ", ".join(device.device for device in self.devices) or "no device of ours"


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one claim in a call of the kubelet.

    `error` is a sentence for the kubelet, or empty if the call has done its work. Then `prepared` is
    the claim that was prepared; an unprepare has none.
    """

    prepared: PreparedClaim | None = None
    error: str = ""


def gpu_of(device: PreparedDevice, inventory: Inventory) -> Gpu:
    """The GPU that was given, as it is now.

    Raises NotReadyError if it is not there, which may pass, and ClaimError if another GPU stands in
    its place: whoever was given the old one must not get the new one without having asked for it.
    """
    gpu = inventory.named(device.device)
    if gpu is None:
        raise errors.NotReadyError(
            reason_missing(device.device, inventory), patience=DEVICE_PATIENCE
        )
    if device.uuid and gpu.uuid and device.uuid != gpu.uuid:
        raise errors.ClaimError(
            f"{device.device} at {gpu.address} is another GPU than the one this claim was given: "
            f"uuid {device.uuid} was recorded, {gpu.uuid} is there now; "
            "delete the pod to have it allocated anew"
        )
    return gpu


def reason_missing(name: str, inventory: Inventory) -> str:
    """A sentence about a device that is not in the inventory: why, and what tells more."""
    # gpu-0000-41-00-0, and for a part of that GPU something behind it.
    parts = name.removeprefix("gpu-").split("-")
    address = f"{':'.join(parts[:3])}.{parts[3]}" if len(parts) > 3 else name

    reason = "the kernel shows no such GPU"
    for skipped in inventory.skipped:
        if skipped.address == address:
            reason = skipped.reason
            break
    return f"{name} is not available on this node: {reason}; `claimd devices -o wide` tells more"
