"""The parts of what is asked for that may be impossible already when the rest is left out."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterator, Sequence

from .requests import ClaimRequests

Part = frozenset[tuple[int, int]]  # requests, by the claim's index and their own within it


def everything(claims: Sequence[ClaimRequests]) -> Part:
    return frozenset(
        (claim, request)
        for claim, requests in enumerate(claims)
        for request in range(len(requests))
    )


def parts(claims: Sequence[ClaimRequests]) -> Iterator[Part]:
    """Real parts, each once, the smallest first: requests, whole claims, then pairs of either."""
    requests = sorted(everything(claims))
    whole_claims = [
        frozenset(of_claim) for _, of_claim in itertools.groupby(requests, operator.itemgetter(0))
    ]
    candidates: Iterator[Part] = itertools.chain(
        (frozenset((key,)) for key in requests),
        whole_claims,
        (frozenset(pair) for pair in itertools.combinations(requests, 2)),
        (left | right for left, right in itertools.combinations(whole_claims, 2)),
    )

    seen = {frozenset(requests)}
    for part in candidates:
        if part not in seen:
            seen.add(part)
            yield part


def only(claims: Sequence[ClaimRequests], part: Part) -> list[ClaimRequests]:
    """The same claims with the requests of the part alone."""
    kept: list[ClaimRequests] = []
    for claim, requests in enumerate(claims):
        kept.append([each for number, each in enumerate(requests) if (claim, number) in part])
    return kept
