"""What a request takes of a device's capacity: request policies, their rounding and their limits.

One device at a time. How much of a shared device others have taken is known to the search.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from . import amounts
from .amounts import LARGEST, MILLI, WHOLE, Amount
from .features import FRACTIONAL_CAPACITY_RANGE, Features

if TYPE_CHECKING:
    from ..api.resource import CapacityRequestPolicy, CapacityRequestPolicyRange, DeviceCapacity
    from ..api.scheduling import Device


def consumption(
    requests: Mapping[str, str] | None, device: Device, features: Features
) -> dict[str, Amount] | None:
    """What the request would use of each capacity; None where the device cannot serve it at all.

    A capacity that is not asked for is used by its default, or whole. ValueError where the numbers
    are beyond what can be computed with: then no other device may be tried either.
    """
    requested = requests or {}
    if any(name not in device.capacity for name in requested):
        return None

    # All are rounded before any is checked, as rounding may be an error.
    fractional = FRACTIONAL_CAPACITY_RANGE in features
    used: dict[str, Amount] = {}
    for name, capacity in device.capacity.items():
        try:
            used[name] = _rounded(requested.get(name), capacity, fractional)
        except ValueError as error:
            raise ValueError(f'capacity "{name}": {error}') from error
        if used[name].billionths < 0:
            raise ValueError(f'capacity "{name}": capacity value is negative')

    for name, capacity in device.capacity.items():
        if _violates(used[name], capacity.request_policy, fractional):
            return None
    return used


def limits(device: Device) -> dict[str, int]:
    """Each capacity's whole amount, in billionths."""
    return {
        name: amounts.parse(capacity.value).billionths for name, capacity in device.capacity.items()
    }


def _rounded(text: str | None, capacity: DeviceCapacity, fractional: bool) -> Amount:
    """The least amount that the policy has and that is enough; as requested where there is none."""
    policy = capacity.request_policy
    if text is None:
        if policy is not None and policy.default is not None:
            return amounts.parse(policy.default)
        return amounts.parse(capacity.value)

    requested = amounts.parse(text)
    if policy is None:
        return requested
    if policy.valid_range and policy.valid_range.min is not None:
        return _step_up(requested, policy.valid_range, fractional)
    for value in policy.valid_values or ():
        if requested.billionths <= amounts.parse(value).billionths:
            return amounts.parse(value)
    return requested


def _step_up(requested: Amount, valid: CapacityRequestPolicyRange, fractional: bool) -> Amount:
    """The least amount that is enough, counted from the range's minimum in whole steps."""
    assert valid.min is not None
    minimum = amounts.parse(valid.min)
    if requested.billionths < minimum.billionths:
        return minimum
    if valid.step is None:
        return requested

    # Kubernetes computes in 64-bit integers, of whole units or of thousandths.
    step = amounts.parse(valid.step)
    unit = _unit(valid, fractional)
    if unit == MILLI and not _in_milli(requested):
        raise ValueError(f"request {requested.text} is not a representable milli value")
    if unit == WHOLE and requested.billionths > LARGEST * WHOLE:
        raise ValueError(f"request {requested.text} exceeds MaxInt64")

    start = amounts.ceiling(minimum.billionths, unit)
    step_size = amounts.ceiling(step.billionths, unit)
    if step_size <= 0:
        raise ValueError(f"a step of {step.text} leads nowhere")
    steps = amounts.ceiling(amounts.ceiling(requested.billionths, unit) - start, step_size)
    rounded = start + step_size * steps
    if rounded > LARGEST:
        raise ValueError(
            f"rounding request {requested.text} up to the next step passes what can be represented"
        )
    return amounts.of(rounded * unit, step.binary)


def _violates(used: Amount, policy: CapacityRequestPolicy | None, fractional: bool) -> bool:
    if policy is None:
        return False
    # The default is always allowed.
    if policy.default is not None and used == amounts.parse(policy.default):
        return False
    if policy.valid_range:
        return _outside(used, policy.valid_range, fractional)
    values = policy.valid_values or ()
    return bool(values) and all(
        used.billionths != amounts.parse(value).billionths for value in values
    )


def _outside(used: Amount, valid: CapacityRequestPolicyRange, fractional: bool) -> bool:
    """Whether it is above the range or between its steps; rounding has lifted it to the minimum."""
    if valid.max is not None and used.billionths > amounts.parse(valid.max).billionths:
        return True
    if valid.step is None or valid.min is None:
        return False

    unit = _unit(valid, fractional)
    if unit == MILLI and not _in_milli(used):
        return True
    start = amounts.ceiling(amounts.parse(valid.min).billionths, unit)
    step_size = amounts.ceiling(amounts.parse(valid.step).billionths, unit)
    return (amounts.ceiling(used.billionths, unit) - start) % step_size != 0


def _unit(valid: CapacityRequestPolicyRange, fractional: bool) -> int:
    """Thousandths where the feature is on and the range can be told in them, else whole units."""
    bounds = [
        amounts.parse(text) for text in (valid.min, valid.max, valid.step) if text is not None
    ]
    return MILLI if fractional and all(_in_milli(bound) for bound in bounds) else WHOLE


def _in_milli(amount: Amount) -> bool:
    return amount.billionths % MILLI == 0 and abs(amount.billionths // MILLI) <= LARGEST
