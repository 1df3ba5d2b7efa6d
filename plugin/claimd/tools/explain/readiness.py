"""Devices that a pod waits for on its node before it is bound, and those that it was sent away from.

A driver names such devices with binding conditions: see `kubernetes.scheduling.binding_conditions`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from claimd.common import timestamps
from claimd.kubernetes.scheduling import binding_conditions

from . import started

if TYPE_CHECKING:
    from claimd.kubernetes.scheduling.binding_conditions import Readiness
    from claimd.kubernetes.scheduling.objects import Claim, Pod

    from .objects import Objects

# The scheduler's message about devices that have failed or were not ready in time.
_GIVEN_UP = re.compile(
    rf"{binding_conditions.FAILED}: claim=(?P<claim>[^,]+), reason=(?P<reason>[^,]*), "
    r'message="(?P<message>.*)"',
    re.DOTALL,
)
# The last second that has four digits for its year.
_LAST = 253402300799.0


def blockers(claim: Claim, of_it: str, place: str, pod: Pod | None) -> Iterator[str]:
    """Yields a sentence for each allocated device that has failed or is not ready.

    `of_it` follows the name of the device, and `place` names the nodes where it is, if that is
    known.
    """
    where = f" on {place}" if place else ""
    for device in _unready(claim, pod):
        it = f"device {device.result.device}{of_it}{where}"
        if device.failure is not None:
            yield f"{it} has failed: {device.failure.explanation}; {_outlook(claim, pod)}"
        else:
            yield f"{it} is not ready yet: {_progress(device)}"


def details(claim: Claim, pod: Pod | None, now: float | None) -> list[str]:
    """Returns a line on each wait for devices: since when and until when.

    `now` is in seconds since 1970, or None if the answer must not depend on the time.
    """
    lines = []
    for device in _unready(claim, pod):
        if device.failure is None:
            what = f"driver {device.result.driver} to report {', '.join(device.missing)}"
            lines.append(f"the scheduler waits for {what}{_times(claim, now)}")
    return list(dict.fromkeys(lines))


def _unready(claim: Claim, pod: Pod | None) -> Iterator[Readiness]:
    """Yields the devices that matter for the pod, or for the claim itself if `pod` is None.

    If the claim is not reserved for the pod, the scheduler does not wait for the devices yet, and
    only those that have failed matter. A pod with a node waits for no device.
    """
    if pod is not None and pod.spec.node_name:
        return
    waits = pod is None or claim.is_reserved_for(pod)
    for device in binding_conditions.readiness_of(claim):
        if device.failure is not None or (device.missing and waits):
            yield device


def _outlook(claim: Claim, pod: Pod | None) -> str:
    """Returns what becomes of a claim with a device that has failed."""
    others = [
        consumer.name
        for consumer in claim.status.reserved_for
        if pod is None or not consumer.includes(pod)
    ]
    if pod is not None and others:
        return f"the claim is given back when it is not reserved for pod {others[0]} any more"
    return "it will be given back, and the scheduler looks for others"


def _progress(device: Readiness) -> str:
    """Returns what the driver says about the first condition that is not true."""
    for condition in device.reported:
        if condition.message or condition.reason:
            return condition.explanation
    return f"its driver has not reported {', '.join(device.missing)}"


def _times(claim: Claim, now: float | None) -> str:
    """Returns since when the scheduler waits, and until when.

    It assumes the scheduler's default limit. An invalid time of the allocation comes as it is.
    """
    allocation = claim.status.allocation
    written = allocation.allocation_timestamp if allocation else None
    since = binding_conditions.time_of_allocation(claim)
    if not written:
        return ""
    if since is None or not 0 <= since <= _LAST - binding_conditions.TIMEOUT:
        return f", allocated at {written}"

    end = since + binding_conditions.TIMEOUT
    first, last = timestamps.rfc3339(since), timestamps.rfc3339(end)
    times = f" since {first}, and until {last} at most"
    if now is None or now < since:
        return times
    if now >= end:
        return f"{times}: that is over"
    return f"{times}: {_format(now - since)} have passed, {_format(end - now)} are left"


def _format(seconds: float) -> str:
    """Returns a duration in words: "7 min 50 s"."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def earlier_failure(pod: Pod, objects: Objects) -> str:
    """Returns a note on why the scheduler gave up devices that it had chosen before, or ""."""
    event = started.newest_event(
        pod, objects, "FailedScheduling", containing=binding_conditions.GIVEN_UP
    )
    texts = [(event.text, f" at {event.last_seen}")] if event else []
    texts += [(condition.message, "") for condition in pod.status.conditions]
    for text, when in texts:
        match = _GIVEN_UP.search(text)
        if match:
            why = match["message"].replace('\\"', '"') or match["reason"]
            return f"devices that it had before were given up{when}, because one failed: {why}"
        if binding_conditions.TIMED_OUT in text:
            return (
                f"devices that it had before were given up{when}, "
                "because they were not ready in time"
            )
    return ""
