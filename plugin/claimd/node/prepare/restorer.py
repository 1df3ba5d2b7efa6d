"""Restores files from the checkpoints after a restart, and repairs files that others have changed.

The module is level-triggered: it compares the files on disk with the checkpoints and the present
hardware, and may be repeated at any time. Work that fails is left to the next repair.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from dataclasses import field

from claimd.common import errors, metrics
from claimd_devices import values

from ..prepared import PreparedClaim
from ..report import events
from . import checkpoint, claim_reports
from .container_files import ContainerFiles
from .hardware import Hardware, ScanFailedError
from .vm_gpus import VmGpus

log = logging.getLogger(__name__)


@values.dataclass(slots=True, kw_only=True, eq=False, repr=False)
class Restorer:
    """Keeps the files of all prepared claims equal to their checkpoints."""

    node: str
    checkpoints: checkpoint.CheckpointFolder
    files: ContainerFiles
    hardware: Hardware
    vm_gpus: VmGpus
    reports: claim_reports.ClaimReports
    record_event: events.RecordEvent = events.discard

    # Returns True if another living instance publishes. That instance restores then.
    another_publishes: Callable[[], bool] = lambda: False

    # Set when a CDI file could not be written, or a checkpoint not removed. The next repair
    # restores then.
    is_due: bool = False

    # True if the last restore was left to another instance.
    _left_to_another: bool = False

    # The value of `checkpoints.reads` at the last follow-up.
    _followed_read: int = 0

    # By uid: prepared claims without a CDI file, and why their GPU was missing at the last restore.
    _unavailable: dict[str, str] = field(default_factory=dict)

    async def restore(self) -> None:
        """Writes the CDI folder as the checkpoints require, with the present device numbers.

        The CDI file of a claim whose checkpoint was lost stays: see `lost_checkpoints`. Files of
        claims that were given back are removed; files of other programs are not touched. A claim
        whose GPU is gone keeps its checkpoint and loses its CDI file. Only one of several instances
        does this. Files that could not be written are left to the next `repair`.
        """
        await self.files.library_hook.ensure()

        async with self.checkpoints.lock():
            self.files.look_for_unrecorded(self.checkpoints.claims, self.checkpoints.reads)
            if self.checkpoints.quarantined.keys() - self.checkpoints.claims.keys():
                self.files.has_unrecorded.set()

            # Two versions may write the same file differently. If both restored, each would undo
            # the other's work for as long as both live.
            self._left_to_another = self.another_publishes()
            if self._left_to_another:
                self.is_due = False
                self.files.leave_alone(self.checkpoints.claims)
                return

            # Another instance may have bound a GPU since this one last scanned.
            if any(self.vm_gpus.lack_nodes(prepared) for prepared in self._idle_claims()):
                with contextlib.suppress(ScanFailedError):
                    await self.hardware.rescan()

            self.is_due = False
            for prepared in self._idle_claims():
                self._restore_files(prepared)

            # The unfinished files of a thread look like those that a dead writer left behind.
            if self.files.writing:
                self.is_due = True
                return
            checkpoints = self.checkpoints
            self.files.sweep(
                checkpoints.claims, checkpoints.uncleared, checkpoints.recordless_uids()
            )

    async def repair(self) -> None:
        """Repairs our CDI files if others changed them, and follows up other instances' commits.

        The caller calls this after each change in our folders. It costs almost nothing if there is
        nothing to do.
        """
        await self.checkpoints.retry()

        is_disturbed = await self.files.is_disturbed()

        # A call may have read the folder before this, but a call does not follow up.
        others_committed = (
            self.checkpoints.is_stale() or self.checkpoints.reads != self._followed_read
        )
        is_ours_now = self._left_to_another and not self.another_publishes()
        if others_committed:
            await self.follow_up()
        elif self.is_due or is_disturbed or is_ours_now:
            await self.restore()

    async def follow_up(self) -> None:
        """Restores the files and the reports of claims that other processes have committed.

        The other process may be an instance that runs next to this one, or one that ran before it.
        """
        await self.restore()

        # The reports may read the folder again, and that is not restored yet.
        followed = self.checkpoints.reads
        await self.reports.catch_up()
        self._followed_read = followed

    def forget(self, uid: str) -> None:
        """Forgets a claim that is being unprepared."""
        self._unavailable.pop(uid, None)

    def _idle_claims(self) -> list[PreparedClaim]:
        """Returns the claims that no call is working on. A call itself writes the files of its
        claim.
        """
        under_way = self.checkpoints.in_flight | self.vm_gpus.busy | self.files.writing
        claims = self.checkpoints.claims.items()
        return [prepared for uid, prepared in claims if uid not in under_way]

    def _restore_files(self, prepared: PreparedClaim) -> None:
        try:
            if self.files.ensure(prepared):
                metrics.CDI_RESTORED.add()
                log.info(
                    "restored the CDI file of claim %s",
                    prepared.title,
                    extra={"claim_uid": prepared.uid},
                )

            # The GPU was missing and is there again, so the status of the claim changes.
            if self._unavailable.pop(prepared.uid, None):
                self.reports.report(prepared)
        except errors.ClaimError as error:
            # Another instance may have seen what the last look of this one missed. The next look
            # decides.
            addresses = [device.address for device in prepared.devices]
            if any(map(self.hardware.is_outdated, addresses)):
                self.is_due = True
                return

            # If a GPU is there but cannot be read, the CDI file stays: the error is no reason to
            # take the GPU from a running pod.
            if not any(map(self.hardware.is_unread, addresses)):
                self.files.withdraw(prepared)
            if self._unavailable.get(prepared.uid) != str(error):
                self._unavailable[prepared.uid] = str(error)
                self._announce_unavailable(prepared, error)
        except OSError as error:
            self.is_due = True
            log.error(
                "cannot restore the CDI file of claim %s, trying again: %s", prepared.title, error
            )

    def _announce_unavailable(self, prepared: PreparedClaim, error: errors.ClaimError) -> None:
        self.reports.report(prepared)
        if self.vm_gpus.waits_for_prepare(prepared):
            log.info("claim %s is prepared again when its pod starts: %s", prepared.title, error)
            return
        log.error("claim %s stays prepared, without a CDI file: %s", prepared.title, error)
        self.record_event(
            events.claim(prepared.namespace, prepared.name, prepared.uid),
            "DeviceUnavailable",
            f"Prepared on {self.node}, but {error}",
        )
