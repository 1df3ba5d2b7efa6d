"""Parts of the requests, which may have no solution even without the other requests."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterator, Sequence

from .requests import ClaimRequests

# A set of requests. Each is a pair of the claim's index and the request's index in the claim.
Part = frozenset[tuple[int, int]]


def everything(claims: Sequence[ClaimRequests]) -> Part:
    """Returns the part with all requests."""
    part: set[tuple[int, int]] = set()
    for claim, requests in enumerate(claims):
        part.update((claim, request) for request in range(len(requests)))
    return frozenset(part)


def parts(claims: Sequence[ClaimRequests]) -> Iterator[Part]:
    """Yields proper parts, each once: single requests, whole claims, then pairs of either."""
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

    # Two candidates may be the same part: a claim with one request is that request. All requests
    # together are no proper part.
    seen = {frozenset(requests)}
    for part in candidates:
        if part not in seen:
            seen.add(part)
            yield part


def select_part(claims: Sequence[ClaimRequests], part: Part) -> list[ClaimRequests]:
    """Returns the claims with only the requests of the part."""
    kept: list[ClaimRequests] = []
    for claim, requests in enumerate(claims):
        kept.append([each for number, each in enumerate(requests) if (claim, number) in part])
    return kept
