"""Values that several dialects use."""

from __future__ import annotations

from collections.abc import Mapping

from claimd.kubernetes.api.resource import CapacityRequestPolicy, DeviceCapacity

NOT_KNOWN = "0.0.0"  # a version below every real one


def capacity_beside(published: Mapping[str, DeviceCapacity], value: str) -> DeviceCapacity:
    """Returns a capacity with this value, to be added to the published ones.

    If several claims may have the device, a claim that does not request this capacity consumes
    nothing of it.
    """
    is_shared = any(capacity.request_policy for capacity in published.values())
    policy = CapacityRequestPolicy(default="0") if is_shared else None
    return DeviceCapacity(value=value, request_policy=policy)
