"""Counts under matchAttribute and distinctAttribute: under how many values the requests find room."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Sequence
from typing import TYPE_CHECKING

from . import constraints
from .causes import Count, listed, number_of
from .failures import AllocationError
from .request_groups import Group, Positions, needed_by, paths_of

if TYPE_CHECKING:
    from .constraints import Value
    from .request_groups import RequestGroups
    from .requests import Request


class Places:
    """The constraints of one search, counted value by value."""

    def __init__(self, groups: RequestGroups) -> None:
        self._groups = groups

    def matching(self, claim: int) -> Iterator[tuple[Group, Count]]:
        """What is short under constraints; a group by itself that is short anyhow is left out."""
        by_attribute: dict[str, list[frozenset[str]]] = {}
        for constraint in self._groups.search_input.constraints[claim]:
            if not constraint.distinct:
                by_attribute.setdefault(constraint.attribute, []).append(constraint.requests)

        for attribute, of_constraints in by_attribute.items():
            # What has the same profile competes for the same places.
            profiles: dict[Hashable, list[list[Request]]] = {}
            for requests in self._components(claim, of_constraints):
                profile = self._profile(requests)
                alone = len(profile) == 1 and any(group.is_short for group in profile)
                if not alone and not any(group.shared for group in profile):
                    profiles.setdefault(frozenset(profile.items()), []).append(requests)

            for components in profiles.values():
                if len(components) == 1:
                    yield from self._one_place(components[0], attribute)
                else:
                    yield from self._places(components, attribute)

    def _components(
        self, claim: int, of_constraints: Sequence[frozenset[str]]
    ) -> list[list[Request]]:
        """The requests of each constraint; those with a request in common are one component.

        They are one where each device has one value. Where some have several, what overlaps is left
        out: too many places may be counted, never too few.
        """
        exact = [
            alternatives[0]
            for alternatives in self._groups.search_input.claims[claim]
            if len(alternatives) == 1
        ]

        components: list[dict[int, Request]] = []
        for requests in of_constraints:
            component = {
                request.key: request
                for request in exact
                if request.under(requests) and needed_by(request)
            }
            if not component:
                continue

            apart = []
            for other in components:
                if other.keys() & component.keys() and not self._has_lists:
                    component |= other
                else:
                    apart.append(other)
            components = [*apart, component]

        if self._has_lists:
            components = _without_overlaps(components)
        return [list(component.values()) for component in components]

    @property
    def _has_lists(self) -> bool:
        """Whether a device may have several values of an attribute."""
        # What an expression comes to is only known device by device: it may be a list.
        for of_claim in self._groups.search_input.claims:
            for alternatives in of_claim:
                if any(request.derived for request in alternatives):
                    return True

        return any(
            attribute.value is None
            for candidate in self._groups.devices.candidates
            for attribute in candidate.device.attributes.values()
        )

    def _profile(self, requests: Sequence[Request]) -> dict[Group, int]:
        """How many devices of each group they need."""
        profile: Counter[Group] = Counter()
        for request in requests:
            profile[self._groups.of(request)] += needed_by(request)
        return dict(profile)

    def _by_value(
        self, group: Group, requests: Sequence[Request], attribute: str
    ) -> dict[Value, Positions]:
        """The devices that are there, by each value of the attribute."""
        request = next(one for one in requests if one in group.requests)
        by_value: dict[Value, set[int]] = {}
        for position in group.there:
            candidate = self._groups.devices.candidates[position]
            try:
                of_device = self._groups.devices.attribute(request, candidate, attribute)
            except AllocationError:
                continue
            if of_device is None:
                continue
            # A single device may have what nothing equals.
            for value in constraints.values(of_device) or (constraints.UNKNOWN,):
                by_value.setdefault(value, set()).add(position)
        return {value: frozenset(positions) for value, positions in by_value.items()}

    def _one_place(
        self, requests: Sequence[Request], attribute: str
    ) -> Iterator[tuple[Group, Count]]:
        """All under one value: told of the value that lacks the least."""
        profile = self._profile(requests)
        by_value = {group: self._by_value(group, requests, attribute) for group in profile}
        values = {value for of_group in by_value.values() for value in of_group}

        def lacking(value: Value) -> tuple[int, int, int, str]:
            lacks = []
            for what in ("free", "suitable", "there"):
                lack = 0
                for group, needed in profile.items():
                    here = by_value[group].get(value, frozenset())
                    lack += max(0, needed - len(getattr(group, what) & here))
                lacks.append(lack)
            return lacks[0], lacks[1], lacks[2], str(value[1])

        # Nothing proves anything where none of the devices has the attribute.
        if not values:
            return
        nearest = min(values, key=lacking)
        if not lacking(nearest)[0]:
            return

        for group, needed in profile.items():
            here = by_value[group].get(nearest, frozenset())
            if len(group.free & here) >= needed:
                continue
            others = [
                number_of(number, other.noun)
                for other, number in profile.items()
                if other is not group
            ]
            beside = f"beside {listed(others)} " if others else ""
            count = self._groups.count(
                group,
                needed,
                within=here,
                scope=f"{beside}{_under_one(attribute)}",
                place=_under(attribute, nearest),
                requests=requests,
            )
            yield group, count

    def _places(
        self, components: Sequence[list[Request]], attribute: str
    ) -> Iterator[tuple[Group, Count]]:
        """Several times the same, each under a value: how many values have room, and for how many."""
        requests = [request for component in components for request in component]
        profile = self._profile(components[0])
        by_value = {group: self._by_value(group, requests, attribute) for group in profile}
        values = {value for of_group in by_value.values() for value in of_group}

        def fits(what: str, groups: Collection[Group], value: Value) -> int:
            """How often the groups find room under the value."""
            return min(
                len(getattr(group, what) & by_value[group].get(value, frozenset()))
                // profile[group]
                for group in groups
            )

        if sum(fits("free", profile, value) for value in values) >= len(components):
            return

        short: list[tuple[bool, Group, Count]] = []
        for group, each in profile.items():
            others = [other for other in profile if other is not group]
            room = dict.fromkeys(values, len(components))
            if others:
                room = {value: fits("suitable", others, value) for value in values}

            numbers: dict[str, int] = {}
            for what in ("there", "suitable", "free"):
                times = (min(fits(what, (group,), value), room[value]) for value in values)
                numbers[what] = each * sum(times)

            needed = each * len(components)
            if numbers["free"] >= needed:
                continue

            # Where the others have no room, these are of no use.
            within = frozenset().union(
                *(by_value[group].get(value, frozenset()) for value in values if room[value])
            )
            count = self._groups.count(
                group,
                needed,
                within=within,
                scope=_under_those(attribute, others, each),
                requests=requests,
            )
            is_own = each * sum(fits("free", (group,), value) for value in values) < needed
            count = dataclasses.replace(
                count,
                there=numbers["there"],
                suitable=numbers["suitable"],
                free=numbers["free"],
            )
            short.append((is_own, group, count))

        # Each is short where the other has its places: told is the one that lacks devices itself.
        own = [(group, count) for is_own, group, count in short if is_own]
        yield from own or [(group, count) for _, group, count in short]

    # distinctAttribute

    def distinct(self, claim: int) -> Iterator[Count]:
        """Constraints that need more different values than there are."""
        for constraint in self._groups.search_input.constraints[claim]:
            under = [
                alternatives[0]
                for alternatives in self._groups.search_input.claims[claim]
                if len(alternatives) == 1
                and alternatives[0].under(constraint.requests)
                and needed_by(alternatives[0])
            ]
            if not constraint.distinct or not under:
                continue
            profile = self._profile(under)
            if any(group.is_short for group in profile):
                continue

            numbers = []
            for what in ("there", "suitable", "free"):
                values: set[Value] = set()
                for group in profile:
                    by_value = self._by_value(group, under, constraint.attribute)
                    for value, positions in by_value.items():
                        if positions & getattr(group, what):
                            values.add(value)
                numbers.append(len(values))

            needed = sum(profile.values())
            if numbers[2] < needed:
                plain = constraint.attribute.rpartition("/")[2]
                yield Count(
                    noun=f"different values of {plain}",
                    needed=needed,
                    there=numbers[0],
                    suitable=numbers[1],
                    free=numbers[2],
                    scope="(distinctAttribute)",
                    requests=paths_of(under),
                    namespace=self._groups.namespace,
                )


def _without_overlaps(components: Sequence[dict[int, Request]]) -> list[dict[int, Request]]:
    """Each that has no request in common with one before it."""
    apart: list[dict[int, Request]] = []
    earlier: set[int] = set()
    for component in components:
        if not component.keys() & earlier:
            apart.append(component)
        earlier |= component.keys()
    return apart


def _under_one(attribute: str) -> str:
    plain = attribute.rpartition("/")[2]
    return "under one pcieRoot" if plain == "pcieRoot" else f"with one {plain}"


def _under(attribute: str, value: Value) -> str:
    plain = attribute.rpartition("/")[2]
    return f"under {value[1]}" if plain == "pcieRoot" else f"with {plain} {value[1]}"


def _under_those(attribute: str, others: Sequence[Group], each: int) -> str:
    plain = attribute.rpartition("/")[2]
    if not others:
        return f"({each} {_under_one(attribute)} each)"
    nouns = listed([other.noun for other in others])
    if plain == "pcieRoot":
        return f"under the roots of the {nouns}"
    return f"with the {plain} of the {nouns}"
