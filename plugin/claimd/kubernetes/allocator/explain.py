"""Explains why a node cannot satisfy claims: what is short, which rule excludes which device.

It also finds changes that would help. It combines the results of other modules: `reasons` checks
every rule for each device, `counting` compares numbers over all requests, and `relax` asks the
allocator again after changes. `claimd.tools.explain` turns the verdicts into text.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from claimd.common.time_limit import TimeLimit

from . import subproblems
from .causes import Count, Shortage, claim_of_request
from .counting import Counting
from .failures import AllocationError, CancelledError
from .holdings import Holdings
from .reasons import Reasons
from .relax import Limit, Relaxation
from .requests import claim_name
from .verdicts import ClaimVerdict, NodeVerdict, RequestVerdict

if TYPE_CHECKING:
    from ..api.core import Node
    from ..api.scheduling import ResourceClaim
    from .allocator import Allocator, SearchInput
    from .pools import Pool
    from .requests import Request
    from .subproblems import Part

# The most counters that a summary names if there are too many combinations of devices.
_MOST_COUNTERS = 4
# Additional seconds to find out what can be said about a search that ran out of time.
_MORE_TIME = 1.0
_NOT_LOOKED_AT = "not decided: the time was over before all devices were looked at"


def gather_holdings(claims: Iterable[ResourceClaim]) -> Holdings:
    """Returns the claims that hold each device. One result serves all nodes."""
    return Holdings(claims)


def explain_node(
    allocator: Allocator,
    where: Node,
    claims: Sequence[ResourceClaim],
    held: Holdings,
    *,
    always: bool = False,
    expired: Callable[[], bool] | None = None,
) -> NodeVerdict:
    """Returns the outcome of an allocation on this node. It never raises AllocationError.

    If the outcome is "no", or with `always`, the verdict lists the rules that exclude each device.
    `expired` is called during the search. As soon as it returns True, the outcome is "unknown".
    """
    verdict = NodeVerdict(node=where.metadata.name, outcome="no", summary="")
    try:
        search_input = allocator.search_input(where, claims, cancelled=expired)
    except CancelledError:
        return dataclasses.replace(verdict, outcome="unknown", summary=_NOT_LOOKED_AT)
    except AllocationError as error:
        summary = f"{error}: {error.detail}" if error.detail else str(error)
        return _error(verdict, summary, error)

    question = _Question(allocator, search_input, held)
    # Sentences about unusable pools belong to the verdict, whatever the outcome is.
    pools = tuple(_trouble(pool) for pool in search_input.pools if not pool.is_usable)
    verdict = dataclasses.replace(verdict, pools=pools)
    # A count may prove a "no" long before the search has tried all combinations.
    limit = Limit(expired=expired, proves_a_no=lambda: question.counting.proves_a_no)
    search = search_input.search(cancelled=limit)
    try:
        solved = search.run()
    except CancelledError:
        if limit.is_no:
            question.set_time_limit(None)
            return _no(verdict, question, claims, expired)
        return _unknown(verdict, question, TimeLimit(_MORE_TIME).is_over)
    except AllocationError as error:
        return _error(verdict, question.misspelt() or str(error), error)

    # The search has an answer, so the time limit must not interrupt its explanation.
    question.set_time_limit(None)
    if solved:
        allocation = [choice.candidate.id for chosen in search.solution for choice in chosen]
        return dataclasses.replace(
            verdict,
            outcome="yes",
            allocation=tuple(allocation),
            claims=question.verdicts(claims) if always else (),
        )
    return _no(verdict, question, claims, expired)


def _error(verdict: NodeVerdict, summary: str, error: AllocationError) -> NodeVerdict:
    return dataclasses.replace(
        verdict, outcome="error", summary=summary, ends_search=not error.node_only
    )


def _unknown(verdict: NodeVerdict, question: _Question, expired: Callable[[], bool]) -> NodeVerdict:
    """Returns a verdict with the outcome "unknown", and what can be found out until `expired`."""
    question.set_time_limit(expired)
    try:
        counts = tuple(question.counting.counts())
        summary = question.out_of_time(expired)
    except CancelledError:
        counts, summary = (), _NOT_LOOKED_AT
    return dataclasses.replace(
        verdict,
        outcome="unknown",
        summary=summary,
        shortage=Shortage(counts=counts, finished=False),
    )


def _no(
    verdict: NodeVerdict,
    question: _Question,
    claims: Sequence[ResourceClaim],
    expired: Callable[[], bool] | None,
) -> NodeVerdict:
    shortage = Shortage(counts=tuple(question.counting.counts()), finished=False)
    return dataclasses.replace(
        verdict,
        summary=question.summary(shortage, expired),
        claims=question.verdicts(claims),
        shortage=shortage,
    )


def add_remedies(  # noqa: PLR0913 - as explain_node(), and what may not be freed
    verdict: NodeVerdict,
    allocator: Allocator,
    where: Node,
    claims: Sequence[ResourceClaim],
    held: Holdings,
    *,
    kept: Collection[str] = (),
    expired: Callable[[], bool] | None = None,
) -> NodeVerdict:
    """Returns the verdict of explain_node() with remedies, if its outcome is "no" or "error".

    No remedy frees a device of the claims in `kept`. Finding remedies takes many searches. When
    `expired` returns True, the verdict has the remedies that were found so far.
    """
    if verdict.outcome not in ("no", "error"):
        return verdict
    relaxation = Relaxation(allocator, where, claims, held, expired, kept)
    remedies = tuple(relaxation.remedies())
    shortage = dataclasses.replace(
        verdict.shortage, remedies=remedies, finished=relaxation.finished
    )
    summary = verdict.summary
    if remedies and not shortage.counts and verdict.outcome == "no":
        summary += f"; it would fit after: {remedies[0]}"
    return dataclasses.replace(verdict, summary=summary, shortage=shortage)


def _trouble(pool: Pool) -> str:
    """Returns a sentence about a pool that cannot be used."""
    state = "incomplete" if pool.is_incomplete else "invalid"
    return f"pool {pool.pool_id} is {state}: {pool.trouble}"


class _Question:
    """The claims of one search, to be compared with all devices of the node."""

    def __init__(self, allocator: Allocator, search_input: SearchInput, held: Holdings) -> None:
        self._input = search_input
        self._held, self._drivers = held, allocator.drivers
        self._reasons = Reasons(search_input, held, allocator.drivers)

    @functools.cached_property
    def counting(self) -> Counting:
        """The counts of this search. Creating them evaluates each selector on every device."""
        return Counting(self._input, self._reasons, self._held, self._drivers)

    def set_time_limit(self, expired: Callable[[], bool] | None) -> None:
        """Sets the time limit for everything that examines devices from now on.

        They raise CancelledError when `expired` returns True.
        """
        self._input.devices.cancelled = expired

    def verdicts(self, claims: Sequence[ResourceClaim]) -> tuple[ClaimVerdict, ...]:
        """Returns the verdict of each request about each device."""
        verdicts = []
        for index, claim in enumerate(claims):
            requests = []
            for request in itertools.chain(*self._input.claims[index]):
                verdict = RequestVerdict(
                    request=request.path,
                    needed=max(request.minimum, 1),
                    devices=self._reasons.verdicts(request),
                )
                requests.append(verdict)
            verdicts.append(ClaimVerdict(claim=claim_name(claim), requests=tuple(requests)))
        return tuple(verdicts)

    # Summaries in one line

    def summary(self, shortage: Shortage, expired: Callable[[], bool] | None) -> str:
        """Returns what is short, or else which requests cannot be satisfied together."""
        if not self._input.devices.candidates:
            if not self._input.pools:
                return "no driver has devices here: no ResourceSlice is for this node"
            if all(pool.is_usable for pool in self._input.pools):
                return "no driver has devices here: the ResourceSlices for this node are empty"
            return "no driver has usable devices here"
        if shortage.counts:
            return self._count_sentence(shortage.counts[0])

        # There are enough devices for each request on its own, so find the requests that conflict.
        search = self._input.search(cancelled=expired)
        part = search.unsolvable_part() or subproblems.everything(self._input.claims)
        if len(part) == 1:
            return _not_at_once(self._requests(part)[0])
        return f"each request could be satisfied alone, but not together: {self._names(part)}"

    def _count_sentence(self, count: Count) -> str:
        """Returns the sentence of a count.

        It leaves out holders and obstacles if they are long, because each device is listed with its
        own reasons anyway.
        """
        sentence = count.headline
        if count.scope or not count.there or (len(count.holders) == 1 and not count.obstacle):
            sentence = str(count)
        of_claims = {claim_of_request(request) for request in count.requests}
        return f"claim {of_claims.pop()}: {sentence}" if len(of_claims) == 1 else sentence

    def out_of_time(self, expired: Callable[[], bool]) -> str:
        """Returns the part of the claims that takes so long, and the counters of its devices."""
        part = self._input.search(cancelled=expired).endless_part()
        if part is None:
            part = subproblems.everything(self._input.claims)
        because = self._shared_counters(self._requests(part))
        return f"not decided: too many combinations of devices for {self._names(part)}{because}"

    def misspelt(self) -> str:
        """Returns a sentence about the first selector with a misspelt driver or domain, if any."""
        for of_claim in self._input.claims:
            for alternatives in of_claim:
                for request in alternatives:
                    assert request.class_
                    for owner, owned in (
                        (f"class {request.class_name}", request.class_.spec.selectors),
                        (str(request), request.selectors),
                    ):
                        for number, selector in enumerate(owned, 1):
                            expression = selector.cel.expression if selector.cel else ""
                            misspelt = self._reasons.misspelt(expression)
                            if misspelt:
                                return f"{owner}: selector {number} {misspelt}"
        return ""

    def _shared_counters(self, requests: Sequence[Request]) -> str:
        """Returns a clause that names the counters which devices for these requests share."""
        devices: dict[str, int] = {}
        for candidate in self._input.devices.candidates:
            if any(self._suits(request, candidate.id) for request in requests):
                for counter, _ in candidate.uses:
                    name = "/".join(counter)
                    devices[name] = devices.get(name, 0) + 1
        shared = [name for name, number in devices.items() if number > 1]
        if not shared:
            return ""

        # Name the counters of the most devices.
        shared.sort(key=lambda name: (-devices[name], name))
        more = f" and {len(shared) - _MOST_COUNTERS} more" if len(shared) > _MOST_COUNTERS else ""
        names = ", ".join(shared[:_MOST_COUNTERS])
        noun = "counter" if len(shared) == 1 else "counters"
        return f", as {max(devices.values())} devices draw on {noun} {names}{more}"

    def _suits(self, request: Request, device: object) -> bool:
        position = self._input.devices.positions[device]  # type: ignore[index]
        return not self._reasons.verdicts(request)[position].reasons

    def _requests(self, part: Part) -> list[Request]:
        """Returns the first alternative of each request in the part."""
        return [self._input.claims[claim][request][0] for claim, request in sorted(part)]

    def _names(self, part: Part) -> str:
        """Returns the names of the requests in the part, with their claims."""
        names = []
        for request in self._requests(part):
            names.append(f"{claim_name(request.claim)}/{request.parent or request.name}")
        return ", ".join(names)


def _not_at_once(request: Request) -> str:
    """Returns the summary for a request whose devices suit one by one, but not together."""
    return (
        f"claim {claim_name(request.claim)}: request {request.parent or request.name} needs "
        f"{request.minimum} devices at once: each suits, but its constraints, counters or groups "
        "do not let so many go together"
    )
