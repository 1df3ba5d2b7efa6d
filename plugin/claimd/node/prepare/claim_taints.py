"""Taints on the devices of claims that the scheduler does not know, or that claimd has lost.

A pod may still use such devices, so no other pod should wait for them.
"""

from __future__ import annotations

from claimd.common import timestamps
from claimd.kubernetes.api.resource import DeviceTaint
from claimd_devices.gpu import Inventory

from ..prepared import PreparedClaim


def taints_for(
    claim: PreparedClaim, inventory: Inventory, key: str, since: float
) -> dict[str, DeviceTaint]:
    """Returns the taint of each device that no other claim can get, by the device's name.

    `since` is a time of the wall clock. Shares are not tainted, since other claims may still get a
    share of the device.
    """
    taint = DeviceTaint(key=key, effect="NoSchedule", time_added=timestamps.rfc3339(since))
    taints: dict[str, DeviceTaint] = {}
    for device in claim.devices:
        if not device.admin and not device.share_id:
            taints.update(dict.fromkeys(_excluded_devices(device.device, inventory), taint))
    return taints


def _excluded_devices(device: str, inventory: Inventory) -> set[str]:
    """Returns the device, its parts, and the GPU that it is a part of."""
    excluded = {device}
    for gpu in inventory.gpus:
        if gpu.parent == device:
            excluded.add(gpu.name)
        if gpu.name == device and gpu.parent is not None:
            excluded.add(gpu.parent)
    return excluded
