"""Counts for the explanation: compares the needed devices with the existing and the free ones.

Counts range over requests, constraints and drivers. Each count proves that the claims do not fit,
because they need more than is free. Some refusals have another cause, and then there is no count.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from .causes import Count, Holder
from .counter_sums import CounterSums
from .places import Places
from .request_groups import RequestGroups, request_names, request_paths, shared_noun

if TYPE_CHECKING:
    from .allocator import SearchInput
    from .holdings import Holdings
    from .identity import DeviceID
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
        """Prepares the counts. `drivers` are all drivers that publish slices in the cluster."""
        self._input, self._reasons = search_input, reasons
        self._groups = RequestGroups(search_input, reasons, holdings, drivers)
        self._places = Places(self._groups)
        self._counter_sums = CounterSums(self._groups)

    @property
    def proves_a_no(self) -> bool:
        """True if it is certain that a full search would answer "no".

        There must be a shortage, and no rule may raise an error before the search ends.
        """
        for of_claim in self._input.claims:
            for alternatives in of_claim:
                if any(map(self._may_end_in_error, alternatives)):
                    return False
        return next(self.counts(), None) is not None

    def _may_end_in_error(self, request: Request) -> bool:
        # For a request for all devices, a refusal by a constraint is an error.
        if request.wants_all:
            of_claim = self._input.constraints[request.claim_index]
            if any(request.is_under(constraint.requests) for constraint in of_claim):
                return True

        for verdict in self._reasons.verdicts(request):
            if any(reason.rule == "error" for reason in verdict.reasons):
                return True
        return False

    def counts(self) -> Iterator[Count]:
        """Yields the shortages. The one that people should look at first comes first."""
        groups = self._groups.groups
        matching: list[tuple[Group, Count]] = []
        for claim in range(len(self._input.claims)):
            matching.extend(self._places.matching(claim))

        # A group that must be next to other devices is reported with them, even if it lacks devices
        # on its own.
        reported = {group for group, _ in matching}
        for group in groups:
            if group.is_short and group not in reported:
                yield self._groups.count(group, group.devices_needed)
        for _, count in matching:
            yield count
        yield from self._lists()

        # The other shortages arise only between groups that have enough devices on their own.
        enough = [group for group in groups if not group.is_short]
        yield from self._overlapping(enough)
        for claim in range(len(self._input.claims)):
            yield from self._places.distinct(claim)
        yield from self._counter_sums.shortages(enough)

    # Lists of alternatives

    def _lists(self) -> Iterator[Count]:
        """Yields counts for prioritized lists in which every alternative lacks devices.

        The count is about the alternative that lacks the fewest.
        """
        for of_claim in self._groups.search_input.claims:
            for alternatives in of_claim:
                if len(alternatives) == 1:
                    continue
                groups = []
                for request in alternatives:
                    group = self._groups.new_group(request)
                    group.requests.append(request)
                    group.noun += f" for {request.path}"
                    groups.append(group)
                if all(group.is_short for group in groups):
                    nearest = max(groups, key=lambda group: len(group.free) - group.devices_needed)
                    yield self._groups.count(nearest, nearest.devices_needed)

    # Several groups that want the same devices

    def _overlapping(self, groups: Sequence[Group]) -> Iterator[Count]:
        """Yields a count for groups that together need more devices than are free for them.

        Such groups exist exactly if the groups cannot all be satisfied (Hall's theorem).
        """
        exclusive = [group for group in groups if not group.shared and not group.requests[0].admin]
        violator = _violator(exclusive)
        # A single group that lacks devices is reported elsewhere.
        if len(violator) < 2:
            return

        free = frozenset().union(*(group.free for group in violator))
        suitable = frozenset().union(*(group.suitable for group in violator))
        there = frozenset().union(*(group.there for group in violator))

        holders: dict[DeviceID, Holder] = {}
        requests: list[Request] = []
        for group in violator:
            requests += group.requests
            for holder in self._groups.holders(group, suitable - free):
                holders[holder.device] = holder

        names = request_names(requests, quote='"')
        yield Count(
            noun=shared_noun(requests),
            needed=sum(group.devices_needed for group in violator),
            there=len(there),
            suitable=len(suitable),
            free=len(free),
            scope=f"for requests {names} together",
            requests=request_paths(requests),
            holders=tuple(holders.values()),
            namespace=self._groups.namespace,
        )


def _violator(groups: Sequence[Group]) -> list[Group]:
    """Returns groups that together need more devices than are free for them, or an empty list.

    This is bipartite matching with augmenting paths. Devices are assigned to groups one by one. A
    group that finds no free device asks the owners of its devices to switch to other devices, and
    these may ask further owners. If no owner can switch, all groups that were asked are the answer.
    """
    owners: dict[int, Group] = {}
    for group in groups:
        for _ in range(group.devices_needed):
            # Search an augmenting path. `wanted_by` has the group that wants each device, and
            # `asked_for` the device that each asked group should give up.
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

            # Each group on the path takes the next device and gives up the one it was asked for.
            position = untaken
            owners[position] = wanted_by[position]
            while owners[position] is not group:
                position = asked_for[owners[position]]
                owners[position] = wanted_by[position]
    return []
