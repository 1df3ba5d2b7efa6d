"""Keeps the health of the node's GPUs current.

The monitor checks every GPU periodically and takes the kernel's events. It keeps a GPU that has
disappeared for a grace period, so that claims of it can still be looked up. `symptoms` and
`log_lines` understand what the kernel shows, and `health` draws the conclusions.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, replace

from . import deadline, health, kmsg, log_lines, symptoms, values, vfio
from .failures import LookFailedError
from .gpu import Gpu, Inventory, NotUsable, Roots, Skipped, name_of
from .health import Finding, HealthReport, HealthState, Symptom
from .uevents import Uevent

_log = logging.getLogger("claimd.devices")

SOON = 5.0  # the most seconds until the next check while a check showed a symptom
SPACING = 0.25  # the fewest seconds between two checks, even if many uevents come

_VANISHED = "it has vanished from the PCI bus"

Listener = Callable[[HealthReport], None]
ReadSymptoms = Callable[[Roots, Iterable[Gpu]], dict[str, tuple[Symptom, ...]]]


@values.dataclass(slots=True, kw_only=True)
class _TrackedGpu:
    """A GPU that was in an Inventory, and its history since then."""

    gpu: Gpu
    history: health.History = field(default_factory=health.History)
    missing: Finding | None = None  # the reason why it is not in the last Inventory
    missing_since: float = 0.0
    was_gone: bool = False  # True if a scan saw that it is gone, and not only that it is unreadable

    # How often the kernel reported each kind of event, by kind and value.
    event_counts: dict[tuple[str, str], int] = field(default_factory=dict)

    @property
    def is_absent(self) -> bool:
        """True if the GPU is gone.

        A GPU that hangs is missing from the Inventory, but is not absent.
        """
        return self.missing is not None and self.missing.kind == "absent"

    def add_events(self, events: Iterable[health.Event]) -> None:
        """Adds those of the events to the history that concern the GPU."""
        for event in events:
            if _concerns(event, self.gpu):
                self.history.add_event(event)

    def findings(self, now: float) -> tuple[Finding, ...]:
        """Returns the current findings of the GPU, the worst first."""
        findings = _current_findings(self.history, self.gpu, now)
        if self.missing is None:
            return findings
        others = [finding for finding in findings if finding.kind != self.missing.kind]
        return health.worst_first([self.missing, *others])


class Monitor:
    """Checks the GPUs of the node. `last` is the last report.

    `on_inventory` and `on_uevent` may be called at any time in the loop's thread.
    """

    def __init__(
        self,
        roots: Roots,
        *,
        grace: float,
        interval: float,
        read_symptoms: ReadSymptoms = symptoms.read_gpus,
    ) -> None:
        """Keeps absent GPUs for `grace` seconds, and checks at least every `interval` seconds."""
        self.last = HealthReport()

        # Called when a GPU that hung answers again, so that a scan puts it back into the Inventory.
        self.request_rescan: Callable[[], None] = lambda: None

        # Called at each check. Returns the events by which a person ended findings.
        self.read_clearings: Callable[[], Iterable[health.Event]] = tuple

        self._roots, self._grace, self._interval = roots, grace, interval
        self._read_symptoms = read_symptoms
        self._kernel_log = kmsg.Log(roots)

        # Drivers that were bound since the last check, each with a mark in the kernel's log.
        self._marks: list[tuple[health.Event, int]] = []
        self._tracked: dict[str, _TrackedGpu] = {}  # by name

        # The state of the process before this one, for GPUs that are not tracked yet.
        self._earlier = HealthState()
        self._listeners: list[Listener] = []
        self._wake = asyncio.Event()
        self._unwatched: tuple[str, ...] = ()
        self._is_suspicious = False  # True if the last check showed a symptom or failed

    def on_inventory(self, inventory: Inventory) -> bool:
        """Takes a new Inventory. GPUs that are not in it any more are kept for the grace period.

        Returns True if the report changed and there is a listener that got it.
        """
        now = time.time()
        for gpu in inventory.gpus:
            self._track_present(gpu, now)

        skipped_by_address = {skipped.address: skipped for skipped in inventory.skipped}
        for name, tracked in list(self._tracked.items()):
            if inventory.find_gpu(name) is not None:
                continue
            skipped = skipped_by_address.get(tracked.gpu.address)
            if skipped is not None and skipped.expected:
                # A rule of the configuration excludes it now, so it is not missed.
                del self._tracked[name]
            else:
                self._track_missing(tracked, skipped, now)
        return self._update_report(now)

    def on_uevent(self, uevent: Uevent) -> None:
        """Takes a uevent.

        Some report a problem themselves, and each of them makes the next check soon.
        """
        now = time.time()
        event = None
        if uevent.wedged:
            event = log_lines.wedged_event(uevent.address, uevent.wedged, now, health.UEVENT)
        elif uevent.action == "bind" and uevent.subsystem == "pci" and self._sets_up(uevent):
            event = self._mark_bind(uevent.address, now)

        if event is not None:
            self._add_event(event)
            self._update_report(now)
        self._wake.set()

    def _mark_bind(self, address: str, now: float) -> health.Event:
        """Returns the event of a driver that was bound now.

        Marks the end of the kernel's log, because the clock of the log may differ from ours. The
        next check learns from the mark which lines came before.
        """
        mark = self._kernel_log.mark_end()
        if mark < 0:
            return health.Event(address=address, kind=health.BOUND, at=now)
        number = self._kernel_log.next_number
        event = health.Event(address=address, kind=health.BOUND, at=now, number=number)
        self._marks.append((event, mark))
        return event

    def _sets_up(self, uevent: Uevent) -> bool:
        """Returns True if the new driver initializes the GPU. vfio-pci does not touch it.

        Returns False if the driver cannot be read. Then earlier events and counters of the GPU stay
        valid.
        """
        try:
            return not vfio.is_driver(vfio.driver_of(self._roots, uevent.address))
        except (NotUsable, LookFailedError):
            return False

    @property
    def state(self) -> HealthState:
        """The state that the next process needs, on the same boot."""
        gone: list[tuple[Gpu, float]] = []
        unread: list[str] = []
        events: set[health.Event] = set()
        for tracked in self._tracked.values():
            events.update(tracked.history.current_events())
            if tracked.gpu.parent is None:
                # The kernel's log may still have the errors from before, and not these events.
                events.update(tracked.history.resets(tracked.gpu.address))
            if tracked.is_absent:
                gone.append((tracked.gpu, tracked.missing_since))
                if not tracked.was_gone:
                    unread.append(tracked.gpu.name)

        serious: list[tuple[str, tuple[Finding, ...]]] = []
        for name, findings in self.last.findings:
            without_notes = [finding for finding in findings if finding.severity != health.NOTE]
            if without_notes:
                serious.append((name, tuple(without_notes)))

        return HealthState(
            gone=tuple(sorted(gone, key=lambda pair: pair[0].name)),
            unread=tuple(sorted(unread)),
            events=tuple(sorted(events, key=_event_order)),
            findings=tuple(serious),
        )

    def event_counts(self) -> list[tuple[Gpu, str, str, int]]:
        """Returns how often the kernel reported each event: GPU, kind, value and count.

        The counts reach back as far as the kernel's log did when this process started. May be
        called from another thread.
        """
        counts = []
        for tracked in tuple(self._tracked.values()):
            for (kind, value), count in tuple(tracked.event_counts.items()):
                counts.append((tracked.gpu, kind, value, count))
        return counts

    def restore(self, state: HealthState) -> None:
        """Takes over the state of the process before this one. Must come before `on_inventory`.

        A GPU that is in the first Inventory is not absent, even if the state says so.
        """
        self._earlier = state
        for event in state.events:
            if event.number is not None:
                # A line is followed by the next number. A reset has the number of the next line.
                number = event.number + (event.kind != health.BOUND)
                self._kernel_log.next_number = max(self._kernel_log.next_number, number)
        for gpu, since in state.gone:
            tracked = _TrackedGpu(
                gpu=gpu,
                missing=_absent(since, _VANISHED),
                missing_since=since,
                was_gone=gpu.name not in state.unread,
            )
            self._tracked[gpu.name] = tracked
            self._restore_history(tracked)

    async def run(self, changed: Listener) -> None:
        """Calls `changed` with the last report, and then with every different one.

        Runs until it is cancelled. A check that fails is logged, and the next one follows.
        """
        self._listeners.append(changed)
        try:
            changed(self.last)
            while True:
                try:
                    await self.check()
                except LookFailedError as error:
                    # We could not look, so every finding stays. The next check comes soon.
                    _log.warning("the look at the GPUs' health failed, trying again: %s", error)
                    self._is_suspicious = True
                except Exception:  # noqa: BLE001  a mistake of ours must not end the watch
                    _log.exception(
                        "the look at the GPUs' health failed; the next one may do better"
                    )

                # Events that came during the check end the wait at once, but not before SPACING is
                # over.
                await asyncio.sleep(min(SPACING, self._interval))
                seconds = self._seconds_to_next_check()
                try:
                    async with asyncio.timeout(seconds):
                        await self._wake.wait()
                except TimeoutError:
                    pass
        finally:
            self._listeners.remove(changed)

    async def check(self) -> HealthReport:
        """Checks every GPU that is present, and the kernel's log, once. Returns the new report."""
        self._wake.clear()
        present = [tracked for tracked in self._tracked.values() if tracked.missing is None]
        gpus = [tracked.gpu for tracked in present]
        lost = [tracked.gpu for tracked in present if tracked.history.is_lost()]
        marks, self._marks = self._marks, []
        try:
            shown, lines, bound = await deadline.run_in_thread(
                lambda: self._look(gpus, lost, marks)
            )
        except BaseException:
            self._marks = [*marks, *self._marks]
            raise

        now = time.time()
        for event in bound:
            self._add_event(event)
        for line in lines:
            told = log_lines.event_of(line)
            if told is not None:
                self._add_event(told)
        for cleared in self.read_clearings():
            self._add_event(cleared)

        # While the thread read the files, `on_inventory` may have dropped a GPU.
        for name, symptoms_shown in shown.items():
            tracked = self._tracked.get(name)
            if tracked is not None and tracked.missing is None:
                tracked.history.observe(symptoms_shown, now)

        if self._has_one_that_answers_again():
            self.request_rescan()
        self._unwatched = _describe_unseen(self._kernel_log)
        self._is_suspicious = _shows_anything(shown)
        self._update_report(now)
        return self.last

    def _look(
        self, gpus: list[Gpu], lost: list[Gpu], marks: list[tuple[health.Event, int]]
    ) -> tuple[dict[str, tuple[Symptom, ...]], list[kmsg.Line], list[health.Event]]:
        """Returns symptoms, new lines of the kernel's log, and the marked events with their place."""
        shown = _read_with_lost(self._roots, gpus, lost, self._read_symptoms)
        lines = self._kernel_log.read_new_lines()
        bound = [replace(event, number=self._kernel_log.number_at(mark)) for event, mark in marks]
        return shown, lines, bound

    def _track_present(self, gpu: Gpu, now: float) -> None:
        """Starts or continues to track a GPU that is in the Inventory."""
        tracked = self._tracked.get(gpu.name)
        is_new = tracked is None
        if tracked is None:
            self._tracked[gpu.name] = tracked = _TrackedGpu(gpu=gpu)
            self._restore_history(tracked)

        # A part that is created does not initialize its GPU, so it has the GPU's findings. A GPU that
        # reappears was initialized again, so its history is dropped. A GPU whose files could not be
        # read for a while keeps its history.
        parent = self._tracked.get(gpu.parent or "")
        is_back = tracked.is_absent and tracked.was_gone
        if parent is not None and parent.missing is None:
            if is_back:
                tracked.history = health.History()
            if is_new or is_back:
                tracked.add_events(parent.history.current_events())
        elif is_back:
            tracked.history.add_event(self._mark_bind(gpu.address, now))
            others = [event for event in self._earlier.events if event.address != gpu.address]
            self._earlier = replace(self._earlier, events=tuple(others))
        tracked.gpu, tracked.missing, tracked.was_gone = gpu, None, False

    def _restore_history(self, tracked: _TrackedGpu) -> None:
        """Gives a GPU what the process before this one knew about it."""
        tracked.history.restore(dict(self._earlier.findings).get(tracked.gpu.name, ()))
        tracked.add_events(self._earlier.events)

    def _track_missing(self, tracked: _TrackedGpu, skipped: Skipped | None, now: float) -> None:
        """Notes why a tracked GPU is not in the Inventory: it hangs, or the scan's reason, or it is
        gone.
        """
        if tracked.missing is None:
            tracked.missing_since = now
        if skipped is None or not skipped.is_unread:
            tracked.was_gone = True
        if self._is_hung(tracked.gpu):
            tracked.missing = health.finding(symptoms.unresponsive(), tracked.missing_since)
        else:
            reason = skipped.reason if skipped is not None else _VANISHED
            tracked.missing = _absent(tracked.missing_since, reason)

    def _add_event(self, event: health.Event) -> None:
        # A bind also ends what an earlier process saw of a GPU that is not tracked yet.
        if event.kind == health.BOUND and event.instance is None:
            kept = [
                earlier
                for earlier in self._earlier.events
                if earlier.address != event.address or not health.is_before(earlier, event)
            ]
            self._earlier = replace(self._earlier, events=(*kept, event))
        for tracked in self._tracked.values():
            if _concerns(event, tracked.gpu):
                tracked.history.add_event(event)
                if event.kind != health.BOUND:
                    key = event.kind, event.value
                    tracked.event_counts[key] = tracked.event_counts.get(key, 0) + 1

    def _is_hung(self, gpu: Gpu) -> bool:
        return deadline.is_hung(f"{self._roots.sys}/bus/pci/devices/{gpu.address}")

    def _has_one_that_answers_again(self) -> bool:
        for tracked in self._tracked.values():
            is_unresponsive = tracked.missing is not None and not tracked.is_absent
            if is_unresponsive and not self._is_hung(tracked.gpu):
                return True
        return False

    def _seconds_to_next_check(self) -> float:
        """Returns the time until the next check, unless an event comes before.

        It is shorter than the interval if a finding may expire, or an absent GPU may be given up.
        """
        now = time.time()
        seconds = [self._interval]
        if self._is_suspicious:
            seconds.append(SOON)
        for tracked in self._tracked.values():
            next_change = tracked.history.next_change(now)
            if next_change is not None:
                seconds.append(next_change)
            if tracked.is_absent:
                seconds.append(tracked.missing_since + self._grace - now)
        return max(0.0, min(seconds))

    def _update_report(self, now: float) -> bool:
        """Makes the report, and passes it to the listeners if it differs from the last one.

        Returns True if it differs and there is a listener.
        """
        for name, tracked in list(self._tracked.items()):
            if tracked.is_absent and now - tracked.missing_since >= self._grace:
                _log.info("%s has not come back for %.0f s and is given up", name, self._grace)
                del self._tracked[name]

        retained: list[Gpu] = []
        findings_by_name: list[tuple[str, tuple[Finding, ...]]] = []
        for name, tracked in sorted(self._tracked.items()):
            findings = tracked.findings(now)
            if findings:
                findings_by_name.append((name, findings))
            if tracked.missing is not None:
                retained.append(tracked.gpu)

        report = HealthReport(
            retained=tuple(retained),
            findings=tuple(findings_by_name),
            unwatched=self._unwatched,
        )
        if report == self.last:
            return False

        _log_changes(self.last, report)
        self.last = report
        for listener in tuple(self._listeners):
            listener(report)
        return bool(self._listeners)


