"""What the search may leave out without changing its answer: the first complete choice.

Each rule stands beside the argument why no answer is lost. All of them rest on two premises, which
`prepare` checks and without which there is no pruning:

- No step can end in an error: each selector, capacity and derived attribute has been asked about
  each device already, and no request for all devices is under a constraint. So only "yes" and "no"
  are left, and a branch without a solution may be left out whatever else it holds.
- Whether a set of devices can be had does not depend on the order in which they are taken: counters
  and capacities add up, common values only get fewer, distinct ones stay distinct.

Two words: a *position* is a candidate's place in the order of the search. A *state* is where the
search stands: the request, how many of its devices it has, and the position from which it goes on.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from . import constraints, features
from .constraints import UNKNOWN, Constraint, Values
from .failures import AllocationError

if TYPE_CHECKING:
    from .devices import Candidate
    from .identity import PoolID
    from .partial import PartialAllocation
    from .requests import Alternatives, ClaimRequests, Request

# Dead ends before it is worth looking at all devices, which costs more than most whole searches.
DEAD_ENDS = 12
# States that are remembered, a few hundred bytes each.
MOST_FAILURES = 200_000

# A constraint, and the values that it sees at each position.
_Constrained = tuple[Constraint, list[Values]]


def prepare(claims: Sequence[ClaimRequests], partial: PartialAllocation) -> Pruner | None:
    """The pruner of this search, or None where a premise does not hold."""
    pruner = Pruner(claims, partial)
    try:
        return pruner if pruner.look_at_all_devices() else None
    except AllocationError:
        return None


class Pruner:
    """What is known of all devices together, and which states have led nowhere.

    It reads the partial allocation that the search changes, and changes nothing in it.
    """

    def __init__(self, claims: Sequence[ClaimRequests], partial: PartialAllocation) -> None:
        self.claims, self.partial = claims, partial
        self.devices = partial.devices
        # Set as soon as it is known that there is no solution at all.
        self.unsolvable = False

        # By request: the positions of the devices that it could have, in order.
        self._eligible: dict[int, list[int]] = {}
        # By position: equal numbers for devices that no request and no rule can tell apart.
        self._alike: list[int] = []
        # By request and constraint: the values at each position. And by request: its constraints
        # of either kind, each with these values.
        self._values: dict[tuple[int, int], list[Values]] = {}
        self._matching: dict[int, list[_Constrained]] = {}
        self._distinct: dict[int, list[_Constrained]] = {}
        # By request: the alternatives of each request that the search comes to after it.
        self._later: dict[int, list[Alternatives]] = {}
        self._counters_used = any(candidate.uses for candidate in self.devices.candidates)
        self._failed: set[Hashable] = set()

    # Before the first state is pruned

    def look_at_all_devices(self) -> bool:
        """Ask everything that can end in an error, and keep the answers; False for no pruning."""
        every_request = [
            request
            for requests in self.claims
            for alternatives in requests
            for request in alternatives
        ]
        for request in every_request:
            self._later[request.key] = list(self._later_than(request))
            if not self._look_at_constraints(request):
                return False
            self._eligible[request.key] = [
                position
                for position, candidate in enumerate(self.devices.candidates)
                if self._could_have(request, candidate)
            ]
        self._find_alike(every_request)
        self._drop_values_that_are_not_common()

        # Rule: a request that has fewer devices than it needs while nothing else is chosen cannot
        # be satisfied after other choices, which only take devices away. If that holds for all
        # alternatives of one request, there is no solution.
        self.unsolvable = any(
            all(map(self._lacks_devices, alternatives))
            for requests in self.claims
            for alternatives in requests
        )
        return True

    def _lacks_devices(self, request: Request) -> bool:
        if request.wants_all and not request.all_devices:
            return True
        return len(self._eligible[request.key]) < request.minimum

    def _look_at_constraints(self, request: Request) -> bool:
        matching = self._matching[request.key] = []
        distinct = self._distinct[request.key] = []
        for index, constraint in enumerate(self.partial.constraints[request.claim_index]):
            if not request.under(constraint.requests):
                continue
            # One device that a constraint refuses would be an error there, not a dead end.
            if request.wants_all:
                return False
            values = self._values_of_devices(request, constraint)
            if values is None:
                return False
            self._values[request.key, index] = values
            (distinct if constraint.distinct else matching).append((constraint, values))
        return True

    def _values_of_devices(self, request: Request, constraint: Constraint) -> list[Values] | None:
        """The values at each position; None where they depend on the order of taking.

        They do where an attribute is a list and the feature for lists is off: the first device may
        have what nothing equals, a later one may not.
        """
        lists = features.LIST_TYPE_ATTRIBUTES in self.devices.features
        by_position: list[Values] = []
        for candidate in self.devices.candidates:
            attribute = self.devices.attribute(request, candidate, constraint.attribute)
            if attribute is None:
                by_position.append(frozenset())
            elif lists:
                by_position.append(constraints.values(attribute))
            else:
                value = constraints.scalar(attribute)
                if value == UNKNOWN:
                    return None
                by_position.append(frozenset((value,)))
        return by_position

    def _could_have(self, request: Request, candidate: Candidate) -> bool:
        """Whether the device suits the request while no other is chosen."""
        devices = self.devices
        # Both are asked of every device before either is a reason to go on: they may be errors.
        selectable = devices.selectable(request, candidate)
        consumed = devices.consumption(request, candidate) if devices.consumable else {}
        if not selectable or consumed is None:
            return False

        if not request.admin and candidate.id in devices.allocated.devices:
            return False
        if candidate.device.consumes_counters and not devices.partitionable:
            return False
        if devices.blocking_taint(request, candidate) or not devices.node_operations(candidate):
            return False

        allocated = devices.allocated.capacity.get(candidate.id, {})
        return all(
            amount.billionths + allocated.get(name, 0) <= candidate.limits[name]
            for name, amount in consumed.items()
        )

    def _find_alike(self, every_request: Sequence[Request]) -> None:
        """Devices are alike if they suit the same requests and weigh the same for every rule."""
        eligible = [set(self._eligible[request.key]) for request in every_request]
        numbers: dict[Hashable, int] = {}
        for position, candidate in enumerate(self.devices.candidates):
            counters: Hashable = None
            if candidate.device.consumes_counters:
                counters = (candidate.pool_id, candidate.uses, candidate.groups)
            shares: Hashable = None
            if self.devices.shareable(candidate):
                shares = self._capacities(candidate, every_request)

            description = (
                tuple(position in positions for positions in eligible),
                tuple(values[position] for values in self._values.values()),
                counters,
                shares,
            )
            self._alike.append(numbers.setdefault(description, len(numbers)))

    def _capacities(self, candidate: Candidate, every_request: Sequence[Request]) -> Hashable:
        """What is left of a shared device, and what each request would consume of it."""
        allocated = self.devices.allocated.capacity.get(candidate.id, {})
        left = tuple(
            (name, limit - allocated.get(name, 0))
            for name, limit in sorted(candidate.limits.items())
        )

        consumed: list[Hashable] = []
        for request in every_request:
            amounts = self.devices.consumption(request, candidate)
            if amounts is None:
                consumed.append(None)
            else:
                consumed.append(
                    tuple((name, amount.billionths) for name, amount in sorted(amounts.items()))
                )
        return left, tuple(consumed), candidate.id in self.devices.allocated.shared

    def _drop_values_that_are_not_common(self) -> None:
        """Rule: devices whose values cannot be common to all requests are in no solution.

        Every solution gives each request under a matchAttribute its count of devices, all with one
        value in common. So only values count that each of these requests finds often enough.
        Requests with alternatives say nothing here: another alternative may be the one chosen.
        """
        for claim, of_claim in enumerate(self.partial.constraints):
            for index, constraint in enumerate(of_claim):
                if constraint.distinct:
                    continue
                under = [
                    alternatives[0]
                    for alternatives in self.claims[claim]
                    if len(alternatives) == 1
                    and alternatives[0].under(constraint.requests)
                    and alternatives[0].minimum
                ]
                if not under:
                    continue

                frequent = [self._frequent_values(request, index) for request in under]
                common = frozenset.intersection(*frequent)
                for request in under:
                    values = self._values[request.key, index]
                    self._eligible[request.key] = [
                        position
                        for position in self._eligible[request.key]
                        if values[position] & common
                    ]

    def _frequent_values(self, request: Request, constraint: int) -> Values:
        """The values that as many eligible devices have as the request needs."""
        values = self._values[request.key, constraint]
        counts: Counter[constraints.Value] = Counter()
        for position in self._eligible[request.key]:
            counts.update(values[position])
        return frozenset(value for value, count in counts.items() if count >= request.count)

    # While the search goes on

    def eligible_from(self, request: Request, start: int) -> Iterator[int]:
        """Rule: only devices that the request could have at all; the others would be refused."""
        positions = self._eligible[request.key]
        return itertools.islice(positions, bisect_left(positions, start), None)

    def alike_now(self, position: int) -> Hashable:
        """Rule: once a device has led nowhere, those with the same key are left out in this state.

        Take any solution with the later of two such devices here. If the earlier one is in it, it
        serves another request, since this request goes on after the later device: exchange the two.
        If it is not, put it in the place of the later one. Either is a solution with the earlier
        device here, and there was none.
        """
        return self._alike[position], self._use(self.devices.candidates[position])

    def _use(self, candidate: Candidate) -> Hashable:
        """What the partial allocation has done with the device."""
        partial = self.partial
        holders = partial.holders.get(candidate.id)
        if holders:
            return tuple(sorted(holders))
        if partial.share_count.get(candidate.id):
            return "shared", tuple(sorted(partial.shares[candidate.id].items()))
        return None

    def state(self, request: Request, index: int, start: int) -> Hashable:
        """Rule: what has led nowhere once leads nowhere again. Equal states have the same future.

        That future depends on the request and how many of its devices are missing, on where in the
        order it goes on, on how many devices the claim has (there is a maximum), on what the
        claim's constraints have kept, and on what is used of which devices. Of the last only counts
        matter, of alike devices before and after the start: alike devices can be exchanged.
        Counters and groups follow from which devices are used.
        """
        partial = self.partial
        used: Counter[Hashable] = Counter()
        for position, candidate in self._used_devices():
            used[self._alike[position], self._use(candidate), position >= start] += 1

        claim = request.claim_index
        return (
            request.key,
            index,
            bisect_left(self._eligible[request.key], start),
            len(partial.chosen[claim]),
            tuple(constraint.state() for constraint in partial.constraints[claim]),
            frozenset(used.items()),
        )

    def _used_devices(self) -> Iterator[tuple[int, Candidate]]:
        """Each device that a claim would get, once for each claim."""
        positions = self.devices.positions
        for chosen in self.partial.chosen:
            by_id = {choice.candidate.id: choice.candidate for choice in chosen}
            for device, candidate in by_id.items():
                yield positions[device], candidate

    def has_failed(self, state: Hashable) -> bool:
        return state in self._failed

    def remember_failure(self, state: Hashable) -> int:
        """Keep it, while there is room; how many are kept."""
        if len(self._failed) < MOST_FAILURES:
            self._failed.add(state)
        return len(self._failed)

    def is_dead_end(self, request: Request, missing: int, start: int) -> bool:
        """Rule: this request, or one that comes later, cannot get its devices any more.

        What is taken by now stays taken further on, so a later request sees no more devices than it
        would see now. Of a request with alternatives none may be left.
        """
        if self._is_short(request, missing, start):
            return True
        return any(
            all(map(self._is_short_of_all, alternatives))
            for alternatives in self._later[request.key]
        )

    def _later_than(self, request: Request) -> Iterator[Alternatives]:
        for claim in range(request.claim_index, len(self.claims)):
            for alternatives in self.claims[claim]:
                first = alternatives[0]
                same_claim = claim == request.claim_index
                if same_claim and first.key <= request.key:
                    continue
                # The other subrequests of the list that the search is in are no request of theirs.
                if same_claim and first.parent is not None and first.parent == request.parent:
                    continue
                yield alternatives

    def _is_short_of_all(self, request: Request) -> bool:
        if request.wants_all or request.count <= 0:
            return False
        return self._is_short(request, request.count, 0)

    def _is_short(self, request: Request, missing: int, start: int) -> bool:
        """Whether the request cannot get the devices that it misses, whatever else is chosen."""
        free = self._free(request, start)
        # Rule: each missing device is another one of the free ones.
        return (
            len(free) < missing
            or self._has_no_common_value(request, missing, free)
            or self._has_too_few_distinct_values(request, missing, free)
            or self._exceeds_counters(missing, free)
        )

    def _free(self, request: Request, start: int) -> list[int]:
        partial, candidates = self.partial, self.devices.candidates
        positions = self.eligible_from(request, start)
        if request.admin:
            return [p for p in positions if not partial.in_use(request, candidates[p])]
        # None of the eligible devices is allocated: only those count that were taken since.
        holders = partial.holders
        return [p for p in positions if not holders.get(candidates[p].id)]

    def _has_no_common_value(self, request: Request, missing: int, free: Sequence[int]) -> bool:
        """Rule: under matchAttributes all devices of a request have a value of each in common.

        So there is a choice of one value for each constraint that as many free devices have as are
        missing, among the values that the devices before have in common.
        """
        matching = self._matching[request.key]
        if not matching:
            return False

        counts: dict[Hashable, int] = {}
        for choices in _choices(matching, free):
            for choice in choices:
                counts[choice] = count = counts.get(choice, 0) + 1
                if count >= missing:
                    return False
        return True

    def _has_too_few_distinct_values(
        self, request: Request, missing: int, free: Sequence[int]
    ) -> bool:
        """Rule: under a distinctAttribute each device needs a value of its own that no other has."""
        for constraint, values in self._distinct[request.key]:
            taken = constraint.state()
            assert isinstance(taken, frozenset)
            untaken = frozenset().union(*(values[position] for position in free)) - taken
            if len(untaken) < missing:
                return True
        return False

    def _exceeds_counters(self, missing: int, free: Sequence[int]) -> bool:
        """Rule: the missing devices use at least what as many of the most modest would use.

        That must be left of each counter. Shared devices are left out: they may have paid already.
        """
        if not self._counters_used:
            return False
        amounts: dict[tuple[PoolID, tuple[str, str]], list[int]] = {}
        for position in free:
            candidate = self.devices.candidates[position]
            if not self.devices.shareable(candidate):
                for counter, amount in candidate.uses:
                    amounts.setdefault((candidate.pool_id, counter), []).append(amount)

        for (pool_id, counter), used in amounts.items():
            # Devices that use nothing of this counter are the most modest.
            using = missing - (len(free) - len(used))
            if using > 0:
                left = self.partial.counters(pool_id).left[counter]
                if sum(sorted(used)[:using]) > left:
                    return True
        return False


def _common_values(constraint: Constraint) -> Values | None:
    """What the devices so far have in common; None before the first."""
    state = constraint.state()
    if state is None or isinstance(state, frozenset):
        return state
    return frozenset((state,))  # type: ignore[arg-type]


def _choices(
    matching: Sequence[_Constrained], positions: Sequence[int]
) -> Iterable[Iterable[Hashable]]:
    """At each position: one value for each constraint that this device and those before it have."""
    of_constraints = []
    for constraint, values in matching:
        common = _common_values(constraint)
        own: Iterable[Values] = map(values.__getitem__, positions)
        of_constraints.append(own if common is None else map(common.intersection, own))
    # A product of one factor would be tuples of one value, and slower.
    if len(of_constraints) == 1:
        return of_constraints[0]
    return itertools.starmap(itertools.product, zip(*of_constraints, strict=True))
