"""Possible changes to waiting claims, and the claims after such changes.

`relax` finds out which of the changes would help.
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
from .causes import Change, join_names
from .failures import AllocationError
from .requests import RESULTS_MAX, claim_name

if TYPE_CHECKING:
    from ..api.resource import DeviceTaint
    from ..api.scheduling import DeviceClaim, DeviceConstraint, DeviceRequest, ResourceClaim
    from .allocator import SearchInput
    from .devices import Candidate
    from .requests import Request

_Spec = TypeVar("_Spec", ExactDeviceRequest, DeviceSubRequest)

# The most amounts of one capacity that are tried.
_MOST_AMOUNTS = 8


@dataclasses.dataclass(frozen=True, kw_only=True)
class Edit:
    """A change to one waiting claim, with its position in the claims.

    `claim`, `request` and `alternative` are indices. `taint` is the taint to tolerate. `amount` is
    the new amount of the capacity `name`; None means that the capacity is no longer requested.
    """

    change: Change
    claim: int
    request: int = -1
    alternative: int = 0
    taint: tuple[str, str, str] = ("", "", "")
    name: str = ""
    amount: str | None = None


# The same change in several degrees, the smallest change first.
Degrees = tuple[Edit, ...]


# Possible changes


def tolerations(search_input: SearchInput) -> Iterator[Degrees]:
    """Yields for each request the toleration of each taint that keeps selectable devices away."""
    devices = search_input.devices
    for edit, request in _requests(search_input):
        seen: set[tuple[str, str, str]] = set()
        for candidate in _selectable(search_input, request):
            for taint in candidate.device.taints:
                # A taint counts only if it blocks the device on its own.
                key = (taint.key, taint.value or "", taint.effect)
                single = msgspec.structs.replace(candidate.device, taints=[taint])
                if key in seen or not taints.blocking_taint(single.taints, request.tolerations):
                    continue
                seen.add(key)

                # The feature for taints may be off.
                if devices.blocking_taint(request, candidate):
                    yield (_derive_edit(edit, "tolerate", subject=_taint(taint), taint=key),)


def counts(search_input: SearchInput) -> Iterator[Degrees]:
    """Yields for each request smaller numbers of devices, at most what one claim may have."""
    for edit, request in _requests(search_input):
        # A smaller reduction is a smaller change, so the largest number comes first.
        most = min(request.minimum - 1, RESULTS_MAX)
        yield tuple(_derive_edit(edit, "count", count=count) for count in range(most, 0, -1))


def capacities(search_input: SearchInput) -> Iterator[Degrees]:
    """Yields smaller amounts of each requested capacity.

    They are the amounts that devices have left, also if the other requests get their share of the
    same device, and the amounts that request policies name.
    """
    for edit, request in _requests(search_input):
        for name, text in (request.capacity or {}).items():
            lesser: set[amounts.Amount] = set()
            absent = False
            others: dict[str, list[int]] = {}
            for candidate in _selectable(search_input, request):
                driver, own_name = candidate.id.driver, candidate.own_name(name)
                absent = absent or own_name not in candidate.capacity
                if driver not in others:
                    others[driver] = _requested_by_others(
                        search_input, request, candidate, own_name
                    )
                for amount in _amounts(search_input, candidate, own_name, others[driver]):
                    if 0 < amount.billionths < amounts.parse(text).billionths:
                        lesser.add(amount)

            # The largest amount is the smallest change.
            ordered = sorted(lesser, key=lambda amount: -amount.billionths)[:_MOST_AMOUNTS]
            degrees = []
            for amount in ordered:
                subject = f"{name}={amount.text}"
                degrees.append(
                    _derive_edit(edit, "capacity", subject=subject, name=name, amount=amount.text)
                )

            # A device without the capacity suits only a request that does not mention it.
            if absent:
                degrees.append(_derive_edit(edit, "capacity", subject=f"no {name}", name=name))
            yield tuple(degrees)


def clauses(search_input: SearchInput) -> Iterator[Degrees]:
    """Yields the removal of each operand of && in each selector, or of the whole selector."""
    for edit, request in _requests(search_input):
        for number, selector in enumerate(request.selectors, 1):
            expression = selector.cel.expression if selector.cel else ""
            parts = selectors.clauses(expression)
            for clause in parts:
                subject = f"selector {number}"
                if len(parts) > 1:
                    subject = f"{clause} of selector {number}"
                yield (
                    _derive_edit(edit, "selector", subject=subject, number=number, clause=clause),
                )


def constraints(claims: Sequence[ResourceClaim]) -> Iterator[Degrees]:
    """Yields the removal of each constraint."""
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
    """Yields the removal of each request, unless there is only one."""
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
    """Yields each alternative of each request, with an edit that is a template for its changes."""
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


def _derive_edit(
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
    """Yields the devices that the request selects. A device whose selector fails is left out."""
    for candidate in search_input.devices.candidates:
        try:
            if search_input.devices.is_selectable(request, candidate):
                yield candidate
        except AllocationError:
            continue


def _taint(taint: DeviceTaint) -> str:
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}"


def _requested_by_others(
    search_input: SearchInput, request: Request, candidate: Candidate, own_name: str
) -> list[int]:
    """Returns what other requests may take of the device if they share it with the request."""
    each = []
    for _, other in _requests(search_input):
        if other.key == request.key:
            continue
        for name, text in (other.capacity or {}).items():
            if candidate.own_name(name) == own_name:
                each.append(amounts.parse(text).billionths)
    return [0, *each, sum(each)]


def _amounts(
    search_input: SearchInput, candidate: Candidate, name: str, others: Iterable[int]
) -> Iterator[amounts.Amount]:
    """Yields amounts of the device's capacity that it may be able to give."""
    capacity = candidate.capacity.get(name)
    if capacity is None:
        return

    whole = amounts.parse(capacity.value)
    used = search_input.devices.allocated.capacity.get(candidate.id, {}).get(name, 0)
    for taken in others:
        yield amounts.from_billionths(candidate.limits[name] - used - taken, whole.binary)

    # The amounts that the policy names are likely to be allowed.
    policy = capacity.request_policy
    if policy:
        texts = [*(policy.valid_values or ()), policy.default]
        if policy.valid_range:
            texts += [policy.valid_range.max, policy.valid_range.min]
        for text in texts:
            if text is not None:
                yield amounts.parse(text)


