"""Changes to waiting claims that could let them have devices, and claims as they are after them.

Nothing here asks whether a change would help: `relax` does.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

import msgspec

from ..api.scheduling import (
    CELDeviceSelector,
    DeviceSelector,
    DeviceSubRequest,
    DeviceToleration,
    ExactDeviceRequest,
)
from . import amounts, selectors, taints
from .causes import Change, listed
from .failures import AllocationError
from .requests import RESULTS_MAX, claim_name

if TYPE_CHECKING:
    from ..api.resource import DeviceTaint
    from ..api.scheduling import DeviceClaim, DeviceConstraint, DeviceRequest, ResourceClaim
    from .allocator import SearchInput
    from .devices import Candidate
    from .requests import Request

_Spec = TypeVar("_Spec", ExactDeviceRequest, DeviceSubRequest)

# Amounts of one capacity that are tried.
_MOST_AMOUNTS = 8


@dataclasses.dataclass(frozen=True, kw_only=True)
class Edit:
    """A change to one waiting claim, and where in the claims it belongs.

    `request` and `alternative` count from 0; `taint` is the one to tolerate, `amount` of capacity
    `name` is what to ask for, None to ask for nothing of it.
    """

    change: Change
    claim: int
    request: int = -1
    alternative: int = 0
    taint: tuple[str, str, str] = ("", "", "")
    name: str = ""
    amount: str | None = None


# The same change in several degrees, the least first.
Degrees = tuple[Edit, ...]


# What could be changed


def tolerations(search_input: SearchInput) -> Iterator[Degrees]:
    """For each request the taints that keep devices away that would suit it."""
    devices = search_input.devices
    for edit, request in _requests(search_input):
        seen: set[tuple[str, str, str]] = set()
        for candidate in _selectable(search_input, request):
            for taint in candidate.device.taints:
                key = (taint.key, taint.value or "", taint.effect)
                single = msgspec.structs.replace(candidate.device, taints=[taint])
                if key in seen or not taints.blocking(single.taints, request.tolerations):
                    continue
                seen.add(key)
                if devices.blocking_taint(request, candidate):
                    yield (_with(edit, "tolerate", subject=_taint(taint), taint=key),)


def counts(search_input: SearchInput) -> Iterator[Degrees]:
    """For each request fewer devices; a claim that asks for more than it may have is anybody's."""
    for edit, request in _requests(search_input):
        most = min(request.minimum - 1, RESULTS_MAX)
        yield tuple(_with(edit, "count", count=count) for count in range(most, 0, -1))


def capacities(search_input: SearchInput) -> Iterator[Degrees]:
    """Less of each capacity: what the devices have left, and what their policies have."""
    for edit, request in _requests(search_input):
        for name, text in (request.capacity or {}).items():
            lesser: set[amounts.Amount] = set()
            absent = False
            for candidate in _selectable(search_input, request):
                absent = absent or name not in candidate.device.capacity
                lesser |= _amounts(search_input, candidate, name, amounts.parse(text).billionths)
            ordered = sorted(lesser, key=lambda amount: -amount.billionths)[:_MOST_AMOUNTS]
            degrees = [
                _with(edit, "capacity", subject=f"{name}={one.text}", name=name, amount=one.text)
                for one in ordered
            ]
            if absent:
                degrees.append(_with(edit, "capacity", subject=f"no {name}", name=name))
            yield tuple(degrees)


def clauses(search_input: SearchInput) -> Iterator[Degrees]:
    """What && joins in each selector, or the whole where there is nothing to join."""
    for edit, request in _requests(search_input):
        for number, selector in enumerate(request.selectors, 1):
            expression = selector.cel.expression if selector.cel else ""
            parts = selectors.clauses(expression)
            for clause in parts:
                subject = f"selector {number}"
                if len(parts) > 1:
                    subject = f"{clause} of selector {number}"
                yield (_with(edit, "selector", subject=subject, number=number, clause=clause),)


def constraints(claims: Sequence[ResourceClaim]) -> Iterator[Degrees]:
    for index, claim in enumerate(claims):
        for number, constraint in enumerate(claim.spec.devices.constraints, 1):
            change = Change(
                kind="constraint",
                claim=claim_name(claim),
                subject=_constraint(constraint),
                number=number,
                namespace=claim.metadata.namespace,
                one_of_several=len(claims) > 1,
            )
            yield (Edit(change=change, claim=index),)


def requests(claims: Sequence[ResourceClaim]) -> Iterator[Degrees]:
    """Each request; none where it is the only one."""
    number = sum(len(claim.spec.devices.requests or ()) for claim in claims)
    for index, claim in enumerate(claims):
        for position, request in enumerate(claim.spec.devices.requests or ()):
            if number > 1:
                change = Change(
                    kind="request",
                    claim=claim_name(claim),
                    request=request.name,
                    namespace=claim.metadata.namespace,
                    one_of_several=len(claims) > 1,
                )
                yield (Edit(change=change, claim=index, request=position),)


def _requests(search_input: SearchInput) -> Iterator[tuple[Edit, Request]]:
    """Each alternative of each request, with an edit of it that changes nothing yet."""
    several = len(search_input.claims) > 1
    for index, of_claim in enumerate(search_input.claims):
        for position, alternatives in enumerate(of_claim):
            for number, request in enumerate(alternatives):
                change = Change(
                    kind="request",
                    claim=claim_name(request.claim),
                    request=request.path,
                    namespace=request.claim.metadata.namespace,
                    one_of_several=several,
                )
                yield (
                    Edit(change=change, claim=index, request=position, alternative=number),
                    request,
                )