def check_once(
    roots: Roots,
    inventory: Inventory,
    state: HealthState = HealthState(),  # noqa: B008  frozen
    read_symptoms: ReadSymptoms = symptoms.read_gpus,
) -> HealthReport:
    """Returns the health of the GPUs by a single check, for commands that cannot wait for more
    checks.

    `state` comes from a Monitor that has run for longer. It has events that the kernel reports only
    once, and the times when findings began.
    """
    now = time.time()
    known: dict[tuple[str, str], Finding] = {}
    for name, known_findings in state.findings:
        for finding in known_findings:
            known[name, finding.kind] = finding
    lost = [gpu for gpu in inventory.gpus if (gpu.name, health.LOST) in known]

    kernel_log = kmsg.Log(roots)
    shown, lines = deadline.run(
        lambda: (
            _read_with_lost(roots, inventory.gpus, lost, read_symptoms),
            kernel_log.read_new_lines(),
        )
    )
    events = [*state.events]
    for line in lines:
        event = log_lines.event_of(line)
        if event is not None:
            events.append(event)

    findings: dict[str, list[Finding]] = {}
    for gpu in inventory.gpus:
        history = health.History()
        for event in events:
            if _concerns(event, gpu):
                history.add_event(event)
        findings[gpu.name] = [*_current_findings(history, gpu, now)]
        for symptom in shown.get(gpu.name, ()):
            findings[gpu.name] += _findings_of_one_check(
                symptom, known.get((gpu.name, symptom.kind))
            )

    for skipped in inventory.skipped:
        if deadline.is_hung(f"{roots.sys}/bus/pci/devices/{skipped.address}"):
            name, symptom = name_of(skipped.address), symptoms.unresponsive()
            findings[name] = [known.get((name, symptom.kind)) or health.finding(symptom, 0)]

    retained = []
    for gpu, since in state.gone:
        if inventory.find_gpu(gpu.name) is None and gpu.name not in findings:
            retained.append(gpu)
            findings[gpu.name] = [known.get((gpu.name, "absent")) or _absent(since, _VANISHED)]

    return HealthReport(
        retained=tuple(retained),
        findings=_sorted_findings(findings),
        unwatched=_describe_unseen(kernel_log),
    )


