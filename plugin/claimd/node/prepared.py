"""A prepared claim and its devices: the types that prepare, report and the disk share.

No field depends on the boot. A device is identified by its PCI address and uuid. The numbers of its
device nodes are looked up each time, since another boot may give the same numbers to other GPUs.
"""

from __future__ import annotations

import msgspec

from claimd.common import errors
from claimd_devices.gpu import Gpu, Inventory

# Seconds to wait for a device whose driver is coming up.
DEVICE_PATIENCE = 20.0


class ClaimRef(msgspec.Struct, frozen=True):
    """The names by which the kubelet refers to a claim."""

    namespace: str
    name: str
    uid: str


class Binding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The driver of one PCI function before it was bound to vfio-pci."""

    address: str
    # Empty if no driver was bound; rebind.KERNELS_CHOICE if it is not known.
    driver: str = ""
    override: str = ""  # the content of driver_override, empty if it was not set
    device: str = ""  # PCI vendor and device id, empty if not known


class Passthrough(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The changes that must be undone when a claim gives back a device bound to vfio-pci.

    The fields are empty at first. They are filled in before the first function is touched.
    """

    boot_id: str = msgspec.field(default="", name="bootID")  # the boot in which this was true
    functions: tuple[Binding, ...] = ()  # the function of the GPU itself comes first

    # True if the checkpoint with the former drivers was lost.
    is_rebuilt: bool = False


class AllocatedDevice(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True
):
    """One device of a claim, as the scheduler has allocated it."""

    # The names of the claim's requests that the device was allocated for, without subrequests.
    requests: tuple[str, ...]

    # For a request with alternatives, by its name: the subrequest that was allocated.
    subrequests: dict[str, str] = {}

    pool: str
    device: str

    # The id of a share, and the quantity that the share has of each capacity.
    share_id: str | None = None
    consumed_capacity: dict[str, str] = {}

    # True for admin access, which does not exclude other users of the device.
    admin: bool = False

    # True if the scheduler waits for the device to be prepared before it binds the pod.
    is_awaited: bool = False


class PreparedDevice(
    AllocatedDevice, frozen=True, kw_only=True, rename="camel", omit_defaults=True
):
    """One device of a prepared claim, as its checkpoint keeps it."""

    address: str
    uuid: str | None = None

    # The device of the host's own CDI spec that containers get together with ours.
    host_cdi: str | None = None

    environment: dict[str, str] = {}
    permissions: str = "rw"  # on the device nodes

    # The parts of NVIDIA's user space that containers need in addition to compute and utility.
    capabilities: tuple[str, ...] = ()

    passthrough: Passthrough | None = None

    # The folder of the MPS daemon whose clients the containers are; empty without a daemon.
    mps: str = ""


class PreparedClaim(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A prepared claim with our devices. The claim may also have devices of other drivers."""

    namespace: str
    name: str
    uid: str

    # The claim's name in its pod, if the claim was created from a template.
    pod_claim_name: str | None = None

    # The consumers, such as "pods/NAME UID".
    reserved_for: tuple[str, ...] = ()

    prepared_at: str  # in RFC 3339
    devices: tuple[PreparedDevice, ...] = ()

    # True for a claim that was prepared before its pod was bound, until the kubelet asks for it.
    is_early: bool = False

    @property
    def title(self) -> str:
        """The claim's namespace and name, for messages."""
        return f"{self.namespace}/{self.name}"

    @property
    def goes_with_its_pod(self) -> bool:
        """True if Kubernetes deletes the claim together with its pod.

        That holds for a claim that was created from a template for one pod and has no other
        consumer. A claim that was created for a group of pods outlives each of them.
        """
        consumers = self.reserved_for
        is_of_one_pod = len(consumers) == 1 and consumers[0].startswith("pods/")
        return self.pod_claim_name is not None and is_of_one_pod

    @property
    def has_passthrough(self) -> bool:
        """True if a device is bound to vfio-pci for this claim."""
        return any(device.passthrough is not None for device in self.devices)

    @property
    def is_mps_client(self) -> bool:
        """True if the claim's containers are clients of an MPS daemon of the node."""
        return any(device.mps for device in self.devices)

    @property
    def device_names(self) -> str:
        """The names of the devices, for messages."""
        return ", ".join(device.device for device in self.devices) or "no device of ours"


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The result for one claim in a call of the kubelet.

    `error` is a sentence for the kubelet. It is empty if the call has done its work. Then
    `prepared` is the prepared claim; an unprepare has none.
    """

    prepared: PreparedClaim | None = None
    error: str = ""


def gpu_of(device: PreparedDevice, inventory: Inventory) -> Gpu:
    """Returns the GPU of a prepared device, as it is now.

    Raises NotReadyError if the GPU is not there, which may pass. Raises ClaimError if another GPU
    is in its place: a pod must not get that one without a new allocation.
    """
    gpu = inventory.find_gpu(device.device)
    if gpu is None:
        raise errors.NotReadyError(
            reason_missing(device.device, inventory), patience=DEVICE_PATIENCE
        )
    if device.uuid and gpu.uuid and device.uuid != gpu.uuid:
        raise errors.ClaimError(
            f"{device.device} at {gpu.address} is another GPU than the one this claim was given: "
            f"uuid {device.uuid} was recorded, {gpu.uuid} is there now; "
            "delete the pod to have it allocated again"
        )
    return gpu


def reason_missing(name: str, inventory: Inventory) -> str:
    """Returns a sentence that says why a device is not in the inventory, and where to look."""
    # A device is named gpu-0000-41-00-0 after its PCI address. A part of a GPU adds a suffix.
    parts = name.removeprefix("gpu-").split("-")
    address = f"{':'.join(parts[:3])}.{parts[3]}" if len(parts) > 3 else name

    reason = "the kernel shows no such GPU"
    for skipped in inventory.skipped:
        if skipped.address == address:
            reason = skipped.reason
    return f"{name} is not available on this node: {reason}; `claimd devices -o wide` tells more"
