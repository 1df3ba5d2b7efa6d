"""Derives the findings about GPUs from symptoms and events. Pure: the time is an argument.

A failed GPU does not heal by the clock. Its finding ends for a reason: the driver says so, is bound
again or resets the GPU, the GPU is plugged in again, or a person clears it.

A finding appears after several checks that show its symptom, and disappears after several checks
that do not. `symptoms` reads the symptoms, and `monitor` decides when to check.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field, replace

from . import values
from .gpu import Gpu

NOTE, DEGRADED, UNKNOWN, FAILED = "note", "degraded", "unknown", "failed"
SEVERITIES = (NOTE, DEGRADED, UNKNOWN, FAILED)  # from bad to worse

# Where claimd read a finding.
SYSFS, KERNEL_LOG, UEVENT, NVML = "sysfs", "kernel log", "uevent", "NVML"

# Seconds without a new error after which old errors are forgotten, if the GPU works in spite of
# them.
ERROR_WINDOW = 600.0

# The kind of an event: a driver was bound again, so everything that happened to the GPU before is
# over.
BOUND = "bound"

# The kind of an event: the driver could not initialize the GPU. It is over when the GPU has a UUID.
UNINITIALIZED = "uninitialized"

# The kind of a symptom: the GPU does not answer on the bus. Only a look that wakes the GPU shows it.
LOST = "lost"

# How many checks in a row must show a symptom until it is believed, and how many must not show it
# until it is over. Kinds that are not in a table need one check.
_CHECKS_TO_APPEAR = {
    "hot": 2,
    "link": 3,
    "link-speed": 3,
    "unreadable": 3,
    # At the start of a machine the GPUs join the fabric after the driver is loaded.
    "fabric": 4,
}
_CHECKS_TO_CLEAR = {
    "hot": 3,
    "link": 3,
    "link-speed": 3,
    "unreadable": 2,
    LOST: 2,
    "survivability": 2,
}


@values.dataclass(frozen=True, slots=True, kw_only=True)
class Symptom:
    """An anomaly that one check shows. If it has a count, only the growth of the count matters."""

    kind: str
    severity: str
    sentence: str
    value: str = ""
    count: int | None = None
    source: str = SYSFS


@values.dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An anomaly that the kernel reported once, for the GPU at an address."""

    address: str
    kind: str
    at: float  # seconds since 1970
    severity: str = NOTE
    sentence: str = ""
    value: str = ""
    lasts: float | None = None  # seconds; None: until the GPU is reset or its driver bound again

    # The MIG instance (GPU instance) that the event is about; None: the whole GPU.
    instance: int | None = None

    # The vendor whose GPUs are all concerned, if the event is about a device that connects them.
    vendor: str = ""
    source: str = KERNEL_LOG

    # The number of its line in the kernel's log. For an event that is no line, the number of the
    # first line after it. None: not known, so that only the time says what came first.
    number: int | None = None


@values.dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Finding:
    """A problem of a GPU, for people and for programs."""

    kind: str  # wedged, absent, hot, …
    value: str = ""
    severity: str
    sentence: str
    since: int  # seconds since 1970; 0 if its begin was not observed
    source: str = SYSFS

    @property
    def text(self) -> str:
        """The sentence and the source, for people."""
        return f"{self.sentence} [{self.source}]"


FindingsByName = tuple[tuple[str, tuple[Finding, ...]], ...]


