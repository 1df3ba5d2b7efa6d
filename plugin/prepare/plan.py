"""Pure: an allocated ResourceClaim and the Inventory in, a PreparedClaim out; and what
claim.status.devices says of it.

No clock, no I/O: the same input gives the same output in the same order. What a container runtime
needs is built in cdi, from a PreparedClaim and the Inventory of the moment: device numbers are
never kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from devices.gpu import Inventory

from .. import errors
from ..api.resource import (
    DeviceAllocationConfiguration,
    DeviceRequestAllocationResult,
    ResourceClaim,
)
from ..names import CONFIG_API_VERSION
from ..prepared import DEVICE_PATIENCE, PreparedClaim, PreparedDevice, why_missing

HOLDER_PATIENCE = 5.0  # for another claim to be unprepared


class GpuConfig(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """The opaque configuration that a claim or a class may carry for us."""

    api_version: str
    kind: str
    environment: dict[str, str] = {}
    permissions: str | None = None  # of the device nodes: r, w, m


def plan(
    claim: ResourceClaim,
    *,
    driver: str,
    pool: str,
    inventory: Inventory,
    prepared: Iterable[PreparedClaim],
    now: str,
) -> PreparedClaim:
    """What preparing this claim gives, or the ClaimError that says why not. `prepared` are the
    claims of this node.
    """
    ours = _our_results(claim, driver, pool)
    configs = _configs(claim, driver) if ours else []
    grouped: dict[tuple[str, str | None], list[DeviceRequestAllocationResult]] = {}
    for result in ours:
        grouped.setdefault((result.device, result.share_id), []).append(result)
    others = [other for other in prepared if other.uid != claim.metadata.uid]
    devices = [_device(results, configs, inventory) for results in grouped.values()]
    for device in devices:
        _refuse_overlap(device, others, inventory)
    return PreparedClaim(
        namespace=claim.metadata.namespace,
        name=claim.metadata.name,
        uid=claim.metadata.uid,
        reserved_for=tuple(
            f"{user.resource}/{user.name} {user.uid}" for user in claim.status.reserved_for
        ),
        prepared_at=now,
        devices=tuple(devices),
    )


def still_allocated(prepared: PreparedClaim, claim: ResourceClaim, driver: str, pool: str) -> bool:
    """Whether the claim's allocation is the one that was prepared."""
    wanted = {(result.device, result.share_id) for result in _our_results(claim, driver, pool)}
    return wanted == {(device.device, device.share_id) for device in prepared.devices}


def _our_results(
    claim: ResourceClaim, driver: str, pool: str
) -> list[DeviceRequestAllocationResult]:
    allocation = claim.status.allocation
    title = f"{claim.metadata.namespace}/{claim.metadata.name}"
    if allocation is None:
        raise errors.ClaimError(
            f"claim {title} is not allocated; the scheduler has to allocate it before it is used"
        )
    ours = [result for result in allocation.devices.results if result.driver == driver]
    for result in ours:
        if result.pool != pool:
            raise errors.ClaimError(
                f"claim {title} was given {result.device} of pool {result.pool}, but this node's pool is {pool}; "
                "it is allocated for another node"
            )
    return ours


def _configs(claim: ResourceClaim, driver: str) -> list[tuple[list[str], GpuConfig]]:
    """Our configurations in the order in which they count: class before claim, later before
    earlier.
    """
    assert claim.status.allocation is not None
    entries = [
        e for e in claim.status.allocation.devices.config if e.opaque and e.opaque.driver == driver
    ]
    entries.sort(key=lambda entry: entry.source != "FromClass")
    return [(entry.requests, _decode(entry)) for entry in entries]


def _decode(entry: DeviceAllocationConfiguration) -> GpuConfig:
    assert entry.opaque is not None
    origin = "the class" if entry.source == "FromClass" else "the claim"
    try:
        config = msgspec.json.decode(entry.opaque.parameters, type=GpuConfig)
    except msgspec.MsgspecError as error:
        raise errors.ClaimError(
            f"configuration from {origin} is not a GpuConfig of {CONFIG_API_VERSION}: {error}; "
            f"known fields are {', '.join(msgspec.structs.fields(GpuConfig)[i].encode_name for i in range(4))}"
        ) from error
    if (config.api_version, config.kind) != (CONFIG_API_VERSION, "GpuConfig"):
        raise errors.ClaimError(
            f"configuration from {origin} is {config.kind} of {config.api_version}; "
            f"this driver takes GpuConfig of {CONFIG_API_VERSION}"
        )
    for name in config.environment:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise errors.ClaimError(
                f"configuration from {origin}: {name!r} is no name of an environment variable"
            )
    if config.permissions is not None and not re.fullmatch(
        r"(?!.*(.).*\1)[rwm]+", config.permissions
    ):
        raise errors.ClaimError(
            f"configuration from {origin}: permissions are some of r, w and m, each once, not {config.permissions!r}"
        )
    return config


def _device(
    results: list[DeviceRequestAllocationResult],
    configs: list[tuple[list[str], GpuConfig]],
    inventory: Inventory,
) -> PreparedDevice:
    """One device, which several requests of the claim may share."""
    first = results[0]
    gpu = inventory.named(first.device)
    if gpu is None:
        raise errors.NotReadyError(why_missing(first.device, inventory), patience=DEVICE_PATIENCE)
    environment: dict[str, str] = {}
    permissions = "rw"
    for requests, config in configs:
        if not requests or any(_covers(requests, result.request) for result in results):
            environment.update(config.environment)
            permissions = config.permissions or permissions
    return PreparedDevice(
        requests=tuple(dict.fromkeys(result.request.split("/")[0] for result in results)),
        pool=first.pool,
        device=first.device,
        share_id=first.share_id,
        admin=all(result.admin_access for result in results),
        address=gpu.address,
        uuid=gpu.uuid,
        host_cdi=gpu.libraries.host_cdi if gpu.libraries else None,
        environment=dict(sorted(environment.items())),
        permissions=permissions,
    )


def _covers(requests: list[str], request: str) -> bool:
    """A configuration for "req" also counts for the subrequest "req/sub" that was chosen."""
    return request in requests or request.split("/", maxsplit=1)[0] in requests


def _refuse_overlap(
    device: PreparedDevice, others: list[PreparedClaim], inventory: Inventory
) -> None:
    """A GPU and its parts exclude each other; parts do not."""
    if device.admin:
        return
    for other in others:
        for theirs in other.devices:
            same = theirs.device == device.device and not (device.share_id and theirs.share_id)
            part = device.device in _whole(theirs, inventory) or theirs.device in _whole(
                device, inventory
            )
            if (same or part) and not theirs.admin:
                raise errors.NotReadyError(
                    f"{theirs.device} is still prepared for claim {other.title} (uid {other.uid}); "
                    "it is free when that claim's pods are gone and the kubelet has unprepared it",
                    patience=HOLDER_PATIENCE,
                )


def _whole(device: PreparedDevice, inventory: Inventory) -> tuple[str, ...]:
    """The name of the GPU that it is a part of, if it is one. A partition that is gone has it in
    its own name.
    """
    gpu = inventory.named(device.device)
    if gpu is not None:
        return (gpu.parent,) if gpu.parent else ()
    parts = device.device.split("-")
    return ("-".join(parts[:5]),) if len(parts) > 5 else ()
