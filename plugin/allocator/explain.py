"""Why a node cannot have claims: for each request and device the rules that exclude it.

It asks the rules one by one; only for what devices suit and still cannot be had together does it
search. `plugin.explain` makes text of the verdicts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from .. import cel
from . import amounts, constraints, features, selectors, subproblems
from .failures import AllocationError, CancelledError
from .identity import DeviceID, PoolID
from .requests import claim_name
from .verdicts import ClaimVerdict, DeviceVerdict, NodeVerdict, Reason, RequestVerdict

if TYPE_CHECKING:
    from ..api.core import Node
    from ..api.scheduling import ResourceClaim
    from .allocator import Allocator, SearchInput
    from .constraints import Constraint
    from .devices import Candidate
    from .pools import Pool
    from .requests import Alternatives, Request
    from .subproblems import Part

Holders = Mapping[DeviceID, tuple[str, ...]]  # the claims that hold a device


def holders(claims: Iterable[ResourceClaim]) -> dict[DeviceID, tuple[str, ...]]:
    """Who holds each allocated device; admin access holds nothing."""
    by_device: dict[DeviceID, tuple[str, ...]] = {}
    for claim in claims:
        if not claim.status.allocation:
            continue
        for result in claim.status.allocation.devices.results:
            if not result.admin_access:
                device = DeviceID(result.driver, result.pool, result.device)
                by_device[device] = (*by_device.get(device, ()), claim_name(claim))
    return by_device


def node(
    allocator: Allocator,
    where: Node,
    claims: Sequence[ResourceClaim],
    held: Holders,
    *,
    always: bool = False,
    expired: Callable[[], bool] | None = None,
) -> NodeVerdict:
    """What an allocation on this node comes to. Never an AllocationError.

    If it is no, or with `always`, each device is told with the rules that exclude it. `expired` is
    asked while it searches: as soon as it says so, the outcome is unknown.
    """
    name = where.metadata.name
    pools: tuple[str, ...] = ()
    try:
        search_input = allocator.search_input(where, claims)
        pools = tuple(_trouble(pool) for pool in search_input.pools if not pool.usable)
        search = search_input.search(cancelled=expired)
        solved = search.run()
    except CancelledError:
        return NodeVerdict(
            node=name, outcome="unknown", summary=_out_of_time(search_input), pools=pools
        )
    except AllocationError as error:
        return NodeVerdict(node=name, outcome="error", summary=str(error), pools=pools)

    question = _Question(search_input, held)
    if solved:
        return NodeVerdict(
            node=name,
            outcome="yes",
            summary="",
            allocation=tuple(
                choice.candidate.id for chosen in search.solution for choice in chosen
            ),
            claims=question.claims(claims) if always else (),
            pools=pools,
        )
    verdicts = question.claims(claims)
    return NodeVerdict(
        node=name,
        outcome="no",
        summary=_summary(search_input, verdicts, expired),
        claims=verdicts,
        pools=pools,
    )


def _trouble(pool: Pool) -> str:
    if pool.is_incomplete:
        return (
            f"pool {pool.pool_id} is incomplete: "
            f"{pool.slices_there} of its {pool.slices_expected} slices are there"
        )
    return f"pool {pool.pool_id} is invalid: {pool.invalid_reason}"


# The answer in a line


def _summary(
    search_input: SearchInput,
    verdicts: Sequence[ClaimVerdict],
    expired: Callable[[], bool] | None,
) -> str:
    """The first that is short of devices; else a constraint; else what cannot be had together."""
    if not search_input.devices.candidates:
        return "no driver has usable devices here"

    for verdict, claim_requests in zip(verdicts, search_input.claims, strict=True):
        for alternatives in claim_requests:
            paths = {request.path for request in alternatives}
            of_request = [one for one in verdict.requests if one.request in paths]
            if all(one.suitable < one.needed or not one.devices for one in of_request):
                nearest = max(of_request, key=lambda one: one.suitable - one.needed)
                return f"claim {verdict.claim}: {nearest}"
    for verdict in verdicts:
        if verdict.constraints:
            return f"claim {verdict.claim}: {verdict.constraints[0]}"

    part = search_input.search(cancelled=expired).unsolvable_part()
    if part is None:
        part = subproblems.everything(search_input.claims)
    if len(part) == 1:
        return _not_at_once(search_input, _requests(search_input, part)[0])
    return f"each request could be satisfied alone, but not together: {_names(search_input, part)}"


def _out_of_time(search_input: SearchInput) -> str:
    part = search_input.search().endless_part()
    if part is None:
        part = subproblems.everything(search_input.claims)
    names = _names(search_input, part)
    return f"not decided: too many combinations of devices for {names}"


def _requests(search_input: SearchInput, part: Part) -> list[Request]:
    """The first alternative of each request of the part."""
    return [search_input.claims[claim][request][0] for claim, request in sorted(part)]


def _names(search_input: SearchInput, part: Part) -> str:
    return ", ".join(
        f"{claim_name(request.claim)}/{_request_name(request)}"
        for request in _requests(search_input, part)
    )


def _request_name(request: Request) -> str:
    return request.parent or request.name


def _not_at_once(search_input: SearchInput, request: Request) -> str:
    """Devices suit one by one, and constraints, counters or groups keep them apart."""
    needs = (
        f"claim {claim_name(request.claim)}: request {_request_name(request)} "
        f"needs {request.minimum} devices at once"
    )
    devices = search_input.devices
    suitable = [
        candidate for candidate in devices.candidates if devices.selectable(request, candidate)
    ]
    uses: dict[tuple[PoolID, tuple[str, str]], list[int]] = {}
    for candidate in suitable:
        for counter, amount in candidate.uses:
            uses.setdefault((candidate.pool_id, counter), []).append(amount)

    # A counter that every suitable device uses, and that even the most modest would overdraw.
    for (pool_id, counter), used in uses.items():
        left = devices.counters(pool_id).left[counter]
        least = sum(sorted(used)[: request.minimum])
        if len(used) == len(suitable) and least > left:
            return (
                f"{needs}: counter {'/'.join(counter)} has {amounts.text_of(max(left, 0))} left, "
                f"and they use {amounts.text_of(least)} or more"
            )
    return (
        f"{needs}: each suits, but its constraints, counters or groups "
        "do not let so many go together"
    )


class _Question:
    """The claims of one search beside all devices of the node, rule by rule."""

    def __init__(self, search_input: SearchInput, held: Holders) -> None:
        self._input = search_input
        self._devices = search_input.devices
        self._held = held

    def claims(self, claims: Sequence[ResourceClaim]) -> tuple[ClaimVerdict, ...]:
        return tuple(self._claim(index, claim) for index, claim in enumerate(claims))

    def _claim(self, index: int, claim: ResourceClaim) -> ClaimVerdict:
        by_path = {
            request.path: self._request(request)
            for alternatives in self._input.claims[index]
            for request in alternatives
        }
        return ClaimVerdict(
            claim=claim_name(claim),
            requests=tuple(by_path.values()),
            constraints=tuple(self._constraints(index, by_path)),
        )

    def _request(self, request: Request) -> RequestVerdict:
        verdicts = [
            DeviceVerdict(device=candidate.id, reasons=tuple(self._reasons(request, candidate)))
            for candidate in self._devices.candidates
        ]
        return RequestVerdict(
            request=request.path, needed=max(request.minimum, 1), devices=tuple(verdicts)
        )

    # One request and one device

    def _reasons(self, request: Request, candidate: Candidate) -> Iterator[Reason]:
        for rule in (
            self._selectors,
            self._attributes,
            self._place,
            self._capacity,
            self._counters,
        ):
            # The search may never have asked: another rule kept the device away already.
            try:
                yield from rule(request, candidate)
            except AllocationError as error:
                yield Reason(rule="error", text=str(error))

    def _selectors(self, request: Request, candidate: Candidate) -> Iterator[Reason]:
        class_ = request.class_
        assert class_
        for owner, owned in (
            (f"class {class_.metadata.name}: ", class_.spec.selectors),
            ("", request.selectors),
        ):
            for number, selector in enumerate(owned, 1):
                expression = selector.cel.expression if selector.cel else ""
                why_not = _why_not(expression, candidate)
                if why_not:
                    yield Reason(rule="selector", text=f"{owner}selector {number} {why_not}")
                    break  # what comes after may rely on it

    def _attributes(self, request: Request, candidate: Candidate) -> Iterator[Reason]:
        for constraint in self._input.constraints[request.claim_index]:
            if not request.under(constraint.requests):
                continue
            if self._devices.attribute(request, candidate, constraint.attribute) is None:
                yield Reason(rule="attribute", text=f"it has no attribute {constraint.attribute}")

    def _place(self, request: Request, candidate: Candidate) -> Iterator[Reason]:
        """Where the device is, who has it, and what state it is in."""
        devices = self._devices
        if not devices.for_node(candidate):
            yield Reason(rule="node", text="it is not for this node")
        if not request.admin and candidate.id in devices.allocated.devices:
            claims = ", ".join(self._held.get(candidate.id, ("unknown",)))
            yield Reason(rule="held", text=f"held by claim {claims}")
        taint = devices.blocking_taint(request, candidate)
        if taint:
            value = f"={taint.value}" if taint.value else ""
            yield Reason(
                rule="taint", text=f"taint {taint.key}{value}:{taint.effect} is not tolerated"
            )
        if not devices.node_operations(candidate):
            yield Reason(
                rule="feature",
                text="its slice skips node operations, which the node cannot do without",
            )
        if (
            candidate.device.binding_conditions
            and features.BINDING_CONDITIONS not in devices.features
        ):
            yield Reason(rule="feature", text="it has binding conditions, and their feature is off")

    def _capacity(self, request: Request, candidate: Candidate) -> Iterator[Reason]:
        devices = self._devices
        if not devices.consumable:
            return
        requested = request.capacity or {}
        absent = [name for name in requested if name not in candidate.device.capacity]
        if absent:
            yield Reason(rule="capacity", text=f"it has no capacity {', '.join(absent)}")
            return
        consumed = devices.consumption(request, candidate)
        if consumed is None:
            amounts_requested = [f"{name}={amount}" for name, amount in requested.items()]
            shown = ", ".join(amounts_requested) or "its default"
            yield Reason(rule="capacity", text=f"its request policy does not allow {shown}")
            return

        taken = devices.allocated.capacity.get(candidate.id, {})
        for name, amount in consumed.items():
            limit, used = candidate.limits[name], taken.get(name, 0)
            if used + amount.billionths > limit:
                left = amounts.canonical(max(limit - used, 0), amount.binary)
                whole = candidate.device.capacity[name].value
                yield Reason(
                    rule="capacity", text=f"{name}: needs {amount.text}, {left} of {whole} left"
                )

    def _counters(self, _request: Request, candidate: Candidate) -> Iterator[Reason]:
        devices = self._devices
        if not candidate.device.consumes_counters or candidate.id in devices.allocated.shared:
            return
        if not devices.partitionable:
            yield Reason(rule="feature", text="it uses shared counters, and their feature is off")
            return

        counters = devices.counters(candidate.pool_id)
        short = False
        for (counter_set, counter), used in candidate.uses:
            left = counters.left.get((counter_set, counter), 0)
            if used > left:
                short = True
                text = (
                    f"counter {counter_set}/{counter}: needs {amounts.text_of(used)}, "
                    f"{amounts.text_of(max(left, 0))} left"
                )
                users = self._users_of(candidate.pool_id)
                if users:
                    text += f" (pool used by {', '.join(users)})"
                yield Reason(rule="counters", text=text)
        if counters.overdrawn and not short:
            yield Reason(rule="counters", text="another counter of its pool is overdrawn")

    def _users_of(self, pool_id: PoolID) -> list[str]:
        users: set[str] = set()
        for device, claims in self._held.items():
            if (device.driver, device.pool) == pool_id:
                users.update(claims)
        return sorted(users)

    # Several requests under one constraint

    def _constraints(self, index: int, by_path: Mapping[str, RequestVerdict]) -> Iterator[str]:
        """The constraints of the claim for which too few suitable devices go together."""
        for constraint in self._input.constraints[index]:
            under = [
                alternatives[0]
                for alternatives in self._input.claims[index]
                if _is_under(alternatives, constraint)
            ]
            if not under:
                continue
            needed = sum(max(request.minimum, 1) for request in under)
            free, held = self._by_value(under, constraint, by_path)
            name = constraint.attribute.rpartition("/")[2]
            if constraint.distinct:
                if len(free) < needed:
                    yield (
                        f"constraint distinct {name}: "
                        f"{needed} different values needed, {len(free)} free"
                    )
            elif max(free.values(), default=0) < needed:
                best = self._best_value(free, held)
                yield f"constraint {name}: no {name} has {needed} free{best}"

    def _by_value(
        self,
        under: Sequence[Request],
        constraint: Constraint,
        by_path: Mapping[str, RequestVerdict],
    ) -> tuple[Counter[object], dict[object, list[DeviceID]]]:
        """How many suitable devices have each value, and which would suit were they not held."""
        free: Counter[object] = Counter()
        held: dict[object, list[DeviceID]] = {}
        for position, candidate in enumerate(self._devices.candidates):
            rules = []
            for request in under:
                verdict = by_path[request.path].devices[position]
                rules.append({reason.rule for reason in verdict.reasons})
            try:
                attribute = self._devices.attribute(under[0], candidate, constraint.attribute)
            except AllocationError:
                continue
            if attribute is None:
                continue

            for _, value in constraints.values(attribute):
                if set() in rules:
                    free[value] += 1
                elif {"held"} in rules:
                    held.setdefault(value, []).append(candidate.id)
        return free, held

    def _best_value(self, free: Counter[object], held: Mapping[object, Sequence[DeviceID]]) -> str:
        """The value that most devices have, and who holds the others that have it."""
        if not free:
            return ""
        value = max(free, key=lambda value: (free[value], len(held.get(value, ())), str(value)))
        claims: set[str] = set()
        for device in held.get(value, ()):
            claims.update(self._held.get(device, ()))
        best = f"; best is {value} with {free[value]}"
        if not claims:
            return best
        noun = "claim " if len(claims) == 1 else ""
        return f"{best} ({len(held[value])} held by {noun}{', '.join(sorted(claims))})"


def _is_under(alternatives: Alternatives, constraint: Constraint) -> bool:
    """A request with alternatives says nothing: which of them is taken is open."""
    return len(alternatives) == 1 and alternatives[0].under(constraint.requests)


def _why_not(expression: str, candidate: Candidate) -> str:
    """Why the device does not match the selector; nothing if it does."""
    try:
        program = selectors.compiled(expression)
        if program.matches(candidate.for_cel):
            return ""
        return f"false: {program.explain(candidate.for_cel).text or expression}"
    except (cel.EvalError, cel.CompileError) as error:
        return f"fails: {error}"
