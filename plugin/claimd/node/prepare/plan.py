"""Plans: what preparing an allocated ResourceClaim gives, from the claim and the inventory alone.

Pure: no clock, no I/O, and the same input gives the same plan in the same order. What a container
runtime needs is built from the plan and the inventory of the moment, in cdi: device numbers are
never part of a plan.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from claimd.common import errors, plain_text
from claimd.kubernetes.api import quantity
from claimd.kubernetes.api.resource import DeviceRequestAllocationResult, ResourceClaim
from claimd_devices.gpu import DIVIDED, NONE, Gpu, Inventory

from ..prepared import DEVICE_PATIENCE, Passthrough, PreparedClaim, PreparedDevice, reason_missing
from . import gpu_config

# Seconds of a call, from its beginning, in which another claim may still be unprepared.
HOLDER_PATIENCE = 5.0
# The capacity of which the kernel tells how much there is.
MEMORY = "memory"
NVIDIA = "nvidia"

_POD_CLAIM_NAME = "resource.kubernetes.io/pod-claim-name"
_LABEL = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")
_CAPACITY = re.compile(r"(?:[-a-z0-9.]{1,63}/)?[A-Za-z_][A-Za-z0-9_]{0,31}")


def plan(
    claim: ResourceClaim,
    *,
    driver: str,
    pool: str,
    inventory: Inventory,
    neighbours: Iterable[PreparedClaim],
    now: str,
) -> PreparedClaim:
    """What preparing this claim gives. `neighbours` are prepared on this node.

    Raises ClaimError with the reason if it cannot be prepared: not allocated, or for another node;
    a configuration that we do not understand. And NotReadyError for what may pass: a device that is
    not there, or that another claim has not yet given back.
    """
    results = _our_results(claim, driver, pool)
    configs = gpu_config.of_claim(claim, driver) if results else []

    # Several requests of the claim may share one device: they get it once, with all their names.
    by_device: dict[tuple[str, str | None], list[DeviceRequestAllocationResult]] = {}
    for result in results:
        by_device.setdefault((result.device, result.share_id), []).append(result)
    devices: list[PreparedDevice] = []
    spent = 0
    for shared in by_device.values():
        device = _device(shared, configs, inventory)
        spent = gpu_config.spend(spent, device.environment)
        devices.append(device)
    _refuse_several_clients(devices)

    # The claim itself may be among them: it was prepared for another allocation.
    others = [other for other in neighbours if other.uid != claim.metadata.uid]
    for device in devices:
        _refuse_overlap(device, others, inventory)

    return PreparedClaim(
        namespace=claim.metadata.namespace,
        name=claim.metadata.name,
        uid=claim.metadata.uid,
        pod_claim_name=_pod_claim_name(claim),
        reserved_for=tuple(
            f"{user.resource}/{user.name} {user.uid}" for user in claim.status.reserved_for
        ),
        prepared_at=now,
        devices=tuple(devices),
    )


def refuse_without_libraries(prepared: PreparedClaim, inventory: Inventory) -> None:
    """Raises ClaimError if a device is of a GPU without libraries of its driver.

    A container with its nodes alone would start, and then nothing in it would find the GPU.
    """
    for device in prepared.devices:
        gpu = inventory.named(device.device)
        if gpu is not None and gpu.libraries is not None and gpu.libraries.how == NONE:
            raise errors.ClaimError(
                f"{device.device} has no libraries of its driver to give: {gpu.libraries.reason}; "
                "if the images bring them, set require-libraries to false"
            )


def still_allocated(prepared: PreparedClaim, claim: ResourceClaim, driver: str, pool: str) -> bool:
    """Whether the claim's allocation is the one that was prepared. Raises ClaimError as `plan`."""
    allocated = {(result.device, result.share_id) for result in _our_results(claim, driver, pool)}
    return allocated == {(device.device, device.share_id) for device in prepared.devices}


# ---------------------------------------------------------------------- what was allocated


def _our_results(
    claim: ResourceClaim, driver: str, pool: str
) -> list[DeviceRequestAllocationResult]:
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
    """What the pod calls a claim that was made for it of a template.

    Whoever may create claims may write the annotation, and it becomes a part of a path.
    """
    name = claim.metadata.annotations.get(_POD_CLAIM_NAME, "")
    return name if _LABEL.fullmatch(name) else None


def _device(
    results: list[DeviceRequestAllocationResult],
    configs: list[gpu_config.SourcedConfig],
    inventory: Inventory,
) -> PreparedDevice:
    """The device of these results, which name the same one."""
    first = results[0]
    gpu = inventory.named(first.device)
    if gpu is None:
        raise errors.NotReadyError(
            reason_missing(first.device, inventory), patience=DEVICE_PATIENCE
        )

    admin = all(result.admin_access for result in results)
    if gpu.kind == DIVIDED and not admin:
        raise errors.ClaimError(_reason_divided(gpu, inventory))
    if gpu.is_bound_on_demand and admin and not gpu.nodes:
        raise errors.ClaimError(
            f"{gpu.name} is bound to vfio-pci for the claim that is given it; admin access stands "
            "beside that claim and has nothing to look at before"
        )

    requests = [result.request for result in results]
    config = gpu_config.for_device(configs, requests, dict(gpu.environment))
    if config.mps and gpu.vendor != NVIDIA:
        raise errors.ClaimError(
            f"the class makes containers clients of an MPS daemon, which NVIDIA's GPUs alone have; "
            f"{gpu.name} is of {gpu.vendor}"
        )

    # The kubelet compares a container's request with these names as they are, and a container never
    # names a subrequest. In a container they are parts of paths.
    names = [request.partition("/") for request in requests]
    for name, _, _ in names:
        if not _LABEL.fullmatch(name):
            raise errors.ClaimError(
                f"{first.device} is allocated for request {plain_text.brief(name)!r}, "
                "which is no name that Kubernetes allows"
            )
    # A part of the device's name for the container runtime, and of variables.
    if first.share_id is not None and not _LABEL.fullmatch(first.share_id):
        raise errors.ClaimError(
            f"{first.device} is allocated as share {plain_text.brief(first.share_id)!r}, "
            "which is no id that Kubernetes gives"
        )
    return PreparedDevice(
        requests=tuple(dict.fromkeys(name for name, _, _ in names)),
        subrequests={name: subrequest for name, _, subrequest in names if subrequest},
        pool=first.pool,
        device=first.device,
        share_id=first.share_id,
        consumed_capacity=_consumed(first),
        admin=admin,
        address=gpu.address,
        uuid=gpu.uuid,
        host_cdi=next(iter(gpu.libraries.host_cdi), None) if gpu.libraries else None,
        environment=dict(sorted(config.environment.items())),
        permissions=config.permissions,
        capabilities=tuple(sorted(config.capabilities)),
        passthrough=Passthrough() if gpu.is_bound_on_demand and not admin else None,
        mps="" if admin else config.mps,
    )


