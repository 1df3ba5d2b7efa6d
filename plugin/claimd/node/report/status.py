"""Sends what claim.status.devices has to say: after a prepare's reply, and after an unprepare.

One report a claim, the newest. It is applied as the driver's own part of the list, so the entries
of others are never touched. A failure is logged and tried again; nothing waits for a report, and
none ever fails a pod. What a report says comes from the caller, at the moment of sending.

Another instance may give the claim back, or prepare it anew, while our request is on its way: one
of us was stopped in that moment, or the API server was slow. So an answer is followed by a look at
whether that was so, and a request without an answer is doubtful until there is one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from dataclasses import field
from typing import Protocol

from claimd.common import errors, metrics, pacing
from claimd.common import log as logs
from claimd.kubernetes.api.resource import AllocatedDeviceStatus
from claimd.kubernetes.kube import errors as kube_errors
from claimd.kubernetes.kube import resources
from claimd_devices import values

from ..prepared import PreparedClaim

log = logging.getLogger(__name__)

AT_ONCE = 4  # reports under way at the same time
SPACING = 0.4  # seconds between two reports while the API server is sick; one at a time then
FIRST_DELAY, LAST_DELAY = 0.5, 60.0  # seconds until a report that failed is tried again
# Seconds that the kubelet's answer has to leave first, where nobody says sooner that it has.
AFTER_REPLY = 0.01
OTHERS_TURN = 5.0  # seconds in which another instance that lives clears by itself

# Answers after which it is known that a request was not carried out.
_REFUSALS = (
    kube_errors.Forbidden,
    kube_errors.Conflict,
    kube_errors.TooManyRequests,
    kube_errors.Unauthorized,
)


class Source(Protocol):
    """What is to be said of a claim."""

    async def entries(self, *, doubtful: bool = False) -> list[AllocatedDeviceStatus] | None:
        """Asked for when it is sent; None: it is not for us to say any more.

        `doubtful`: what we said may stand over what another instance said since, so that it is for
        us to say what is true now, and there is no None.
        """

    def has_changed(self) -> bool:
        """Whether another instance may have said something since. Waits for nobody."""


# Called when the API server has it, or need not have it. If it fails, all is tried again.
Done = Callable[[PreparedClaim], Awaitable[None]]


@values.dataclass(slots=True, kw_only=True, eq=False, repr=False)
class _Report:
    """What status.devices should say of one claim, once it is due."""

    claim: PreparedClaim
    source: Source
    operation: str  # of the call that it belongs to, for the log
    due: float  # by the loop's clock
    first: bool = False  # the API server can have heard nothing of this claim from us
    doubtful: bool = False  # a request of ours has no answer, and may be carried out at any time
    done: Done | None = None
    by_another: bool = False  # another instance should have cleared it, some time ago
    backoff: pacing.Backoff = field(
        default_factory=lambda: pacing.Backoff(FIRST_DELAY, LAST_DELAY, jitter=(0.8, 1.2))
    )


class StatusReporter:
    """Sends reports for as long as `run` runs. The other methods return at once."""

    def __init__(self, resources_: resources.Resources, driver: str) -> None:
        self._resources = resources_
        self._driver = driver
        self._reports: dict[str, _Report] = {}  # to be sent, by the claim's uid, oldest first
        self._under_way: dict[str, asyncio.Task[None]] = {}
        self._reported: set[str] = set()  # claims of which the API server may have a report by us
        self._wake = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None  # wakes us for the first that is due
        # Nothing is sent before, by the loop's clock; not 0 while the API server is sick.
        self._quiet_until = 0.0
        self._finishing = False

    def report(self, claim: PreparedClaim, source: Source, *, first: bool = False) -> None:
        """Reports what `source` says, in place of any report of the claim that was not sent.

        A moment later, or upon `hurry`, so that the kubelet's answer leaves before. `first`: the
        claim was prepared just now, and nobody has reported it before.
        """
        first = first and claim.uid not in self._reported
        operation = logs.operation.get()
        self._queue(
            _Report(claim=claim, source=source, operation=operation, due=AFTER_REPLY, first=first)
        )

    def hurry(self, operation: str) -> None:
        """The kubelet has the answer of this call: its reports need not wait for that any longer."""
        now = asyncio.get_running_loop().time()
        found = False
        for report in self._reports.values():
            waits_for_it = report.operation == operation and report.backoff.failures == 0
            if waits_for_it and report.due <= now + AFTER_REPLY:
                report.due, found = now, True
        if found and self._timer is not None:
            # `run` sets it anew for whatever is due later.
            self._timer.cancel()
            self._wake_now()

    def has_report(self, claim: PreparedClaim) -> bool:
        """Whether this process has reported the claim, or will."""
        return claim.uid in self._reported or claim.uid in self._reports

    def drop_unsent(self, claim: PreparedClaim) -> bool:
        """Drops the claim's first report if it was not sent; whether there was one to drop.

        Then the API server has heard nothing of the claim, and nothing is to be cleared.
        """
        report = self._reports.get(claim.uid)
        if report is None or not report.first:
            return False
        del self._reports[claim.uid]
        return True

    def forget(self, claim: PreparedClaim) -> None:
        """Nothing more is to be said of the claim; what was said may stay."""
        self._reports.pop(claim.uid, None)
        self._reported.discard(claim.uid)

    def keep(self, uids: Collection[str]) -> None:
        """Forgets all claims but these, and those of which a request has no answer."""
        for uid in self._reports.keys() - uids:
            if not self._reports[uid].doubtful:
                del self._reports[uid]
        self._reported.intersection_update(uids)

    def clear(
        self, claim: PreparedClaim, source: Source, done: Done, *, by_another: bool = False
    ) -> None:
        """Takes our entries away: `source` has none, and `done` is called when they are gone.

        `by_another`: another instance may do it by itself, and is given the time to. Asking again
        meanwhile does not put it off.
        """
        queued = self._reports.get(claim.uid)
        if by_another and queued is not None:
            queued.done = queued.done or done
            return
        delay = OTHERS_TURN if by_another else AFTER_REPLY
        operation = logs.operation.get()
        self._queue(
            _Report(
                claim=claim,
                source=source,
                operation=operation,
                due=delay,
                done=done,
                by_another=by_another,
            )
        )

    async def run(self) -> None:
        """Sends what is due, until cancelled."""
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as group:
            while True:
                self._wake.clear()
                now = loop.time()
                next_due: float | None = None
                free = (1 if self._quiet_until else AT_ONCE) - len(self._under_way)
                if self._finishing:
                    free = 0

                for uid, report in self._reports.items():
                    if uid in self._under_way:
                        continue
                    due = max(report.due, self._quiet_until)
                    if due > now:
                        next_due = due if next_due is None else min(next_due, due)
                    elif free > 0:
                        free -= 1
                        self._under_way[uid] = group.create_task(self._send(uid, report))

                # What is due and found no room is looked at again when a report ends.
                if next_due is not None:
                    self._wake_at(next_due)
                await self._wake.wait()

    async def finish(self, seconds: float) -> None:
        """Begins nothing more, and gives what is under way so many seconds for its answer.

        What an API server carries out after our end, nobody takes back. All the rest is said by the
        next instance, from the checkpoints.
        """
        self._finishing = True
        if self._under_way:
            await asyncio.wait(self._under_way.values(), timeout=seconds)

    def _queue(self, report: _Report) -> None:
        """Its `due` is in so many seconds."""
        report.due += asyncio.get_running_loop().time()
        before = self._reports.pop(report.claim.uid, None)
        report.doubtful = before is not None and before.doubtful
        self._reports[report.claim.uid] = report
        self._wake_at(report.due)

    def _wake_at(self, when: float) -> None:
        """Reports are looked at then, by the loop's clock, or before."""
        if self._timer is not None:
            if self._timer.when() <= when:
                return
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(when, self._wake_now)

    def _wake_now(self) -> None:
        self._timer = None
        self._wake.set()

    async def _send(self, uid: str, report: _Report) -> None:
        """One try. A report that fails, or whose `done` fails, is kept and tried again later."""
        logs.operation.set(report.operation)
        try:
            # Dropped, or another took its place, since it became due.
            if self._is_superseded(report):
                return

            report.first = False
            await self._apply(report)
            self._quiet_until = 0.0
            # Whoever takes its place may have kept it from being sent, and notes what it does itself.
            if report.done is not None and not self._is_superseded(report):
                await report.done(report.claim)
            if not self._is_superseded(report):
                del self._reports[uid]
        except Exception as error:
            # A mistake of ours with one claim must not cost the others their reports.
            if not isinstance(error, kube_errors.ApiError | errors.ClaimError | OSError):
                log.exception(
                    "claim %s: status.devices was not written, by a mistake in claimd",
                    report.claim.title,
                )
            self._put_off(report, error)
        finally:
            del self._under_way[uid]
            if self._reports:
                self._wake.set()

    def _put_off(self, report: _Report, error: Exception) -> None:
        """Tries the report again later, and all others a little later."""
        metrics.STATUS_FAILURES.add()
        now = asyncio.get_running_loop().time()
        self._quiet_until = now + SPACING

        # Forgotten meanwhile, or it has a successor.
        successor = self._reports.get(report.claim.uid)
        if successor is not report:
            if successor is not None:
                successor.doubtful |= report.doubtful
            return

        delay = report.backoff.next_delay()
        delay = pacing.not_before(delay, getattr(error, "retry_after", None))
        report.due = now + delay
        log.warning(
            "claim %s: status.devices was not written, again in %.1f s: %s",
            report.claim.title,
            delay,
            error,
        )

    async def _apply(self, report: _Report) -> None:
        """Sends what is true, again if it is not any more when the answer comes."""
        sent = None
        while True:
            devices = await report.source.entries(doubtful=report.doubtful)
            if devices is None or devices == sent or self._is_superseded(report):
                break

            stands = await self._send_devices(report, devices)
            if not stands or self._is_superseded(report) or not report.source.has_changed():
                break
            sent = devices
        report.doubtful = False

    def _is_superseded(self, report: _Report) -> bool:
        """Whether a successor of ours says by itself what has become true, or it is forgotten."""
        return self._reports.get(report.claim.uid) is not report

    async def _send_devices(self, report: _Report, devices: list[AllocatedDeviceStatus]) -> bool:
        """One request, or two. False if the claim is gone or another by now, which is no error."""
        claim = report.claim
        # Before the answer: a request that fails may have been carried out, whenever that is.
        was_doubtful, report.doubtful = report.doubtful, True
        self._reported.add(claim.uid)
        try:
            # What is cleared at once is still this node's.
            is_late = was_doubtful or report.by_another or report.backoff.failures > 0
            if not devices and (is_late or report.done is None):
                await self._take_back(claim)
            else:
                await self._apply_devices(claim, devices)
        except kube_errors.NotFound:
            log.debug("claim %s is gone, and its status with it", claim.title)
        except kube_errors.Invalid as error:
            reason = _reason_obsolete(error)
            if reason is None:
                raise
            log.debug(
                "claim %s: status.devices is not ours to write any more: %s", claim.title, reason
            )
        except _REFUSALS:
            report.doubtful = was_doubtful
            raise
        else:
            log.debug("claim %s: status.devices has %d of our devices", claim.title, len(devices))
            if not devices:
                self._reported.discard(claim.uid)
            return True
        self._reported.discard(claim.uid)
        return False

    async def _apply_devices(
        self, claim: PreparedClaim, devices: list[AllocatedDeviceStatus]
    ) -> None:
        stored = await self._resources.apply_devices(
            claim.namespace, claim.name, claim.uid, devices, self._driver
        )

        # The API server forgets who applied what in a version that it serves no more, and so
        # keeps it.
        if stored is not None:
            await self._resources.remove_devices(stored, self._driver)

    async def _take_back(self, claim: PreparedClaim) -> None:
        """Removes what we said of a claim that is prepared no more, some time after that was so.

        Another node may have the claim by now: what our driver says there stays.
        """
        stored = await self._resources.claim(claim.namespace, claim.name)
        if stored.metadata.uid == claim.uid:
            await self._resources.remove_devices(stored, self._driver)


def _reason_obsolete(error: kube_errors.Invalid) -> str | None:
    """Why a refusal is no trouble: the claim is another by now, or given to somebody else."""
    text = str(error)
    if "metadata.uid" in text:
        return "it was created anew"
    if "must be an allocated device" in text:
        return "it was deallocated"
    return None
