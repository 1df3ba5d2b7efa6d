"""The entry point: an Allocator for a cluster, which allocates on one node at a time.

The checks run in the same order as in Kubernetes' allocator, because users see only the error of
the first check that fails.
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
    """The input of a search: the devices of one node, and the claims with their constraints."""

    devices: NodeDevices
    claims: list[ClaimRequests]
    constraints: list[list[Constraint]]
    pools: list[Pool]

    def search(
        self, *, prune_after: int | None = DEAD_ENDS, cancelled: Callable[[], bool] | None = None
    ) -> Search:
        """Returns a search that has not started.

        Only one search of this input may run at a time, because they share the constraints.
        """
        return Search(
            self.devices,
            self.claims,
            self.constraints,
            prune_after=prune_after,
            cancelled=cancelled,
        )


class Allocator:
    """Chooses devices for claims on one node.

    An allocator never changes after its construction, so threads may share it.
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
        """Creates an allocator for the classes and slices of a cluster.

        `allocated` has the devices that are in use. If it is None, they are gathered from the
        claims of `claim_lister`. `claims_to_allocate` is the default of `allocate`.
        """
        if allocated is None:
            join_names = claim_lister.list_all_allocated() if claim_lister else ()
            allocated = state.gather_from_claims(join_names, features)
        self.features = features
        self._claims = list(claims_to_allocate)
        self._classes, self._allocated = class_lister, allocated
        self._index = pools.SliceIndex(slices)
        self._devices = Devices(features)

    def claims_to_allocate(self) -> list[ResourceClaim]:
        """Returns the claims that were passed to the constructor."""
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
        """Returns one result for each claim, or None if the node cannot satisfy all of them.

        The same input always gives the same answer, apart from new share ids. The allocator does
        not remember it: a caller that uses the answer must create an Allocator with the new state.

        AllocationError if the allocator cannot decide. Its `node_only` is True if another node may
        still succeed. CancelledError as soon as `cancelled` returns True. With `prune=False` it
        searches every combination, as Kubernetes does. Otherwise pruning starts after `prune_after`
        dead ends.
        """
        if claims is None:
            claims = self._claims
        search_input = self.search_input(node, claims)
        search = search_input.search(
            prune_after=prune_after if prune else None, cancelled=cancelled
        )
        if not search.run():
            # The devices of an invalid pool might have been enough, so this is not a plain "no".
            if any(pool.is_invalid for pool in search_input.pools):
                raise AllocationError("invalid resource pools were encountered", node_only=True)
            return None

        allocated = []
        for index, claim in enumerate(claims):
            allocated.append(
                results.result(
                    claim,
                    search.solution[index],
                    search.chosen_requests(index),
                    node=node,
                    features=self.features,
                )
            )
        return allocated

    def search_input(
        self,
        node: Node,
        claims: Sequence[ResourceClaim],
        *,
        cancelled: Callable[[], bool] | None = None,
    ) -> SearchInput:
        """Checks the claims and gathers the input of a search. AllocationError if a check fails.

        `cancelled` is called before selectors are evaluated, here and during searches.
        """
        node_pools = pools.gather(self._index, node, self.features)
        devices = self._node_devices(node, node_pools, cancelled)

        # Each claim's constraints are read right after its requests, so that the first error is the
        # one that Kubernetes would report.
        requests_of_claims: list[ClaimRequests] = []
        constraints_of_claims: list[list[Constraint]] = []
        key = 0
        for index, claim in enumerate(claims):
            of_claim = self._read_requests(claim, index, key, devices, node_pools)
            key += sum(map(len, of_claim))
            requests_of_claims.append(of_claim)
            constraints_of_claims.append(self._read_constraints(claim))
        return SearchInput(
            devices=devices,
            claims=requests_of_claims,
            constraints=constraints_of_claims,
            pools=node_pools,
        )

    def with_allocated(self, search_input: SearchInput, allocated: AllocatedState) -> SearchInput:
        """Returns the same input for another set of allocated devices.

        Cached answers that do not depend on the allocated devices are shared with the old input.
        """
        counters = self._counters(search_input.pools, allocated)
        return dataclasses.replace(
            search_input,
            devices=search_input.devices.with_allocated(allocated, counters),
            constraints=constraints.empty_copies(search_input.constraints),
        )

    @property
    def drivers(self) -> frozenset[str]:
        """The drivers that publish slices anywhere in the cluster."""
        return self._index.drivers

    def _node_devices(
        self, node: Node, node_pools: Sequence[Pool], cancelled: Callable[[], bool] | None
    ) -> NodeDevices:
        return NodeDevices(
            node=node,
            candidates=self._devices.in_search_order(node_pools),
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
            # Devices of the pool that only other nodes can use consume the same counters.
            pool = by_id[pool_id]
            whole_pool = self._devices.for_slices((*pool.slices, *pool.slices_elsewhere))
            return PoolCounters(
                pool, (candidate for candidate in whole_pool if allocated.has(candidate.id))
            )

        return counters

    def _read_requests(
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
            minimum = _add_minimum(minimum, claim, spec, alternatives)
            of_claim.append(alternatives)
        return of_claim

    def _find_all_devices(
        self, request: Request, devices: NodeDevices, node_pools: Sequence[Pool]
    ) -> None:
        """Fills the request's `all_devices` for the allocation mode All.

        They include devices that other claims hold. The search then fails on those, because the
        request wants all devices and not just the free ones.
        """
        for pool in node_pools:
            if not pool.is_usable:
                trouble = "being updated" if pool.is_incomplete else "invalid"
                raise AllocationError(
                    f"{request}: asks for all devices, "
                    f"but resource pool {pool.pool_id} is currently {trouble}",
                    detail=pool.trouble,
                    node_only=features.RULES_OF_1_38 in self.features,
                )
            for candidate in self._devices.for_slices(pool.slices):
                if _is_one_of_all(request, candidate, devices):
                    request.all_devices.append(candidate)

    def _read_constraints(self, claim: ResourceClaim) -> list[Constraint]:
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
                constraints.create(
                    requests=constraint.requests,
                    attribute=attribute,
                    distinct=distinct,
                    lists=features.LIST_TYPE_ATTRIBUTES in self.features,
                )
            )
        return of_claim


def _add_minimum(
    minimum: int, claim: ResourceClaim, spec: DeviceRequest, alternatives: Alternatives
) -> int:
    """Returns the minimum number of devices of the claim, with this request added to `minimum`.

    AllocationError if they are more than a claim may have.
    """
    least = min(request.minimum for request in alternatives)
    if least > RESULTS_MAX - minimum:
        raise AllocationError(
            f"claim {claim_name(claim)}, request {spec.name}: "
            f"adding {least} devices exceeds the claim limit of {RESULTS_MAX}, "
            f"with {minimum} already accounted for"
        )
    return minimum + least


def _is_one_of_all(request: Request, candidate: Candidate, devices: NodeDevices) -> bool:
    """Returns True if a request with the allocation mode All means this device, free or not."""
    if not devices.is_selectable(request, candidate):
        return False
    if not devices.consumable:
        return True
    # "All" excludes a device that never has the capacity, and includes one whose capacity is
    # consumed by others.
    consumed = devices.consumption(request, candidate)
    return consumed is not None and candidate.has_room(consumed)