def _consumed(result: DeviceRequestAllocationResult) -> dict[str, str]:
    """What the share has of the device, without that of which it has nothing."""
    consumed = {}
    for name, amount in sorted((result.consumed_capacity or {}).items()):
        if result.share_id is None:
            continue
        if not _CAPACITY.fullmatch(name):
            raise errors.ClaimError(
                f"the claim's share of {result.device} has {plain_text.brief(name)!r}, "
                "which is no capacity that Kubernetes allows"
            )
        if _amount(amount, name, result.device) > 0:
            consumed[name] = amount
    return consumed


def _amount(text: str, name: str, device: str) -> int:
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
    """Raises ClaimError where a client of an MPS daemon has more than one device.

    The limit of its memory names GPUs by their numbers in the container, and of one GPU alone the
    number is known.
    """
    if len(devices) > 1 and any(device.mps for device in devices):
        raise errors.ClaimError(
            f"the claim has {len(devices)} devices, and its class makes containers clients of an MPS "
            "daemon: that is for claims of one device, since of several nobody knows their numbers "
            "in a container"
        )


def _reason_divided(gpu: Gpu, inventory: Inventory) -> str:
    """Why it cannot be given as a whole. A claim that was given it before keeps its checkpoint."""
    parts = [other for other in inventory.gpus if other.parent == gpu.name]
    how = f" ({gpu.profile})" if gpu.profile else ""
    if not parts:
        return f"{gpu.name} is divided{how} and has no part that could be given: nobody can use it"
    seen = f"{gpu.name} is divided{how} and has {len(parts)} parts, its memory is theirs"
    return f"{seen}; ask for a part of it, by the DeviceClass part.gpu.claimd.dev for example"


# ---------------------------------------------------------------------- who else has the device


def _refuse_overlap(
    device: PreparedDevice, others: list[PreparedClaim], inventory: Inventory
) -> None:
    """Raises NotReadyError if another claim has the device, a part of it, or what it is a part of.

    Kubernetes sees to that already; this is the last line of defence. Parts of one GPU do not
    exclude each other, nor do shares of one device. Admin access stands beside everything.
    """
    if device.admin:
        return

    _refuse_too_much(device, others, inventory)
    gpu = _whole_gpu(device, inventory)
    for other in others:
        for held in other.devices:
            if held.admin:
                continue
            if held.device == device.device:
                conflict = not (device.share_id and held.share_id)
            else:
                # A part has no parts of its own, so only of a whole GPU it is asked who has one.
                conflict = held.device == gpu or (
                    gpu is None and device.device == _whole_gpu(held, inventory)
                )
            if conflict:
                raise errors.NotReadyError(
                    f"{held.device} is still prepared for claim {other.title} (uid {other.uid}); "
                    "it is free when that claim's pods are gone and the kubelet has unprepared it",
                    patience=HOLDER_PATIENCE,
                )


def _refuse_too_much(
    device: PreparedDevice, others: list[PreparedClaim], inventory: Inventory
) -> None:
    """Raises NotReadyError if the shares of the device have more memory than there is."""
    gpu = inventory.named(device.device)
    if MEMORY not in device.consumed_capacity or gpu is None or not gpu.memory:
        return

    wanted = quantity.parse_whole(device.consumed_capacity[MEMORY])
    taken, holders = 0, []
    for other in others:
        for held in other.devices:
            # For admin access the scheduler counts nothing, whatever its result says.
            if held.admin or MEMORY not in held.consumed_capacity:
                continue
            if held.device == device.device:
                taken += quantity.parse_whole(held.consumed_capacity[MEMORY])
                holders.append(other.title)
    if taken + wanted > gpu.memory:
        # Together they may be more than a quantity says.
        together = quantity.format_amount(min(taken + wanted, quantity.LARGEST))
        raise errors.NotReadyError(
            f"{device.device} has {quantity.format_amount(gpu.memory)} of memory, and with the "
            f"{device.consumed_capacity[MEMORY]} of this claim {together} "
            f"would be given away; still prepared are {', '.join(sorted(set(holders)))}",
            patience=HOLDER_PATIENCE,
        )


def _whole_gpu(device: PreparedDevice, inventory: Inventory) -> str | None:
    """The name of the GPU that the device is a part of, if it is one."""
    gpu = inventory.named(device.device)
    if gpu is not None:
        return gpu.parent

    # A part that is gone still has the name of its GPU in its own: gpu-0000-41-00-0-…
    words = device.device.split("-")
    return "-".join(words[:5]) if len(words) > 5 else None
