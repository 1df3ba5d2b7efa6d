"""Plans: decides what the containers of an allocated ResourceClaim get, or why it is refused.

This module is pure: it has no clock and does no I/O, and the same input gives the same plan in the
same order. Device numbers are never part of a plan. `cdi` builds what a container runtime needs
from the plan and the present inventory.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from claimd.common import errors, names, plain_text
from claimd.kubernetes.api import quantity
from claimd.kubernetes.api.resource import DeviceRequestAllocationResult, ResourceClaim
from claimd_devices.gpu import DIVIDED, NONE, Gpu, Inventory

from ..prepared import DEVICE_PATIENCE, Passthrough, PreparedClaim, PreparedDevice, reason_missing
from . import gpu_config

# Seconds from the beginning of a call in which the device's last claim may still be unprepared.
HOLDER_PATIENCE = 5.0

# The capacity whose total the kernel reports, so that shares of it can be checked.
MEMORY = "memory"

NVIDIA = "nvidia"

_POD_CLAIM_NAME = "resource.kubernetes.io/pod-claim-name"
_LABEL = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")
_CAPACITY = re.compile(r"(?:[-a-z0-9.]{1,63}/)?[A-Za-z_][A-Za-z0-9_]{0,31}")


class HeldError(errors.NotReadyError):
    """A device of this claim is still prepared for another claim, whose uid is `holder`."""

    def __init__(self, device: PreparedDevice, other: PreparedClaim) -> None:
        super().__init__(
            f"{device.device} is still prepared for claim {other.title} (uid {other.uid}); "
            "it is free when that claim's pods are gone and the kubelet has unprepared it",
            patience=HOLDER_PATIENCE,
        )
        self.holder = other.uid


def plan(
    claim: ResourceClaim,
    *,
    driver: str,
    pool: str,
    inventory: Inventory,
    neighbours: Iterable[PreparedClaim],
    now: str,
) -> PreparedClaim:
    """Returns the prepared claim. `neighbours` are the claims that are prepared on this node.

    Raises ClaimError with the reason if the claim cannot be prepared: it is not allocated, it is
    allocated for another node, or its configuration is not understood. Raises NotReadyError if the
    reason may pass: a device is not there, or another claim has not given it back yet.
    """
    results = _our_results(claim, driver, pool)
    configs = gpu_config.read_configs(claim, driver) if results else []

    # Several requests of the claim may have the same device. It is prepared once, with the names of
    # all these requests.
    by_device: dict[tuple[str, str | None], list[DeviceRequestAllocationResult]] = {}
    for result in results:
        by_device.setdefault((result.device, result.share_id), []).append(result)

    # `spent` counts the variables of all devices against the claim's budget.
    devices: list[PreparedDevice] = []
    spent = 0
    for shared in by_device.values():
        device = _plan_device(shared, configs, inventory)
        spent = gpu_config.spend(spent, device.environment)
        devices.append(device)
    _refuse_several_clients(devices)

    # If the claim was prepared for another allocation before, it is among the neighbours.
    others = [other for other in neighbours if other.uid != claim.metadata.uid]
    for device in devices:
        _refuse_overlap(device, others, inventory)

    consumers: list[str] = []
    for user in claim.status.reserved_for:
        consumers.append(f"{user.resource}/{user.name} {user.uid}")

    return PreparedClaim(
        namespace=claim.metadata.namespace,
        name=claim.metadata.name,
        uid=claim.metadata.uid,
        pod_claim_name=_pod_claim_name(claim),
        reserved_for=tuple(consumers),
        prepared_at=now,
        devices=tuple(devices),
    )


def refuse_without_libraries(prepared: PreparedClaim, inventory: Inventory) -> None:
    """Raises ClaimError if a GPU has no libraries of its driver that containers could get.

    A container that gets only the device nodes would start, but no program in it would find the
    GPU.
    """
    for device in prepared.devices:
        gpu = inventory.find_gpu(device.device)
        if gpu is not None and gpu.libraries is not None and gpu.libraries.how == NONE:
            raise errors.ClaimError(
                f"{device.device} has no libraries of its driver to give: {gpu.libraries.reason}; "
                "if the images bring them, set require-libraries to false",
                device=device.device,
            )


def refuse_unrecorded(
    prepared: PreparedClaim, other: PreparedClaim, inventory: Inventory, reason: str
) -> None:
    """Raises NotReadyError if another claim, without a readable checkpoint, has a device of this
    claim.

    `reason` says why we assume that the other claim has its devices.
    """
    for device in prepared.devices:
        overlap = _find_overlap(device, [other], inventory)
        if overlap is not None:
            raise errors.NotReadyError(
                f"{overlap[1].device} is not free: {reason}", patience=HOLDER_PATIENCE
            )


def refuse_taken(
    prepared: PreparedClaim, others: Iterable[PreparedClaim], inventory: Inventory
) -> None:
    """Raises HeldError if another claim with a checkpoint has a device of this one, which has one too.

    This happens if this claim's checkpoint could not be read when the other one was planned, and
    this claim had no CDI file by which its devices are known.
    """
    neighbours = [other for other in others if other.uid != prepared.uid]
    for device in prepared.devices:
        overlap = _find_overlap(device, neighbours, inventory)
        if overlap is not None:
            raise HeldError(overlap[1], overlap[0])


def is_still_allocated(
    prepared: PreparedClaim, claim: ResourceClaim, driver: str, pool: str
) -> bool:
    """Returns True if the claim still has the allocation that was prepared.

    Raises ClaimError if the claim is not allocated, or is allocated for another node.
    """
    allocated = {(result.device, result.share_id) for result in _our_results(claim, driver, pool)}
    return allocated == {(device.device, device.share_id) for device in prepared.devices}


def describe_allocated(claim: ResourceClaim, driver: str, pool: str, now: str) -> PreparedClaim:
    """Returns the claim with our devices as they are allocated, without looking at the hardware.

    The result is for a report, and no container can get its devices. Raises ClaimError as `is_still_allocated`.
    """
    devices: list[PreparedDevice] = []
    for result in _our_results(claim, driver, pool):
        devices.append(
            PreparedDevice(
                requests=(result.request,),
                pool=result.pool,
                device=result.device,
                share_id=result.share_id,
                admin=bool(result.admin_access),
                is_awaited=_is_awaited(result),
                address="",
            )
        )
    return PreparedClaim(
        namespace=claim.metadata.namespace,
        name=claim.metadata.name,
        uid=claim.metadata.uid,
        prepared_at=now,
        devices=tuple(devices),
    )


# ---------------------------------------------------------------------- what was allocated


def _our_results(
    claim: ResourceClaim, driver: str, pool: str
) -> list[DeviceRequestAllocationResult]:
    """Returns the results for our driver. Raises ClaimError if they are not for this node."""
    title = f"{claim.metadata.namespace}/{claim.metadata.name}"
    allocation = claim.status.allocation
    if allocation is None:
        raise errors.ClaimError(
            f"claim {title} is not allocated; the scheduler has to allocate it before it is used"
        )

    results = [result for result in allocation.devices.results if result.driver == driver]
    for result in results:
        if result.pool != pool:
            raise errors.ClaimError(
                f"claim {title} was given {result.device} of pool {result.pool}, "
                f"but this node's pool is {pool}; it is allocated for another node"
            )
    return results


def _pod_claim_name(claim: ResourceClaim) -> str | None:
    """Returns the claim's name in its pod, if the claim was created from a template.

    Every user who may create claims may write this annotation, and its value becomes part of a
    path. So a value that is not a label is ignored.
    """
    name = claim.metadata.annotations.get(_POD_CLAIM_NAME, "")
    return name if _LABEL.fullmatch(name) else None


def _plan_device(
    results: list[DeviceRequestAllocationResult],
    configs: list[gpu_config.SourcedConfig],
    inventory: Inventory,
) -> PreparedDevice:
    """Returns the device of these results. All of them name the same device and the same share."""
    first = results[0]

    # The GPU must be there, and in a state in which it can be given to a container.
    gpu = inventory.find_gpu(first.device)
    if gpu is None:
        raise errors.NotReadyError(
            reason_missing(first.device, inventory), patience=DEVICE_PATIENCE
        )

    admin = all(result.admin_access for result in results)
    if gpu.kind == DIVIDED and not admin:
        raise errors.ClaimError(_reason_divided(gpu, inventory))
    if gpu.is_bound_on_demand and admin and not gpu.nodes:
        raise errors.ClaimError(
            f"{gpu.name} is bound to vfio-pci for the claim that is given it; admin access "
            "sees a GPU only when such a claim has it"
        )

    # The configuration of the classes and the claim must suit this GPU.
    requests = [result.request for result in results]
    config = gpu_config.merge_configs(configs, requests, dict(gpu.environment))
    if config.mps and gpu.vendor != NVIDIA:
        raise errors.ClaimError(
            f"the class makes containers clients of an MPS daemon, which NVIDIA's GPUs alone have; "
            f"{gpu.name} is of {gpu.vendor}"
        )

    subrequests = _split_requests(requests, first.device)

    # The share id becomes part of the CDI device's name, and of the names of variables.
    if first.share_id is not None and not _LABEL.fullmatch(first.share_id):
        raise errors.ClaimError(
            f"{first.device} is allocated as share {plain_text.brief(first.share_id)!r}, "
            "which is no id that Kubernetes gives"
        )

    return PreparedDevice(
        requests=tuple(subrequests),
        subrequests={name: chosen for name, chosen in subrequests.items() if chosen},
        pool=first.pool,
        device=first.device,
        share_id=first.share_id,
        consumed_capacity=_consumed_capacity(first),
        admin=admin,
        address=gpu.address,
        uuid=gpu.uuid,
        host_cdi=next(iter(gpu.libraries.host_cdi), None) if gpu.libraries else None,
        environment=dict(sorted(config.environment.items())),
        permissions=config.permissions,
        capabilities=tuple(sorted(config.capabilities)),
        is_awaited=any(_is_awaited(result) for result in results),
        passthrough=Passthrough() if gpu.is_bound_on_demand and not admin else None,
        mps="" if admin else config.mps,
    )


def _is_awaited(result: DeviceRequestAllocationResult) -> bool:
    """Returns True if the scheduler waits for our condition before it binds the pod."""
    return names.PREPARED_CONDITION in (result.binding_conditions or ())


def _split_requests(requests: list[str], device: str) -> dict[str, str]:
    """Returns the names of the requests, each with its allocated subrequest or "".

    The kubelet compares the names with the requests of containers, and a container never names a
    subrequest. In a container the names become parts of paths. Raises ClaimError for a name that
    is no label.
    """
    subrequests: dict[str, str] = {}
    for request in requests:
        name, _, subrequest = request.partition("/")
        if not _LABEL.fullmatch(name):
            raise errors.ClaimError(
                f"{device} is allocated for request {plain_text.brief(name)!r}, "
                "which is no name that Kubernetes allows"
            )
        subrequests[name] = subrequest or subrequests.get(name, "")
    return subrequests


def _consumed_capacity(result: DeviceRequestAllocationResult) -> dict[str, str]:
    """Returns the capacities that a share has of the device, without those of amount zero.

    A capacity of the driver's own may be written as `memory` or as `<driver>/memory`. It is called
    `memory` here and in everything that follows. If there are both, the second one counts, as in
    Kubernetes 1.38.
    """
    consumed = {}
    own = f"{result.driver}/"
    written = sorted((result.consumed_capacity or {}).items(), key=lambda item: "/" in item[0])
    for name, amount in written:
        if result.share_id is None:
            continue
        if not _CAPACITY.fullmatch(name):
            raise errors.ClaimError(
                f"the claim's share of {result.device} has {plain_text.brief(name)!r}, "
                "which is no capacity that Kubernetes allows"
            )
        plain = name.removeprefix(own)
        if _parse_amount(amount, name, result.device) > 0:
            consumed[plain] = amount
        else:
            consumed.pop(plain, None)
    return dict(sorted(consumed.items()))


def _parse_amount(text: str, name: str, device: str) -> int:
    """Returns a quantity as a whole number. Raises ClaimError if it is not a quantity, or too
    large.
    """
    try:
        amount = quantity.parse_whole(text)
    except ValueError as error:
        raise errors.ClaimError(f"the claim's share of {device}: {name}: {error}") from error
    if amount > quantity.LARGEST:
        raise errors.ClaimError(
            f"the claim's share of {device}: {name}: {plain_text.brief(text)} is more than a "
            f"quantity may be, which is {quantity.LARGEST}"
        )
    return amount


def _refuse_several_clients(devices: list[PreparedDevice]) -> None:
    """Raises ClaimError if a client of an MPS daemon has more than one device.

    The limit of a client's memory names GPUs by their numbers in the container. The number is known
    only if there is a single GPU.
    """
    if len(devices) > 1 and any(device.mps for device in devices):
        raise errors.ClaimError(
            f"the claim has {len(devices)} devices, and its class makes containers clients of an "
            "MPS "
            "daemon: that is for claims of one device, since of several nobody knows their numbers "
            "in a container"
        )


def _reason_divided(gpu: Gpu, inventory: Inventory) -> str:
    """Returns why a divided GPU cannot be given as a whole."""
    parts = [other for other in inventory.gpus if other.parent == gpu.name]
    how = f" ({gpu.profile})" if gpu.profile else ""
    if not parts:
        return f"{gpu.name} is divided{how} and has no part that could be given: nobody can use it"
    seen = f"{gpu.name} is divided{how} and has {len(parts)} parts, its memory is theirs"
    return f"{seen}; ask for a part of it, by the DeviceClass part.gpu.claimd.dev for example"


# ---------------------------------------------------------------------- other claims with the device


def _refuse_overlap(
    device: PreparedDevice, others: list[PreparedClaim], inventory: Inventory
) -> None:
    """Raises HeldError if another claim has the device, a part of it, or its whole GPU.

    The scheduler prevents this already; this is an additional check. Parts of one GPU do not
    exclude each other, nor do shares of one device. Admin access excludes no other claim.
    """
    if device.admin:
        return

    _refuse_too_much(device, others, inventory)
    overlap = _find_overlap(device, others, inventory)
    if overlap is not None:
        other, held = overlap
        raise HeldError(held, other)


def _find_overlap(
    device: PreparedDevice, others: Iterable[PreparedClaim], inventory: Inventory
) -> tuple[PreparedClaim, PreparedDevice] | None:
    """Returns the first of the other claims that excludes this device, and its device; or None."""
    if device.admin:
        return None

    # By name: True if a device of this name is the GPU of this device, or a part of it. The others
    # may be thousands, with shares of a few devices.
    gpu = _whole_gpu(device, inventory)
    related: dict[str, bool] = {}
    for other in others:
        for held in other.devices:
            name = held.device
            if name == device.device:
                conflict = not (device.share_id and held.share_id)
            elif name in related:
                conflict = related[name]
            else:
                # If the device is a part, another claim may have the whole GPU. If it is a whole
                # GPU, another claim may have a part of it. A part has no parts of its own.
                conflict = name == gpu or (
                    gpu is None and device.device == _whole_gpu(held, inventory)
                )
                related[name] = conflict
            if conflict and not held.admin:
                return other, held
    return None


def _refuse_too_much(
    device: PreparedDevice, others: list[PreparedClaim], inventory: Inventory
) -> None:
    """Raises NotReadyError if all shares of the device together have more memory than it has."""
    gpu = inventory.find_gpu(device.device)
    if MEMORY not in device.consumed_capacity or gpu is None or not gpu.memory:
        return

    wanted = quantity.parse_whole(device.consumed_capacity[MEMORY])
    taken, holders = 0, []
    for other in others:
        for held in other.devices:
            # The scheduler does not count the capacity of results with admin access.
            if held.admin or MEMORY not in held.consumed_capacity:
                continue
            if held.device == device.device:
                taken += quantity.parse_whole(held.consumed_capacity[MEMORY])
                holders.append(other.title)
    if taken + wanted > gpu.memory:
        # The sum may be larger than any quantity can be.
        together = quantity.format_amount(min(taken + wanted, quantity.LARGEST))
        raise errors.NotReadyError(
            f"{device.device} has {quantity.format_amount(gpu.memory)} of memory, and with the "
            f"{device.consumed_capacity[MEMORY]} of this claim {together} "
            f"would be given away; still prepared are {', '.join(sorted(set(holders)))}",
            patience=HOLDER_PATIENCE,
        )


def _whole_gpu(device: PreparedDevice, inventory: Inventory) -> str | None:
    """Returns the name of the GPU that the device is a part of, or None if it is a whole GPU."""
    gpu = inventory.find_gpu(device.device)
    if gpu is not None:
        return gpu.parent

    # The name of a part begins with the name of its GPU, even if the part is gone:
    # gpu-0000-41-00-0-…
    words = device.device.split("-")
    return "-".join(words[:5]) if len(words) > 5 else None