def _with(
    edit: Edit,
    kind: str,
    *,
    taint: tuple[str, str, str] = ("", "", ""),
    name: str = "",
    amount: str | None = None,
    **change: object,
) -> Edit:
    changed = dataclasses.replace(edit.change, kind=kind, **change)  # type: ignore[arg-type]
    return dataclasses.replace(edit, change=changed, taint=taint, name=name, amount=amount)


def _selectable(search_input: SearchInput, request: Request) -> Iterator[Candidate]:
    for candidate in search_input.devices.candidates:
        try:
            if search_input.devices.selectable(request, candidate):
                yield candidate
        except AllocationError:
            continue


def _taint(taint: DeviceTaint) -> str:
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}"


def _amounts(
    search_input: SearchInput, candidate: Candidate, name: str, requested: int
) -> set[amounts.Amount]:
    """What may be asked for of the device's capacity that is less than was requested."""
    capacity = candidate.device.capacity.get(name)
    if capacity is None:
        return set()
    whole = amounts.parse(capacity.value)
    used = search_input.devices.allocated.capacity.get(candidate.id, {}).get(name, 0)
    lesser = {amounts.of(candidate.limits[name] - used, whole.binary)}

    policy = capacity.request_policy
    if policy:
        texts = [*(policy.valid_values or ()), policy.default]
        if policy.valid_range:
            texts += [policy.valid_range.max, policy.valid_range.min]
        lesser.update(amounts.parse(text) for text in texts if text is not None)
    return {amount for amount in lesser if 0 < amount.billionths < requested}


def _constraint(constraint: DeviceConstraint) -> str:
    kind, attribute = "matchAttribute", constraint.match_attribute
    if attribute is None:
        kind, attribute = "distinctAttribute", constraint.distinct_attribute or ""
    of = f" of {listed(constraint.requests)}" if constraint.requests else ""
    return f"{kind} {_plain(attribute)}{of}"


def _plain(attribute: str) -> str:
    return attribute.rpartition("/")[2]


# Claims after changes


def edited(claims: Sequence[ResourceClaim], edits: Iterable[Edit]) -> list[ResourceClaim]:
    """The claims after all these changes."""
    by_claim: dict[int, list[Edit]] = {}
    for edit in edits:
        by_claim.setdefault(edit.claim, []).append(edit)
    return [
        _edited(claim, by_claim[index]) if index in by_claim else claim
        for index, claim in enumerate(claims)
    ]


def _edited(claim: ResourceClaim, edits: Sequence[Edit]) -> ResourceClaim:
    devices = claim.spec.devices
    dropped = {edit.request for edit in edits if edit.change.kind == "request"}
    requests = []
    names: set[str] = set()
    for position, request in enumerate(devices.requests or ()):
        if position in dropped:
            names.add(request.name)
            continue
        own = [edit for edit in edits if edit.request == position]
        requests.append(_edited_request(request, own) if own else request)

    without = {edit.change.number for edit in edits if edit.change.kind == "constraint"}
    constraints = []
    for number, constraint in enumerate(devices.constraints, 1):
        if number not in without:
            constraints += _without_requests(constraint, names)
    changed: DeviceClaim = msgspec.structs.replace(
        devices, requests=requests, constraints=constraints
    )
    spec = msgspec.structs.replace(claim.spec, devices=changed)
    return msgspec.structs.replace(claim, spec=spec)


def _without_requests(constraint: DeviceConstraint, names: set[str]) -> list[DeviceConstraint]:
    """The constraint on what is left of its requests; on none it would be on all of the claim."""
    if not names.intersection(name.partition("/")[0] for name in constraint.requests):
        return [constraint]
    left = [name for name in constraint.requests if name.partition("/")[0] not in names]
    return [msgspec.structs.replace(constraint, requests=left)] if left else []


def _edited_request(request: DeviceRequest, edits: Sequence[Edit]) -> DeviceRequest:
    if request.exactly is not None:
        return msgspec.structs.replace(request, exactly=_edited_spec(request.exactly, edits))
    alternatives = list(request.first_available)
    for number, alternative in enumerate(alternatives):
        own = [edit for edit in edits if edit.alternative == number]
        if own:
            alternatives[number] = _edited_spec(alternative, own)
    return msgspec.structs.replace(request, first_available=alternatives)


def _edited_spec(spec: _Spec, edits: Sequence[Edit]) -> _Spec:
    spec = msgspec.structs.replace(spec, selectors=list(_selectors(spec, edits)))

    for edit in edits:
        match edit.change.kind:
            case "count":
                spec = msgspec.structs.replace(
                    spec, allocation_mode="ExactCount", count=edit.change.count
                )
            case "tolerate":
                key, value, effect = edit.taint
                toleration = DeviceToleration(key=key, operator="Equal", value=value, effect=effect)
                spec = msgspec.structs.replace(spec, tolerations=[*spec.tolerations, toleration])
            case "capacity":
                assert spec.capacity
                requested = {**spec.capacity.requests}
                if edit.amount is None:
                    del requested[edit.name]
                else:
                    requested[edit.name] = edit.amount
                capacity = msgspec.structs.replace(spec.capacity, requests=requested)
                spec = msgspec.structs.replace(spec, capacity=capacity)
    return spec


def _selectors(
    spec: ExactDeviceRequest | DeviceSubRequest, edits: Sequence[Edit]
) -> Iterator[DeviceSelector]:
    """The selectors without the clauses that are left out; one without any is left out itself."""
    for number, selector in enumerate(spec.selectors, 1):
        without = {
            edit.change.clause
            for edit in edits
            if edit.change.kind == "selector" and edit.change.number == number
        }
        if not without or selector.cel is None:
            yield selector
            continue
        kept = [one for one in selectors.clauses(selector.cel.expression) if one not in without]
        if kept:
            yield DeviceSelector(cel=CELDeviceSelector(expression=" && ".join(kept)))
