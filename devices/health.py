"""How GPUs are: symptoms and events in, findings out. Pure: the time is an argument, and nothing is
read here.

A finding needs more than one bad moment to appear and more than one good moment to go. What a
symptom is read from is in `symptoms`; when to look is the monitor's.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from .gpu import Gpu

NOTE, DEGRADED, UNKNOWN, FAILED = "note", "degraded", "unknown", "failed"  # from bad to worse
SEVERITIES = (NOTE, DEGRADED, UNKNOWN, FAILED)

ERROR_WINDOW = 600.0  # seconds without a new error after which the old ones are history
RESET_WINDOW = 3600.0  # the same for what usually takes a reset, if nobody is seen to reset it
# the kind of an event: a driver took the GPU up anew, so what befell it before is over
BOUND = "bound"


@dataclass(frozen=True, slots=True, kw_only=True)
class Symptom:
    """What one look shows. With a count, only its growth matters."""

    kind: str
    severity: str
    sentence: str
    value: str = ""
    count: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """What the kernel said once, of the GPU at this address."""

    address: str
    kind: str
    at: float  # seconds since 1970
    severity: str = NOTE
    sentence: str = ""
    value: str = ""
    lasts: float | None = None  # seconds; None: until a driver takes the GPU up anew


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Finding:
    """What is wrong with a GPU, for people and for programs."""

    kind: str  # wedged, absent, hot, …
    value: str = ""
    severity: str
    sentence: str
    since: int  # seconds since 1970; 0: nobody has seen it begin


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthReport:
    """How all GPUs are at one moment. A GPU without findings is well."""

    retained: tuple[
        Gpu, ...
    ] = ()  # not in the Inventory any more, or not now, and not given up yet; sorted by name
    findings: tuple[
        tuple[str, tuple[Finding, ...]], ...
    ] = ()  # by the GPU's name, sorted; the worst finding first
    unwatched: tuple[str, ...] = ()  # what cannot be watched, and why
    _by_name: dict[str, tuple[Finding, ...]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        self._by_name.update(self.findings)

    def of(self, name: str) -> tuple[Finding, ...]:
        return self._by_name.get(name, ())


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthState:
    """What is told once and must outlive the process that heard it."""

    gone: tuple[tuple[Gpu, float], ...] = ()  # GPUs that vanished, and when
    events: tuple[Event, ...] = ()  # of GPUs that are not well for it
    findings: tuple[
        tuple[str, tuple[Finding, ...]], ...
    ] = ()  # of the last Report, for those who look but once


# How many looks in a row must show a symptom before it is believed, and how many must not before it
# is over.
_APPEARS = {
    "hot": 2,
    "link": 3,
    "link-speed": 3,
    "unreadable": 2,
    "lost": 1,
    "survivability": 1,
    "unresponsive": 1,
}
_CLEARS = {
    "hot": 3,
    "link": 3,
    "link-speed": 3,
    "unreadable": 2,
    "lost": 2,
    "survivability": 2,
    "unresponsive": 1,
}


@dataclass(slots=True)
class _Level:
    """A symptom that is there or not."""

    seen: int = 0  # looks in a row
    unseen: int = 0
    since: float = 0.0
    believed: bool = False
    last: Symptom | None = None


@dataclass(slots=True)
class _Count:
    """A counter of errors."""

    value: int
    first: float | None = None  # when the errors began that are not history yet
    last: float = 0.0
    symptom: Symptom | None = None


class History:
    """What is known of one GPU."""

    def __init__(self) -> None:
        self._levels: dict[str, _Level] = {}
        self._counts: dict[str, _Count] = {}
        self._events: dict[tuple[str, str], tuple[float, Event]] = {}  # since when, and the newest
        self._bound_at = 0.0
        self._looked = False

    def add_event(self, event: Event) -> None:
        """An event; one from before a driver took the GPU up, or that is no news, changes nothing."""
        if event.kind == BOUND:
            self.driver_bound(event.at)
            return
        if event.at <= self._bound_at:
            return
        key = event.kind, event.value
        since, before = self._events.get(key, (event.at, event))
        self._events[key] = min(since, event.at), event if event.at >= before.at else before

    def current_events(self) -> tuple[Event, ...]:
        """The events that still count, each when it was first and when it was last."""
        found = [
            replace(event, at=at)
            for since, event in self._events.values()
            for at in {since, event.at}
        ]
        return tuple(sorted(found, key=lambda event: (event.at, event.kind, event.value)))

    def driver_bound(self, at: float) -> None:
        self._bound_at = max(self._bound_at, at)
        self._events = {key: found for key, found in self._events.items() if found[1].at > at}
        for count in self._counts.values():
            if count.last <= at:
                count.first = None

    def observe(self, symptoms: Iterable[Symptom], now: float) -> None:
        """One look at the GPU, and all that it showed."""
        shown = {symptom.kind: symptom for symptom in symptoms}
        for kind in [*self._levels, *(kind for kind in shown if kind not in self._levels)]:
            symptom = shown.get(kind)
            if symptom is None or symptom.count is None:
                self._level(kind, symptom, now)
        for kind, symptom in shown.items():
            if symptom.count is not None:
                self._counted(kind, symptom, symptom.count, now)
        self._looked = True

    def _level(self, kind: str, symptom: Symptom | None, now: float) -> None:
        level = self._levels.setdefault(kind, _Level())
        if symptom is not None:
            level.since = now if not level.seen and not level.believed else level.since
            level.seen, level.unseen = level.seen + 1, 0
            if not level.believed or level.last is None or level.last.value != symptom.value:
                level.last = symptom  # a sentence with other numbers is no news
            level.believed |= level.seen >= _APPEARS.get(kind, 1)
        else:
            level.seen, level.unseen = 0, level.unseen + 1
            if level.unseen >= _CLEARS.get(kind, 1) or not level.believed:
                del self._levels[kind]

    def _counted(self, kind: str, symptom: Symptom, value: int, now: float) -> None:
        # What was counted before we came is not news, but a counter that was not there began at
        # zero.
        count = self._counts.setdefault(kind, _Count(0 if self._looked else value))
        if value < count.value:  # the kernel counts anew: the device was set up anew
            count.first = None
        elif value > count.value:
            count.first = now if count.first is None else count.first
            count.last, count.symptom = now, symptom
        count.value = value

    def findings(self, now: float) -> tuple[Finding, ...]:
        """What is wrong now, the worst first."""
        found = []
        for level in self._levels.values():
            if level.believed and level.last is not None:
                found.append(finding(level.last, level.since))
        for count in self._counts.values():
            if (
                count.first is not None
                and count.symptom is not None
                and now - count.last < ERROR_WINDOW
            ):
                found.append(finding(count.symptom, count.first))
            else:
                count.first = None
        self._events = {
            key: (since, event)
            for key, (since, event) in self._events.items()
            if event.lasts is None or now - event.at < event.lasts
        }
        for since, event in self._events.values():
            found.append(
                Finding(
                    kind=event.kind,
                    value=event.value,
                    severity=event.severity,
                    sentence=event.sentence,
                    since=int(since),
                )
            )
        return worst_first(found)

    def next_change(self, now: float) -> float | None:
        """In how many seconds a finding may go by itself."""
        ends = [
            count.last + ERROR_WINDOW for count in self._counts.values() if count.first is not None
        ]
        ends += [
            event.at + event.lasts for _, event in self._events.values() if event.lasts is not None
        ]
        return max(0.0, min(ends) - now) if ends else None


def worst_first(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    return tuple(
        sorted(findings, key=lambda one: (-SEVERITIES.index(one.severity), one.kind, one.value))
    )


def finding(symptom: Symptom, since: float) -> Finding:
    return Finding(
        kind=symptom.kind,
        value=symptom.value,
        severity=symptom.severity,
        sentence=symptom.sentence,
        since=int(since),
    )
