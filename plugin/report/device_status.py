"""What claim.status.devices says of a prepared claim: one entry for each of its devices.

Pure. Who sends it, and when, is status'; which conditions there are beside Ready comes from the
caller.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from devices.gpu import Gpu, Inventory

from .. import errors, names
from ..api.meta import Condition
from ..api.resource import AllocatedDeviceStatus
from ..prepared import PreparedClaim, PreparedDevice, gpu_of


def entries(
    prepared: PreparedClaim,
    driver: str,
    inventory: Inventory,
    conditions: Mapping[str, Sequence[Condition]] = MappingProxyType({}),
) -> list[AllocatedDeviceStatus]:
    """Our entries, with the GPUs as they are now. `conditions` by the device's name."""
    return [
        _entry(prepared, device, driver, inventory, conditions.get(device.device, ()))
        for device in prepared.devices
    ]


def _entry(
    prepared: PreparedClaim,
    device: PreparedDevice,
    driver: str,
    inventory: Inventory,
    conditions: Sequence[Condition],
) -> AllocatedDeviceStatus:
    data: dict[str, object] | None = None
    try:
        gpu = gpu_of(device, inventory)
    except errors.ClaimError as error:
        ready = _ready(prepared, status="False", reason="DeviceUnavailable", message=str(error))
    else:
        product = gpu.product or gpu.vendor
        message = f"{product} at {gpu.address} is prepared on {device.pool}"
        ready = _ready(prepared, status="True", reason="Prepared", message=message)
        data = _data(prepared, device, gpu)

    return AllocatedDeviceStatus(
        driver=driver,
        pool=device.pool,
        device=device.device,
        share_id=device.share_id,
        conditions=[ready, *conditions],
        data=data,
    )


def _ready(prepared: PreparedClaim, *, status: str, reason: str, message: str) -> Condition:
    return Condition(
        type="Ready",
        status=status,
        reason=reason,
        message=message,
        last_transition_time=prepared.prepared_at,
    )


def _data(prepared: PreparedClaim, device: PreparedDevice, gpu: Gpu) -> dict[str, object]:
    """What a person would look up about the GPU, for as far as the kernel tells it."""
    data = {
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
    }
    return {key: value for key, value in data.items() if value is not None}
