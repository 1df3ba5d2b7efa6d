"""The entries of claim.status.devices for a prepared claim: one for each of its devices.

This module is pure. `status` sends the entries. The caller provides the conditions other than Ready
and Libraries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import msgspec

from claimd.common import errors, names
from claimd.kubernetes.api.meta import Condition
from claimd.kubernetes.api.resource import AllocatedDeviceStatus
from claimd_devices.gpu import CDI, MOUNTED, NONE, Gpu, Inventory

from ..prepared import PreparedClaim, PreparedDevice, gpu_of


def entries(
    prepared: PreparedClaim,
    driver: str,
    inventory: Inventory,
    conditions: Mapping[str, Sequence[Condition]] = MappingProxyType({}),
    *,
    is_complete: bool = True,
) -> list[AllocatedDeviceStatus]:
    """Returns our entries, with the GPUs as they are now. `conditions` are by the device's name.

    Without `is_complete`, the condition that the scheduler waits for is left out.
    """
    entries_ = []
    for device in prepared.devices:
        others = conditions.get(device.device, ())
        entry = _entry(prepared, device, driver, inventory, others)
        if device.is_awaited and is_complete:
            assert entry.conditions
            ready = entry.conditions[0]
            awaited = msgspec.structs.replace(ready, type=names.PREPARED_CONDITION)
            entry = msgspec.structs.replace(entry, conditions=[*entry.conditions, awaited])
        entries_.append(entry)
    return entries_


def refused_entries(
    claim: PreparedClaim, driver: str, sentence: str
) -> list[AllocatedDeviceStatus]:
    """Returns our entries of a claim that could not be prepared, as the sentence says.

    The scheduler takes the allocation back when it reads them.
    """
    refused = []
    for device in claim.devices:
        ready = _ready(claim, status="False", reason="PrepareFailed", message=sentence)
        failed = msgspec.structs.replace(ready, type=names.PREPARE_FAILED_CONDITION, status="True")
        refused.append(
            AllocatedDeviceStatus(
                driver=driver,
                pool=device.pool,
                device=device.device,
                share_id=device.share_id,
                conditions=[ready, failed],
            )
        )
    return refused


def lost_entries(
    prepared: PreparedClaim, driver: str, inventory: Inventory, sentence: str
) -> list[AllocatedDeviceStatus]:
    """Returns our entries of a claim whose checkpoint is lost, as the sentence says."""
    ready = _ready(prepared, status="False", reason="RecordLost", message=sentence)
    lost = []
    for entry in entries(prepared, driver, inventory, is_complete=False):
        # The condition Ready of an entry is its first.
        others = (entry.conditions or [])[1:]
        lost.append(msgspec.structs.replace(entry, conditions=[ready, *others]))
    return lost


def _entry(
    prepared: PreparedClaim,
    device: PreparedDevice,
    driver: str,
    inventory: Inventory,
    conditions: Sequence[Condition],
) -> AllocatedDeviceStatus:
    data: dict[str, object] | None = None
    libraries: list[Condition] = []
    try:
        gpu = gpu_of(device, inventory)
    except errors.ClaimError as error:
        ready = _ready(prepared, status="False", reason="DeviceUnavailable", message=str(error))
    else:
        product = gpu.product or gpu.vendor
        message = f"{product} at {gpu.address} is prepared on {device.pool}"
        ready = _ready(prepared, status="True", reason="Prepared", message=message)
        data = _data(prepared, device, gpu)
        libraries = _libraries(prepared, device, gpu)

    return AllocatedDeviceStatus(
        driver=driver,
        pool=device.pool,
        device=device.device,
        share_id=device.share_id,
        conditions=[ready, *libraries, *conditions],
        data=data,
    )


_LIBRARIES_REASONS = {CDI: "HostSpec", MOUNTED: "Mounted", NONE: "None"}


def _libraries(prepared: PreparedClaim, device: PreparedDevice, gpu: Gpu) -> list[Condition]:
    """Returns the condition Libraries; an empty list if containers need no libraries of the host.

    The condition says whether containers get the libraries of the GPU's driver. Once the kubelet
    has got a CDI id of the host's spec, it remembers it, so the id cannot be withdrawn.
    """
    libraries = gpu.libraries
    if libraries is None:
        return []

    are_there = libraries.how != NONE
    reason, message = _LIBRARIES_REASONS[libraries.how], libraries.reason
    if device.host_cdi is not None and device.host_cdi not in libraries.host_cdi:
        are_there, reason = False, "HostSpecGone"
        message = (
            f"no CDI spec of the host's gives {device.host_cdi} any more, which this claim was "
            "given: its containers cannot start again until one does; delete the pod to have "
            "it prepared again"
        )
    return [
        Condition(
            type="Libraries",
            status="True" if are_there else "False",
            reason=reason,
            message=message,
            last_transition_time=prepared.prepared_at,
        )
    ]


def _ready(prepared: PreparedClaim, *, status: str, reason: str, message: str) -> Condition:
    return Condition(
        type="Ready",
        status=status,
        reason=reason,
        message=message,
        last_transition_time=prepared.prepared_at,
    )


def _data(prepared: PreparedClaim, device: PreparedDevice, gpu: Gpu) -> dict[str, object]:
    """Returns facts about the GPU that people look up, as far as the kernel reveals them."""
    data: dict[str, object | None] = {
        "apiVersion": names.CONFIG_API_VERSION,
        "kind": "GpuStatus",
        "vendor": gpu.vendor,
        "pciBusID": gpu.address,
        "uuid": gpu.uuid,
        "productName": gpu.product,
        "driver": gpu.driver,
        "driverVersion": gpu.driver_version,
        "numaNode": gpu.numa_node,
        "nodes": [node.path for node in gpu.nodes],
        "cdiDeviceID": names.cdi_id(prepared.uid, device.device, device.share_id),
        "consumedCapacity": device.consumed_capacity or None,
    }
    return {key: value for key, value in data.items() if value is not None}
