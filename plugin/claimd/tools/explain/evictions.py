"""Finds pods that could run, but would be evicted at once because of an old taint on a device.

A claim may tolerate a NoExecute taint for some seconds. Kubernetes counts them from the time of the
taint, and not from the start of the pod.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from claimd.kubernetes.allocator.identity import DeviceID
from claimd.kubernetes.allocator.taints import tolerates

if TYPE_CHECKING:
    from claimd.kubernetes.api.resource import DeviceTaint
    from claimd.kubernetes.api.scheduling import DeviceToleration
    from claimd.kubernetes.scheduling.objects import Claim

    from .answer import NodeAnswer
    from .question import Cluster

# The beginning of the note.
EVICTED = "it would be evicted at once: "


def note(
    cluster: Cluster,
    claims: Sequence[Claim],
    answers: Sequence[NodeAnswer],
    now: float | None = None,
) -> str:
    """Returns a note if the pod would be evicted from every node that it fits on, or ""."""
    tolerations = list(_limited_tolerations(claims))
    if not tolerations:
        return ""

    tainted = _tainted_devices(cluster)
    reason = ""
    for answer in answers:
        if answer.outcome != "yes":
            continue
        reason = _reason(answer, tainted, tolerations, time.time() if now is None else now)
        if not reason:
            return ""
    return f"{EVICTED}{reason}" if reason else ""


def _limited_tolerations(claims: Sequence[Claim]) -> Iterator[DeviceToleration]:
    """Yields the tolerations that end after some seconds."""
    for claim in claims:
        for _, request in claim.spec.alternatives():
            for toleration in request.tolerations:
                if toleration.toleration_seconds is not None:
                    yield toleration


def _tainted_devices(cluster: Cluster) -> dict[DeviceID, list[DeviceTaint]]:
    """Returns the NoExecute taints by device."""
    tainted: dict[DeviceID, list[DeviceTaint]] = {}
    for slice_ in cluster.slices:
        for device in slice_.spec.devices:
            taints = [taint for taint in device.taints if taint.effect == "NoExecute"]
            if taints:
                key = DeviceID(slice_.spec.driver, slice_.spec.pool.name, device.name)
                tainted[key] = taints
    return tainted


def _reason(
    answer: NodeAnswer,
    tainted: dict[DeviceID, list[DeviceTaint]],
    tolerations: Sequence[DeviceToleration],
    now: float,
) -> str:
    """Returns why the pod would be evicted from this node, or ""."""
    for device in answer.allocation:
        for taint in tainted.get(device, ()):
            seconds = []
            for toleration in tolerations:
                if tolerates(toleration, taint) and toleration.toleration_seconds is not None:
                    seconds.append(toleration.toleration_seconds)
            if seconds and _time_of(taint) + min(seconds) <= now:
                return (
                    f"{device.device} on {answer.node} has the taint {taint.key} since "
                    f"{taint.time_added}, and the claim tolerates it for {min(seconds)} s only"
                )
    return ""


def _time_of(taint: DeviceTaint) -> float:
    """Returns the time of the taint in seconds since 1970; infinite if it is not known."""
    try:
        return datetime.datetime.fromisoformat(taint.time_added or "").timestamp()
    except ValueError:
        return float("inf")
