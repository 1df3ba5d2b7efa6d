"""Which claims have something to report into claim.status.devices, and what is true of them.

The source of what report.status sends: it asks here, at the moment of sending, so that a report
that waited long still says what is true. Checkpoints are read here and never changed, but for one
thing: that a claim's status is cleared is noted.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import field

from devices import values
from devices.gpu import Inventory

from .. import errors
from ..api.resource import AllocatedDeviceStatus
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
            self.reporter.report(prepared, functools.partial(self._entries, prepared), first=first)

    def drop_unsent(self, prepared: PreparedClaim) -> bool:
        """Drops a first report that was not sent; True if there is nothing to clear then."""
        return self.reporter.drop_unsent(prepared)

    def clear(self, prepared: PreparedClaim, *, by_another: bool = False) -> None:
        """Takes our entries out of the status. `by_another`: the instance that unprepared may."""
        self.reporter.clear(
            prepared,
            functools.partial(self._entries, prepared),
            self._note_cleared,
            by_another=by_another,
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

    async def _entries(
        self, prepared: PreparedClaim, *, late: bool = False
    ) -> list[AllocatedDeviceStatus] | None:
        """Our entries of the status as they should be now.

        None if this is not for us to say: the claim was unprepared and cleared, or prepared anew,
        by a call or an instance that reports it itself. `late`: that one may have done so before a
        request of ours was carried out, so it is for us to say, whoever prepared the claim.
        """
        async with self.checkpoints.locked():
            current = self.checkpoints.claims.get(prepared.uid)
            if current is None and (late or prepared.uid in self.checkpoints.uncleared):
                return []
            if current is None or (current != prepared and not late):
                return None

        return device_status.entries(
            current, self.driver, self.inventory(), self.conditions.of_devices(current.devices)
        )

    async def _note_cleared(self, prepared: PreparedClaim) -> None:
        """The API server has nothing of ours any more; no successor has to clear it."""
        async with self.checkpoints.locked():
            # Prepared again meanwhile: storing the new checkpoint notes it.
            if prepared.uid in self.checkpoints.claims:
                return
            try:
                self.checkpoints.mark_cleared(prepared.uid)
            except OSError as error:
                raise errors.ClaimError(
                    f"it is cleared, but this could not be noted: {error}"
                ) from error