def _read_with_lost(
    roots: Roots, gpus: Iterable[Gpu], lost: Iterable[Gpu], read_symptoms: ReadSymptoms
) -> dict[str, tuple[Symptom, ...]]:
    """Returns the symptoms of GPUs. Those that were lost are looked at in their sleep, too.

    Otherwise a lost GPU would be well as soon as it sleeps, and nobody wakes a GPU with a taint.
    """
    shown = read_symptoms(roots, gpus)
    for name, symptom in symptoms.read_lost(roots, lost).items():
        others = [one for one in shown.get(name, ()) if one.kind != symptom.kind]
        shown[name] = (symptom, *others)
    return shown


def _describe_unseen(kernel_log: kmsg.Log) -> tuple[str, ...]:
    """Returns what is not seen because the kernel's log cannot be read, and why."""
    if not kernel_log.unavailable:
        return ()
    return (f"{log_lines.UNSEEN}: {kernel_log.unavailable}",)


def _concerns(event: health.Event, gpu: Gpu) -> bool:
    """Returns True if the event concerns `gpu`, which may be a GPU or a part of one.

    An event of one MIG instance does not concern the other instances. If the GPU is not divided any
    more, or MIG was not seen, such an event concerns the whole GPU.
    """
    if event.vendor:
        return event.vendor == gpu.vendor
    if event.address != gpu.address:
        return False
    if event.instance is None or gpu.kind == "gpu":
        return True

    # Imported late, because most nodes have no divided GPU and then need not load it.
    from . import mig

    return mig.is_in_instance(gpu, event.instance)


