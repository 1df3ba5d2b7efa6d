"""What a request takes of a device's capacity: request policies, their rounding and their limits.
One device at a time.

How much of a shared device others have taken is known to the search, not here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from . import amounts
from .amounts import LARGEST, MILLI, WHOLE, Amount
from .features import FRACTIONAL_CAPACITY_RANGE, Features

if TYPE_CHECKING:
    from ..api.scheduling import (
        CapacityRequestPolicy,
        CapacityRequestPolicyRange,
        Device,
        DeviceCapacity,
    )


def consumption(
    requests: Mapping[str, str] | None, device: Device, features: Features
) -> dict[str, Amount] | None:
    """What each capacity of the device would be used for the request; None where the device cannot
    serve it at all.

    ValueError where the numbers themselves are beyond what can be computed with: no other device
    may be tried then.
    """
    asked = requests or {}
    if any(name not in device.capacity for name in asked):
        return None
    fractional = FRACTIONAL_CAPACITY_RANGE in features
    used: dict[str, Amount] = {}
    for name, capacity in device.capacity.items():
        used[name] = _rounded(asked.get(name), capacity, fractional)
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
    policy = capacity.request_policy
    if text is None:
        return amounts.parse(
            policy.default if policy and policy.default is not None else capacity.value
        )
    asked = amounts.parse(text)
    if policy is None:
        return asked
    if policy.valid_range and policy.valid_range.min is not None:
        return _step_up(asked, policy.valid_range, fractional)
    for value in policy.valid_values or ():
        if asked.billionths <= amounts.parse(value).billionths:
            return amounts.parse(value)
    return asked


def _step_up(asked: Amount, valid: CapacityRequestPolicyRange, fractional: bool) -> Amount:
    """The least amount in the range, counted from its minimum in whole steps, that is not below
    what is asked.
    """
    assert valid.min is not None
    minimum = amounts.parse(valid.min)
    if asked.billionths < minimum.billionths:
        return minimum
    if valid.step is None:
        return asked
    step = amounts.parse(valid.step)
    unit = _unit(valid, fractional)
    if unit == MILLI and not _in_milli(asked):
        raise ValueError(f"request {asked.text} is not a representable milli value")
    if unit == WHOLE and asked.billionths > LARGEST * WHOLE:
        raise ValueError(f"request {asked.text} exceeds MaxInt64")
    least, size = amounts.ceiling(minimum.billionths, unit), amounts.ceiling(step.billionths, unit)
    steps = -(-(amounts.ceiling(asked.billionths, unit) - least) // size)
    if least + size * steps > LARGEST:
        raise ValueError(
            f"rounding request {asked.text} up to the next step passes what can be represented"
        )
    return amounts.of((least + size * steps) * unit, step.binary)


def _violates(used: Amount, policy: CapacityRequestPolicy | None, fractional: bool) -> bool:
    if policy is None or (policy.default is not None and used == amounts.parse(policy.default)):
        return False
    if policy.valid_range:
        return _outside(used, policy.valid_range, fractional)
    values = policy.valid_values or ()
    return bool(values) and all(
        used.billionths != amounts.parse(value).billionths for value in values
    )


def _outside(used: Amount, valid: CapacityRequestPolicyRange, fractional: bool) -> bool:
    if valid.max is not None and used.billionths > amounts.parse(valid.max).billionths:
        return True
    if valid.step is None or valid.min is None:
        return False
    unit = _unit(valid, fractional)
    if unit == MILLI and not _in_milli(used):
        return True
    step = amounts.ceiling(amounts.parse(valid.step).billionths, unit)
    over = amounts.ceiling(used.billionths, unit) - amounts.ceiling(
        amounts.parse(valid.min).billionths, unit
    )
    return over % step != 0


def _unit(valid: CapacityRequestPolicyRange, fractional: bool) -> int:
    """Thousandths where the feature is on and the range can be told in them, else whole numbers."""
    bounds = [
        amounts.parse(text) for text in (valid.min, valid.max, valid.step) if text is not None
    ]
    return MILLI if fractional and all(_in_milli(bound) for bound in bounds) else WHOLE


def _in_milli(amount: Amount) -> bool:
    return amount.billionths % MILLI == 0 and abs(amount.billionths // MILLI) <= LARGEST
