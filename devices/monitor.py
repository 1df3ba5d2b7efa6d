"""Keeps the node's health current: looks at every GPU by the clock, hears the kernel's events, and
remembers GPUs that are gone for a while, so that others can still look them up.

What is read and what follows from it is not decided here.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from . import deadline, health, kmsg, symptoms
from .gpu import Gpu, Inventory, Roots, name_of
from .health import Finding, HealthReport, Symptom
from .uevents import Uevent

_log = logging.getLogger("claimd.devices")
SOON = 5.0  # seconds at most until the next look while something is suspected
SPACING = 0.25  # seconds at least between two looks, whatever the kernel announces

_VANISHED = "it has vanished from the PCI bus"

Listener = Callable[[HealthReport], None]
ReadSymptoms = Callable[[Roots, Iterable[Gpu]], dict[str, tuple[Symptom, ...]]]


@dataclass(slots=True)
class _Known:
    """A GPU that was in an Inventory, and what befell it since."""

    gpu: Gpu
    history: health.History = field(default_factory=health.History)
    away: Finding | None = None  # why it is not in the last Inventory
    gone_since: float = 0.0


class Monitor:
    """`last` is how all GPUs are. `on_inventory` and `on_uevent` may be called at any time from the loop's
    thread.
    """

    def __init__(
        self,
        roots: Roots,
        *,
        grace: float,
        interval: float,
        read_symptoms: ReadSymptoms = symptoms.all_of,
    ) -> None:
        self.last = HealthReport()
        self.request_rescan: Callable[[], None] = lambda: (
            None
        )  # called when a GPU answers again that did not
        self._roots, self._grace, self._interval, self._read_symptoms = (
            roots,
            grace,
            interval,
            read_symptoms,
        )
        self._log = kmsg.Log(roots)
        self._known: dict[str, _Known] = {}
        self._earlier: tuple[health.Event, ...] = ()
        self._listeners: list[Listener] = []
        self._again = asyncio.Event()
        self._unwatched: tuple[str, ...] = ()
        self._suspect = False

    def on_inventory(self, inventory: Inventory) -> bool:
        """A new Inventory: GPUs that are not in it any more are kept for the grace period. Says
        whether somebody was told of what follows.
        """
        now = time.time()
        reasons = {skipped.address: skipped for skipped in inventory.skipped}
        for gpu in inventory.gpus:
            known = self._known.get(gpu.name) or self._meet(gpu)
            if _absent(known):
                known.history.driver_bound(now)
                self._earlier = tuple(
                    event for event in self._earlier if event.address != gpu.address
                )
            known.gpu, known.away = gpu, None
        for name in [name for name in self._known if inventory.named(name) is None]:
            known = self._known[name]
            skipped = reasons.get(known.gpu.address)
            if skipped is not None and skipped.expected:
                del self._known[name]  # a rule leaves it alone now
                continue
            if known.away is None:
                known.gone_since = now
            if self._hangs(known.gpu):
                known.away = health.finding(symptoms.unresponsive(), known.gone_since)
            else:
                why = skipped.reason if skipped is not None else _VANISHED
                known.away = _away(known.gone_since, why)
        return self._settle(now)

    @property
    def state(self) -> health.HealthState:
        """For the process that comes after us, on the same boot."""
        gone = [(known.gpu, known.gone_since) for known in self._known.values() if _absent(known)]
        events = {
            event for known in self._known.values() for event in known.history.current_events()
        }
        return health.HealthState(
            gone=tuple(sorted(gone, key=lambda pair: pair[0].name)),
            events=tuple(
                sorted(events, key=lambda event: (event.at, event.address, event.kind, event.value))
            ),
            findings=tuple(
                (name, grave) for name, found in self.last.findings if (grave := _grave(found))
            ),
        )

    def restore(self, state: health.HealthState) -> None:
        """What the process before us knew; before the first Inventory. A GPU that is there again is
        there again.
        """
        self._earlier = state.events
        for gpu, since in state.gone:
            self._known[gpu.name] = _Known(gpu, away=_away(since, _VANISHED), gone_since=since)

    def on_uevent(self, uevent: Uevent) -> None:
        """A kernel event: some say of themselves what is wrong."""
        now = time.time()
        if uevent.wedged:
            event = symptoms.wedged(uevent.address, uevent.wedged, now)
        elif uevent.action == "bind" and uevent.subsystem == "pci":
            event = health.Event(address=uevent.address, kind=health.BOUND, at=now)
        else:
            event = None
        if event is not None:
            self._happened(event)
            self._settle(now)
        self._again.set()

    async def run(self, changed: Listener) -> None:
        """Calls `changed` with the last Report and with every one that differs from it, until
        cancelled.
        """
        self._listeners.append(changed)
        try:
            changed(self.last)
            while True:
                try:
                    await self.check()
                except Exception:  # noqa: BLE001  a mistake of ours must not end the watch
                    _log.exception(
                        "the look at the GPUs' health failed; the next one may do better"
                    )
                await asyncio.sleep(min(SPACING, self._interval))
                try:
                    async with asyncio.timeout(self._pause()):
                        await self._again.wait()
                except TimeoutError:
                    pass
        finally:
            self._listeners.remove(changed)

    async def check(self) -> HealthReport:
        """One look at every GPU that is there, and at the kernel's log."""
        self._again.clear()
        there = [known.gpu for known in self._known.values() if known.away is None]
        shown, lines = await deadline.run_in_thread(
            lambda: (self._read_symptoms(self._roots, there), self._log.fresh())
        )
        now = time.time()
        for line in lines:
            if (event := symptoms.event_of(line)) is not None:
                self._happened(event)
        for name, found in shown.items():
            if (known := self._known.get(name)) is not None and known.away is None:
                known.history.observe(found, now)
        if any(
            known.away and not _absent(known) and not self._hangs(known.gpu)
            for known in self._known.values()
        ):
            self.request_rescan()
        self._unwatched = (self._log.unavailable,) if self._log.unavailable else ()
        self._suspect = any(symptom.count is None for found in shown.values() for symptom in found)
        self._settle(now)
        return self.last

    def _meet(self, gpu: Gpu) -> _Known:
        self._known[gpu.name] = known = _Known(gpu)
        for event in self._earlier:
            if event.address == gpu.address:
                known.history.add_event(event)
        return known

    def _happened(self, event: health.Event) -> None:
        for known in self._known.values():
            if known.gpu.address == event.address:
                known.history.add_event(event)

    def _hangs(self, gpu: Gpu) -> bool:
        return deadline.is_hung(f"{self._roots.sys}/bus/pci/devices/{gpu.address}")

    def _pause(self) -> float:
        """Seconds until the next look, if nothing is heard."""
        now = time.time()
        ends = [self._interval, SOON if self._suspect else self._interval]
        ends += [
            end
            for known in self._known.values()
            if (end := known.history.next_change(now)) is not None
        ]
        ends += [
            known.gone_since + self._grace - now for known in self._known.values() if _absent(known)
        ]
        return max(0.0, min(ends))

    def _settle(self, now: float) -> bool:
        """What follows from all that is known; told if it is news, and somebody listens."""
        for name, known in list(self._known.items()):
            if _absent(known) and now - known.gone_since >= self._grace:
                _log.info("%s has not come back for %.0f s and is given up", name, self._grace)
                del self._known[name]
        retained = sorted(
            (known.gpu for known in self._known.values() if known.away), key=lambda gpu: gpu.name
        )
        findings = {name: self._findings(known, now) for name, known in sorted(self._known.items())}
        report = HealthReport(
            retained=tuple(retained),
            findings=tuple((name, found) for name, found in findings.items() if found),
            unwatched=self._unwatched,
        )
        if report == self.last:
            return False
        _say(self.last, report)
        self.last = report
        for listener in tuple(self._listeners):
            listener(report)
        return bool(self._listeners)

    def _findings(self, known: _Known, now: float) -> tuple[Finding, ...]:
        found = known.history.findings(now)
        if known.away is None:
            return found
        return health.worst_first(
            (known.away, *(one for one in found if one.kind != known.away.kind))
        )