def _current_findings(history: health.History, gpu: Gpu, now: float) -> tuple[Finding, ...]:
    """Returns the findings of a history that still hold for `gpu`.

    A GPU that has a UUID was initialized, so earlier attempts that failed do not matter. Neither do
    they for a GPU that a virtual machine gets.
    """
    findings = history.findings(now)
    if gpu.uuid is None and not vfio.is_driver(gpu.driver):
        return findings
    return tuple(finding for finding in findings if finding.kind != health.UNINITIALIZED)


def _findings_of_one_check(symptom: Symptom, known: Finding | None) -> list[Finding]:
    """Returns the findings of a symptom that was seen in one check.

    A Monitor's own finding wins.
    """
    if symptom.count == 0:
        return []
    if known is not None:
        return [known]
    if symptom.count is None:
        return [health.finding(symptom, 0)]

    # The times of these errors are unknown, so they make only a note.
    sentence = f"{symptom.sentence}: {symptom.count} since the boot"
    return [
        Finding(
            kind=symptom.kind,
            severity=health.NOTE,
            sentence=sentence,
            since=0,
            source=symptom.source,
        )
    ]


def _sorted_findings(findings: Mapping[str, list[Finding]]) -> health.FindingsByName:
    rows = []
    for name, of_gpu in sorted(findings.items()):
        if of_gpu:
            rows.append((name, health.worst_first(of_gpu)))
    return tuple(rows)


