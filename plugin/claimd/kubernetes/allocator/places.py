"""Counts for matchAttribute and distinctAttribute: the values that have enough devices.

A "place" is one value of the attribute, such as one PCIe root, with all devices that have it.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from . import constraints
from .causes import Count, count_noun, join_names
from .failures import AllocationError
from .request_groups import Group, Positions, needed_by, request_paths

if TYPE_CHECKING:
    from .constraints import Value
    from .request_groups import RequestGroups
    from .requests import Request


class Places:
    """The counts for the constraints of one search, value by value."""

    def __init__(self, groups: RequestGroups) -> None:
        self._groups = groups

    def matching(self, claim: int) -> Iterator[tuple[Group, Count]]:
        """Yields the shortages of a claim's matchAttribute constraints, with their groups.

        A group that has too few suitable devices even without the constraint is left out if it is
        alone.
        """
        by_attribute: dict[str, list[frozenset[str]]] = {}
        for constraint in self._groups.search_input.constraints[claim]:
            if not constraint.distinct:
                by_attribute.setdefault(constraint.attribute, []).append(constraint.requests)

        for attribute, of_constraints in by_attribute.items():
            # Components with the same profile compete for the same places.
            profiles: dict[Hashable, list[list[Request]]] = {}
            for requests in self._components(claim, of_constraints):
                profile = self._profile(requests)
                alone = len(profile) == 1 and not any(map(_would_suffice, profile))
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
        """Returns sets of requests whose devices must all have a common value.

        Constraints with a common request form one component, if each device has a single value. If
        some devices have several values, overlapping constraints are left out instead. Then there
        may be too many places, but never too few.
        """
        # Any alternative of a prioritized list may be chosen, so lists prove nothing.
        exact = []
        for alternatives in self._groups.search_input.claims[claim]:
            if len(alternatives) == 1:
                exact.append(alternatives[0])

        components: list[dict[int, Request]] = []
        for requests in of_constraints:
            component = {}
            for request in exact:
                if request.is_under(requests) and needed_by(request):
                    component[request.key] = request
            if not component:
                continue

            # Merge it with the components that have a request in common with it.
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
        """True if a device may have several values of an attribute."""
        # A derived attribute may be a list, which is only known after its evaluation for a device.
        for of_claim in self._groups.search_input.claims:
            for alternatives in of_claim:
                if any(request.derived for request in alternatives):
                    return True

        # An attribute without a scalar value is a list.
        for candidate in self._groups.devices.candidates:
            for attribute in candidate.device.attributes.values():
                if attribute.value is None:
                    return True
        return False

    def _profile(self, requests: Sequence[Request]) -> dict[Group, int]:
        """Returns the number of devices that the requests need from each group."""
        profile: Counter[Group] = Counter()
        for request in requests:
            profile[self._groups.group_for(request)] += needed_by(request)
        return dict(profile)

    def _by_value(
        self, group: Group, requests: Sequence[Request], attribute: str
    ) -> dict[Value, Positions]:
        """Returns the existing devices of the group by their values of the attribute."""
        request = next(request for request in requests if request in group.requests)
        by_value: dict[Value, set[int]] = {}
        for position in group.there:
            candidate = self._groups.devices.candidates[position]
            try:
                of_device = self._groups.devices.attribute(request, candidate, attribute)
            except AllocationError:
                continue
            if of_device is None:
                continue
            # A single device may have a value that nothing equals.
            for value in constraints.values(of_device) or (constraints.UNKNOWN,):
                by_value.setdefault(value, set()).add(position)
        return {value: frozenset(positions) for value, positions in by_value.items()}

    def _one_place(
        self, requests: Sequence[Request], attribute: str
    ) -> Iterator[tuple[Group, Count]]:
        """Yields the shortages of requests that need one place, for the best place."""
        profile = self._profile(requests)
        by_value = {group: self._by_value(group, requests, attribute) for group in profile}
        values = set(itertools.chain(*by_value.values()))

        def lacking(value: Value) -> tuple[int, int, int, str]:
            """Returns the numbers of missing free, suitable and existing devices at the place."""
            lacks = []
            for what in ("free", "suitable", "there"):
                lack = 0
                for group, needed in profile.items():
                    here = by_value[group].get(value, frozenset())
                    lack += max(0, needed - len(getattr(group, what) & here))
                lacks.append(lack)
            return lacks[0], lacks[1], lacks[2], str(value[1])

        # Without any value there is nothing to count.
        if not values:
            return

        # Report the place that lacks the fewest devices, unless one place has enough.
        nearest = min(values, key=lacking)
        if not lacking(nearest)[0]:
            return

        for group, needed in profile.items():
            here = by_value[group].get(nearest, frozenset())
            if len(group.free & here) >= needed:
                continue

            # The other groups need room at the same place.
            others = {other: number for other, number in profile.items() if other is not group}
            scope, only, nowhere = _scope_phrase(attribute), "", ""
            if others:
                names = join_names(
                    [count_noun(number, other.noun) for other, number in others.items()]
                )
                scope = _scope_of_others(attribute, names)
                places = _places_with(others, by_value, values)
                if places == [nearest]:
                    only = f", the only one with {names}"
                elif nearest in places and _is_absent(group, by_value[group], places):
                    is_pair = needed == 1 and list(others.values()) == [1]
                    nowhere = _nowhere_phrase(attribute, names, is_pair=is_pair)
            count = self._groups.count(
                group,
                needed,
                within=here,
                scope=scope,
                place=_place_phrase(attribute, nearest) + only,
                requests=requests,
            )
            yield group, dataclasses.replace(count, nowhere=nowhere)

    def _places(
        self, components: Sequence[list[Request]], attribute: str
    ) -> Iterator[tuple[Group, Count]]:
        """Yields the shortages if several components with the same profile need one place each."""
        requests = list(itertools.chain(*components))
        profile = self._profile(components[0])
        by_value = {group: self._by_value(group, requests, attribute) for group in profile}
        values = set(itertools.chain(*by_value.values()))

        def fits(what: str, groups: Collection[Group], value: Value) -> int:
            """Returns how many components the groups have enough devices for at this place."""
            times = []
            for group in groups:
                here = getattr(group, what) & by_value[group].get(value, frozenset())
                times.append(len(here) // profile[group])
            return min(times)

        # If the places together have room for all components, there is no shortage.
        if sum(fits("free", profile, value) for value in values) >= len(components):
            return

        short: list[tuple[Group, Count]] = []
        short_alone: list[tuple[Group, Count]] = []
        for group, each in profile.items():
            # At each place, the other groups limit how many components find room.
            others = [other for other in profile if other is not group]
            room = dict.fromkeys(values, len(components))
            if others:
                room = {value: fits("suitable", others, value) for value in values}

            # Count only the devices of this group that complete components could use.
            numbers: dict[str, int] = {}
            for what in ("there", "suitable", "free"):
                times = (min(fits(what, (group,), value), room[value]) for value in values)
                numbers[what] = each * sum(times)

            needed = each * len(components)
            if numbers["free"] >= needed:
                continue

            # Devices are useless at a place where the other groups have no room.
            within: set[int] = set()
            for value in values:
                if room[value]:
                    within |= by_value[group].get(value, frozenset())

            count = self._groups.count(
                group,
                needed,
                within=within,
                scope=_scope_next_to(attribute, others, each),
                requests=requests,
            )
            # The numbers above replace those of the group, which count single devices.
            count = dataclasses.replace(
                count,
                there=numbers["there"],
                suitable=numbers["suitable"],
                free=numbers["free"],
            )
            short.append((group, count))
            if each * sum(fits("free", (group,), value) for value in values) < needed:
                short_alone.append((group, count))

        # A group may be short only because of the others. Prefer groups that lack devices.
        yield from short_alone or short

    # distinctAttribute

    def distinct(self, claim: int) -> Iterator[Count]:
        """Yields counts for distinctAttribute constraints that need more values than exist."""
        for constraint in self._groups.search_input.constraints[claim]:
            under = []
            for alternatives in self._groups.search_input.claims[claim]:
                request = alternatives[0]
                is_only_one = len(alternatives) == 1
                if is_only_one and request.is_under(constraint.requests) and needed_by(request):
                    under.append(request)
            if not constraint.distinct or not under:
                continue

            # A group that lacks devices anyway is reported without the constraint.
            profile = self._profile(under)
            if any(group.is_short for group in profile):
                continue

            # Count the values of existing, suitable and free devices.
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
                    requests=request_paths(under),
                    namespace=self._groups.namespace,
                )


def _would_suffice(group: Group) -> bool:
    """Returns True if the group would have enough devices if no claim held any."""
    return len(group.suitable) >= group.devices_needed


def _without_overlaps(components: Sequence[dict[int, Request]]) -> list[dict[int, Request]]:
    """Returns the components that have no request in common with an earlier component."""
    apart: list[dict[int, Request]] = []
    earlier: set[int] = set()
    for component in components:
        if not component.keys() & earlier:
            apart.append(component)
        earlier |= component.keys()
    return apart


def _scope_phrase(attribute: str) -> str:
    plain = attribute.rpartition("/")[2]
    return "under one pcieRoot" if plain == "pcieRoot" else f"with one {plain}"


def _places_with(
    groups: Mapping[Group, int],
    by_value: Mapping[Group, Mapping[Value, Collection[int]]],
    values: Iterable[Value],
) -> list[Value]:
    """Returns the places that have as many devices of each group, free or held."""
    places = []
    for value in values:
        if all(
            len(group.there.intersection(by_value[group].get(value, ()))) >= number
            for group, number in groups.items()
        ):
            places.append(value)
    return places


def _is_absent(
    group: Group, by_value: Mapping[Value, Collection[int]], places: Iterable[Value]
) -> bool:
    """Returns True if none of the places has a device of the group, free or held."""
    return all(group.there.isdisjoint(by_value.get(value, ())) for value in places)


def _scope_of_others(attribute: str, others: str) -> str:
    plain = attribute.rpartition("/")[2]
    under = "under the same pcieRoot" if plain == "pcieRoot" else f"with the same {plain}"
    return f"{under} as {others}"


def _place_phrase(attribute: str, value: Value) -> str:
    plain = attribute.rpartition("/")[2]
    return f"under {value[1]}" if plain == "pcieRoot" else f"with {plain} {value[1]}"


def _nowhere_phrase(attribute: str, others: str, *, is_pair: bool) -> str:
    """Says that no place with the other devices has any of these."""
    plain = attribute.rpartition("/")[2]
    return f"no {plain} has both" if is_pair else f"no {plain} with {others} has any"


def _scope_next_to(attribute: str, others: Sequence[Group], each: int) -> str:
    plain = attribute.rpartition("/")[2]
    if not others:
        return f"({each} {_scope_phrase(attribute)} each)"
    nouns = join_names([other.noun for other in others])
    if plain == "pcieRoot":
        return f"under the roots of the {nouns}"
    return f"with the {plain} of the {nouns}"