@values.dataclass(frozen=True, slots=True, kw_only=True)
class HealthReport:
    """The health of all GPUs at one moment. A GPU without findings is healthy."""

    # GPUs that are not in the Inventory any more and not given up yet, sorted by name.
    retained: tuple[Gpu, ...] = ()

    # Sorted by the name of the GPU; the worst finding of each GPU comes first.
    findings: FindingsByName = ()

    unwatched: tuple[str, ...] = ()  # what cannot be watched, and why
    _by_name: dict[str, tuple[Finding, ...]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        self._by_name.update(self.findings)

    def findings_of(self, name: str) -> tuple[Finding, ...]:
        """Returns the findings of a GPU, the worst first; empty if it is healthy or unknown."""
        return self._by_name.get(name, ())


@values.dataclass(frozen=True, slots=True, kw_only=True)
class HealthState:
    """Facts that are reported once and must outlive the process. The field names are on disk."""

    gone: tuple[tuple[Gpu, float], ...] = ()  # absent GPUs, and since when

    # The names of those that no scan saw gone: their files were only unreadable.
    unread: tuple[str, ...] = ()
    events: tuple[Event, ...] = ()  # that still count

    # Those of the last HealthReport, for `check_once`.
    findings: FindingsByName = ()


@values.dataclass(slots=True, kw_only=True)
class _Persistence:
    """How many checks in a row have shown a symptom, or have not shown it."""

    checks_with: int = 0  # in a row
    checks_without: int = 0
    since: float = 0.0
    believed: bool = False
    symptom: Symptom | None = None


@values.dataclass(slots=True, kw_only=True)
class _ErrorCounter:
    """A counter of errors, and the times when it grew."""

    value: int
    first_at: float | None = None  # of the oldest error that is not forgotten
    last_at: float = 0.0
    symptom: Symptom | None = None

    @property
    def expires(self) -> bool:
        """True if its errors are forgotten after a while."""
        return self.symptom is not None and self.symptom.severity != FAILED


class History:
    """The symptoms, counters and events of one GPU over time."""

    def __init__(self) -> None:
        self.bound_at = 0.0  # when the driver was bound or the GPU was reset; 0 if unknown

        # The newest of those resets whose place in the kernel's log is known, and the time of the
        # newest other one.
        self._reset_number: int | None = None
        self._reset_at = 0.0

        self._persistence: dict[str, _Persistence] = {}
        self._counters: dict[str, _ErrorCounter] = {}

        # Failed findings of an earlier process, by kind. They hold for counters that did not
        # restart.
        self._earlier: dict[str, Finding] = {}
        self._observed_at: float | None = None  # None before the first check

        # By kind and value: the time of the first such event, and the newest one.
        self._events: dict[tuple[str, str], tuple[float, Event]] = {}

    def restore(self, findings: Iterable[Finding]) -> None:
        """Takes the findings of an earlier process. Must be called before the first `observe`.

        The failed ones that come from counters hold on: the counter shows only that there were
        errors, but not that they came before the last reset.
        """
        self._earlier = {one.kind: one for one in findings if one.severity == FAILED}

    def is_lost(self) -> bool:
        """Returns True if a check showed that the GPU does not answer on the bus, until that is over.

        Before the first check this is what an earlier process saw.
        """
        return LOST in (self._earlier if self._observed_at is None else self._persistence)

    def add_event(self, event: Event) -> None:
        """Adds an event of the kernel.

        An event may be added again, or late: a known one, or one from before the last reset,
        changes nothing.
        """
        if event.kind == BOUND:
            self.reset(event.at, event.number)
            return
        if self._is_over(event):
            return

        key = event.kind, event.value
        since, newest = self._events.get(key, (event.at, event))
        if event.at >= newest.at:
            newest = event
        self._events[key] = min(since, event.at), newest

    def current_events(self) -> tuple[Event, ...]:
        """Returns the events that still count, each with its first and its last time."""
        events = []
        for since, newest in self._events.values():
            events.append(newest)
            if since != newest.at:
                events.append(replace(newest, at=since))
        return tuple(sorted(events, key=lambda event: (event.at, event.kind, event.value)))

    def reset(self, at: float, number: int | None = None) -> None:
        """Forgets everything that was reported or counted up to `at`.

        The GPU's driver was bound again at that time. `number` is that of the first line of the
        kernel's log after it, or of its own line.
        """
        self.bound_at = max(self.bound_at, at)
        if number is None:
            self._reset_at = max(self._reset_at, at)
        else:
            self._reset_number = max(self._reset_number or 0, number)
        for key, (_, newest) in list(self._events.items()):
            if self._is_over(newest):
                del self._events[key]
        for counter in self._counters.values():
            if counter.last_at <= at:
                counter.first_at = None

    def resets(self, address: str) -> tuple[Event, ...]:
        """Returns the events that a later process needs to know what is over."""
        events = []
        if self._reset_number is not None:
            number = self._reset_number
            events.append(Event(address=address, kind=BOUND, at=self.bound_at, number=number))
        if self._reset_at:
            events.append(Event(address=address, kind=BOUND, at=self._reset_at))
        return tuple(events)

    def _is_over(self, event: Event) -> bool:
        """Returns True if an event came before a reset."""
        if event.number is None:
            return event.at <= self.bound_at
        if self._reset_number is not None and event.number < self._reset_number:
            return True
        return event.at <= self._reset_at

    def observe(self, symptoms: Iterable[Symptom], now: float) -> None:
        """Takes the result of one check. A symptom that is not in it was not there."""
        shown = {symptom.kind: symptom for symptom in symptoms}

        for kind in set(self._persistence) - set(shown):
            self._observe_absence(kind)
        for kind, symptom in shown.items():
            if symptom.count is None:
                self._observe_presence(kind, symptom, now)
            else:
                self._observe_count(kind, symptom, symptom.count, now)
        self._observed_at = now

    def _observe_presence(self, kind: str, symptom: Symptom, now: float) -> None:
        persistence = self._persistence.setdefault(kind, _Persistence())
        if not persistence.checks_with and not persistence.believed:
            persistence.since = now
        persistence.checks_with += 1
        persistence.checks_without = 0

        # The sentence of a believed symptom stays, so that changing numbers do not make new
        # findings.
        before = persistence.symptom
        if not persistence.believed or before is None or before.value != symptom.value:
            persistence.symptom = symptom
        if persistence.checks_with >= _CHECKS_TO_APPEAR.get(kind, 1):
            persistence.believed = True

    def _observe_absence(self, kind: str) -> None:
        persistence = self._persistence[kind]
        persistence.checks_with = 0
        persistence.checks_without += 1
        is_over = persistence.checks_without >= _CHECKS_TO_CLEAR.get(kind, 1)
        if is_over or not persistence.believed:
            del self._persistence[kind]

    def _observe_count(self, kind: str, symptom: Symptom, value: int, now: float) -> None:
        # Errors from before the first check are old. A counter that appears in a later check
        # started at zero, so all of its errors are new.
        if kind not in self._counters:
            self._counters[kind] = _ErrorCounter(value=value if self._observed_at is None else 0)
            earlier = self._earlier.get(kind)
            if earlier is not None and value and earlier.since > self.bound_at:
                counter = self._counters[kind]
                counter.first_at = counter.last_at = earlier.since
                counter.symptom = symptom

        counter = self._counters[kind]
        if value < counter.value:
            # The kernel restarted the counter, because the device was initialized again.
            counter.first_at = None
        elif value > counter.value and not self._was_reset_since_last_check():
            if counter.first_at is None:
                counter.first_at = now
            counter.last_at, counter.symptom = now, symptom
        counter.value = value

    def _was_reset_since_last_check(self) -> bool:
        """Returns True if new errors of a counter may be older than a reset.

        Errors often cause the reset. Those after it make the counter grow in later checks as well.
        """
        return self._observed_at is not None and self.bound_at >= self._observed_at

    def findings(self, now: float) -> tuple[Finding, ...]:
        """Returns the current findings, the worst first.

        Forgets errors and events that are too old.
        """
        self._forget_old(now)

        found = []
        for persistence in self._persistence.values():
            if persistence.believed and persistence.symptom is not None:
                found.append(finding(persistence.symptom, persistence.since))
        for counter in self._counters.values():
            if counter.first_at is not None and counter.symptom is not None:
                found.append(finding(counter.symptom, counter.first_at))
        for since, event in self._events.values():
            found.append(
                Finding(
                    kind=event.kind,
                    value=event.value,
                    severity=event.severity,
                    sentence=event.sentence,
                    since=int(since),
                    source=event.source,
                )
            )
        return _without_repeats(worst_first(found))

    def next_change(self, now: float) -> float | None:
        """Returns in how many seconds the next finding expires, or None if no finding expires."""
        ends = []
        for counter in self._counters.values():
            if counter.first_at is not None and counter.expires:
                ends.append(counter.last_at + ERROR_WINDOW)
        for _, event in self._events.values():
            if event.lasts is not None:
                ends.append(event.at + event.lasts)
        return max(0.0, min(ends) - now) if ends else None

    def _forget_old(self, now: float) -> None:
        for counter in self._counters.values():
            if counter.expires and now - counter.last_at >= ERROR_WINDOW:
                counter.first_at = None
        for key, (_, event) in list(self._events.items()):
            if event.lasts is not None and now - event.at >= event.lasts:
                del self._events[key]


def is_before(event: Event, reset: Event) -> bool:
    """Returns True if an event came before a reset, as far as the two alone say."""
    if event.number is None or reset.number is None:
        return event.at <= reset.at
    return event.number < reset.number


def _without_repeats(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Returns one finding of each kind and value. The worst come first in `findings`.

    A counter in sysfs and a line of the kernel's log may report the same error.
    """
    found: dict[tuple[str, str], Finding] = {}
    for finding in findings:
        found.setdefault((finding.kind, finding.value), finding)
    return tuple(found.values())


def worst_first(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Sorts findings by severity, the worst first, then by kind and value."""

    def rank(finding: Finding) -> tuple[int, str, str]:
        return -SEVERITIES.index(finding.severity), finding.kind, finding.value

    return tuple(sorted(findings, key=rank))


def finding(symptom: Symptom, since: float) -> Finding:
    """Returns the finding of a symptom that is believed."""
    return Finding(
        kind=symptom.kind,
        value=symptom.value,
        severity=symptom.severity,
        sentence=symptom.sentence,
        since=int(since),
        source=symptom.source,
    )
