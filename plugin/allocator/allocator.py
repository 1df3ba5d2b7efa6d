"""The allocator as its callers see it: made of what is known of a cluster, asked for one node at a
time.

The order of its checks is that of Kubernetes' own, because the first that fails is what people
read.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from . import constraints, features, pools, requests, results, search, state
from .counters import PoolCounters
from .devices import Devices
from .failures import AllocationError
from .pruning import PATIENCE
from .requests import RESULTS_MAX, Want, claim_name

if TYPE_CHECKING:
    from ..api.core import Node
    from ..api.scheduling import AllocationResult, ResourceClaim, ResourceSlice
    from .constraints import Constraint
    from .devices import Candidate
    from .features import Features
    from .identity import PoolID
    from .pools import Pool
    from .requests import ClassLister
    from .state import AllocatedState, ClaimLister

Plan = list[list[list[Want]]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Problem:
    """Claims against one node."""

    world: search.World
    plan: Plan
    limits: list[list[Constraint]]
    pools: list[Pool]

    def begin(
        self, *, patience: int | None = PATIENCE, cancelled: Callable[[], bool] | None = None
    ) -> search.Search:
        return search.Search(
            self.world, self.plan, self.limits, patience=patience, cancelled=cancelled
        )

    def chosen(self, run: search.Search, claim: int) -> list[Want]:
        """Of each request of the claim the alternative that the search took."""
        return [
            alternatives[run.alternatives.get((claim, request), 0)]
            for request, alternatives in enumerate(self.plan[claim])
        ]


class Allocator:
    """Decides for one node which devices claims would get. Never changes after it is made: threads
    may share one.
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
            allocated = state.of_claims(
                claim_lister.list_all_allocated() if claim_lister else (), features
            )
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
        cuts: bool = True,
        patience: int = PATIENCE,
        cancelled: Callable[[], bool] | None = None,
    ) -> list[AllocationResult] | None:
        """One result for each claim, or None where the node cannot have them all.

        `cuts=False` searches every combination, as Kubernetes does; otherwise cuts begin after
        `patience` dead ends. AllocationError where there is no answer.
        """
        wanted = self._claims if claims is None else list(claims)
        problem = self.problem(node, wanted)
        run = problem.begin(patience=patience if cuts else None, cancelled=cancelled)
        if not run.run():
            if any(pool.is_invalid for pool in problem.pools):
                raise AllocationError("invalid resource pools were encountered", node_only=True)
            return None
        return [
            results.result(
                claim,
                run.solution[index],
                problem.chosen(run, index),
                node=node,
                features=self.features,
            )
            for index, claim in enumerate(wanted)
        ]

    def problem(self, node: Node, claims: Sequence[ResourceClaim]) -> Problem:
        """All that the search starts from; AllocationError where it could not even start."""
        found = pools.gather(self._index, node, self.features)
        world = self._world(node, found)
        plan, limits = self._prepare(claims, world, found)
        return Problem(world=world, plan=plan, limits=limits, pools=found)

    def _world(self, node: Node, found: Sequence[Pool]) -> search.World:
        by_id = {pool.pool_id: pool for pool in found}

        def counters(pool_id: PoolID) -> PoolCounters:
            pool = by_id[pool_id]
            all_devices = self._devices.of_slices((*pool.slices, *pool.slices_elsewhere))
            return PoolCounters(pool, (one for one in all_devices if self._allocated.has(one.id)))

        return search.World(
            node=node,
            candidates=self._devices.in_order(found),
            allocated=self._allocated,
            enabled=self.features,
            counters=counters,
        )

    def _prepare(
        self, claims: Sequence[ResourceClaim], world: search.World, found: Sequence[Pool]
    ) -> tuple[Plan, list[list[Constraint]]]:
        plan: Plan = []
        limits: list[list[Constraint]] = []
        key = 0
        for index, claim in enumerate(claims):
            minimum = 0
            of_claim: list[list[Want]] = []
            for request in claim.spec.devices.requests or ():
                alternatives = requests.wants(request, claim, index, key, self.features)
                key += len(alternatives)
                for want in alternatives:
                    requests.check(want, self._classes, self.features)
                    if want.wants_all:
                        self._find_all(want, world, found)
                least = min(want.minimum for want in alternatives)
                if least > RESULTS_MAX - minimum:
                    raise AllocationError(
                        f"claim {claim_name(claim)}, request {request.name}: adding {least} devices exceeds the claim "
                        f"limit of {RESULTS_MAX}, with {minimum} already accounted for"
                    )
                minimum += least
                of_claim.append(alternatives)
            plan.append(of_claim)
            limits.append(self._constraints(claim))
        return plan, limits

    def _find_all(self, want: Want, world: search.World, found: Sequence[Pool]) -> None:
        """All devices that the request selects. What others hold is among them: the search fails on
        it.
        """
        for pool in found:
            if not pool.usable:
                trouble = "being updated" if pool.is_incomplete else "invalid"
                raise AllocationError(
                    f"{want}: asks for all devices, but resource pool {pool.pool_id} is currently {trouble}"
                )
            want.all_devices += [
                one for one in self._devices.of_slices(pool.slices) if _in_all(want, one, world)
            ]

    def _constraints(self, claim: ResourceClaim) -> list[Constraint]:
        made = []
        for index, constraint in enumerate(claim.spec.devices.constraints):
            distinct = constraint.match_attribute is None
            attribute = constraint.distinct_attribute if distinct else constraint.match_attribute
            if attribute is None:
                raise AllocationError(
                    f"claim {claim_name(claim)}, constraint #{index}: empty constraint (unsupported constraint type?)"
                )
            made.append(
                constraints.make(
                    requests=constraint.requests,
                    attribute=attribute,
                    distinct=distinct,
                    lists=features.LIST_TYPE_ATTRIBUTES in self.features,
                )
            )
        return made


def _in_all(want: Want, candidate: Candidate, world: search.World) -> bool:
    if not world.selectable(want, candidate):
        return False
    if not world.consumable:
        return True
    consumed = world.consumption(want, candidate)
    return consumed is not None and all(
        amount.billionths <= candidate.limits[name] for name, amount in consumed.items()
    )
