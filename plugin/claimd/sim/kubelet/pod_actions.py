"""Computes the actions for a pod's containers from their history, without I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from claimd.kubernetes.api.document import Document

from .. import requests
from .timing import Timing

PENDING, RUNNING, SUCCEEDED, FAILED = "Pending", "Running", "Succeeded", "Failed"
STABLE_AFTER = 600.0  # seconds of running that reset the back-off
DEADLINE_EXCEEDED = "DeadlineExceeded"
DEADLINE_MESSAGE = "Pod was active on the node longer than the specified deadline"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerHistory:
    """The history of one container; empty if it was never started.

    Times are in seconds since 1970.
    """

    exit_code: int | None = None  # None while it runs
    started: float = 0.0
    finished: float = 0.0
    exits: int = 0  # consecutive ends, each soon after a start
    not_before: float = 0.0  # creation has failed, and is not retried before this time
    is_starting: bool = False  # its startup probe has not succeeded yet

    @property
    def is_running(self) -> bool:
        return self.started > 0 and self.exit_code is None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodActions:
    """The pod's phase, and the containers to start."""

    phase: str
    start: tuple[str, ...] = ()  # these containers, in this order
    look_again: float | None = None  # after so many seconds
    initialized: bool = False
    # Why the pod has ended, if the reason lies outside its containers.
    reason: str = ""
    message: str = ""

    @property
    def is_terminal(self) -> bool:
        return self.phase in (SUCCEEDED, FAILED)


def compute_pod_actions(
    pod: Document, histories: Mapping[str, ContainerHistory], now: float, timing: Timing
) -> PodActions:
    """Starts init containers one after the other, then all others. Restarts follow the policies.

    An init container that restarts always is a sidecar: it keeps running, and the containers after
    it wait until it has started.
    """
    policy = pod["spec"].get("restartPolicy") or "Always"
    containers = pod["spec"]["containers"]
    never_started = ContainerHistory()
    main_started = any(
        histories.get(container["name"], never_started).started for container in containers
    )

    # Each init container must succeed before anything after it starts.
    starts = _Starts(now, timing)
    for container in pod["spec"].get("initContainers") or ():
        history = histories.get(container["name"], never_started)
        if container.get("restartPolicy") == "Always":
            starts.add(container["name"], history)
            has_started = history.is_running and not history.is_starting
            if not has_started and not main_started:
                return starts.actions(PENDING)
            continue

        # After the first start of a main container, init containers do not run again.
        if main_started or history.exit_code == 0:
            continue
        if history.exit_code is not None and policy == "Never":
            return PodActions(phase=FAILED)
        starts.add(container["name"], history)
        return starts.actions(PENDING)

    # The pod has ended when every container has an exit code that will not be retried.
    final_codes: list[int | None] = []
    for container in containers:
        history = histories.get(container["name"], never_started)
        exits_once = policy == "Never" or (policy == "OnFailure" and history.exit_code == 0)
        final_codes.append(history.exit_code if exits_once else None)
        if final_codes[-1] is None:
            starts.add(container["name"], history)

    if None not in final_codes:
        phase = FAILED if any(final_codes) else SUCCEEDED
        return PodActions(phase=phase, initialized=True)
    return starts.actions(RUNNING if main_started else PENDING, initialized=True)


def time_left(pod: Document, now: float) -> float | None:
    """Returns the seconds until the pod exceeds its deadline, or None if it has no deadline.

    The time starts when the kubelet first sees the pod, as its status records.
    """
    seconds = pod["spec"].get("activeDeadlineSeconds")
    if seconds is None:
        return None
    start = (pod.get("status") or {}).get("startTime")
    if not start:
        return float(seconds)
    return requests.parse_time(start) + float(seconds) - now


def sidecars(pod: Document) -> list[str]:
    """Returns the names of the sidecars in the order of their starts."""
    containers = pod["spec"].get("initContainers") or ()
    return [each["name"] for each in containers if each.get("restartPolicy") == "Always"]


def restart_backoff(history: ContainerHistory, timing: Timing) -> float:
    """Returns the seconds from a container's end to its next start; zero after the first end."""
    if history.exits <= 1:
        return 0.0
    backoff = timing.restart_backoff * 2.0 ** (history.exits - 2)
    return float(min(timing.restart_backoff_limit, backoff))


class _Starts:
    """Collects the containers to start now, and when the next one is due."""

    def __init__(self, now: float, timing: Timing) -> None:
        self._now, self._timing = now, timing
        self._names: list[str] = []
        self._waits: list[float] = []

    def add(self, name: str, history: ContainerHistory) -> None:
        if history.is_running:
            return
        due = history.not_before
        if history.finished:
            due = max(due, history.finished + restart_backoff(history, self._timing))
        if due <= self._now:
            self._names.append(name)
        else:
            self._waits.append(due - self._now)

    def actions(self, phase: str, *, initialized: bool = False) -> PodActions:
        return PodActions(
            phase=phase,
            start=tuple(self._names),
            look_again=min(self._waits, default=None),
            initialized=initialized,
        )
