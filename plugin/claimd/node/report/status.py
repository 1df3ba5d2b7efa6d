"""Reports devices in claim.status.devices, after the reply to a prepare and after an unprepare.

Each claim has at most one report, the newest. It is applied as the driver's own part of the list,
so the entries of other drivers are never touched. A failure is logged and tried again. No call
waits for a report, and a failed report never fails a pod. The content of a report is read from its
source when it is sent.

Another instance may unprepare the claim, or prepare it again, while our request is running. So each
answer is followed by a check whether that has happened. A request without an answer makes its
report doubtful until there is an answer.
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

# Reports under way at the same time. The client has one connection more, so that the kubelet's calls
# never wait for reports.
AT_ONCE = 3
SPACING = 0.4  # seconds between two reports while the API server is sick, which go one by one
FIRST_DELAY, LAST_DELAY = 0.5, 60.0  # seconds until a report that failed is tried again

# Seconds before a report, so that the kubelet's answer leaves first. `hurry` ends the wait.
AFTER_REPLY = 0.01

OTHERS_TURN = 5.0  # seconds that another living instance has to clear its own entries

# Answers that prove that a request was not carried out.
_REFUSALS = (
    kube_errors.Forbidden,
    kube_errors.Conflict,
    kube_errors.TooManyRequests,
    kube_errors.Unauthorized,
)


class Source(Protocol):
    """Provides the content of a claim's report."""

    async def entries(self, *, doubtful: bool = False) -> list[AllocatedDeviceStatus] | None:
        """Returns the entries to send now; None if this process need not report any more.

        With `doubtful`, an earlier request of ours may overwrite what another instance has reported
        since. Then we must report what is true now, and the result is never None.
        """

    def has_changed(self) -> bool:
        """Returns True if another instance may have reported since. Never blocks."""


# Called when the API server has the report or does not need it. If it raises, the report is tried
# again.
Done = Callable[[PreparedClaim], Awaitable[None]]


@values.dataclass(slots=True, kw_only=True, eq=False, repr=False)
class _Report:
    """A report about one claim, to be sent when it is due."""

    claim: PreparedClaim
    source: Source
    operation: str  # the call that it belongs to, for the log
    due: float  # by the loop's clock
    first: bool = False  # the API server has no report about this claim from us
    doubtful: bool = False  # a request without an answer may still be carried out at any time
    done: Done | None = None
    by_another: bool = False  # another instance should have cleared it some time ago
    backoff: pacing.Backoff = field(
        default_factory=lambda: pacing.Backoff(FIRST_DELAY, LAST_DELAY, jitter=(0.8, 1.2))
    )


