"""Decides which claims are reported in claim.status.devices, and what the reports say.

`report.status` sends the reports. It asks for the content of a report only when it sends it, so
that a report that has waited long is still true. The only change to the checkpoints here is a note
that the status of a claim was cleared.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field

import msgspec

from claimd.common import errors
from claimd.kubernetes.api.resource import AllocatedDeviceStatus
from claimd_devices import values
from claimd_devices.gpu import Inventory

from ..prepared import PreparedClaim
from ..report import announcements, device_status, status
from . import checkpoint


@values.dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """The reason why a claim could not be prepared before its pod was bound."""

    claim: PreparedClaim  # as it is allocated
    allocated_at: str | None  # the time of that allocation
    sentence: str


@values.dataclass(slots=True, kw_only=True, eq=False, repr=False)
class ClaimReports:
    """Keeps claim.status.devices up to date for the claims that have or had a checkpoint.

    A claim that was refused before its pod was bound is reported, too.

    No method waits for the API server: a report is queued, and the StatusReporter sends it.
    """

    driver: str
    checkpoints: checkpoint.CheckpointFolder
    reporter: status.StatusReporter
    inventory: Callable[[], Inventory]
    conditions: announcements.DeviceConditions = field(
        default_factory=announcements.DeviceConditions
    )

    # Claims with a checkpoint whose allocation this process has seen in the API server, and whose
    # preparing it has seen to the end.
    confirmed: set[str] = field(default_factory=set)

    # By uid: claims that were refused before their pods were bound.
    refused: dict[str, Refusal] = field(default_factory=dict)

    def report(self, prepared: PreparedClaim, *, first: bool = False) -> None:
        """Reports the claim. With `first`, the API server cannot have a report of it yet."""
        if prepared.devices:
            self.reporter.report(prepared, _Source(self, prepared), first=first)

    def report_refused(self, refusal: Refusal) -> None:
        """Reports that the claim cannot be prepared, until `refused` does not have it any more."""
        self.refused[refusal.claim.uid] = refusal
        self.reporter.report(refusal.claim, _Source(self, refusal.claim))

    def report_lost(self, prepared: PreparedClaim, sentence: str) -> None:
        """Reports that the claim's checkpoint is lost, until the claim has a checkpoint again."""
        self.reporter.report(prepared, _Source(self, prepared, lost=sentence))

    def drop_unsent(self, prepared: PreparedClaim) -> bool:
        """Drops the claim's first report if it was not sent; returns True if it was dropped.

        Then the claim's status has no entries of ours, and need not be cleared.
        """
        return self.reporter.drop_unsent(prepared)

    def clear(self, prepared: PreparedClaim, *, by_another: bool = False) -> None:
        """Removes our entries from the claim's status.

        With `by_another`, the instance that has unprepared the claim gets the time to do it first.
        """
        self.reporter.clear(
            prepared, _Source(self, prepared), self._note_cleared, by_another=by_another
        )

    def forget(self, prepared: PreparedClaim) -> None:
        """Forgets an unprepared claim whose status need not be cleared."""
        self.reporter.forget(prepared)

    async def catch_up(self) -> None:
        """Queues every report that this process has not made, such as those of a dead instance.

        This may be repeated. A claim that is reported already is not reported again, and a repeated
        report would change nothing in the API server.
        """
        async with self.checkpoints.lock():
            # Another instance may have unprepared claims whose status need not be cleared.
            kept = {*self.checkpoints.claims, *self.checkpoints.uncleared, *self.refused}
            self.reporter.keep(kept)

            for prepared in self.checkpoints.claims.values():
                if not self.reporter.has_report(prepared):
                    self.report(prepared)
            for prepared in self.checkpoints.uncleared.values():
                self.clear(prepared, by_another=True)

    async def _note_cleared(self, prepared: PreparedClaim) -> None:
        """Notes that the claim's status is cleared, so that no later process clears it again."""
        async with self.checkpoints.lock():
            # The claim may have been prepared and unprepared again meanwhile. Then the status to be
            # cleared is another one.
            if self.checkpoints.uncleared.get(prepared.uid) != prepared:
                return

            # A new checkpoint of the claim includes this note.
            if prepared.uid in self.checkpoints.claims:
                return
            try:
                self.checkpoints.mark_cleared(prepared.uid)
            except OSError as error:
                raise errors.ClaimError(
                    f"it is cleared, but this could not be noted: {error}"
                ) from error


class _Source:
    """Provides the entries of one claim when the StatusReporter sends them."""

    def __init__(self, reports: ClaimReports, prepared: PreparedClaim, *, lost: str = "") -> None:
        """Takes in `lost` the sentence about a claim whose checkpoint is lost."""
        self._reports = reports
        self._prepared = prepared
        self._lost = lost

        # The claim from which the last entries were made; None if it was not prepared.
        self._last_claim: PreparedClaim | None = None

    async def entries(self, *, doubtful: bool = False) -> list[AllocatedDeviceStatus] | None:
        """Returns the entries as they should be now, or None if another call or instance reports
        the claim.

        It is None if the claim was unprepared and cleared, or was prepared again by a call or an
        instance that makes its own report. With `doubtful` it is never None: the entries say what
        is true of the claim now, as far as this process knows, no matter which instance prepared
        it.
        """
        reports, prepared = self._reports, self._prepared
        try:
            async with reports.checkpoints.lock():
                current = reports.checkpoints.claims.get(prepared.uid)
                is_uncleared = prepared.uid in reports.checkpoints.uncleared
        except OSError:
            # A sick disk may be the reason of a refusal. The pod can go to another node all the
            # same, so the refusal must be reported.
            if prepared.uid not in reports.refused:
                raise
            current = reports.checkpoints.claims.get(prepared.uid)
            is_uncleared = False

        self._last_claim = current
        refusal = reports.refused.get(prepared.uid)
        if refusal is not None and (current is None or current.is_early):
            return device_status.refused_entries(refusal.claim, reports.driver, refusal.sentence)
        if current is None and self._lost:
            return device_status.lost_entries(
                prepared, reports.driver, reports.inventory(), self._lost
            )
        if current is None:
            return [] if doubtful or is_uncleared else None
        if not doubtful and not _is_same(current, prepared):
            return None
        return device_status.entries(
            current,
            reports.driver,
            reports.inventory(),
            reports.conditions.of_devices(current.devices),
            # After a crash an early claim may be half prepared.
            is_complete=not current.is_early or current.uid in reports.confirmed,
        )

    def has_changed(self) -> bool:
        """Returns True if another instance may have changed the claim since the last entries."""
        checkpoints = self._reports.checkpoints

        # A call of this process is working on the claim, and will make its own report.
        if self._prepared.uid in checkpoints.in_flight:
            return False
        current = checkpoints.claims.get(self._prepared.uid)
        return checkpoints.is_stale() or current != self._last_claim


def _is_same(current: PreparedClaim, prepared: PreparedClaim) -> bool:
    """Returns True if nothing has changed but that the kubelet has asked for an early claim."""
    if current.is_early != prepared.is_early:
        current = msgspec.structs.replace(current, is_early=prepared.is_early)
    return current == prepared