def _absent(since: float, reason: str) -> Finding:
    sentence = f"the GPU is not there any more: {reason}"
    return Finding(kind="absent", severity=health.FAILED, sentence=sentence, since=int(since))


def _event_order(event: health.Event) -> tuple[float, str, str, str]:
    return event.at, event.address, event.kind, event.value


def _shows_anything(shown: Mapping[str, tuple[Symptom, ...]]) -> bool:
    """Returns True if a GPU shows a symptom.

    Counters do not count, because they are always there.
    """
    for symptoms_shown in shown.values():
        if any(symptom.count is None for symptom in symptoms_shown):
            return True
    return False


def _log_changes(before: HealthReport, after: HealthReport) -> None:
    """Logs a line for each new finding, and for each finding that is over."""
    for name, findings in after.findings:
        known = {(finding.kind, finding.value) for finding in before.findings_of(name)}
        for finding in findings:
            if (finding.kind, finding.value) not in known:
                level = logging.INFO if finding.severity == health.NOTE else logging.WARNING
                _log.log(level, "%s: %s: %s", name, finding.severity, finding.sentence)

    for name, findings in before.findings:
        still = {(finding.kind, finding.value) for finding in after.findings_of(name)}
        for finding in findings:
            if (finding.kind, finding.value) not in still:
                _log.info("%s: this is over: %s", name, finding.sentence)

    for reason in after.unwatched:
        if reason not in before.unwatched:
            _log.info("%s", reason)
