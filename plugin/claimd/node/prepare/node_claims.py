"""The claims of a node, one at a time: prepared, unprepared, and restored after a restart.

Who calls has fetched what is needed; here it is decided and committed, under the lock of the
checkpoints. A decision stands in memory the moment it is made, so that no other call can make it
as well; the slow write follows, and is taken back if it fails. A claim's checkpoint is durable
before its files of metadata are written, and these before the CDI file that mounts them; what
comes first goes last.

No call of the kubelet's and nothing of the API server is known here, nor what time is left.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import field
from typing import Protocol

from claimd.common import budgets, durable, errors, metrics, timestamps
from claimd.kubernetes.api.resource import ResourceClaim
from claimd_devices import values
from claimd_devices.gpu import Inventory

from ..prepared import ClaimRef, PreparedClaim, PreparedDevice
from ..report import events
from . import cdi, checkpoint, claim_reports, library_hook, metadata, mps, passthrough, plan

log = logging.getLogger(__name__)

# Seconds that one look at the hardware may take. Each device that hangs costs it two, once; what
# hangs for longer hangs for ever.
SCAN_PATIENCE = 10.0
# Devices that a claim may have and its files be written by the loop: each device takes 0.1 ms of it.
MOST_DEVICES = 8


class Hardware(Protocol):
    """What we need of claimd_devices.watch."""

    @property
    def last(self) -> Inventory | None: ...

    async def rescan(self) -> Inventory: ...


@values.dataclass(slots=True, kw_only=True, eq=False, repr=False)
class NodeClaims:
    """What this process, as one of those that may, does for the claims of one node.

    Of the calls for one claim, one is here at a time: the driver sees to that. Everything else may
    be called at any time and any number of times, also several at once.
    """

    name: str
    node: str
    checkpoints: checkpoint.CheckpointFolder
    specs: cdi.SpecFolder
    metadata: metadata.MetadataFolder
    reports: claim_reports.ClaimReports
    hardware: Hardware
    binder: passthrough.Binder | None = None  # without one no GPU is for virtual machines
    record_event: events.RecordEvent = events.discard
    require_libraries: bool = False
    library_hook: library_hook.LibraryHook = library_hook.NONE
    mps_daemons: mps.Daemons = field(default_factory=mps.Daemons)
    scan_patience: float = SCAN_PATIENCE
    # Whether another instance that lives is the one that publishes: then it restores, too.
    another_publishes: Callable[[], bool] = lambda: False

    # Claims with a checkpoint whose allocation this process has seen in the API server.
    _confirmed: set[str] = field(default_factory=set)
    # Prepared by a call that is still under way: whether its report is to be the claim's first.
    _first_report: dict[str, bool] = field(default_factory=dict)
    # Prepared claims without a CDI file, and why their GPU was missing at the last restore.
    _unavailable: dict[str, str] = field(default_factory=dict)
    # A CDI file could not be written, or a checkpoint not be removed: the next repair restores.
    restore_due: bool = False
    _left_to_another: bool = False  # the last restore
    # Claims whose files a thread is writing.
    _writing: set[str] = field(default_factory=set)
    # The read of the checkpoints that was followed up last, by their count of reads.
    _followed_read: int = 0

    # ------------------------------------------------------------------ prepare

    def is_confirmed(self, uid: str) -> bool:
        """Whether the claim has a checkpoint whose allocation this process has seen in the API."""
        return uid in self._confirmed

    async def prepare_from_checkpoint(self, ref: ClaimRef) -> PreparedClaim | None:
        """What is prepared already, with its CDI file put right; None if nothing is."""
        async with self.checkpoints.locked():
            prepared = self.checkpoints.claims.get(ref.uid)
            if prepared is None:
                # Another instance has unprepared it. What is allocated now, we have not seen.
                self._confirmed.discard(ref.uid)
                return None

            _check_same_claim(ref, prepared)
            if ref.uid not in self._confirmed:
                await self._refuse_without_daemon(prepared)
            if prepared.has_passthrough:
                prepared = await self._bind(prepared)
            await self._make_files(prepared)
            return prepared

    async def prepare(self, claim: ResourceClaim) -> PreparedClaim:
        """The plan, the checkpoint, then what a container is given, unless all is right already.

        A crash in between leaves a checkpoint without a file, which the next prepare or restore
        makes; never a file that nobody knows of. A checkpoint of another allocation is replaced.
        """
        uid = claim.metadata.uid
        async with self.checkpoints.locked():
            prepared = self.checkpoints.claims.get(uid)
            if prepared is None or not plan.still_allocated(prepared, claim, self.name, self.node):
                prepared = await self._plan_and_store(claim, replaces=prepared)
            else:
                await self._refuse_without_daemon(prepared)
            if prepared.has_passthrough:
                prepared = await self._bind(prepared)
            await self._make_files(prepared)
            self._confirmed.add(uid)
            return prepared

    def report_new(self, prepared: PreparedClaim) -> None:
        """Reports a claim that was prepared just now; one that was prepared before is no news."""
        first = self._first_report.pop(prepared.uid, None)
        if first is not None:
            self.reports.report(prepared, first=first)

    async def _plan_and_store(
        self, claim: ResourceClaim, *, replaces: PreparedClaim | None
    ) -> PreparedClaim:
        """The plan for the claim as it is allocated now, durable as its checkpoint."""
        most = budgets.CHECKPOINTS.limit
        if replaces is None and len(self.checkpoints.claims) >= most:
            raise errors.ClaimError(
                f"{most} claims are prepared on this node, and no more can be; "
                "delete pods that need theirs no longer"
            )
        if replaces is not None:
            await self._give_back(replaces)

        prepared = self._plan(claim)
        if prepared.is_mps_client:
            # Meanwhile another claim may have got the device.
            await self._refuse_without_daemon(prepared)
            prepared = self._plan(claim)
        uid = prepared.uid

        # Not the first report if the claim was prepared before: the API server may still have what
        # was said of it then, also where the checkpoint of that was lost. Asked before the write,
        # which takes the claim out of `uncleared`.
        was_reported = any(entry.driver == self.name for entry in claim.status.devices)
        first = replaces is None and uid not in self.checkpoints.uncleared and not was_reported
        await self.checkpoints.put(prepared)
        self._first_report[uid] = first
        if replaces is not None:
            # It may have had other requests, and so other files.
            self._remove_files(replaces)
        log.info(
            "prepared claim %s: %s",
            prepared.title,
            prepared.device_names,
            extra={"claim_uid": uid},
        )
        return prepared

    def _plan(self, claim: ResourceClaim) -> PreparedClaim:
        prepared = plan.plan(
            claim,
            driver=self.name,
            pool=self.node,  # a node's GPUs are one pool of its name
            inventory=self._inventory,
            neighbours=self.checkpoints.claims.values(),
            now=timestamps.now(),
        )
        if self.require_libraries:
            plan.refuse_without_libraries(prepared, self._inventory)
        return prepared

    async def _refuse_without_daemon(self, prepared: PreparedClaim) -> None:
        """ClaimError where the claim's containers would be clients of an MPS daemon that is not there.

        A claim that is prepared is asked once, too: another boot's folder is another folder.
        """
        if prepared.is_mps_client:
            await asyncio.to_thread(self.mps_daemons.refuse_without, prepared)

    async def _make_files(self, prepared: PreparedClaim) -> None:
        """`_ensure_files`; by a thread where there are many, for the loop is everybody's."""
        began = time.monotonic()
        if len(prepared.devices) <= MOST_DEVICES:
            self._ensure_files(prepared)
        else:
            # A restore passes these files over, and is made up for.
            self._writing.add(prepared.uid)
            try:
                await durable.in_thread(functools.partial(self._ensure_files, prepared))
            finally:
                self._writing.discard(prepared.uid)
        metrics.PREPARE_PHASES.add(time.monotonic() - began, "files")

    def _ensure_files(self, prepared: PreparedClaim) -> bool:
        """Makes the CDI file right, and what it mounts; whether the CDI file had to be written.

        Also for a claim that is prepared: runtimes' folders are often wiped under running pods.
        ClaimError, before anything is written, if a device is not there: the checkpoint stays, and
        the next try or the next restore goes on from it.
        """
        if not prepared.devices:
            return False
        inventory = self._inventory
        mounts = self.metadata.mounts(prepared)
        spec = cdi.build(prepared, inventory, self.library_hook.path, mounts)

        # A container cannot start where the spec names a file that is not there.
        self.metadata.ensure(prepared, inventory)
        return self.specs.ensure(prepared.uid, spec)

    # ------------------------------------------------------------------ unprepare

    async def unprepare(self, ref: ClaimRef) -> None:
        """Gives the claim back; one that is not prepared is a success. What it raises has left the
        claim prepared.
        """
        async with self.checkpoints.locked():
            prepared = self.checkpoints.claims.get(ref.uid)
            if prepared is None:
                # A CDI file without a checkpoint may be left of a crash.
                self._confirmed.discard(ref.uid)
                self.specs.remove(ref.uid)
                return

            # The API server has to be told only of what it may have heard of.
            unsent = self.reports.drop_unsent(prepared)
            uncleared = not unsent and _has_to_be_cleared(prepared)
            try:
                await self._remove(prepared, uncleared=uncleared)
            except BaseException:
                if unsent:
                    self.reports.report(prepared, first=True)
                raise

        log.info(
            "unprepared claim %s: %s",
            prepared.title,
            prepared.device_names,
            extra={"claim_uid": ref.uid},
        )
        if uncleared:
            self.reports.clear(prepared)
        else:
            self.reports.forget(prepared)

    async def collect(
        self, prepared: PreparedClaim, still_unused: Callable[[], Awaitable[bool]]
    ) -> bool:
        """Unprepares a claim that the kubelet has forgotten: see Driver.collect."""
        async with self.checkpoints.locked():
            if self.checkpoints.claims.get(prepared.uid) != prepared or not await still_unused():
                return False

            # An allocation that is gone has taken its entries of the status with it.
            await self._remove(prepared, uncleared=False)
        self.reports.forget(prepared)
        return True

    async def _remove(self, prepared: PreparedClaim, *, uncleared: bool) -> None:
        """The files, then the checkpoint. With `uncleared`, a successor learns what to clear."""
        self._confirmed.discard(prepared.uid)
        self._first_report.pop(prepared.uid, None)
        self._unavailable.pop(prepared.uid, None)

        try:
            self._remove_files(prepared)
            await self._give_back(prepared)
            await self.checkpoints.remove(prepared.uid, uncleared=uncleared)
        except BaseException:
            # The claim is still prepared, so its files have to be there.
            self.restore_due = True
            raise

    def _remove_files(self, prepared: PreparedClaim) -> None:
        self.specs.remove(prepared.uid)
        self.metadata.remove(prepared)

    # ------------------------------------------------------------------ GPUs for virtual machines

    async def _bind(self, prepared: PreparedClaim) -> PreparedClaim:
        """Binds the claim's GPUs to vfio-pci. Its checkpoint is stored, so nobody else has them."""
        assert self.binder is not None, "only who has one finds such GPUs"
        with self.binder.working_on(prepared.uid):
            prepared = await self._bind_by(self.binder, prepared)
            if self._lacks_bound_nodes(prepared):
                await self.rescan()
        return prepared

    async def _bind_by(self, binder: passthrough.Binder, prepared: PreparedClaim) -> PreparedClaim:
        try:
            return await binder.bind(prepared, self.checkpoints.put, self.rescan)
        except errors.ClaimError:
            # Nothing is left of a claim that was not prepared before, if nothing was done for it.
            if not passthrough.is_touched(self.checkpoints.claims[prepared.uid]):
                first = self._first_report.get(prepared.uid, True)
                await self._remove(prepared, uncleared=not first)
            raise

    def _lacks_bound_nodes(self, prepared: PreparedClaim) -> bool:
        """Whether a GPU that is bound for the claim has no nodes, as far as is known."""
        return prepared.has_passthrough and any(map(self._lacks_nodes, prepared.devices))

    def _lacks_nodes(self, device: PreparedDevice) -> bool:
        gpu = self._inventory.named(device.device)
        return gpu is None or not gpu.nodes

    async def _give_back(self, prepared: PreparedClaim) -> None:
        """Gives the claim's GPUs back to their drivers. ClaimError if that fails: the checkpoint
        stays, with what has to be undone, and the kubelet asks again.
        """
        if self.binder is None or not passthrough.is_touched(prepared):
            return
        try:
            # By an inventory that has the nodes still, a restore would write the CDI file again.
            with self.binder.working_on(prepared.uid):
                await self.binder.give_back(prepared)
                await self.rescan()
        except errors.ClaimError as error:
            log.error("claim %s stays prepared: %s", prepared.title, error)
            self.record_event(
                events.claim(prepared.namespace, prepared.name, prepared.uid),
                "DriverNotRestored",
                f"Not unprepared on {self.node}, and tried again: {error}",
            )
            raise

    async def rescan(self, deadline: float = math.inf) -> Inventory:
        """A new look at the hardware; what it raises is raised. LookHangsError if it is not back
        in time, which it may be later.
        """
        now = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout_at(min(deadline, now + self.scan_patience)):
                return await self.hardware.rescan()
        except TimeoutError:
            raise LookHangsError from None

    @property
    def _inventory(self) -> Inventory:
        return self.hardware.last or Inventory()

    # ------------------------------------------------------------------ restore and repair

    async def restore(self) -> None:
        """Makes the CDI folder what the checkpoints say, with the device numbers of now.

        Files of ours without a checkpoint go, those of others are not touched. A claim whose GPU
        is missing keeps its checkpoint and loses its file. Level-triggered: right at any time, and
        what could not be written is left to the next `repair`. Of several instances one does it.
        """
        await self.library_hook.ensure()
        async with self.checkpoints.locked():
            # Another version may write the same file in its own way: each would undo what the other
            # has done, for as long as both live.
            self._left_to_another = self.another_publishes()
            if self._left_to_another:
                self.restore_due = False
                self._forget_files()
                return

            # Another instance may have bound a GPU since it was last seen here.
            if any(self._lacks_bound_nodes(prepared) for prepared in self._idle_claims()):
                with contextlib.suppress(LookHangsError):
                    await self.rescan()

            self.restore_due = False
            for prepared in self._idle_claims():
                self._restore_files(prepared)

            # What a thread is writing looks like what a dead writer has left.
            if self._writing:
                self.restore_due = True
                return
            for uid in self.specs.sweep() - set(self.checkpoints.claims):
                log.warning("removing the CDI file of claim uid %s: no checkpoint names it", uid)
                self.specs.remove(uid)
            self.specs.keep(set(self.checkpoints.claims))
            self.metadata.keep(self.checkpoints.claims.values())

    def _forget_files(self) -> None:
        """What others do to them is not minded until they are restored."""
        self.specs.keep(set())
        for prepared in self.checkpoints.claims.values():
            self.metadata.forget(prepared)

    def _idle_claims(self) -> list[PreparedClaim]:
        """Those at which no call is at this moment: it leaves the files right itself."""
        busy = self.binder.busy if self.binder is not None else set()
        under_way = self.checkpoints.in_flight | busy | self._writing
        claims = self.checkpoints.claims.items()
        return [prepared for uid, prepared in claims if uid not in under_way]

    async def repair(self) -> None:
        """Puts right what others did to our CDI files, and follows up other instances' commits.

        Meant to be called after each change of our folders: it costs next to nothing when nothing
        was done.
        """
        # A call may have read the folder before us, and has not followed it up.
        others_committed = (
            self.checkpoints.is_stale() or self.checkpoints.reads != self._followed_read
        )
        disturbed = (
            self.specs.disturbed() or self.metadata.disturbed() or self.library_hook.disturbed()
        )
        is_ours_now = self._left_to_another and not self.another_publishes()
        if others_committed:
            await self.follow_up()
        elif self.restore_due or disturbed or is_ours_now:
            await self.restore()

    async def follow_up(self) -> None:
        """Makes CDI files and statuses what others, or a process before this one, have committed."""
        await self.restore()
        await self.reports.catch_up()
        self._followed_read = self.checkpoints.reads

    def _restore_files(self, prepared: PreparedClaim) -> None:
        try:
            if self._ensure_files(prepared):
                metrics.CDI_RESTORED.add()
                log.info(
                    "restored the CDI file of claim %s",
                    prepared.title,
                    extra={"claim_uid": prepared.uid},
                )
            if self._unavailable.pop(prepared.uid, None):
                self.reports.report(prepared)
        except errors.ClaimError as error:
            # No file is better than one whose device numbers may be another GPU's by now. Metadata
            # stays, which nothing mounts meanwhile: its generation has to go on from there.
            self.specs.remove(prepared.uid)
            self.metadata.forget(prepared)
            if self._unavailable.get(prepared.uid) != str(error):
                self._unavailable[prepared.uid] = str(error)
                self._announce_unavailable(prepared, error)
        except OSError as error:
            self.restore_due = True
            log.error(
                "cannot restore the CDI file of claim %s, trying again: %s", prepared.title, error
            )

    def _announce_unavailable(self, prepared: PreparedClaim, error: errors.ClaimError) -> None:
        log.error("claim %s stays prepared, without a CDI file: %s", prepared.title, error)
        self.record_event(
            events.claim(prepared.namespace, prepared.name, prepared.uid),
            "DeviceUnavailable",
            f"Prepared on {self.node}, but {error}",
        )
        self.reports.report(prepared)


class LookHangsError(errors.ClaimError):
    """A device hangs in a way that no deadline of a read ends."""

    def __init__(self) -> None:
        super().__init__(
            "the look at the hardware has not come back: a device hangs, or its driver; "
            "see the plugin's log and the kernel's"
        )


def _has_to_be_cleared(prepared: PreparedClaim) -> bool:
    """Whether its status would outlive it. That of a claim made for its pod is deleted with it."""
    return bool(prepared.devices) and not prepared.goes_with_its_pod


def _check_same_claim(ref: ClaimRef, prepared: PreparedClaim) -> None:
    """A uid belongs to one name for ever: whoever asks by another is not told what it was given."""
    if (ref.namespace, ref.name) != (prepared.namespace, prepared.name):
        raise errors.ClaimError(
            f"the claim with uid {ref.uid} is {prepared.title}, not {ref.namespace}/{ref.name}"
        )
