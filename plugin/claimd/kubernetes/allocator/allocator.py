"""The allocator as its callers see it: made for a cluster, asked for one node at a time.

The order of its checks is that of Kubernetes' own, because the first that fails is what people
read.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from . import constraints, features, pools, requests, results, state
from .counters import PoolCounters
from .devices import Devices
from .failures import AllocationError
from .node_devices import NodeDevices
from .pruning import DEAD_ENDS
from .requests import RESULTS_MAX, claim_name
from .search import Search

if TYPE_CHECKING:
    from ..api.core import Node
    from ..api.scheduling import AllocationResult, DeviceRequest, ResourceClaim, ResourceSlice
    from .constraints import Constraint
    from .devices import Candidate
    from .features import Features
    from .identity import PoolID
    from .pools import Pool
    from .requests import Alternatives, ClaimRequests, ClassLister, Request
    from .state import AllocatedState, ClaimLister


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchInput:
    """Claims put against one node: all that a search starts from."""

    devices: NodeDevices
    claims: list[ClaimRequests]
    constraints: list[list[Constraint]]
    pools: list[Pool]

    def search(
        self, *, prune_after: int | None = DEAD_ENDS, cancelled: Callable[[], bool] | None = None
    ) -> Search:
        """A search that has not begun. One at a time: they share the constraints."""
        return Search(
            self.devices,
            self.claims,
            self.constraints,
            prune_after=prune_after,
            cancelled=cancelled,
        )


class Allocator:
    """Decides for one node which devices claims would get.

    It never changes after it is made, so threads may share one.
    """

    def __init__(
        self,
        *,
        class_lister: ClassLister,
        slices: Iterable[ResourceSlice],
        claims_to_allocate: Sequence[ResourceClaim] = (),
        claim_lister: ClaimLister | None = None,
        allocated: AllocatedState | None = None,
        features: Features = features.DEFAULT,
    ) -> None:
        """What is taken comes from `allocated`, or else from the claims of `claim_lister`."""
        if allocated is None:
            listed = claim_lister.list_all_allocated() if claim_lister else ()
            allocated = state.of_claims(listed, features)
        self.features = features
        self._claims = list(claims_to_allocate)
        self._classes, self._allocated = class_lister, allocated
        self._index = pools.SliceIndex(slices)
        self._devices = Devices()

    def claims_to_allocate(self) -> list[ResourceClaim]:
        return list(self._claims)

    def allocate(
        self,
        node: Node,
        claims: Sequence[ResourceClaim] | None = None,
        *,
        prune: bool = True,
        prune_after: int = DEAD_ENDS,
        cancelled: Callable[[], bool] | None = None,
    ) -> list[AllocationResult] | None:
        """One result for each claim, or None where the node cannot have them all.

        The same objects always give the same answer, new share ids aside. Nothing is kept of it:
        who uses the answer has to make an Allocator with the new state.

        AllocationError where there is no answer, `node_only` where another node may have one;
        CancelledError as soon as `cancelled` says so. `prune=False` searches every combination, as
        Kubernetes does; otherwise pruning begins after `prune_after` dead ends.
        """
        if claims is None:
            claims = self._claims
        search_input = self.search_input(node, claims)
        search = search_input.search(
            prune_after=prune_after if prune else None, cancelled=cancelled
        )
        if not search.run():
            # Whether an invalid pool would have helped nobody knows.
            if any(pool.is_invalid for pool in search_input.pools):
                raise AllocationError("invalid resource pools were encountered", node_only=True)
            return None

        return [
            results.result(
                claim,
                search.solution[index],
                search.taken_requests(index),
                node=node,
                features=self.features,
            )
            for index, claim in enumerate(claims)
        ]

    def search_input(
        self,
        node: Node,
        claims: Sequence[ResourceClaim],
        *,
        cancelled: Callable[[], bool] | None = None,
    ) -> SearchInput:
        """All that the search starts from; AllocationError where it could not even start.

        `cancelled` is asked before selectors are evaluated, here and in searches.
        """
        node_pools = pools.gather(self._index, node, self.features)
        devices = self._node_devices(node, node_pools, cancelled)

        # Claim by claim, each with its constraints, so that the first error is Kubernetes' first.
        requests_of_claims: list[ClaimRequests] = []
        constraints_of_claims: list[list[Constraint]] = []
        key = 0
        for index, claim in enumerate(claims):
            of_claim = self._requests_of(claim, index, key, devices, node_pools)
            key += sum(map(len, of_claim))
            requests_of_claims.append(of_claim)
            constraints_of_claims.append(self._constraints_of(claim))
        return SearchInput(
            devices=devices,
            claims=requests_of_claims,
            constraints=constraints_of_claims,
            pools=node_pools,
        )

    def with_allocated(self, search_input: SearchInput, allocated: AllocatedState) -> SearchInput:
        """The same question where other devices are taken; what it found out is kept."""
        counters = self._counters(search_input.pools, allocated)
        return dataclasses.replace(
            search_input,
            devices=search_input.devices.with_allocated(allocated, counters),
            constraints=constraints.fresh(search_input.constraints),
        )

    @property
    def drivers(self) -> frozenset[str]:
        """All drivers that publish anything, on whichever node."""
        return self._index.drivers

    def _node_devices(
        self, node: Node, node_pools: Sequence[Pool], cancelled: Callable[[], bool] | None
    ) -> NodeDevices:
        return NodeDevices(
            node=node,
            candidates=self._devices.in_order(node_pools),
            allocated=self._allocated,
            enabled=self.features,
            counters=self._counters(node_pools, self._allocated),
            cancelled=cancelled,
        )

    def _counters(
        self, node_pools: Sequence[Pool], allocated: AllocatedState
    ) -> Callable[[PoolID], PoolCounters]:
        by_id = {pool.pool_id: pool for pool in node_pools}

        def counters(pool_id: PoolID) -> PoolCounters:
            # Devices of the pool that only other nodes can use draw on the same counters.
            pool = by_id[pool_id]
            whole_pool = self._devices.of_slices((*pool.slices, *pool.slices_elsewhere))
            return PoolCounters(
                pool, (candidate for candidate in whole_pool if allocated.has(candidate.id))
            )

        return counters

    def _requests_of(
        self,
        claim: ResourceClaim,
        index: int,
        key: int,
        devices: NodeDevices,
        node_pools: Sequence[Pool],
    ) -> ClaimRequests:
        minimum = 0
        of_claim: ClaimRequests = []
        for spec in claim.spec.devices.requests or ():
            alternatives = requests.alternatives(spec, claim, index, key, self.features)
            key += len(alternatives)
            for request in alternatives:
                requests.check(request, self._classes, self.features)
                if request.wants_all:
                    self._find_all_devices(request, devices, node_pools)
            minimum = _added(minimum, claim, spec, alternatives)
            of_claim.append(alternatives)
        return of_claim

    def _find_all_devices(
        self, request: Request, devices: NodeDevices, node_pools: Sequence[Pool]
    ) -> None:
        """All devices that the request selects, also those that others hold.

        The search fails on the latter: all devices are wanted, not all that are free.
        """
        for pool in node_pools:
            if not pool.usable:
                trouble = "being updated" if pool.is_incomplete else "invalid"
                raise AllocationError(
                    f"{request}: asks for all devices, "
                    f"but resource pool {pool.pool_id} is currently {trouble}"
                )
            for candidate in self._devices.of_slices(pool.slices):
                if _is_one_of_all(request, candidate, devices):
                    request.all_devices.append(candidate)

    def _constraints_of(self, claim: ResourceClaim) -> list[Constraint]:
        of_claim = []
        for number, constraint in enumerate(claim.spec.devices.constraints, 1):
            distinct = constraint.match_attribute is None
            attribute = constraint.match_attribute
            if distinct and not features.takes_oldest(self.features):
                attribute = constraint.distinct_attribute
            if attribute is None:
                raise AllocationError(
                    f"claim {claim_name(claim)}, constraint {number}: "
                    "empty constraint (unsupported constraint type?)"
                )
            of_claim.append(
                constraints.make(
                    requests=constraint.requests,
                    attribute=attribute,
                    distinct=distinct,
                    lists=features.LIST_TYPE_ATTRIBUTES in self.features,
                )
            )
        return of_claim


def _added(
    minimum: int, claim: ResourceClaim, spec: DeviceRequest, alternatives: Alternatives
) -> int:
    """How many devices the claim takes at least with this request; AllocationError if too many."""
    least = min(request.minimum for request in alternatives)
    if least > RESULTS_MAX - minimum:
        raise AllocationError(
            f"claim {claim_name(claim)}, request {spec.name}: "
            f"adding {least} devices exceeds the claim limit of {RESULTS_MAX}, "
            f"with {minimum} already accounted for"
        )
    return minimum + least


def _is_one_of_all(request: Request, candidate: Candidate, devices: NodeDevices) -> bool:
    if not devices.selectable(request, candidate):
        return False
    if not devices.consumable:
        return True
    # A device that could never have the capacity is not asked for; one that has it no more is.
    consumed = devices.consumption(request, candidate)
    return consumed is not None and all(
        amount.billionths <= candidate.limits[name] for name, amount in consumed.items()
    )