class StatusReporter:
    """Sends reports while `run` runs. All other methods but `finish` return at once."""

    def __init__(self, resources_: resources.Resources, driver: str) -> None:
        self._resources = resources_
        self._driver = driver
        self._reports: dict[str, _Report] = {}  # to be sent, by the claim's uid, oldest first
        self._under_way: dict[str, asyncio.Task[None]] = {}
        self._reported: set[str] = set()  # claims that the API server may have a report about
        self._wake = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None  # wakes us for the first that is due

        # No report is sent before this time of the loop's clock. It is 0 unless the API server has
        # trouble.
        self._quiet_until = 0.0
        self._finishing = False

    def report(self, claim: PreparedClaim, source: Source, *, first: bool = False) -> None:
        """Queues a report with the entries of `source`. It replaces an unsent report of the same
        claim.

        The report is sent a moment later, or upon `hurry`, so that the kubelet's answer leaves
        first. `first` says that the claim was prepared just now and was never reported before.
        """
        first = first and claim.uid not in self._reported
        operation = logs.operation.get()
        self._queue(
            _Report(claim=claim, source=source, operation=operation, due=AFTER_REPLY, first=first)
        )

    def hurry(self, operation: str) -> None:
        """Sends the reports of a call now, since the kubelet has the answer of the call."""
        now = asyncio.get_running_loop().time()
        has_reports = False
        for report in self._reports.values():
            waits_for_it = report.operation == operation and report.backoff.failures == 0
            if waits_for_it and report.due <= now + AFTER_REPLY:
                report.due, has_reports = now, True
        if has_reports and self._timer is not None:
            # `run` sets the timer again for reports that are due later.
            self._timer.cancel()
            self._wake_now()

    def has_report(self, claim: PreparedClaim) -> bool:
        """Returns True if this process has reported the claim or will do so."""
        return claim.uid in self._reported or claim.uid in self._reports

    def has_unsent(self, claim: PreparedClaim) -> bool:
        """Returns True if a report about the claim waits, or has no answer yet."""
        return claim.uid in self._reports

    def drop_unsent(self, claim: PreparedClaim) -> bool:
        """Drops the claim's first report if it was not sent. Returns True if it was dropped.

        In that case the API server has no report about the claim, and there is nothing to clear.
        """
        report = self._reports.get(claim.uid)
        if report is None or not report.first:
            return False
        del self._reports[claim.uid]
        return True

    def forget(self, claim: PreparedClaim) -> None:
        """Drops all reports about the claim. Entries that were written may stay."""
        self._reports.pop(claim.uid, None)
        self._reported.discard(claim.uid)

    def keep(self, uids: Collection[str]) -> None:
        """Forgets all claims except these and those whose request has no answer."""
        for uid in self._reports.keys() - uids:
            if not self._reports[uid].doubtful:
                del self._reports[uid]
        self._reported.intersection_update(uids)

    def clear(
        self, claim: PreparedClaim, source: Source, done: Done, *, by_another: bool = False
    ) -> None:
        """Removes our entries from the status, where `source` has none. Calls `done` when they are
        gone.

        With `by_another`, another instance may do the same, and has some time for it. Repeated
        calls do not extend this time.
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
                # An API server with trouble gets one report at a time.
                self._wake.clear()
                now = loop.time()
                next_due: float | None = None
                free = (1 if self._quiet_until else AT_ONCE) - len(self._under_way)
                if self._finishing:
                    free = 0

                for uid, report in self._reports.items():
                    # Thousands of reports may wait. They are looked at when there is room.
                    if free <= 0:
                        break
                    if uid in self._under_way:
                        continue
                    due = max(report.due, self._quiet_until)
                    if due > now:
                        next_due = due if next_due is None else min(next_due, due)
                    else:
                        free -= 1
                        self._under_way[uid] = group.create_task(self._send(uid, report))

                # If there is no room for a report that is due, it is looked at when another one
                # ends.
                if next_due is not None:
                    self._wake_at(next_due)
                await self._wake.wait()

    async def finish(self, seconds: float) -> None:
        """Starts no more reports, and waits so many seconds for the answers to the running ones.

        After our end, no process could correct a request that the API server carries out late. The
        next instance sends all other reports, from the checkpoints.
        """
        self._finishing = True
        if self._under_way:
            await asyncio.wait(self._under_way.values(), timeout=seconds)

    def _queue(self, report: _Report) -> None:
        """Queues a report whose `due` still counts from now."""
        report.due += asyncio.get_running_loop().time()
        before = self._reports.pop(report.claim.uid, None)
        report.doubtful = before is not None and before.doubtful
        self._reports[report.claim.uid] = report
        self._wake_at(report.due)

    def _wake_at(self, when: float) -> None:
        """Makes `run` look at the reports at this time of the loop's clock, or earlier."""
        if self._timer is not None:
            if self._timer.when() <= when:
                return
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(when, self._wake_now)

    def _wake_now(self) -> None:
        self._timer = None
        self._wake.set()

    async def _send(self, uid: str, report: _Report) -> None:
        """Tries once. A report that fails, or whose `done` fails, is kept and tried again later."""
        logs.operation.set(report.operation)
        try:
            # The report may have been dropped or replaced since it became due.
            if self._is_superseded(report):
                return

            report.first = False
            await self._apply(report)
            self._quiet_until = 0.0

            # A successor has its own `done`, and may have kept this report from being sent.
            if report.done is not None and not self._is_superseded(report):
                await report.done(report.claim)
            if not self._is_superseded(report):
                del self._reports[uid]
        except Exception as error:
            # A bug that one claim causes must not keep the other claims from being reported.
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

        # The report may have been forgotten or replaced meanwhile.
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
        """Sends the entries, and again if they have changed by the time of the answer."""
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
        """Returns True if the report was replaced or forgotten."""
        return self._reports.get(report.claim.uid) is not report

    async def _send_devices(self, report: _Report, devices: list[AllocatedDeviceStatus]) -> bool:
        """Sends the entries. Returns False if the claim is gone or replaced, which is no error."""
        claim = report.claim

        # Until there is an answer, the request may be carried out at any time, even if it fails.
        was_doubtful, report.doubtful = report.doubtful, True
        self._reported.add(claim.uid)
        try:
            # A claim that is cleared at once still belongs to this node.
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

        # The API server keeps entries without a known owner, such as those that were applied by an
        # API version that is not served any more. They are removed explicitly.
        if stored is not None:
            await self._resources.remove_devices(stored, self._driver)

    async def _take_back(self, claim: PreparedClaim) -> None:
        """Removes our entries some time after the claim was unprepared.

        Another node may have the claim now. The entries that our driver wrote there stay.
        """
        stored = await self._resources.claim(claim.namespace, claim.name)
        if stored.metadata.uid == claim.uid:
            await self._resources.remove_devices(stored, self._driver)


def _reason_obsolete(error: kube_errors.Invalid) -> str | None:
    """Returns why a refusal is harmless: the claim was recreated or deallocated. None if it is not."""
    text = str(error)
    if "metadata.uid" in text:
        return "it was created again"
    if "must be an allocated device" in text:
        return "it was deallocated"
    return None
