"""Which claims have something to report into claim.status.devices, and what is true of them.

The source of what report.status sends: it asks here, at the moment of sending, so that a report
that waited long still says what is true. Checkpoints are read here and never changed, but for one
thing: that a claim's status is cleared is noted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field

from claimd.common import errors
from claimd.kubernetes.api.resource import AllocatedDeviceStatus
from claimd_devices import values
from claimd_devices.gpu import Inventory

from ..prepared import PreparedClaim
from ..report import announcements, device_status, status
from . import checkpoint


@values.dataclass(slots=True, kw_only=True, eq=False, repr=False)
class ClaimReports:
    """Keeps claim.status.devices true of the claims that have a checkpoint, or had one.

    Nothing here waits for the API server: a report is queued and sent by the StatusReporter.
    """

    driver: str
    checkpoints: checkpoint.CheckpointFolder
    reporter: status.StatusReporter
    inventory: Callable[[], Inventory]
    conditions: announcements.DeviceConditions = field(
        default_factory=announcements.DeviceConditions
    )

    def report(self, prepared: PreparedClaim, *, first: bool = False) -> None:
        """Reports the claim. `first`: the API server can have heard nothing of it yet."""
        if prepared.devices:
            self.reporter.report(prepared, _Source(self, prepared), first=first)

    def drop_unsent(self, prepared: PreparedClaim) -> bool:
        """Drops a first report that was not sent; True if there is nothing to clear then."""
        return self.reporter.drop_unsent(prepared)

    def clear(self, prepared: PreparedClaim, *, by_another: bool = False) -> None:
        """Takes our entries out of the status. `by_another`: the instance that unprepared may."""
        self.reporter.clear(
            prepared, _Source(self, prepared), self._note_cleared, by_another=by_another
        )

    def forget(self, prepared: PreparedClaim) -> None:
        """The claim was given back, and there is nothing to clear."""
        self.reporter.forget(prepared)

    async def catch_up(self) -> None:
        """Reports and clears what this process has not yet, such as what a dead one left undone.

        May be repeated: what is reported already is not reported again, and the same report would
        be no write.
        """
        async with self.checkpoints.locked():
            # Another instance may have given back claims whose statuses need no clearing.
            self.reporter.keep({*self.checkpoints.claims, *self.checkpoints.uncleared})

            for prepared in self.checkpoints.claims.values():
                if not self.reporter.has_report(prepared):
                    self.report(prepared)
            for prepared in self.checkpoints.uncleared.values():
                self.clear(prepared, by_another=True)

    async def _note_cleared(self, prepared: PreparedClaim) -> None:
        """The API server has nothing of ours any more; no successor has to clear it."""
        async with self.checkpoints.locked():
            # Prepared again meanwhile: storing the new checkpoint notes it. Unprepared again as
            # well: what is to be cleared now is something else.
            if self.checkpoints.uncleared.get(prepared.uid) != prepared:
                return
            if prepared.uid in self.checkpoints.claims:
                return
            try:
                self.checkpoints.mark_cleared(prepared.uid)
            except OSError as error:
                raise errors.ClaimError(
                    f"it is cleared, but this could not be noted: {error}"
                ) from error


class _Source:
    """Of one claim: its entries as they should be when they are sent, for the StatusReporter."""

    def __init__(self, reports: ClaimReports, prepared: PreparedClaim) -> None:
        self._reports = reports
        self._prepared = prepared
        self._told: PreparedClaim | None = None  # what the last entries were made of

    async def entries(self, *, doubtful: bool = False) -> list[AllocatedDeviceStatus] | None:
        """None if this is not for us to say: the claim was unprepared and cleared, or prepared
        anew, by a call or an instance that reports it itself.

        `doubtful`: what is true, whoever prepared the claim; of its devices, what we know.
        """
        reports, prepared = self._reports, self._prepared
        async with reports.checkpoints.locked():
            current = reports.checkpoints.claims.get(prepared.uid)
            is_uncleared = prepared.uid in reports.checkpoints.uncleared

        self._told = current
        if current is None:
            return [] if doubtful or is_uncleared else None
        if current != prepared and not doubtful:
            return None
        conditions = reports.conditions.of_devices(current.devices)
        return device_status.entries(current, reports.driver, reports.inventory(), conditions)

    def has_changed(self) -> bool:
        checkpoints = self._reports.checkpoints
        # A call of our own is at it, and reports by itself.
        if self._prepared.uid in checkpoints.in_flight:
            return False
        return checkpoints.is_stale() or checkpoints.claims.get(self._prepared.uid) != self._told