def _away(since: float, why: str) -> Finding:
    sentence = f"the GPU is not there any more: {why}"
    return Finding(kind="absent", severity=health.FAILED, sentence=sentence, since=int(since))


def _grave(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    return tuple(one for one in findings if one.severity != health.NOTE)


def _absent(known: _Known) -> bool:
    return known.away is not None and known.away.kind == "absent"


def check_once(
    roots: Roots,
    inventory: Inventory,
    state: health.HealthState = health.HealthState(),  # noqa: B008  frozen
) -> HealthReport:
    """How the GPUs seem by one look, for those who have no time for a second one. `state` is that
    of a Monitor which has looked for longer: it has heard what is said but once, and knows since
    when what is seen here has been so.
    """
    now = time.time()
    log = kmsg.Log(roots)
    shown, lines = deadline.run(lambda: (symptoms.all_of(roots, inventory.gpus), log.fresh()))
    events = [
        *state.events,
        *(event for line in lines if (event := symptoms.event_of(line)) is not None),
    ]
    known = {(name, one.kind): one for name, found in state.findings for one in found}
    findings: dict[str, list[Finding]] = {}
    for gpu in inventory.gpus:
        history = health.History()
        for event in events:
            if event.address == gpu.address:
                history.add_event(event)
        findings[gpu.name] = [*history.findings(now)]
        for symptom in shown.get(gpu.name, ()):
            if symptom.count is None or (symptom.count and (gpu.name, symptom.kind) in known):
                findings[gpu.name].append(
                    known.get((gpu.name, symptom.kind)) or health.finding(symptom, 0)
                )
            elif symptom.count:
                sentence = f"{symptom.sentence}: {symptom.count} since the boot"
                findings[gpu.name].append(
                    Finding(kind=symptom.kind, severity=health.NOTE, sentence=sentence, since=0)
                )
    for skipped in inventory.skipped:
        if deadline.is_hung(f"{roots.sys}/bus/pci/devices/{skipped.address}"):
            name, hangs = name_of(skipped.address), symptoms.unresponsive()
            findings[name] = [known.get((name, hangs.kind)) or health.finding(hangs, 0)]
    retained = [
        (gpu, since)
        for gpu, since in state.gone
        if inventory.named(gpu.name) is None and gpu.name not in findings
    ]
    findings |= {
        gpu.name: [known.get((gpu.name, "absent")) or _away(since, _VANISHED)]
        for gpu, since in retained
    }
    return HealthReport(
        retained=tuple(gpu for gpu, _ in retained),
        findings=tuple(
            (name, health.worst_first(found)) for name, found in sorted(findings.items()) if found
        ),
        unwatched=(log.unavailable,) if log.unavailable else (),
    )


def _say(before: HealthReport, after: HealthReport) -> None:
    for name, found in after.findings:
        known = {(finding.kind, finding.value) for finding in before.of(name)}
        for finding in found:
            if (finding.kind, finding.value) not in known:
                level = logging.INFO if finding.severity == health.NOTE else logging.WARNING
                _log.log(level, "%s: %s: %s", name, finding.severity, finding.sentence)
    for name, found in before.findings:
        still = {(finding.kind, finding.value) for finding in after.of(name)}
        for finding in found:
            if (finding.kind, finding.value) not in still:
                _log.info("%s: this is over: %s", name, finding.sentence)
    for reason in after.unwatched:
        if reason not in before.unwatched:
            _log.info("%s", reason)
