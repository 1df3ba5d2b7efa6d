"""What the search may leave out without changing its answer. Each cut stands beside the reason why
that is so.

All of them rest on two premises, which `find` checks and without which there are no cuts:

- No step can end in an error: each selector, capacity and derived attribute has been asked about each device already,
  and no request for all devices is under a constraint. So only "yes" and "no" are left, and a branch without a
  solution may be left out whatever else it holds.
- Whether a set of devices can be had does not depend on the order in which they are taken: counters and capacities
  add up, common values only get fewer, distinct ones stay distinct.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from typing import TYPE_CHECKING

from . import constraints, features, relax, taints
from .constraints import UNKNOWN, Values
from .failures import AllocationError

if TYPE_CHECKING:
    from .devices import Candidate
    from .identity import PoolID
    from .requests import Want
    from .search import Search

PATIENCE = 12  # dead ends before it is worth looking at all devices
LONG = 250  # and before parts of what is asked for are tried alone
REMEMBERED = 200_000  # places


def find(search: Search) -> Cuts | None:
    """None where a premise does not hold."""
    made = Cuts(search)
    try:
        return made if made.look() else None
    except AllocationError:
        return None


class Cuts:
    def __init__(self, search: Search) -> None:
        self.search = search
        self.positions: dict[
            int, list[int]
        ] = {}  # by request: the devices that it could have, in order
        self.kinds: list[
            int
        ] = []  # by position: equal for devices that no request and no rule can tell apart
        self.hopeless = False
        self._counted = any(one.uses for one in search.world.candidates)
        self._values: dict[
            tuple[int, int], list[Values]
        ] = {}  # by request and constraint, by position
        self._failed: set[Hashable] = set()
        self._tried_parts = False

    def look(self) -> bool:
        search = self.search
        wants = [want for claim in search.plan for request in claim for want in request]
        for want in wants:
            for index, constraint in enumerate(search.limits[want.claim_index]):
                if want.under(constraint.requests) and (
                    want.wants_all or not self._look_at_values(want, index)
                ):
                    return False
            self.positions[want.key] = [
                position
                for position, one in enumerate(search.world.candidates)
                if self._could_have(want, one)
            ]
        self._sort_kinds(wants)
        self._drop_lonely_values()
        # Cut: a request that has fewer devices than it needs even when nothing else is chosen yet
        # cannot be satisfied
        # after other choices, which only take devices away. Then nothing can be.
        self.hopeless = any(
            all(
                len(self.positions[want.key]) < want.minimum
                or (want.wants_all and not want.all_devices)
                for want in request
            )
            for claim in search.plan
            for request in claim
        )
        return True

    def _look_at_values(self, want: Want, index: int) -> bool:
        """Distinct values without the feature for lists depend on the order where one is a list: no
        cuts then.
        """
        search = self.search
        constraint = search.limits[want.claim_index][index]
        lists = features.LIST_TYPE_ATTRIBUTES in search.world.features
        found: list[Values] = []
        for candidate in search.world.candidates:
            attribute = search.world.attribute(want, candidate, constraint.attribute)
            if attribute is None:
                found.append(frozenset())
                continue
            values = (
                constraints.values(attribute)
                if lists
                else frozenset((constraints.scalar(attribute),))
            )
            if UNKNOWN in values:
                return False
            found.append(values)
        self._values[want.key, index] = found
        return True

    def _could_have(self, want: Want, candidate: Candidate) -> bool:
        """Whether the device suits the request while no other is chosen."""
        world = self.search.world
        selectable = world.selectable(want, candidate)
        consumed = world.consumption(want, candidate) if world.consumable else {}
        if not selectable or consumed is None:
            return False
        if not want.admin and candidate.id in world.allocated.devices:
            return False
        if candidate.device.consumes_counters and not world.partitionable:
            return False
        if features.DEVICE_TAINTS in world.features and taints.blocking(
            candidate.device.taints, want.tolerations
        ):
            return False
        allocated = world.allocated.capacity.get(candidate.id, {})
        return world.node_operations(candidate) and all(
            amount.billionths + allocated.get(name, 0) <= candidate.limits[name]
            for name, amount in consumed.items()
        )

    def _sort_kinds(self, wants: Sequence[Want]) -> None:
        world = self.search.world
        suits = [set(self.positions[want.key]) for want in wants]
        known: dict[Hashable, int] = {}
        for position, candidate in enumerate(world.candidates):
            shared: Hashable = None
            if world.shareable(candidate):
                left = world.allocated.capacity.get(candidate.id, {})
                consumed = []
                for want in wants:
                    amounts = world.consumption(want, candidate)
                    consumed.append(
                        amounts is not None
                        and tuple((name, one.billionths) for name, one in sorted(amounts.items()))
                    )
                shared = (
                    tuple(
                        (name, limit - left.get(name, 0))
                        for name, limit in sorted(candidate.limits.items())
                    ),
                    tuple(consumed),
                    candidate.id in world.allocated.shared,
                )
            kind = (
                tuple(position in suit for suit in suits),
                tuple(values[position] for values in self._values.values()),
                (candidate.pool_id, candidate.uses, candidate.groups)
                if candidate.device.consumes_counters
                else None,
                shared,
            )
            self.kinds.append(known.setdefault(kind, len(known)))

    def _drop_lonely_values(self) -> None:
        """Cut: a value that not every request under a matchAttribute has often enough is common to
        no solution.

        Every solution gives each of these requests its count of devices, all with one value in
        common. Requests with alternatives say nothing here, as another alternative may be the one
        that is chosen.
        """
        search = self.search
        for claim, limits in enumerate(search.limits):
            for index, constraint in enumerate(limits):
                if constraint.distinct:
                    continue
                under = [
                    request[0]
                    for request in search.plan[claim]
                    if len(request) == 1
                    and request[0].under(constraint.requests)
                    and request[0].minimum
                ]
                common: set[constraints.Value] | None = None
                for want in under:
                    values = self._values[want.key, index]
                    counts = Counter(
                        value for position in self.positions[want.key] for value in values[position]
                    )
                    often = {value for value, count in counts.items() if count >= want.count}
                    common = often if common is None else common & often
                for want in under:
                    assert common is not None
                    values = self._values[want.key, index]
                    self.positions[want.key] = [
                        p for p in self.positions[want.key] if values[p] & common
                    ]

    def following(self, want: Want, start: int) -> Iterator[int]:
        """Cut: only devices that could be had at all. The others would be refused one by one."""
        positions = self.positions[want.key]
        return itertools.islice(positions, bisect_left(positions, start), None)

    def likeness(self, position: int) -> Hashable:
        """Cut: after a device has led nowhere, those that are like it now are left out at the same
        place.

        Take any solution with the later of two alike devices here. If the earlier one is in it, it
        serves another request (this one goes on after the later device): exchange the two. If not,
        put it in the place of the later. Either is a solution with the earlier device here, and
        there was none.
        """
        return self.kinds[position], self._use(self.search.world.candidates[position])

    def _use(self, candidate: Candidate) -> Hashable:
        """What this attempt has done with the device so far."""
        search = self.search
        holders = search.holders.get(candidate.id)
        if holders:
            return tuple(sorted(holders))
        if search.share_count.get(candidate.id):
            return "shared", tuple(sorted(search.shares[candidate.id].items()))
        return None

    def place(self, want: Want, index: int, start: int) -> Hashable:
        """Cut: what has led nowhere once leads nowhere again. Equal places have the same future.

        The future of a place depends on the request and how much of it is left, on where in the
        order it goes on, on how many devices the claim has, on what its constraints have taken so
        far, and on what is used of which devices. Of these only kinds count, and whether they lie
        before the place: alike devices can be exchanged. Counters and groups follow from the kinds
        that are used.
        """
        search = self.search
        used: Counter[Hashable] = Counter()
        for position, candidate in self._touched():
            used[self.kinds[position], self._use(candidate), position >= start] += 1
        positions = self.positions[want.key]
        return (
            want.key,
            index,
            bisect_left(positions, start),
            len(search.chosen[want.claim_index]),
            tuple(constraint.state() for constraint in search.limits[want.claim_index]),
            frozenset(used.items()),
        )

    def _touched(self) -> Iterator[tuple[int, Candidate]]:
        search = self.search
        where = search.world.positions
        for claim in search.chosen:
            for one in {one.candidate.id: one.candidate for one in claim}.values():
                yield where[one.id], one

    def failed(self, place: Hashable) -> bool:
        return place in self._failed

    def fail(self, place: Hashable) -> None:
        if len(self._failed) < REMEMBERED:
            self._failed.add(place)
        if not self._tried_parts and len(self._failed) >= LONG and not self.search.partial:
            self._tried_parts = True
            self.hopeless = relax.impossible(self.search)

    def bleak(self, want: Want, missing: int, start: int) -> bool:
        """Cut: this request, or one that comes later, cannot get its devices any more.

        What is taken by now stays taken further on, so a later request sees no more than it would
        see now.
        """
        if self.short(want, missing, start):
            return True
        plan = self.search.plan
        later = [
            request
            for claim in range(want.claim_index, len(plan))
            for request in plan[claim]
            if claim > want.claim_index or request[0].key > want.key
        ]
        return any(
            all(
                not one.wants_all and one.count > 0 and self.short(one, one.count, 0)
                for one in request
            )
            for request in later
            if request[0].parent is None
            or request[0].parent != want.parent
            or request[0].claim_index != want.claim_index
        )

    def short(self, want: Want, missing: int, start: int) -> bool:
        """Whether the request cannot get the devices that it still misses, whatever else is chosen."""
        search = self.search
        free = [
            position
            for position in self.following(want, start)
            if not search.in_use(want, search.world.candidates[position])
        ]
        # Cut: each missing device is another one of these.
        return (
            len(free) < missing
            or self._no_common(want, missing, free)
            or self._too_alike(want, missing, free)
            or self._over_counters(missing, free)
        )

    def _no_common(self, want: Want, missing: int, free: Sequence[int]) -> bool:
        """Cut: all devices of a request under matchAttributes have one value of each in common.

        So some choice of one value for each must be had by as many devices as are missing, among
        the values that the devices before have in common.
        """
        matching = []
        for index, constraint in enumerate(self.search.limits[want.claim_index]):
            if not constraint.distinct and want.under(constraint.requests):
                state = constraint.state()
                now = (
                    state if state is None or isinstance(state, frozenset) else frozenset((state,))
                )
                matching.append((self._values[want.key, index], now))
        if not matching:
            return False
        counts: dict[Hashable, int] = {}
        for position in free:
            sets = [
                values[position] if now is None else values[position] & now
                for values, now in matching
            ]
            for choice in itertools.product(*sets) if len(sets) > 1 else sets[0]:
                counts[choice] = counts.get(choice, 0) + 1
                if counts[choice] >= missing:
                    return False
        return True

    def _too_alike(self, want: Want, missing: int, free: Sequence[int]) -> bool:
        """Cut: under a distinctAttribute each device needs at least one value that no other has."""
        for index, constraint in enumerate(self.search.limits[want.claim_index]):
            if constraint.distinct and want.under(constraint.requests):
                values = self._values[want.key, index]
                taken = constraint.state()
                assert isinstance(taken, frozenset)
                left = {value for position in free for value in values[position]} - taken
                if len(left) < missing:
                    return True
        return False

    def _over_counters(self, missing: int, free: Sequence[int]) -> bool:
        """Cut: as many devices as are missing use of each counter at least what the most modest of
        them use.
        """
        search = self.search
        if not self._counted:
            return False
        uses: dict[tuple[PoolID, tuple[str, str]], list[int]] = {}
        for position in free:
            candidate = search.world.candidates[position]
            if not search.world.shareable(candidate):
                for counter, used in candidate.uses:
                    uses.setdefault((candidate.pool_id, counter), []).append(used)
        for (pool_id, counter), amounts in uses.items():
            needed = missing - (len(free) - len(amounts))  # those that use none of it come first
            if (
                needed > 0
                and sum(sorted(amounts)[:needed]) > search.counters(pool_id).left[counter]
            ):
                return True
        return False
