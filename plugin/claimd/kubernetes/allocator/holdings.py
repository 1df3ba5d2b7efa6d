"""The devices that allocated claims hold, by device and by pool."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from . import state
from .identity import DeviceID, PoolID
from .requests import claim_name

if TYPE_CHECKING:
    from ..api.scheduling import DeviceRequestAllocationResult, ResourceClaim


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Holding:
    """One device, or a share of one, that a claim (namespace/name) holds."""

    claim: str
    device: DeviceID
    result: DeviceRequestAllocationResult


class Holdings:
    """The devices of all allocated claims. It never changes after its construction.

    A device with admin access is not held.
    """

    def __init__(self, claims: Iterable[ResourceClaim]) -> None:
        self._by_pool: dict[PoolID, list[Holding]] = {}
        self._claims: dict[DeviceID, tuple[str, ...]] = {}
        for claim, result in state.held_results(claims):
            device = DeviceID(result.driver, result.pool, result.device)
            name = claim_name(claim)
            holding = Holding(claim=name, device=device, result=result)
            self._by_pool.setdefault(PoolID(result.driver, result.pool), []).append(holding)

            # A claim may hold several shares of one device.
            if name not in self._claims.get(device, ()):
                self._claims[device] = (*self._claims.get(device, ()), name)

    def claims_of(self, device: DeviceID) -> tuple[str, ...]:
        """Returns the claims that hold the device. There may be several if the device is shared."""
        return self._claims.get(device, ())

    def in_pools(self, pools: Collection[PoolID]) -> list[Holding]:
        """Returns the holdings in these pools, sorted by pool."""
        return [holding for pool in sorted(pools) for holding in self._by_pool.get(pool, ())]
