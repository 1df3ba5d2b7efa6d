"""The capacity that a request consumes of a device, according to the device's request policies.

A request policy has a default, and either valid values or a valid range with a step. Requests are
rounded up to the policy. This module looks at one device at a time. The capacity that others have
consumed of a shared device is checked in `partial`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from . import amounts, capacity_names
from .amounts import LARGEST, MILLI, WHOLE, Amount
from .features import FRACTIONAL_CAPACITY_RANGE, RULES_OF_1_38, Features

if TYPE_CHECKING:
    from ..api.resource import CapacityRequestPolicy, CapacityRequestPolicyRange, DeviceCapacity


def consumption(
    requests: Mapping[str, str] | None,
    driver: str,
    capacities: Mapping[str, DeviceCapacity],
    features: Features,
) -> dict[str, Amount] | None:
    """Returns the amount that the request would consume of each capacity of a driver's device.

    None if the device can never serve the request. A capacity that is not requested is consumed
    with its default amount, or completely if it has no default. ValueError if the numbers are too
    large for Kubernetes' arithmetic, or if a capacity is requested under both its names. The whole
    allocation fails then, as it does in Kubernetes.
    """
    requested: dict[str, str] = {}
    for name, text in (requests or {}).items():
        own = capacity_names.own_name(name, driver, features)
        if own not in capacities:
            return None
        if own in requested:
            raise ValueError(f'capacity "{own}" requested both as "{own}" and as "{driver}/{own}"')
        requested[own] = text

    # Rounding may raise ValueError, so every capacity is rounded before one of them is a reason to
    # return None.
    fractional = FRACTIONAL_CAPACITY_RANGE in features
    used: dict[str, Amount] = {}
    for name, capacity in capacities.items():
        try:
            _check_sign(requested.get(name), features)
            used[name] = _round_up(requested.get(name), capacity, fractional)
        except ValueError as error:
            raise ValueError(f'capacity "{name}": {error}') from error
        if used[name].billionths < 0:
            raise ValueError(f'capacity "{name}": capacity value is negative')

    for name, capacity in capacities.items():
        if _violates(used[name], capacity.request_policy, fractional):
            return None
    return used


def limits(capacities: Mapping[str, DeviceCapacity]) -> dict[str, int]:
    """Returns the total amount of each capacity in billionths."""
    return {name: amounts.parse(capacity.value).billionths for name, capacity in capacities.items()}


def _check_sign(text: str | None, features: Features) -> None:
    """Raises ValueError for a negative request, which a policy could round up to an allowed amount.

    Kubernetes has this check since 1.38.
    """
    if text is not None and RULES_OF_1_38 in features and amounts.parse(text).billionths < 0:
        raise ValueError(f"capacity value is negative: request {text}")


def _round_up(text: str | None, capacity: DeviceCapacity, fractional: bool) -> Amount:
    """Returns the smallest amount that the policy allows and that is enough for the request.

    If there is no such amount it returns the requested one, which `_violates` refuses later.
    """
    policy = capacity.request_policy
    if text is None:
        if policy is not None and policy.default is not None:
            return amounts.parse(policy.default)
        return amounts.parse(capacity.value)

    requested = amounts.parse(text)
    if policy is None:
        return requested
    if policy.valid_range and policy.valid_range.min is not None:
        return _round_up_to_step(requested, policy.valid_range, fractional)

    # The API server has validated that the values are sorted.
    for value in policy.valid_values or ():
        if requested.billionths <= amounts.parse(value).billionths:
            return amounts.parse(value)
    return requested


def _round_up_to_step(
    requested: Amount, valid: CapacityRequestPolicyRange, fractional: bool
) -> Amount:
    """Rounds the request up to the range's minimum plus a multiple of its step."""
    assert valid.min is not None
    minimum = amounts.parse(valid.min)
    if requested.billionths < minimum.billionths:
        return minimum
    if valid.step is None:
        return requested

    # Kubernetes computes with 64-bit integers that count whole units or thousandths.
    # Amounts that do not fit are errors there, so they are errors here.
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
    return amounts.from_billionths(rounded * unit, step.binary)


def _violates(used: Amount, policy: CapacityRequestPolicy | None, fractional: bool) -> bool:
    """Returns True if the policy does not allow this amount."""
    if policy is None:
        return False
    # The default is always allowed.
    if policy.default is not None and used == amounts.parse(policy.default):
        return False
    if policy.valid_range:
        return _is_outside(used, policy.valid_range, fractional)

    # A policy without values allows every amount.
    values = policy.valid_values or ()
    return bool(values) and all(
        used.billionths != amounts.parse(value).billionths for value in values
    )


def _is_outside(used: Amount, valid: CapacityRequestPolicyRange, fractional: bool) -> bool:
    """Returns True if the amount is above the range or between two of its steps.

    It cannot be below the range, because rounding has raised it to the minimum.
    """
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
    """Returns the unit of the range's arithmetic.

    It is a thousandth if the feature is on and all bounds are multiples of it. Otherwise it is 1.
    """
    if not fractional:
        return WHOLE
    for text in (valid.min, valid.max, valid.step):
        if text is not None and not _in_milli(amounts.parse(text)):
            return WHOLE
    return MILLI


def _in_milli(amount: Amount) -> bool:
    """Returns True if the amount is a number of thousandths that fits into 64 bits."""
    return amount.billionths % MILLI == 0 and abs(amount.billionths // MILLI) <= LARGEST