def _constraint(constraint: DeviceConstraint) -> str:
    kind, attribute = "matchAttribute", constraint.match_attribute
    if attribute is None:
        kind, attribute = "distinctAttribute", constraint.distinct_attribute or ""
    of = f" of {join_names(constraint.requests)}" if constraint.requests else ""
    return f"{kind} {_plain(attribute)}{of}"


def _plain(attribute: str) -> str:
    return attribute.rpartition("/")[2]


# The claims after changes


def apply_edits(claims: Sequence[ResourceClaim], edits: Iterable[Edit]) -> list[ResourceClaim]:
    """Returns the claims after all these changes. Unchanged claims are the same objects."""
    by_claim: dict[int, list[Edit]] = {}
    for edit in edits:
        by_claim.setdefault(edit.claim, []).append(edit)

    edited = list(claims)
    for index, of_claim in by_claim.items():
        edited[index] = _edit_claim(claims[index], of_claim)
    return edited


def _edit_claim(claim: ResourceClaim, edits: Sequence[Edit]) -> ResourceClaim:
    devices = claim.spec.devices

    # Edits of other kinds change a request, and are passed on to it.
    dropped = {edit.request for edit in edits if edit.change.kind == "request"}
    requests = []
    names: set[str] = set()
    for position, request in enumerate(devices.requests or ()):
        if position in dropped:
            names.add(request.name)
            continue
        own = [edit for edit in edits if edit.request == position]
        requests.append(_edit_request(request, own) if own else request)

    # Constraints lose the removed requests, and some constraints are removed themselves.
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
    """Returns the constraint without these requests, or nothing if it loses all its requests.

    A constraint without requests would be a constraint on all requests of the claim.
    """
    rest = []
    for name in constraint.requests:
        if name.partition("/")[0] not in names:
            rest.append(name)
    if len(rest) == len(constraint.requests):
        return [constraint]
    return [msgspec.structs.replace(constraint, requests=rest)] if rest else []


def _edit_request(request: DeviceRequest, edits: Sequence[Edit]) -> DeviceRequest:
    if request.exactly is not None:
        return msgspec.structs.replace(request, exactly=_edit_spec(request.exactly, edits))
    alternatives = list(request.first_available)
    for number, alternative in enumerate(alternatives):
        own = [edit for edit in edits if edit.alternative == number]
        if own:
            alternatives[number] = _edit_spec(alternative, own)
    return msgspec.structs.replace(request, first_available=alternatives)


def _edit_spec(spec: _Spec, edits: Sequence[Edit]) -> _Spec:
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
    """Yields the selectors without the clauses that the edits remove.

    A selector that loses all its clauses is removed.
    """
    for number, selector in enumerate(spec.selectors, 1):
        without = set()
        for edit in edits:
            if edit.change.kind == "selector" and edit.change.number == number:
                without.add(edit.change.clause)
        if not without or selector.cel is None:
            yield selector
            continue
        clauses = selectors.clauses(selector.cel.expression)
        rest = [clause for clause in clauses if clause not in without]
        if rest:
            yield DeviceSelector(cel=CELDeviceSelector(expression=" && ".join(rest)))
