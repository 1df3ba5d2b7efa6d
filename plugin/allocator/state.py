"""What is already allocated, gathered from the claims that have it. No search here."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

from . import amounts
from .features import CONSUMABLE_CAPACITY, DEFAULT, Features
from .identity import DeviceID, SharedDeviceID

if TYPE_CHECKING:
    from ..api.scheduling import ResourceClaim


class ClaimLister(Protocol):
    def list_all_allocated(self) -> Iterable[ResourceClaim]:
        """Only claims that are allocated."""
        ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class AllocatedState:
    devices: frozenset[DeviceID] = frozenset()  # each held by one claim alone
    shares: frozenset[SharedDeviceID] = frozenset()
    capacity: Mapping[DeviceID, Mapping[str, int]] = dataclasses.field(
        default_factory=dict
    )  # consumed, in billionths
    shared: frozenset[DeviceID] = dataclasses.field(init=False)  # devices that have a share

    def __post_init__(self) -> None:
        shared = frozenset(share.device_id for share in self.shares) | frozenset(self.capacity)
        object.__setattr__(self, "shared", shared)

    def has(self, device: DeviceID) -> bool:
        """Whether anything of the device is allocated."""
        return device in self.devices or device in self.shared


def list_all_allocated(claims: Iterable[ResourceClaim]) -> list[ResourceClaim]:
    return [claim for claim in claims if claim.status.allocation]


def of_claims(claims: Iterable[ResourceClaim], features: Features = DEFAULT) -> AllocatedState:
    """What these claims hold. Admin access holds nothing."""
    devices: set[DeviceID] = set()
    shares: set[SharedDeviceID] = set()
    capacity: dict[DeviceID, dict[str, int]] = {}
    for claim in list_all_allocated(claims):
        assert claim.status.allocation
        for result in claim.status.allocation.devices.results:
            if result.admin_access:
                continue
            device = DeviceID(result.driver, result.pool, result.device)
            if result.share_id is None or CONSUMABLE_CAPACITY not in features:
                devices.add(device)
                continue
            shares.add(SharedDeviceID(*device, result.share_id))
            if result.consumed_capacity is not None:
                consumed = capacity.setdefault(device, {})
                for name, text in result.consumed_capacity.items():
                    consumed[name] = consumed.get(name, 0) + amounts.parse(text).billionths
    return AllocatedState(devices=frozenset(devices), shares=frozenset(shares), capacity=capacity)


def together(one: AllocatedState, other: AllocatedState) -> AllocatedState:
    """What two sets of claims hold that have no claim in common."""
    capacity = {
        device: dict(consumed)
        for device, consumed in one.capacity.items()
        if device in other.capacity
    }
    for device, consumed in capacity.items():
        for name, amount in other.capacity[device].items():
            consumed[name] = consumed.get(name, 0) + amount
    return AllocatedState(
        devices=one.devices | other.devices,
        shares=one.shares | other.shares,
        capacity={**one.capacity, **other.capacity, **capacity},
    )
