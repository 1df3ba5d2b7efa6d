"""Why a node cannot have claims: what is short, which rules exclude which device, what would help.

It puts together what the others find out: `reasons` asks the rules one by one, `counting` counts
over all requests, `relax` changes something and asks the allocator again. `claimd.tools.explain` makes
text of the verdicts.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from . import subproblems
from .causes import Count, Shortage, claim_of
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

# Counters that the answer names where the combinations of devices are too many.
_MOST_COUNTERS = 4
# Seconds for what there is to tell of an answer that was not found in time.
_MORE_TIME = 1.0
_NOT_LOOKED_AT = "not decided: the time was over before all devices were looked at"


def holders(claims: Iterable[ResourceClaim]) -> Holdings:
    """Who holds which device; made once for all nodes."""
    return Holdings(claims)


def node(
    allocator: Allocator,
    where: Node,
    claims: Sequence[ResourceClaim],
    held: Holdings,
    *,
    always: bool = False,
    expired: Callable[[], bool] | None = None,
) -> NodeVerdict:
    """What an allocation on this node comes to. Never an AllocationError.

    If it is no, or with `always`, each device is told with the rules that exclude it. `expired` is
    asked while it searches: as soon as it says so, the outcome is unknown.
    """
    verdict = NodeVerdict(node=where.metadata.name, outcome="no", summary="")
    try:
        search_input = allocator.search_input(where, claims, cancelled=expired)
    except CancelledError:
        return dataclasses.replace(verdict, outcome="unknown", summary=_NOT_LOOKED_AT)
    except AllocationError as error:
        return _error(verdict, str(error), error)

    question = _Question(allocator, search_input, held)
    pools = tuple(_trouble(pool) for pool in search_input.pools if not pool.usable)
    verdict = dataclasses.replace(verdict, pools=pools)
    limit = Limit(expired=expired, proves_a_no=lambda: question.counting.proves_a_no)
    search = search_input.search(cancelled=limit)
    try:
        solved = search.run()
    except CancelledError:
        if limit.is_no:
            question.ends_when(None)
            return _no(verdict, question, claims, expired)
        return _unknown(verdict, question, _a_little_longer())
    except AllocationError as error:
        return _error(verdict, question.misspelt() or str(error), error)

    # The answer is there: what is told of devices belongs to it.
    question.ends_when(None)
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
    """With what can be told in a little more time."""
    question.ends_when(expired)
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


def _a_little_longer() -> Callable[[], bool]:
    end = time.monotonic() + _MORE_TIME
    return lambda: time.monotonic() > end


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


def with_remedies(  # noqa: PLR0913 - as node(), and what may not be freed
    verdict: NodeVerdict,
    allocator: Allocator,
    where: Node,
    claims: Sequence[ResourceClaim],
    held: Holdings,
    *,
    kept: Collection[str] = (),
    expired: Callable[[], bool] | None = None,
) -> NodeVerdict:
    """The verdict of node(), with what would have to change where it is no or an error.

    Nothing of the claims that are `kept` is to be freed. Takes many searches. When `expired` says
    so it ends with the remedies that it has.
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
    if pool.is_incomplete:
        return (
            f"pool {pool.pool_id} is incomplete: "
            f"{pool.slices_there} of its {pool.slices_expected} slices are there"
        )
    return f"pool {pool.pool_id} is invalid: {pool.invalid_reason}"


