"""The devices and capacities that are already allocated, gathered from claims."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Protocol

from . import amounts, capacity_names
from .features import CONSUMABLE_CAPACITY, DEFAULT, Features
from .identity import DeviceID, SharedDeviceID

if TYPE_CHECKING:
    from ..api.scheduling import DeviceRequestAllocationResult, ResourceClaim


class ClaimLister(Protocol):
    """A source of allocated claims."""

    def list_all_allocated(self) -> Iterable[ResourceClaim]:
        """Returns the claims that are allocated."""
        ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class AllocatedState:
    """The allocated devices, shares and capacities.

    Each of the `devices` belongs to one claim. `shares` are shares of devices that several claims
    may have. `capacity` has the consumed amounts of shared devices in billionths. `shared` has all
    devices with at least one share.
    """

    devices: frozenset[DeviceID] = frozenset()
    shares: frozenset[SharedDeviceID] = frozenset()
    capacity: Mapping[DeviceID, Mapping[str, int]] = dataclasses.field(default_factory=dict)
    shared: frozenset[DeviceID] = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        shared = frozenset(share.device_id for share in self.shares) | frozenset(self.capacity)
        object.__setattr__(self, "shared", shared)

    def has(self, device: DeviceID) -> bool:
        """Returns True if the device, or a share of it, is allocated."""
        return device in self.devices or device in self.shared


def list_all_allocated(claims: Iterable[ResourceClaim]) -> list[ResourceClaim]:
    """Returns those of the claims that are allocated."""
    return [claim for claim in claims if claim.status.allocation]


def gather_from_claims(
    claims: Iterable[ResourceClaim], features: Features = DEFAULT
) -> AllocatedState:
    """Returns the state that these claims make."""
    return gather_from_results((result for _, result in held_results(claims)), features)


def held_results(
    claims: Iterable[ResourceClaim],
) -> Iterator[tuple[ResourceClaim, DeviceRequestAllocationResult]]:
    """Yields each device that a claim holds. Devices with admin access are not held."""
    for claim in list_all_allocated(claims):
        assert claim.status.allocation
        for result in claim.status.allocation.devices.results:
            if not result.admin_access:
                yield claim, result


def gather_from_results(
    results: Iterable[DeviceRequestAllocationResult], features: Features = DEFAULT
) -> AllocatedState:
    """Returns the state that these allocation results make."""
    devices: set[DeviceID] = set()
    shares: set[SharedDeviceID] = set()
    capacity: dict[DeviceID, dict[str, int]] = {}
    for result in results:
        device = DeviceID(result.driver, result.pool, result.device)
        # Without the feature, Kubernetes treats a share as the whole device.
        if result.share_id is None or CONSUMABLE_CAPACITY not in features:
            devices.add(device)
            continue

        shares.add(SharedDeviceID(*device, result.share_id))
        if result.consumed_capacity is not None:
            consumed = capacity.setdefault(device, {})
            for name, text in consumed_by(result, features).items():
                consumed[name] = consumed.get(name, 0) + amounts.parse(text).billionths
    return AllocatedState(devices=frozenset(devices), shares=frozenset(shares), capacity=capacity)


def consumed_by(result: DeviceRequestAllocationResult, features: Features) -> Mapping[str, str]:
    """Returns the amounts that the result consumes, by the names that `capacity_names` describes."""
    return capacity_names.by_own_name(result.consumed_capacity or {}, result.driver, features)


def merge(left: AllocatedState, right: AllocatedState) -> AllocatedState:
    """Merges the states of two sets of claims. The sets must not have a claim in common."""
    # Add the amounts of devices that both sides share.
    capacity: dict[DeviceID, Mapping[str, int]] = {**left.capacity, **right.capacity}
    for device in left.capacity.keys() & right.capacity.keys():
        consumed = dict(left.capacity[device])
        for name, amount in right.capacity[device].items():
            consumed[name] = consumed.get(name, 0) + amount
        capacity[device] = consumed

    return AllocatedState(
        devices=left.devices | right.devices,
        shares=left.shares | right.shares,
        capacity=capacity,
    )
