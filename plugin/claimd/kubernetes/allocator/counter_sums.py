"""Shortages of shared counters, for the explanation.

There is a shortage if even the devices that use the least need more than is left. The counters are
examined one by one, and then in sums: all counters with similar names, and all counters of a set.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from . import amounts
from .causes import Count, join_names
from .request_groups import request_names, request_paths, shared_noun

if TYPE_CHECKING:
    from .identity import DeviceID, PoolID
    from .request_groups import Group, RequestGroups
    from .requests import Request

# A pool, and one counter of one of its sets.
_Counter = tuple["PoolID", tuple[str, str]]


class CounterSums:
    """The counters of the pools of one search."""

    def __init__(self, groups: RequestGroups) -> None:
        self._groups = groups
        self._left: dict[PoolID, Mapping[tuple[str, str], int]] = {}

    def shortages(self, groups: Sequence[Group]) -> Iterator[Count]:
        """Yields a count for the first shortage of counters.

        It examines each group of requests on its own, and then all groups together.
        """
        if not self._groups.devices.partitionable:
            return
        # A device that several requests share uses its counters only once.
        groups = [group for group in groups if not group.shared]
        sums = self._sums()
        for some in [*([group] for group in groups), groups]:
            for name, counters in sums:
                least = self._least(some, counters)
                left = sum(self._left_of(counter) for counter in counters)
                if sum(least) > left:
                    yield self._count(some, name, counters, least, left)
                    return

    def _sums(self) -> list[tuple[str, frozenset[_Counter]]]:
        """Returns sets of counters with a name for people: single ones first, then wider sums."""
        every: set[_Counter] = set()
        for candidate in self._groups.devices.candidates:
            every.update((candidate.pool_id, counter) for counter, _ in candidate.uses)

        single = []
        wider: dict[str, set[_Counter]] = {}
        for counter in sorted(every):
            pool_id, (counter_set, name) = counter
            single.append((f"counter {counter_set}/{name}", frozenset((counter,))))
            # To people, memory-slice-0 to memory-slice-7 of all GPUs are one resource.
            family = re.sub(r"[-_]?[0-9]+", "", name) or name
            wider.setdefault(f"all {family} counters of {pool_id}", set()).add(counter)
            wider.setdefault(f"the counters of {counter_set} together", set()).add(counter)
        return single + [(name, frozenset(counters)) for name, counters in wider.items()]

    def _left_of(self, counter: _Counter) -> int:
        """Returns what is left of a counter, or 0 if it is overdrawn."""
        pool_id, name = counter
        if pool_id not in self._left:
            self._left[pool_id] = self._groups.devices.counters(pool_id).left
        return max(0, self._left[pool_id].get(name, 0))

    def _least(self, groups: Sequence[Group], counters: Collection[_Counter]) -> list[int]:
        """Returns the smallest possible use of the counters by each device that the groups need."""
        least: list[int] = []
        for group in groups:
            used = []
            for position in group.free:
                candidate = self._groups.devices.candidates[position]
                total = 0
                for counter, amount in candidate.uses:
                    if (candidate.pool_id, counter) in counters:
                        total += amount
                used.append(total)

            # The group may choose the devices that use the least.
            least += sorted(used)[: group.devices_needed]
        return sorted(least)

    def _users(self, counters: Collection[_Counter]) -> list[str]:
        """Returns the claims whose devices use the counters."""
        uses: dict[DeviceID, set[_Counter]] = {}
        for candidate in self._groups.devices.candidates:
            uses[candidate.id] = {(candidate.pool_id, counter) for counter, _ in candidate.uses}

        pools = {pool_id for pool_id, _ in counters}
        users: set[str] = set()
        for holding in self._groups.holdings.in_pools(pools):
            # A device that is no longer published, or only for other nodes, may use any of the
            # counters.
            used = uses.get(holding.device, set(counters))
            if not used.isdisjoint(counters):
                users.add(holding.claim)
        return sorted(users)

    def _count(
        self,
        groups: Sequence[Group],
        name: str,
        counters: Collection[_Counter],
        least: Sequence[int],
        left: int,
    ) -> Count:
        """Returns the count for these groups and counters. `left` is the remaining amount."""
        requests: list[Request] = []
        for group in groups:
            requests += group.requests
        there = frozenset().union(*(group.there for group in groups))
        suitable = frozenset().union(*(group.suitable for group in groups))
        noun, scope = groups[0].noun, "at once"
        if len(groups) > 1:
            noun, scope = shared_noun(requests), f"for {request_names(requests)} at once"

        be = "is" if left == amounts.WHOLE else "are"
        users = self._users(counters)
        by = (
            f" ({'claim' if len(users) == 1 else 'claims'} {join_names(users)} "
            f"{'uses' if len(users) == 1 else 'use'} the rest)"
            if users
            else ""
        )
        return Count(
            noun=noun,
            needed=len(least),
            there=len(there),
            suitable=len(suitable),
            free=min(_fitting(least, left), len(suitable)),
            scope=scope,
            requests=request_paths(requests),
            obstacle=(
                f"{len(least)} need at least {amounts.format_billionths(sum(least))} of {name}, "
                f"{amounts.format_billionths(left)} {be} left{by}"
            ),
            namespace=self._groups.namespace,
        )


def _fitting(used: Sequence[int], left: int) -> int:
    """Returns how many of the amounts, taken in their order, fit into what is left."""
    number = 0
    for amount in used:
        left -= amount
        if left < 0:
            break
        number += 1
    return number
