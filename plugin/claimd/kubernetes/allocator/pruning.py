"""Finds branches that the search may skip without changing its answer, the first complete choice.

Each rule is documented with the argument why no answer is lost. All rules rest on two premises.
`prepare` checks them, and there is no pruning if one of them does not hold:

- No step can raise an error. Each selector, capacity and derived attribute has been evaluated for
  each device before, and no request for all devices is under a constraint. So a branch ends only
  with "yes" or "no", and a branch without a solution may be skipped.
- A set of devices is possible or impossible no matter in which order they are taken. Counters and
  capacities add up. Common values only get fewer. Distinct values stay distinct.

Two terms: a *position* is a candidate's index in the order of the search. A *state* is the point
that the search has reached: the request, the number of its devices, and the next position.
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

# Pruning starts after this number of dead ends. Its preparation examines all devices, which costs
# more than most complete searches.
DEAD_ENDS = 12
# The most failed states that are remembered. Each takes a few hundred bytes.
MOST_FAILURES = 200_000

# A constraint, and the values of its attribute at each position.
_Constrained = tuple[Constraint, list[Values]]


def prepare(claims: Sequence[ClaimRequests], partial: PartialAllocation) -> Pruner | None:
    """Returns the pruner for a search, or None if one of the premises does not hold."""
    pruner = Pruner(claims, partial)
    try:
        return pruner if pruner.examine_devices() else None
    except AllocationError:
        return None


class Pruner:
    """Facts about all devices, and the states of the search that have failed.

    It reads the partial allocation of the search and never changes it.
    """

    def __init__(self, claims: Sequence[ClaimRequests], partial: PartialAllocation) -> None:
        self.claims, self.partial = claims, partial
        self.devices = partial.devices
        # True as soon as it is certain that there is no solution.
        self.unsolvable = False

        # By request: the sorted positions of the devices that it could get.
        self._eligible: dict[int, list[int]] = {}
        # By position: a number. Two devices have the same number if no request and no rule can
        # distinguish them.
        self._alike: list[int] = []
        # By request and constraint: the attribute's values at each position. By request: its
        # matchAttribute and its distinctAttribute constraints, each with these values.
        self._values: dict[tuple[int, int], list[Values]] = {}
        self._matching: dict[int, list[_Constrained]] = {}
        self._distinct: dict[int, list[_Constrained]] = {}
        # By request: the alternatives of each request that the search reaches later.
        self._later: dict[int, list[Alternatives]] = {}
        self._counters_used = any(candidate.uses for candidate in self.devices.candidates)
        self._failed: set[Hashable] = set()

    # Preparation

    def examine_devices(self) -> bool:
        """Evaluates every rule that can raise an error, and keeps the results.

        Returns False if the premises do not hold, so that the search must not be pruned.
        """
        every_request: list[Request] = []
        for alternatives in itertools.chain(*self.claims):
            every_request += alternatives

        # Collect the constraints and the eligible devices of each request.
        for request in every_request:
            self._later[request.key] = list(self._later_than(request))
            if not self._examine_constraints(request):
                return False
            eligible = self._eligible[request.key] = []
            for position, candidate in enumerate(self.devices.candidates):
                if self._suits_alone(request, candidate):
                    eligible.append(position)

        self._find_alike(every_request)
        self._drop_values_that_are_not_common()

        # Rule: other choices only take devices away. So a request that has too few devices while
        # no device is chosen can never be satisfied. If this is true for all alternatives of one
        # request, there is no solution.
        self.unsolvable = any(
            all(map(self._lacks_devices, alternatives))
            for alternatives in itertools.chain(*self.claims)
        )
        return True

    def _lacks_devices(self, request: Request) -> bool:
        if request.wants_all and not request.all_devices:
            return True
        return len(self._eligible[request.key]) < request.minimum

    def _examine_constraints(self, request: Request) -> bool:
        """Collects the request's constraints. False if a premise does not hold for one of them."""
        matching = self._matching[request.key] = []
        distinct = self._distinct[request.key] = []
        for index, constraint in enumerate(self.partial.constraints[request.claim_index]):
            if not request.is_under(constraint.requests):
                continue
            # For a request for all devices, a refusal by a constraint is an error, not a dead end.
            if request.wants_all:
                return False
            values = self._values_of_devices(request, constraint)
            if values is None:
                return False
            self._values[request.key, index] = values
            (distinct if constraint.distinct else matching).append((constraint, values))
        return True

    def _values_of_devices(self, request: Request, constraint: Constraint) -> list[Values] | None:
        """Returns the values of the constraint's attribute at each position.

        None if an attribute is a list and the feature for lists is off. Then the order matters: the
        first device may have such a value, and a later one may not.
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

    def _suits_alone(self, request: Request, candidate: Candidate) -> bool:
        """Returns True if the request could get this device while no other device is chosen."""
        devices = self.devices
        # Both may raise an error, so both are evaluated for every device before either decides.
        selectable = devices.is_selectable(request, candidate)
        consumed = devices.consumption(request, candidate) if devices.consumable else {}
        if not selectable or consumed is None:
            return False

        if not request.admin and candidate.id in devices.allocated.devices:
            return False
        if not request.admin and devices.is_left_of_sharing(candidate):
            return False
        if candidate.device.consumes_counters and not devices.partitionable:
            return False
        if devices.blocking_taint(request, candidate) or not devices.can_skip_operations(candidate):
            return False

        allocated = devices.allocated.capacity.get(candidate.id, {})
        return candidate.has_room(consumed, allocated)

    def _find_alike(self, every_request: Sequence[Request]) -> None:
        """Gives the same number to devices that all requests and rules treat in the same way."""
        eligible = [set(self._eligible[request.key]) for request in every_request]
        numbers: dict[Hashable, int] = {}
        for position, candidate in enumerate(self.devices.candidates):
            counters: Hashable = None
            if candidate.device.consumes_counters:
                counters = (candidate.pool_id, candidate.uses, candidate.groups)
            shares: Hashable = None
            if self.devices.is_shareable(candidate):
                shares = self._capacities(candidate, every_request)

            description = (
                tuple(position in positions for positions in eligible),
                tuple(values[position] for values in self._values.values()),
                counters,
                shares,
            )
            self._alike.append(numbers.setdefault(description, len(numbers)))

    def _capacities(self, candidate: Candidate, every_request: Sequence[Request]) -> Hashable:
        """Describes a shared device: its free capacity, and the consumption of each request."""
        allocated = self.devices.allocated.capacity.get(candidate.id, {})
        left = []
        for name, limit in sorted(candidate.limits.items()):
            left.append((name, limit - allocated.get(name, 0)))

        consumed: list[Hashable] = []
        for request in every_request:
            amounts = self.devices.consumption(request, candidate)
            if amounts is None:
                consumed.append(None)
                continue
            of_request = []
            for name, amount in sorted(amounts.items()):
                of_request.append((name, amount.billionths))
            consumed.append(tuple(of_request))
        return tuple(left), tuple(consumed), candidate.id in self.devices.allocated.shared

    def _drop_values_that_are_not_common(self) -> None:
        """Applies a rule: a device is useless if its values cannot be common to all requests.

        A solution gives each request under a matchAttribute its number of devices, and all of them
        have a common value. So only those values are possible that enough devices of each request
        have. Requests with alternatives are ignored, because another alternative may be chosen.
        """
        for claim, of_claim in enumerate(self.partial.constraints):
            for index, constraint in enumerate(of_claim):
                if constraint.distinct:
                    continue
                # The requests under this constraint that every solution must satisfy.
                under: list[Request] = []
                for alternatives in self.claims[claim]:
                    request = alternatives[0]
                    is_only_one = len(alternatives) == 1
                    if is_only_one and request.is_under(constraint.requests) and request.minimum:
                        under.append(request)
                if not under:
                    continue

                # Keep only the devices that have a value which is possible for all of them.
                frequent = [self._frequent_values(request, index) for request in under]
                common = frozenset.intersection(*frequent)
                for request in under:
                    values = self._values[request.key, index]
                    eligible = self._eligible[request.key]
                    self._eligible[request.key] = [
                        position for position in eligible if values[position] & common
                    ]

    def _frequent_values(self, request: Request, constraint: int) -> Values:
        """Returns the values that enough eligible devices have for the request."""
        values = self._values[request.key, constraint]
        counts: Counter[constraints.Value] = Counter()
        for position in self._eligible[request.key]:
            counts.update(values[position])
        return frozenset(value for value, count in counts.items() if count >= request.count)

    # During the search

    def eligible_from(self, request: Request, start: int) -> Iterator[int]:
        """Returns the positions from `start` on that the search must try.

        Rule: the search would refuse all other devices anyway.
        """
        positions = self._eligible[request.key]
        return itertools.islice(positions, bisect_left(positions, start), None)

    def likeness(self, position: int) -> Hashable:
        """Returns a key for the device at this position, as the partial allocation is now.

        Rule: after a device has failed in this state, other devices with the same key need not be
        tried. Suppose that there were a solution with the later of two such devices here. If it
        also contains the earlier device, then for another request, because this request continues
        after the later device: exchange the two. If it does not, replace the later device by the
        earlier one. Both ways give a solution with the earlier device here, but there was none.
        """
        return self._alike[position], self._use(self.devices.candidates[position])

    def _use(self, candidate: Candidate) -> Hashable:
        """Describes how the partial allocation uses the device; None if it does not."""
        partial = self.partial
        holders = partial.holders.get(candidate.id)
        if holders:
            return tuple(sorted(holders))
        if partial.share_count.get(candidate.id):
            return "shared", tuple(sorted(partial.shares[candidate.id].items()))
        return None

    def state(self, request: Request, index: int, start: int) -> Hashable:
        """Returns a key for the state of the search.

        Rule: a state that has failed once fails again, because equal states have the same future.
        The future depends on the request and the number of its devices, on the next position, on
        the number of devices of the claim (which is limited), on the state of the claim's
        constraints, and on the devices that are used. For the used devices only their numbers
        matter, counted separately before and after the start, because alike devices can be
        exchanged. Counters and compatibility groups follow from the used devices.
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
        """Yields position and device of each chosen device, once for each claim that has it."""
        positions = self.devices.positions
        for chosen in self.partial.chosen:
            by_id = {choice.candidate.id: choice.candidate for choice in chosen}
            for device, candidate in by_id.items():
                yield positions[device], candidate

    def has_failed(self, state: Hashable) -> bool:
        """Returns True if the search has already failed in this state."""
        return state in self._failed

    def remember_failure(self, state: Hashable) -> int:
        """Remembers a failed state, up to a limit. Returns the number of remembered states."""
        if len(self._failed) < MOST_FAILURES:
            self._failed.add(state)
        return len(self._failed)

    def is_dead_end(self, request: Request, missing: int, start: int) -> bool:
        """Returns True if this request, or a later one, can no longer get its devices.

        Rule: the devices that are taken now stay taken in this branch. So a later request will not
        have more devices than it has now. A request with alternatives is impossible only if all of
        them are.
        """
        if self._is_short(request, missing, start):
            return True
        return any(
            all(map(self._is_short_of_all, alternatives))
            for alternatives in self._later[request.key]
        )

    def _later_than(self, request: Request) -> Iterator[Alternatives]:
        """Yields the alternatives of each request that the search reaches after this one."""
        for claim in range(request.claim_index, len(self.claims)):
            for alternatives in self.claims[claim]:
                first = alternatives[0]
                same_claim = claim == request.claim_index
                if same_claim and first.key <= request.key:
                    continue
                # The other subrequests of the current list are alternatives, not later requests.
                if same_claim and first.parent is not None and first.parent == request.parent:
                    continue
                yield alternatives

    def _is_short_of_all(self, request: Request) -> bool:
        if request.wants_all or request.count <= 0:
            return False
        return self._is_short(request, request.count, 0)

    def _is_short(self, request: Request, missing: int, start: int) -> bool:
        """Returns True if the request cannot get its missing devices, whatever else is chosen."""
        free = self._free(request, start)
        # Rule: each missing device must be a different one of the free devices.
        return (
            len(free) < missing
            or self._has_no_common_value(request, missing, free)
            or self._has_too_few_distinct_values(request, missing, free)
            or self._exceeds_counters(missing, free)
        )

    def _free(self, request: Request, start: int) -> list[int]:
        """Returns the eligible positions from `start` on that are not taken."""
        partial, candidates = self.partial, self.devices.candidates
        positions = self.eligible_from(request, start)
        if request.admin:
            return [p for p in positions if not partial.is_in_use(request, candidates[p])]
        # Eligible devices are not allocated to other claims, so only this search can hold them.
        holders = partial.holders
        return [p for p in positions if not holders.get(candidates[p].id)]

    def _has_no_common_value(self, request: Request, missing: int, free: Sequence[int]) -> bool:
        """Returns True if the matchAttribute constraints leave too few free devices.

        Rule: all devices of a request share one value for each constraint. So for one choice of
        values, which the earlier devices must share too, there must be enough free devices.
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
        """Returns True if a distinctAttribute constraint leaves too few unused values.

        Rule: each missing device needs a value that no other device has.
        """
        for constraint, values in self._distinct[request.key]:
            taken = constraint.state()
            assert isinstance(taken, frozenset)
            untaken = frozenset().union(*(values[position] for position in free)) - taken
            if len(untaken) < missing:
                return True
        return False

    def _exceeds_counters(self, missing: int, free: Sequence[int]) -> bool:
        """Returns True if the missing devices need more of a counter than is left.

        Rule: they use at least as much as the same number of the devices that use the least. Shared
        devices are ignored, because an earlier share may already have used their counters.
        """
        if not self._counters_used:
            return False
        amounts: dict[tuple[PoolID, tuple[str, str]], list[int]] = {}
        for position in free:
            candidate = self.devices.candidates[position]
            if not self.devices.is_shareable(candidate):
                for counter, amount in candidate.uses:
                    amounts.setdefault((candidate.pool_id, counter), []).append(amount)

        for (pool_id, counter), used in amounts.items():
            # Devices that do not use this counter at all come first.
            using = missing - (len(free) - len(used))
            if using > 0:
                left = self.partial.counters(pool_id).left[counter]
                if sum(sorted(used)[:using]) > left:
                    return True
        return False


def _common_values(constraint: Constraint) -> Values | None:
    """Returns the values that the chosen devices have in common; None before the first device."""
    state = constraint.state()
    if state is None or isinstance(state, frozenset):
        return state
    return frozenset((state,))  # type: ignore[arg-type]


def _choices(
    matching: Sequence[_Constrained], positions: Sequence[int]
) -> Iterable[Iterable[Hashable]]:
    """Yields for each position all choices of one value per constraint.

    A value counts if both the device and the devices that are already chosen have it.
    """
    of_constraints = []
    for constraint, values in matching:
        common = _common_values(constraint)
        own: Iterable[Values] = map(values.__getitem__, positions)
        of_constraints.append(own if common is None else map(common.intersection, own))
    # The product of a single factor would consist of tuples with one value, and would be slower.
    if len(of_constraints) == 1:
        return of_constraints[0]
    return itertools.starmap(itertools.product, zip(*of_constraints, strict=True))
