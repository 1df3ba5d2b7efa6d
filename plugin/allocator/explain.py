"""Why a node cannot have claims: for each request and device the rules that exclude it, and what
would help.

Data only; plugin/explain.py makes text of it. Nothing here searches: it asks the rules one by one.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from .. import cel
from . import amounts, constraints, features, selectors, subproblems
from .failures import AllocationError
from .identity import DeviceID, PoolID
from .requests import claim_name

if TYPE_CHECKING:
    from ..api.core import Node
    from ..api.scheduling import ResourceClaim
    from .allocator import Allocator, SearchInput
    from .devices import Candidate
    from .node_devices import NodeDevices
    from .pools import Pool
    from .requests import Request

Holders = Mapping[DeviceID, tuple[str, ...]]  # the claims that hold a device


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reason:
    """One rule that keeps one device from a request."""

    rule: str  # held, selector, node, taint, capacity, counters, feature, attribute
    text: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Verdict:
    """Without reasons the device suits the request by itself."""

    device: DeviceID
    reasons: tuple[Reason, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class RequestReport:
    request: str
    needed: int
    devices: tuple[Verdict, ...]

    @property
    def suitable(self) -> int:
        return sum(not verdict.reasons for verdict in self.devices)

    def __str__(self) -> str:
        return f"request {self.request} needs {self.needed}, {self.suitable} of {len(self.devices)} devices suit"

    @property
    def nearest(self) -> tuple[Verdict, ...]:
        """Devices that one change would make suitable, or two where one does for none."""
        for changes in (1, 2):
            found = tuple(verdict for verdict in self.devices if len(verdict.reasons) == changes)
            if found:
                return found
        return ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClaimReport:
    claim: str
    requests: tuple[RequestReport, ...]
    constraints: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class NodeReport:
    node: str
    outcome: str  # yes, no, error
    summary: str
    allocation: tuple[DeviceID, ...] = ()  # what the claims would get
    claims: tuple[ClaimReport, ...] = ()
    pools: tuple[str, ...] = ()  # what is wrong with them


def holders(claims: Iterable[ResourceClaim]) -> dict[DeviceID, tuple[str, ...]]:
    found: dict[DeviceID, tuple[str, ...]] = {}
    for claim in claims:
        for one in claim.status.allocation.devices.results if claim.status.allocation else ():
            if not one.admin_access:
                device = DeviceID(one.driver, one.pool, one.device)
                found[device] = (*found.get(device, ()), claim_name(claim))
    return found


def node(
    allocator: Allocator,
    where: Node,
    claims: Sequence[ResourceClaim],
    held: Holders,
    *,
    always: bool = False,
) -> NodeReport:
    """What an allocation on this node comes to, and if it is no (or `always`), what each device
    lacks.
    """
    name = where.metadata.name
    try:
        problem = allocator.search_input(where, claims)
    except AllocationError as error:
        return NodeReport(node=name, outcome="error", summary=str(error))
    trouble = tuple(
        f"pool {pool.pool_id} is {_trouble(pool)}" for pool in problem.pools if not pool.usable
    )
    run = problem.search()
    try:
        if run.run():
            taken = tuple(one.candidate.id for chosen in run.solution for one in chosen)
            reports = _claims(problem, claims, held) if always else ()
            return NodeReport(
                node=name,
                outcome="yes",
                summary="",
                allocation=taken,
                claims=reports,
                pools=trouble,
            )
    except AllocationError as error:
        return NodeReport(node=name, outcome="error", summary=str(error), pools=trouble)
    reports = _claims(problem, claims, held)
    return NodeReport(
        node=name, outcome="no", summary=_summary(problem, reports), claims=reports, pools=trouble
    )


def _trouble(pool: Pool) -> str:
    if pool.is_incomplete:
        return "incomplete: some of its slices are missing"
    return f"invalid: {pool.invalid_reason}"


def _summary(problem: SearchInput, reports: Sequence[ClaimReport]) -> str:
    if not problem.devices.candidates:
        return "no driver has usable devices here"
    for index, report in enumerate(reports):
        for alternatives in problem.claims[index]:
            short = [
                one
                for one in report.requests
                if one.request in {want.path for want in alternatives}
            ]
            if all(one.suitable < one.needed or not one.devices for one in short):
                best = max(short, key=lambda one: one.suitable - one.needed)
                return f"claim {report.claim}: {best}"
    for report in reports:
        if report.constraints:
            return f"claim {report.claim}: {report.constraints[0]}"
    part = problem.search().unsolvable_part() or subproblems.everything(problem.claims)
    if len(part) == 1:
        ((claim, request),) = part
        return _not_at_once(problem, problem.claims[claim][request][0])
    names = [
        f"{claim_name(problem.claims[claim][request][0].claim)}/{_request_name(problem.claims[claim][request][0])}"
        for claim, request in sorted(part)
    ]
    return f"each request could be satisfied alone, but not together: {', '.join(names)}"


def _not_at_once(problem: SearchInput, want: Request) -> str:
    """Devices suit one by one: constraints, counters or groups keep them from being taken together."""
    found = f"claim {claim_name(want.claim)}: request {_request_name(want)} needs {want.minimum} devices at once"
    uses: dict[tuple[PoolID, tuple[str, str]], list[int]] = {}
    suitable = [one for one in problem.devices.candidates if problem.devices.selectable(want, one)]
    for candidate in suitable:
        for counter, used in candidate.uses:
            uses.setdefault((candidate.pool_id, counter), []).append(used)
    for (pool_id, counter), amounts_used in uses.items():
        left = problem.devices.counters(pool_id).left[counter]
        least = sum(sorted(amounts_used)[: want.minimum])
        if len(amounts_used) == len(suitable) and least > left:
            told = f"counter {'/'.join(counter)} has {_told(max(left, 0))} left, and they use {_told(least)} or more"
            return f"{found}: {told}"
    return f"{found}: each suits, but its constraints, counters or groups do not let so many go together"


def _request_name(want: Request) -> str:
    return want.parent or want.name


def _claims(
    problem: SearchInput, claims: Sequence[ResourceClaim], held: Holders
) -> tuple[ClaimReport, ...]:
    return tuple(_claim(problem, index, claim, held) for index, claim in enumerate(claims))


def _claim(problem: SearchInput, index: int, claim: ResourceClaim, held: Holders) -> ClaimReport:
    reports = []
    for alternatives in problem.claims[index]:
        for want in alternatives:
            verdicts = tuple(
                Verdict(device=one.id, reasons=tuple(_reasons(problem, want, one, held)))
                for one in problem.devices.candidates
            )
            reports.append(
                RequestReport(request=want.path, needed=max(want.minimum, 1), devices=verdicts)
            )
    return ClaimReport(
        claim=claim_name(claim),
        requests=tuple(reports),
        constraints=tuple(_constraints(problem, index, reports, held)),
    )


def _reasons(
    problem: SearchInput, want: Request, candidate: Candidate, held: Holders
) -> Iterable[Reason]:
    world = problem.devices
    yield from _selectors(want, candidate)
    yield from _attributes(problem, want, candidate)
    device = candidate.device
    if not world.for_node(candidate):
        yield Reason(rule="node", text="it is not for this node")
    if not want.admin and candidate.id in world.allocated.devices:
        yield Reason(
            rule="held", text=f"held by claim {', '.join(held.get(candidate.id, ('unknown',)))}"
        )
    taint = world.blocking_taint(want, candidate)
    if taint:
        value = f"={taint.value}" if taint.value else ""
        yield Reason(rule="taint", text=f"taint {taint.key}{value}:{taint.effect} is not tolerated")
    if not world.node_operations(candidate):
        yield Reason(
            rule="feature", text="its slice skips node operations, which the node cannot do without"
        )
    if device.binding_conditions and features.BINDING_CONDITIONS not in world.features:
        yield Reason(rule="feature", text="it has binding conditions, and their feature is off")
    yield from _capacity(world, want, candidate)
    yield from _counters(world, candidate, held)


def _selectors(want: Request, candidate: Candidate) -> Iterable[Reason]:
    assert want.class_
    for owner, owned in (
        (f"class {want.class_.metadata.name}: ", want.class_.spec.selectors),
        ("", want.selectors),
    ):
        for number, selector in enumerate(owned, 1):
            assert selector.cel
            try:
                program = selectors.compiled(selector.cel.expression)
                if program.matches(candidate.for_cel):
                    continue
                why = f"false: {program.explain(candidate.for_cel).text or selector.cel.expression}"
            except (cel.EvalError, cel.CompileError) as error:
                # the search never asked: another rule keeps the device away already
                why = f"fails: {error}"
            yield Reason(rule="selector", text=f"{owner}selector {number} {why}")
            break  # what comes after may rely on it


def _attributes(problem: SearchInput, want: Request, candidate: Candidate) -> Iterable[Reason]:
    for constraint in problem.constraints[want.claim_index]:
        under = want.under(constraint.requests)
        if under and problem.devices.attribute(want, candidate, constraint.attribute) is None:
            yield Reason(rule="attribute", text=f"it has no attribute {constraint.attribute}")


def _capacity(world: NodeDevices, want: Request, candidate: Candidate) -> Iterable[Reason]:
    if not world.consumable:
        return
    asked = want.capacity or {}
    absent = [name for name in asked if name not in candidate.device.capacity]
    consumed = world.consumption(want, candidate)
    if absent:
        yield Reason(rule="capacity", text=f"it has no capacity {', '.join(absent)}")
    elif consumed is None:
        told = ", ".join(f"{name}={amount}" for name, amount in asked.items()) or "its default"
        yield Reason(rule="capacity", text=f"its request policy does not allow {told}")
    else:
        taken = world.allocated.capacity.get(candidate.id, {})
        for name, amount in consumed.items():
            limit, used = candidate.limits[name], taken.get(name, 0)
            if used + amount.billionths > limit:
                left = amounts.canonical(max(limit - used, 0), amount.binary)
                whole = candidate.device.capacity[name].value
                yield Reason(
                    rule="capacity", text=f"{name}: needs {amount.text}, {left} of {whole} left"
                )


def _counters(world: NodeDevices, candidate: Candidate, held: Holders) -> Iterable[Reason]:
    if not candidate.device.consumes_counters or candidate.id in world.allocated.shared:
        return
    if not world.partitionable:
        yield Reason(rule="feature", text="it uses shared counters, and their feature is off")
        return
    counters = world.counters(candidate.pool_id)
    for (counter_set, counter), used in candidate.uses:
        left = counters.left.get((counter_set, counter), 0)
        if used > left:
            text = (
                f"counter {counter_set}/{counter}: needs {_told(used)}, {_told(max(left, 0))} left"
            )
            by = {
                claim
                for device in held
                for claim in held[device]
                if (device.driver, device.pool) == candidate.pool_id
            }
            yield Reason(
                rule="counters",
                text=text + (f" (pool used by {', '.join(sorted(by))})" if by else ""),
            )
    if counters.overdrawn and all(
        used <= counters.left.get(counter, 0) for counter, used in candidate.uses
    ):
        yield Reason(rule="counters", text="another counter of its pool is overdrawn")


def _told(billionths: int) -> str:
    return amounts.text_of(billionths)


def _constraints(
    problem: SearchInput, index: int, reports: Sequence[RequestReport], held: Holders
) -> Iterable[str]:
    by_path = {report.request: report for report in reports}
    for constraint in problem.constraints[index]:
        under = [
            request[0]
            for request in problem.claims[index]
            if len(request) == 1 and request[0].under(constraint.requests)
        ]
        needed = sum(max(want.minimum, 1) for want in under)
        if not under:
            continue
        free, taken = _values(problem, under, constraint, by_path)
        short = constraint.attribute.rpartition("/")[2]
        if constraint.distinct:
            if len(free) < needed:
                yield f"constraint distinct {short}: {needed} different values needed, {len(free)} free"
        elif max(free.values(), default=0) < needed:
            yield f"constraint {short}: no {short} has {needed} free{_best(free, taken, held)}"


def _values(
    problem: SearchInput,
    under: Sequence[Request],
    constraint: constraints.Constraint,
    by_path: Mapping[str, RequestReport],
) -> tuple[Counter[object], dict[object, list[DeviceID]]]:
    """How many suitable devices have each value, and which would suit were they not held."""
    free: Counter[object] = Counter()
    taken: dict[object, list[DeviceID]] = {}
    for position, candidate in enumerate(problem.devices.candidates):
        rules = [
            {one.rule for one in by_path[want.path].devices[position].reasons} for want in under
        ]
        attribute = problem.devices.attribute(under[0], candidate, constraint.attribute)
        for kind, value in constraints.values(attribute) if attribute else ():
            del kind
            if set() in rules:
                free[value] += 1
            elif {"held"} in rules:
                taken.setdefault(value, []).append(candidate.id)
    return free, taken


def _best(free: Counter[object], taken: Mapping[object, Sequence[DeviceID]], held: Holders) -> str:
    if not free:
        return ""
    value, count = max(
        free.items(), key=lambda item: (item[1], len(taken.get(item[0], ())), str(item[0]))
    )
    by = sorted(
        set(itertools.chain.from_iterable(held.get(device, ()) for device in taken.get(value, ())))
    )
    note = (
        f" ({len(taken[value])} held by {'claim ' if len(by) == 1 else ''}{', '.join(by)})"
        if by
        else ""
    )
    return f"; best is {value} with {count}{note}"
