"""Whether a part of what is asked for is impossible already when the rest is left out. Used by
cuts.py alone.

Cut: what is left out of an attempt frees devices, counters and capacities and loosens constraints,
and takes nothing away. So a solution for everything holds one for each part, and where a part has
none there is none at all. The parts are searched by the same search, for a limited number of steps:
one that takes longer says nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING

from . import search as searches

if TYPE_CHECKING:
    from .search import Search

STEPS = 600  # for one part
PARTS = 60

Part = frozenset[tuple[int, int]]  # requests, by claim and number


class _EnoughError(Exception):
    pass


def impossible(search: Search) -> bool:
    return any(_has_none(search, part) for part in itertools.islice(_parts(search), PARTS))


def culprit(search: Search) -> Part:
    """The smallest part found that has no solution, for people; everything where none is found."""
    for part in itertools.islice(_parts(search), PARTS):
        if _has_none(search, part):
            return part
    return frozenset(
        (claim, request)
        for claim, requests in enumerate(search.plan)
        for request in range(len(requests))
    )


def _parts(search: Search) -> Iterator[Part]:
    """The smallest first: each request, claims, then pairs."""
    every = [
        (claim, request)
        for claim, requests in enumerate(search.plan)
        for request in range(len(requests))
    ]
    whole = [
        frozenset(one for one in every if one[0] == claim) for claim in range(len(search.plan))
    ]
    parts = [frozenset((one,)) for one in every] + whole
    parts += [frozenset(pair) for pair in itertools.combinations(every, 2)]
    parts += [left | right for left, right in itertools.combinations(whole, 2)]
    seen = {frozenset(every)}
    for part in parts:
        if part not in seen:
            seen.add(part)
            yield part


def _has_none(search: Search, part: Part) -> bool:
    left = STEPS

    def enough() -> bool:
        nonlocal left
        left -= 1
        if left < 0:
            raise _EnoughError
        return False

    plan = [
        [alternatives for request, alternatives in enumerate(requests) if (claim, request) in part]
        for claim, requests in enumerate(search.plan)
    ]
    limits = [[constraint.fresh() for constraint in constraints] for constraints in search.limits]
    attempt = searches.Search(
        search.world, plan, limits, patience=0, cancelled=enough, partial=True
    )
    try:
        return not attempt.run()
    except _EnoughError:
        return False
