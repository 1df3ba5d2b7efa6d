"""Binding conditions: the conditions of allocated devices that a scheduler waits for.

A driver names the conditions of a device in its slice, and reports them in the claim's status. The
scheduler writes the allocation first, and binds the pod when all binding conditions are true. If a
failure condition is true, or the time is over, it releases the claim and tries other devices.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..api.scheduling import DeviceRequestAllocationResult
    from .objects import Claim, Condition

# The scheduler's default limit in seconds.
TIMEOUT = 600.0
# The beginnings of its messages about devices that it gives up.
GIVEN_UP = "device binding "
FAILED, TIMED_OUT = f"{GIVEN_UP}failed", f"{GIVEN_UP}timeout"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Readiness:
    """The state of an allocated device that has binding conditions.

    `missing` has the binding conditions that are not true, in the order of the driver, and
    `reported` those of them that the driver has reported. `failure` is the first failure condition
    that is true, and comes before `missing`.
    """

    result: DeviceRequestAllocationResult
    missing: tuple[str, ...]
    reported: tuple[Condition, ...] = ()
    failure: Condition | None = None

    @property
    def is_ready(self) -> bool:
        return not self.missing and self.failure is None


def readiness(claim: Claim, result: DeviceRequestAllocationResult) -> Readiness | None:
    """Returns the readiness of an allocated device, or None if it has no binding conditions."""
    if not result.binding_conditions:
        return None

    conditions = _conditions(claim, result)
    true = {condition.type for condition in conditions if condition.status == "True"}
    missing = [name for name in result.binding_conditions if name not in true]
    failures = true.intersection(result.binding_failure_conditions)
    return Readiness(
        result=result,
        missing=tuple(missing),
        reported=tuple(condition for condition in conditions if condition.type in missing),
        failure=next((each for each in conditions if each.type in failures), None),
    )


def readiness_of(claim: Claim) -> Iterator[Readiness]:
    """Yields the readiness of each allocated device that has binding conditions."""
    allocation = claim.status.allocation
    for result in allocation.devices.results if allocation else ():
        device = readiness(claim, result)
        if device is not None:
            yield device


def _conditions(claim: Claim, result: DeviceRequestAllocationResult) -> list[Condition]:
    """Returns the conditions of the device's first entry, which is the one that a scheduler takes."""
    for status in claim.status.devices:
        device = status.driver, status.pool, status.device
        if device == (result.driver, result.pool, result.device):
            return status.conditions
    return []


def has_conditions(claim: Claim) -> bool:
    """Returns True if a scheduler waits for conditions of the claim's devices, or has waited."""
    return any(True for _ in readiness_of(claim))


def first_unready(claim: Claim) -> Readiness | None:
    """Returns the first device that is not ready. A scheduler does not look at those behind it."""
    return next((each for each in readiness_of(claim) if not each.is_ready), None)


def time_of_allocation(claim: Claim) -> float | None:
    """Returns the time in seconds since 1970; None if it is missing or invalid."""
    allocation = claim.status.allocation
    if allocation is None or not allocation.allocation_timestamp:
        return None
    try:
        return datetime.datetime.fromisoformat(allocation.allocation_timestamp).timestamp()
    except (ValueError, OverflowError):
        return None


def problem_of(claim: Claim, now: float, timeout: float = TIMEOUT) -> str:
    """Returns why a scheduler gives up the claim's devices, in its own words; "" if it does not."""
    unready = first_unready(claim)
    if unready is None:
        return ""

    name, failure = claim.metadata.name, unready.failure
    if failure is not None:
        message = json.dumps(failure.message, ensure_ascii=False)
        return f"{FAILED}: claim={name}, reason={failure.reason}, message={message}"
    allocated = time_of_allocation(claim)
    if allocated is not None and allocated + timeout < now:
        return f"{TIMED_OUT}: claim={name}"
    return ""
