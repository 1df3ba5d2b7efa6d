"""Values that the vendors' words have in common."""

from __future__ import annotations

from collections.abc import Mapping

from claimd.kubernetes.api.resource import CapacityRequestPolicy, DeviceCapacity

NOT_KNOWN = "0.0.0"  # of a version, as everywhere: below every other


def capacity_beside(published: Mapping[str, DeviceCapacity], value: str) -> DeviceCapacity:
    """A capacity beside those that are published. If several claims may have the device, who does not ask
    for it takes nothing of it.
    """
    is_shared = any(capacity.request_policy for capacity in published.values())
    policy = CapacityRequestPolicy(default="0") if is_shared else None
    return DeviceCapacity(value=value, request_policy=policy)
