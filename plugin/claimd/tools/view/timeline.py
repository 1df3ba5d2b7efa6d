"""Changes of the cluster as lines for people, with their times. This module is pure."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from claimd.kubernetes.api.scheduling import Device, ResourceSlice
from claimd.kubernetes.scheduling import binding_conditions
from claimd.kubernetes.scheduling.objects import Claim, Node, Pod

from . import rows
from .world import key_of, results_of

# The time in seconds for which changes are shown.
KEPT = 3600.0
# The number of changes that are shown, so that a storm of changes does not fill a browser.
MOST = 2000


class Change(NamedTuple):
    """One change.

    `time` is in seconds since 1970. `kind` is one of got, gave back, sick, well, came, went, waits,
    placed, node. The other fields name the objects of the change, and those that do not apply are
    empty. `subject` is the namespace/name of a claim or pod.
    """

    time: float
    kind: str
    text: str
    node: str = ""
    device: str = ""
    subject: str = ""


def changes_between(kind: str, before: Any, after: Any, now: float) -> Iterator[Change]:
    """Yields the changes between two states of an object; None means that it does not exist."""
    match kind:
        case "ResourceClaim":
            yield from _claim_changes(before, after, now)
        case "ResourceSlice":
            yield from _slice_changes(before, after, now)
        case "Pod":
            yield from _pod_changes(before, after, now)
        case "Node":
            yield from _node_changes(before, after, now)


def past_changes(kind: str, item: Any) -> Iterator[Change]:
    """Yields past changes that have a date in the object, for the time before the page started."""
    match kind:
        case "ResourceClaim" if results_of(item):
            since = parse_time(rows.held_since(item))
            yield from _allocation_change(item, "got", since)
        case "ResourceSlice":
            for device in item.spec.devices:
                yield from _new_taints(item, None, device, 0.0)
        case "Pod" if is_waiting(item):
            since = parse_time(item.metadata.creation_timestamp)
            yield Change(since, "waits", f"pod {item.key} waits", subject=item.key)


def is_waiting(pod: Pod) -> bool:
    """Returns True if the scheduler still has to find a node for the pod."""
    return not pod.spec.node_name and not pod.has_ended and not pod.metadata.deletion_timestamp


def is_starting(pod: Pod) -> bool:
    """Returns True if the pod has its node and claims, and no container of it has run yet."""
    if not pod.spec.node_name or pod.metadata.deletion_timestamp:
        return False
    has_claims = bool(pod.spec.resource_claims or pod.status.extended_resource_claim_status)
    return has_claims and pod.status.phase in ("", "Pending")


def parse_time(text: str) -> float:
    """Returns an RFC 3339 time in seconds since 1970; 0 if the text is no time."""
    try:
        return datetime.datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        return 0.0


# ---------------------------------------------------------------- claims


def _claim_changes(before: Claim | None, after: Claim | None, now: float) -> Iterator[Change]:
    had = set(map(key_of, results_of(before)))
    has = set(map(key_of, results_of(after)))
    if before is not None and had - has:
        yield from _allocation_change(before, "gave back", now)
    if after is not None and has - had:
        yield from _allocation_change(after, "got", now)
    if after is not None:
        known = _failures(before) if before is not None else {}
        for place, why in _failures(after).items():
            if place not in known:
                yield _failure_change(after, place, why, now)


def _failures(claim: Claim) -> dict[tuple[str, str], str]:
    """Returns why devices that the claim's pods wait for have failed, by pool and name."""
    failures = {}
    for device in binding_conditions.readiness_of(claim):
        if device.failure is not None:
            place = device.result.pool, device.result.device
            failures[place] = device.failure.explanation
    return failures


def _failure_change(claim: Claim, place: tuple[str, str], why: str, now: float) -> Change:
    pool, device = place
    text = f"{device} on {pool} failed for claim {claim.key}: {why}"
    return Change(now, "sick", text, node=pool, device=device, subject=claim.key)


