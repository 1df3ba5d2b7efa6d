"""What is to be done with the containers of a pod now, from what has become of them so far. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...api.document import Document
from .timing import Timing

PENDING, RUNNING, SUCCEEDED, FAILED = "Pending", "Running", "Succeeded", "Failed"
STEADY = 600.0  # seconds of running after which earlier ends are forgotten


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """One container, as far as it matters here; none if it was never started. Times are in seconds
    since 1970.
    """

    code: int | None = None  # None: it runs
    began: float = 0.0
    finished: float = 0.0
    ends: int = 0  # in a row, each soon after its start
    refused: float = 0.0  # until when it is not to be tried, since it could not be created

    @property
    def runs(self) -> bool:
        return self.began > 0 and self.code is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    phase: str
    start: tuple[str, ...] = ()  # these containers, in this order
    again: float | None = None  # look again after so many seconds
    initialized: bool = False

    @property
    def terminal(self) -> bool:
        return self.phase in (SUCCEEDED, FAILED)


def plan(pod: Document, pasts: Mapping[str, Past], now: float, timing: Timing) -> Plan:
    policy = pod["spec"].get("restartPolicy") or "Always"
    containers = pod["spec"]["containers"]
    begun = any((past := pasts.get(each["name"])) is not None and past.began for each in containers)
    due = _Due(now, timing)
    for container in pod["spec"].get("initContainers") or ():
        past = pasts.get(container["name"]) or Past()
        if (
            container.get("restartPolicy") == "Always"
        ):  # goes on beside the others, which wait until it runs
            due.put(container["name"], past)
            if not past.runs and not begun:
                return due.plan(PENDING)
            continue
        if begun or past.code == 0:
            continue
        if past.code is not None and policy == "Never":
            return Plan(phase=FAILED)
        due.put(container["name"], past)
        return due.plan(PENDING)
    codes: list[int | None] = []
    for container in containers:
        past = pasts.get(container["name"]) or Past()
        for_good = policy == "Never" or (policy == "OnFailure" and past.code == 0)
        codes.append(past.code if for_good else None)
        if not for_good or past.code is None:
            due.put(container["name"], past)
    if None not in codes:
        return Plan(phase=FAILED if any(codes) else SUCCEEDED, initialized=True)
    return due.plan(RUNNING if begun else PENDING, initialized=True)


def pause(past: Past, timing: Timing) -> float:
    """Seconds from the end of a container to its next start. The first end costs nothing, as in a
    kubelet.
    """
    if past.ends <= 1:
        return 0.0
    return float(min(timing.backoff_limit, timing.backoff * 2.0 ** (past.ends - 2)))


class _Due:
    """Which containers are to be started now, and when the next one is."""

    def __init__(self, now: float, timing: Timing) -> None:
        self._now, self._timing = now, timing
        self._start: list[str] = []
        self._waits: list[float] = []

    def put(self, name: str, past: Past) -> None:
        if past.runs:
            return
        due = max(past.refused, past.finished + pause(past, self._timing) if past.finished else 0.0)
        if due <= self._now:
            self._start.append(name)
        else:
            self._waits.append(due - self._now)

    def plan(self, phase: str, *, initialized: bool = False) -> Plan:
        again = min(self._waits, default=None)
        return Plan(phase=phase, start=tuple(self._start), again=again, initialized=initialized)
