"""How many devices are needed and how many there are, over requests, constraints and drivers together.

Each count that is found proves by itself that the claims do not fit: what is needed is more than
what is free. Not every no has such a count.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from .causes import Count
from .counter_sums import CounterSums
from .places import Places
from .request_groups import RequestGroups, names_of, paths_of, shared_noun

if TYPE_CHECKING:
    from .allocator import SearchInput
    from .holdings import Holdings
    from .reasons import Reasons
    from .request_groups import Group
    from .requests import Request


class Counting:
    """The claims of one search, counted against the devices of the node."""

    def __init__(
        self,
        search_input: SearchInput,
        reasons: Reasons,
        holdings: Holdings,
        drivers: frozenset[str],
    ) -> None:
        """`drivers`: all that publish anything in the cluster."""
        self._input, self._reasons = search_input, reasons
        self._groups = RequestGroups(search_input, reasons, holdings, drivers)
        self._places = Places(self._groups)
        self._counter_sums = CounterSums(self._groups)

    @property
    def proves_a_no(self) -> bool:
        """Whether the claims cannot fit, and no rule can end in an error before that is found."""
        for of_claim in self._input.claims:
            for alternatives in of_claim:
                if any(map(self._may_end_in_error, alternatives)):
                    return False
        return next(self.counts(), None) is not None

    def _may_end_in_error(self, request: Request) -> bool:
        # Where all devices are wanted, one that a constraint refuses is an error.
        if request.wants_all:
            of_claim = self._input.constraints[request.claim_index]
            if any(request.under(constraint.requests) for constraint in of_claim):
                return True

        for verdict in self._reasons.of(request):
            if any(reason.rule == "error" for reason in verdict.reasons):
                return True
        return False

    def counts(self) -> Iterator[Count]:
        """What is short, what people should look at first at the beginning."""
        groups = self._groups.groups
        matching = [
            (group, count)
            for claim in range(len(self._input.claims))
            for group, count in self._places.matching(claim)
        ]
        # What is beside other devices is told with them, even where it is short by itself.
        told = {group for group, _ in matching}
        for group in groups:
            if group.is_short and group not in told:
                yield self._groups.count(group, group.needed)
        yield from (count for _, count in matching)
        yield from self._lists()

        enough = [group for group in groups if not group.is_short]
        yield from self._overlapping(enough)
        for claim in range(len(self._input.claims)):
            yield from self._places.distinct(claim)
        yield from self._counter_sums.overdrawn(enough)

    # Lists of alternatives

    def _lists(self) -> Iterator[Count]:
        """A list of which every alternative is short by itself, told of the nearest one."""
        for of_claim in self._groups.search_input.claims:
            for alternatives in of_claim:
                if len(alternatives) == 1:
                    continue
                groups = []
                for request in alternatives:
                    group = self._groups.group_of(request)
                    group.requests.append(request)
                    group.noun += f" for {request.path}"
                    groups.append(group)
                if all(group.is_short for group in groups):
                    nearest = max(groups, key=lambda group: len(group.free) - group.needed)
                    yield self._groups.count(nearest, nearest.needed)

    # Several groups that want the same devices

    def _overlapping(self, groups: Sequence[Group]) -> Iterator[Count]:
        """Groups that together need more devices than there are free for any of them (Hall)."""
        exclusive = [group for group in groups if not group.shared and not group.requests[0].admin]
        violator = _violator(exclusive)
        if len(violator) < 2:
            return
        free = frozenset().union(*(group.free for group in violator))
        suitable = frozenset().union(*(group.suitable for group in violator))
        there = frozenset().union(*(group.there for group in violator))
        holders = {
            holder.device: holder
            for group in violator
            for holder in self._groups.holders(group, suitable - free)
        }
        requests = [request for group in violator for request in group.requests]
        yield Count(
            noun=shared_noun(requests),
            needed=sum(group.needed for group in violator),
            there=len(there),
            suitable=len(suitable),
            free=len(free),
            scope=f"for requests {names_of(requests)} together",
            requests=paths_of(requests),
            holders=tuple(holders.values()),
            namespace=self._groups.namespace,
        )


def _violator(groups: Sequence[Group]) -> list[Group]:
    """Groups that need more devices than all that any of them could have; none if there are none.

    Devices are handed out one by one; a group that finds none asks those that have what it could
    have for another, and they in turn. Where nobody can, all that were asked are short together.
    """
    owners: dict[int, Group] = {}
    for group in groups:
        for _ in range(group.needed):
            # Who wants each device, and which of a group's devices it was asked for.
            wanted_by: dict[int, Group] = {}
            asked_for: dict[Group, int] = {}
            asked = [group]
            untaken: int | None = None
            for taker in asked:
                for position in sorted(taker.free - wanted_by.keys()):
                    wanted_by[position] = taker
                    owner = owners.get(position)
                    if owner is None:
                        untaken = position
                        break
                    if owner not in asked:
                        asked_for[owner] = position
                        asked.append(owner)
                if untaken is not None:
                    break
            if untaken is None:
                return asked

            # Each in the chain takes the next device and hands on the one that it was asked for.
            position = untaken
            owners[position] = wanted_by[position]
            while owners[position] is not group:
                position = asked_for[owners[position]]
                owners[position] = wanted_by[position]
    return []
