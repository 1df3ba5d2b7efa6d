"""What claim.status.devices says of a prepared claim. Pure: no clock, no I/O; who sends it, and
when, is `status`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import msgspec

from devices.gpu import Inventory

from .. import errors, names
from ..api.meta import Condition
from ..api.resource import AllocatedDeviceStatus
from ..prepared import PreparedClaim, PreparedDevice, gpu_of


def entries(
    prepared: PreparedClaim,
    driver: str,
    inventory: Inventory,
    said: Mapping[str, Sequence[Condition]] = MappingProxyType({}),
) -> list[AllocatedDeviceStatus]:
    """Our entries of claim.status.devices. `said` has conditions beside Ready, by the device's
    name.
    """
    listed = []
    for device in prepared.devices:
        status = _of_device(prepared, device, driver, inventory)
        if conditions := said.get(device.device):
            status = msgspec.structs.replace(
                status, conditions=[*(status.conditions or ()), *conditions]
            )
        listed.append(status)
    return listed


def _of_device(
    prepared: PreparedClaim, device: PreparedDevice, driver: str, inventory: Inventory
) -> AllocatedDeviceStatus:
    try:
        gpu = gpu_of(device, inventory)
    except errors.ClaimError as error:
        ready = Condition(
            type="Ready",
            status="False",
            reason="DeviceUnavailable",
            message=str(error),
            last_transition_time=prepared.prepared_at,
        )
        return AllocatedDeviceStatus(
            driver=driver,
            pool=device.pool,
            device=device.device,
            share_id=device.share_id,
            conditions=[ready],
        )
    facts = {
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
    ready = Condition(
        type="Ready",
        status="True",
        reason="Prepared",
        message=f"{gpu.product or gpu.vendor} at {gpu.address} is prepared on {device.pool}",
        last_transition_time=prepared.prepared_at,
    )
    return AllocatedDeviceStatus(
        driver=driver,
        pool=device.pool,
        device=device.device,
        share_id=device.share_id,
        conditions=[ready],
        data={key: value for key, value in facts.items() if value is not None},
    )
