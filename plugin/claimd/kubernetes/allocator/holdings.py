"""Who holds what: each device of each claim's allocation. No search here."""

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
    """What all allocated claims hold; admin access holds nothing. It never changes."""

    def __init__(self, claims: Iterable[ResourceClaim]) -> None:
        self._by_pool: dict[PoolID, list[Holding]] = {}
        self._claims: dict[DeviceID, tuple[str, ...]] = {}
        for claim, result in state.results_of(claims):
            device = DeviceID(result.driver, result.pool, result.device)
            name = claim_name(claim)
            holding = Holding(claim=name, device=device, result=result)
            self._by_pool.setdefault(PoolID(result.driver, result.pool), []).append(holding)
            if name not in self._claims.get(device, ()):
                self._claims[device] = (*self._claims.get(device, ()), name)

    def claims_of(self, device: DeviceID) -> tuple[str, ...]:
        """The claims that hold the device; several where it is shared."""
        return self._claims.get(device, ())

    def of_pools(self, pools: Collection[PoolID]) -> list[Holding]:
        return [holding for pool in sorted(pools) for holding in self._by_pool.get(pool, ())]