class _Question:
    """The claims of one search beside all devices of the node."""

    def __init__(self, allocator: Allocator, search_input: SearchInput, held: Holdings) -> None:
        self._input = search_input
        self._held, self._drivers = held, allocator.drivers
        self._reasons = Reasons(search_input, held, allocator.drivers)

    @functools.cached_property
    def counting(self) -> Counting:
        """Made when it is needed: each selector is evaluated for it on every device."""
        return Counting(self._input, self._reasons, self._held, self._drivers)

    def ends_when(self, expired: Callable[[], bool] | None) -> None:
        """What looks at devices from now on ends in a CancelledError when `expired` says so."""
        self._input.devices.cancelled = expired

    def verdicts(self, claims: Sequence[ResourceClaim]) -> tuple[ClaimVerdict, ...]:
        """Each request beside each device."""
        verdicts = []
        for index, claim in enumerate(claims):
            requests = [
                RequestVerdict(
                    request=request.path,
                    needed=max(request.minimum, 1),
                    devices=self._reasons.of(request),
                )
                for alternatives in self._input.claims[index]
                for request in alternatives
            ]
            verdicts.append(ClaimVerdict(claim=claim_name(claim), requests=tuple(requests)))
        return tuple(verdicts)

    # The answer in a line

    def summary(self, shortage: Shortage, expired: Callable[[], bool] | None) -> str:
        """What is short; or else what does not go together."""
        if not self._input.devices.candidates:
            if not self._input.pools:
                return "no driver has devices here: no ResourceSlice is for this node"
            return "no driver has usable devices here"
        if shortage.counts:
            return self._of_count(shortage.counts[0])

        search = self._input.search(cancelled=expired)
        part = search.unsolvable_part() or subproblems.everything(self._input.claims)
        if len(part) == 1:
            return _not_at_once(self._requests(part)[0])
        return f"each request could be satisfied alone, but not together: {self._names(part)}"

    def _of_count(self, count: Count) -> str:
        """With what is in the way, unless that is long and stands beside the devices anyhow."""
        sentence = count.headline
        if count.scope or not count.there or (len(count.holders) == 1 and not count.obstacle):
            sentence = str(count)
        of_claims = {claim_of(request) for request in count.requests}
        return f"claim {of_claims.pop()}: {sentence}" if len(of_claims) == 1 else sentence

    def out_of_time(self, expired: Callable[[], bool]) -> str:
        """Which part of the claims takes so long, and by what its devices depend on each other."""
        part = self._input.search(cancelled=expired).endless_part()
        if part is None:
            part = subproblems.everything(self._input.claims)
        because = self._entangled(self._requests(part))
        return f"not decided: too many combinations of devices for {self._names(part)}{because}"

    def misspelt(self) -> str:
        """That a selector asks for a driver or domain that is nowhere; nothing if none does."""
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

    def _entangled(self, requests: Sequence[Request]) -> str:
        """The counters that several devices for these requests draw on."""
        devices: dict[str, int] = {}
        for candidate in self._input.devices.candidates:
            if any(self._suits(request, candidate.id) for request in requests):
                for counter, _ in candidate.uses:
                    name = "/".join(counter)
                    devices[name] = devices.get(name, 0) + 1
        shared = sorted(
            (name for name, number in devices.items() if number > 1),
            key=lambda name: (-devices[name], name),
        )
        if not shared:
            return ""
        more = f" and {len(shared) - _MOST_COUNTERS} more" if len(shared) > _MOST_COUNTERS else ""
        names = ", ".join(shared[:_MOST_COUNTERS])
        noun = "counter" if len(shared) == 1 else "counters"
        return f", as {max(devices.values())} devices draw on {noun} {names}{more}"

    def _suits(self, request: Request, device: object) -> bool:
        position = self._input.devices.positions[device]  # type: ignore[index]
        return not self._reasons.of(request)[position].reasons

    def _requests(self, part: Part) -> list[Request]:
        """The first alternative of each request of the part."""
        return [self._input.claims[claim][request][0] for claim, request in sorted(part)]

    def _names(self, part: Part) -> str:
        return ", ".join(
            f"{claim_name(request.claim)}/{request.parent or request.name}"
            for request in self._requests(part)
        )


def _not_at_once(request: Request) -> str:
    """Devices suit one by one, and constraints, counters or groups keep them apart."""
    return (
        f"claim {claim_name(request.claim)}: request {request.parent or request.name} needs "
        f"{request.minimum} devices at once: each suits, but its constraints, counters or groups "
        "do not let so many go together"
    )