def _allocation_change(claim: Claim, verb: str, time: float) -> Iterator[Change]:
    results = results_of(claim)
    names = ", ".join(result.device for result in results[:4])
    if len(results) > 4:
        names += f" and {len(results) - 4} more"
    pods = ", ".join(consumer.name for consumer in claim.status.reserved_for)
    who = f"claim {claim.key}" + (f" (pod {pods})" if pods else "")
    yield Change(
        time,
        verb,
        f"{who} {verb} {names} on {results[0].pool}",
        node=results[0].pool,
        device=results[0].device,
        subject=claim.key,
    )


# ---------------------------------------------------------------- devices


def _slice_changes(
    before: ResourceSlice | None, after: ResourceSlice | None, now: float
) -> Iterator[Change]:
    had, has = _devices_by_name(before), _devices_by_name(after)
    slice_ = after or before
    assert slice_ is not None
    place = slice_.spec.node_name or slice_.spec.pool.name

    # Devices that appeared or vanished.
    came = [name for name in has if name not in had]
    went = [name for name in had if name not in has]
    for verb, names in (("came", came), ("went", went)):
        if names:
            text = f"{_join_names(names)} {verb} on {place}"
            yield Change(now, verb, text, node=place, device=names[0])

    # Devices whose health changed.
    for name in has.keys() & had.keys():
        yield from _new_taints(slice_, had[name], has[name], now)
        gone = _taints(had[name]) - _taints(has[name])
        if gone and not has[name].taints:
            text = f"{name} on {place} is well again"
            yield Change(now, "well", text, node=place, device=name)


def _devices_by_name(slice_: ResourceSlice | None) -> dict[str, Device]:
    return {device.name: device for device in slice_.spec.devices} if slice_ else {}


def _join_names(names: Sequence[str]) -> str:
    if len(names) > 3:
        return f"{len(names)} devices"
    return ", ".join(names)


def _new_taints(
    slice_: ResourceSlice, before: Device | None, after: Device, now: float
) -> Iterator[Change]:
    place = slice_.spec.node_name or slice_.spec.pool.name
    known = _taints(before) if before else set()
    for taint in after.taints:
        if (taint.key, taint.value) not in known:
            # At the start the time is that of the taint itself.
            why = f"{taint.key}={taint.value}" if taint.value else taint.key
            time = now or parse_time(taint.time_added or "")
            text = f"{after.name} on {place} is tainted: {why}"
            yield Change(time, "sick", text, node=place, device=after.name)


def _taints(device: Device) -> set[tuple[str, str]]:
    return {(taint.key, taint.value) for taint in device.taints}


# ---------------------------------------------------------------- pods and nodes


def _pod_changes(before: Pod | None, after: Pod | None, now: float) -> Iterator[Change]:
    waited = before is not None and is_waiting(before)
    if after is not None and is_waiting(after) and before is None:
        yield Change(now, "waits", f"pod {after.key} waits", subject=after.key)
    elif waited and after is not None and after.spec.node_name:
        node = after.spec.node_name
        text = f"pod {after.key} goes to {node}"
        yield Change(now, "placed", text, node=node, subject=after.key)
    elif waited and after is None and before is not None:
        text = f"pod {before.key} is deleted before it had a node"
        yield Change(now, "placed", text, subject=before.key)


def _node_changes(before: Node | None, after: Node | None, now: float) -> Iterator[Change]:
    if before is None or after is None:
        name = (after or before).metadata.name  # type: ignore[union-attr]
        verb = "joined" if before is None else "left"
        yield Change(now, "node", f"node {name} {verb}", node=name)
        return

    name = after.metadata.name
    if before.readiness != after.readiness:
        state = "ready" if after.readiness == "True" else "not ready"
        yield Change(now, "node", f"node {name} is {state}", node=name)
    if before.spec.unschedulable != after.spec.unschedulable:
        verb = "cordoned" if after.spec.unschedulable else "uncordoned"
        yield Change(now, "node", f"node {name} is {verb}", node=name)
