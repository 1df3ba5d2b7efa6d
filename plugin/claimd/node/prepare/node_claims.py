"""The claims of a node: prepares and unprepares one claim at a time.

The caller has fetched everything that the decision needs. This module decides and commits, under
the lock of the checkpoints. A decision counts in memory at once, so that no other call can use the
same devices. The slow write follows, and the decision is undone if the write fails. A claim's
checkpoint is durable before its metadata is written, and the metadata is written before the CDI
file that mounts it. An unprepare uses the opposite order.

This module knows neither the kubelet's calls and their time nor the API server.
"""

from __future__ import annotations

import asyncio
import collections
import logging
from collections.abc import Awaitable, Callable
from dataclasses import field

import msgspec

from claimd.common import budgets, errors, timestamps
from claimd.kubernetes.api.resource import ResourceClaim
from claimd_devices import values

from ..prepared import ClaimRef, PreparedClaim
from ..report import events
from . import checkpoint, claim_reports, mps, passthrough, plan
from .container_files import ContainerFiles
from .hardware import Hardware
from .restorer import Restorer
from .vm_gpus import VmGpus

log = logging.getLogger(__name__)


@values.dataclass(slots=True, kw_only=True, eq=False, repr=False)
class NodeClaims:
    """Prepares and unprepares the claims of one node, as one of the processes that may do so.

    The driver passes only one call at a time for the same claim. Everything else may be called at
    any time and any number of times, also at the same time.
    """

    name: str  # of the driver
    node: str
    checkpoints: checkpoint.CheckpointFolder
    files: ContainerFiles
    hardware: Hardware
    vm_gpus: VmGpus
    restorer: Restorer
    reports: claim_reports.ClaimReports
    record_event: events.RecordEvent = events.discard
    require_libraries: bool = False
    mps_daemons: mps.Daemons = field(default_factory=mps.Daemons)

    # The uids of claims that kept another claim from its devices. `is_held` is set when there is one.
    holders: set[str] = field(default_factory=set)
    is_held: asyncio.Event = field(default_factory=asyncio.Event)

    # By uid: claims that a running call has prepared; True if their report will be the first one.
    _first_report: dict[str, bool] = field(default_factory=dict)

    # ------------------------------------------------------------------ prepare

    def is_confirmed(self, uid: str) -> bool:
        """Returns True if the claim has a checkpoint and this process has seen its allocation."""
        return uid in self.reports.confirmed

    async def prepare_from_checkpoint(self, ref: ClaimRef) -> PreparedClaim | None:
        """Returns the claim as it was prepared before, or None if it is not prepared.

        Files of the claim that are missing or differ are written again. If the disk fails, a claim
        whose files are right is returned all the same, and for any other claim OSError is raised.
        """
        try:
            async with self.checkpoints.lock():
                prepared = self.checkpoints.claims.get(ref.uid)
                if prepared is None:
                    # Another instance has unprepared the claim, and it may have another allocation
                    # now.
                    self.reports.confirmed.discard(ref.uid)
                    return None

                _check_same_claim(ref, prepared)
                if ref.uid not in self.reports.confirmed:
                    self._refuse_taken(prepared)
                    await self._refuse_without_daemon(prepared)
                prepared = await self._complete(prepared)
                return await self._mark_asked(prepared) if prepared.is_early else prepared
        except OSError as error:
            prepared = await self._recall(ref.uid, error)
            _check_same_claim(ref, prepared)
            return prepared

    async def prepare(self, claim: ResourceClaim, *, is_early: bool = False) -> PreparedClaim:
        """Prepares the claim with its present allocation; returns what its containers get.

        `is_early` says that the pod is not bound yet and the kubelet has not asked.

        A checkpoint of the same allocation is used as it is, and one of another allocation is
        replaced. A crash may leave a checkpoint without files, which the next prepare or restore
        writes. It never leaves a file without a checkpoint. A CDI file whose checkpoint was lost
        gets a new checkpoint. If the disk fails, a claim that has a checkpoint of this
        allocation and right files is returned all the same; otherwise OSError is raised.
        """
        uid = claim.metadata.uid
        try:
            async with self.checkpoints.lock():
                self.checkpoints.refuse_unreadable(uid)
                prepared = self.checkpoints.claims.get(uid)
                was_lost = prepared is None and self._is_lost(uid)
                if prepared is None or not plan.is_still_allocated(
                    prepared, claim, self.name, self.node
                ):
                    prepared = await self._plan_and_store(
                        claim, replaces=prepared, is_early=is_early
                    )
                else:
                    self._refuse_taken(prepared)
                    await self._refuse_without_daemon(prepared)
                prepared = await self._complete(prepared)
                if prepared.is_early and not is_early:
                    prepared = await self._mark_asked(prepared)
                if was_lost:
                    # Metadata of an earlier allocation may have other requests.
                    self.files.metadata.remove_others(prepared)
        except OSError as error:
            prepared = await self._recall(uid, error)
            if not plan.is_still_allocated(prepared, claim, self.name, self.node):
                raise

        self.reports.confirmed.add(uid)
        return prepared

    async def _recall(self, uid: str, error: OSError) -> PreparedClaim:
        """Returns a claim that was prepared before, although the disk fails.

        Raises `error` unless its checkpoint is durable and its files are right. The kubelet fails
        the running pods of a claim that is refused.
        """
        prepared = self.checkpoints.recall(uid)
        if prepared is None or not self.files.are_right(prepared):
            raise error
        if uid not in self.reports.confirmed:
            self._refuse_taken(prepared)
            await self._refuse_without_daemon(prepared)
        return prepared

    def report_new(self, prepared: PreparedClaim) -> None:
        """Reports the claim if a call has just prepared it. A claim that was prepared before is not
        reported.
        """
        first = self._first_report.pop(prepared.uid, None)
        if first is not None:
            self.reports.report(prepared, first=first)

    async def _mark_asked(self, prepared: PreparedClaim) -> PreparedClaim:
        """Notes in the checkpoint of an early claim that the kubelet has asked for it.

        From now on only the kubelet, or the garbage collector, unprepares the claim.
        """
        asked = msgspec.structs.replace(prepared, is_early=False)
        await self.checkpoints.store(asked)
        self.reports.refused.pop(prepared.uid, None)
        return asked

    async def _plan_and_store(
        self, claim: ResourceClaim, *, replaces: PreparedClaim | None, is_early: bool
    ) -> PreparedClaim:
        """Plans the claim with its present allocation; returns the plan after storing it as a
        checkpoint.
        """
        if replaces is None:
            self._refuse_beyond_budget(claim.metadata.namespace)
        else:
            await self.vm_gpus.give_back(replaces)

        prepared = self._plan(claim)
        if prepared.is_mps_client:
            # Another claim may get the device during this look, so the plan is made again.
            await self._refuse_without_daemon(prepared)
            prepared = self._plan(claim)
        if is_early:
            prepared = msgspec.structs.replace(prepared, is_early=True)
        uid = prepared.uid
        if prepared.has_passthrough and self._is_lost(uid):
            prepared = passthrough.mark_rebuilt(prepared)

        # If the claim was prepared before, this is not its first report: the API server may still
        # have the earlier report, even if the checkpoint was lost. This must come before the write,
        # which removes the claim from `uncleared`.
        was_reported = any(entry.driver == self.name for entry in claim.status.devices)
        first = replaces is None and uid not in self.checkpoints.uncleared and not was_reported

        await self.checkpoints.store(prepared)
        self._first_report[uid] = first
        if not is_early:
            # The kubelet asks although the claim was refused before, and gets it now.
            self.reports.refused.pop(uid, None)
        if replaces is not None:
            # The old allocation may have had other requests, and so other files.
            self.files.remove(replaces)
        log.info(
            "prepared claim %s: %s",
            prepared.title,
            prepared.device_names,
            extra={"claim_uid": uid},
        )
        return prepared

    def _refuse_beyond_budget(self, namespace: str) -> None:
        """Raises ClaimError if the namespace can have no more claims on this node."""
        budget, claims = budgets.CHECKPOINTS, self.checkpoints.claims
        total = len(claims) + 1
        if budget.has_room(total, total):
            return

        # The node has many claims. Usually there are few, and counting them would take time.
        holders = collections.Counter(other.namespace for other in claims.values())
        own = holders[namespace] + 1
        if budget.has_room(total, own):
            return

        ((largest, _),) = holders.most_common(1)
        self.record_event(
            events.node(self.node),
            "TooManyClaims",
            f"A claim was refused on {self.node}, because too many are prepared there: the most are "
            f"{budget}. Namespace {largest} has more than any other.",
        )
        raise errors.ClaimError(
            f"{len(claims):,} claims are prepared on this node, {own - 1:,} of them of namespace "
            f"{namespace}; the most are {budget}; delete pods of this namespace that need their "
            "claims no longer"
        )

    def _plan(self, claim: ResourceClaim) -> PreparedClaim:
        inventory = self.hardware.inventory
        try:
            prepared = plan.plan(
                claim,
                driver=self.name,
                pool=self.node,  # the GPUs of a node are one pool, named after the node
                inventory=inventory,
                neighbours=self.checkpoints.claims.values(),
                now=timestamps.now(),
            )
        except plan.HeldError as error:
            self.holders.add(error.holder)
            self.is_held.set()
            raise
        if self.require_libraries:
            plan.refuse_without_libraries(prepared, inventory)

        # A container may still use the devices of a CDI file, even if the checkpoint was lost.
        for other in self._find_unrecorded():
            if other.uid != prepared.uid:
                reason = self._describe_unrecorded(other)
                plan.refuse_unrecorded(prepared, other, inventory, reason)
        return prepared

    def _find_unrecorded(self) -> list[PreparedClaim]:
        """Returns the claims with a CDI file and without a checkpoint that can be read."""
        return self.files.find_unrecorded(self.checkpoints.claims, self.checkpoints.reads)

    def _describe_unrecorded(self, other: PreparedClaim) -> str:
        """Returns why we assume that a claim without a readable checkpoint has its devices."""
        unreadable = self.checkpoints.unreadable_of(other.uid)
        state = str(unreadable) if unreadable else "its checkpoint is missing"
        title = f"{other.title} (uid {other.uid})" if other.name else f"with uid {other.uid}"
        return f"{self.files.specs.path(other.uid)} gives it to claim {title}, and {state}"

    def _refuse_taken(self, prepared: PreparedClaim) -> None:
        """Raises HeldError if another claim got a device while this checkpoint could not be read."""
        claims = self.checkpoints.claims.values()
        plan.refuse_taken(prepared, claims, self.hardware.inventory)

    async def _refuse_without_daemon(self, prepared: PreparedClaim) -> None:
        """Raises ClaimError if the claim needs an MPS daemon that is not there.

        A claim that is prepared already is checked once, too: after a reboot, the daemon's folder
        may belong to another user.
        """
        if prepared.is_mps_client:
            await asyncio.to_thread(self.mps_daemons.refuse_without, prepared)

    async def _complete(self, prepared: PreparedClaim) -> PreparedClaim:
        """Does the steps after the checkpoint: binds GPUs for virtual machines, writes files."""
        if prepared.has_passthrough:
            prepared = await self.vm_gpus.bind(prepared, self._remove_unbound)
        await self.files.make(prepared)
        return prepared

    async def _remove_unbound(self, prepared: PreparedClaim) -> None:
        """Removes a claim whose GPUs could not be bound, as if it had never been prepared.

        A claim whose checkpoint was lost may have a virtual machine that runs. Its CDI file stays,
        so that it counts as lost again, and is tried again.
        """
        if any(device.passthrough and device.passthrough.is_rebuilt for device in prepared.devices):
            self._first_report.pop(prepared.uid, None)
            await self.checkpoints.remove(prepared.uid, uncleared=False)
            self.files.look_for_unrecorded(self.checkpoints.claims, self.checkpoints.reads)
            return
        first = self._first_report.get(prepared.uid, True)
        await self._remove(prepared, uncleared=not first)

    # ------------------------------------------------------------------ unprepare

    async def unprepare(self, ref: ClaimRef) -> None:
        """Gives the claim back. A claim that is not prepared is a success.

        If this raises, the claim is still prepared.
        """
        async with self.checkpoints.lock():
            prepared = self.checkpoints.claims.get(ref.uid)
            if prepared is None:
                self.checkpoints.refuse_unreadable(ref.uid)

                self.reports.confirmed.discard(ref.uid)
                await self._unprepare_lost(ref)
                return

            # The API server has nothing to clear if the first report was not sent.
            is_unsent = self.reports.drop_unsent(prepared)
            uncleared = not is_unsent and _needs_clearing(prepared)
            try:
                await self._remove(prepared, uncleared=uncleared)
            except BaseException:
                if is_unsent:
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
        async with self.checkpoints.lock():
            known = self.checkpoints.claims.get(prepared.uid)
            is_lost = known is None and prepared in self.lost()
            if not is_lost and known != prepared:
                return False
            if not await still_unused():
                return False
            if is_lost:
                self._remove_lost(prepared.uid)
                return True

            # Our entries in the status disappeared together with the allocation.
            await self._remove(prepared, uncleared=False)
        self.reports.forget(prepared)
        return True

    # ------------------------------------------------------------------ lost checkpoints

    def lost(self) -> list[PreparedClaim]:
        """Returns the claims whose checkpoint was lost, with the fields that can be read from their
        files.

        They have a CDI file or a damaged checkpoint in quarantine. A claim whose checkpoint cannot
        be read is not lost. ContainerFiles.find_unrecorded says which fields a claim has.
        """
        others = self.checkpoints.unreadable_uids() | self.checkpoints.uncleared.keys()
        lost = {}
        for claim in self._find_unrecorded():
            if claim.uid not in others:
                lost[claim.uid] = claim
        for uid in self.checkpoints.recordless_uids() - others - lost.keys():
            lost[uid] = self.files.describe_unrecorded(uid)
        return list(lost.values())

    def _is_lost(self, uid: str) -> bool:
        return any(other.uid == uid for other in self.lost())

    async def rebuild(self, claim: ResourceClaim) -> PreparedClaim | None:
        """Prepares a claim whose checkpoint was lost, or returns None if it is not lost any more.

        The lock is held from the last look until the new checkpoint is stored. So a claim that
        another call or another instance gives back meanwhile is not prepared again.
        """
        async with self.checkpoints.lock():
            if not self._is_lost(claim.metadata.uid):
                return None
            prepared = await self.prepare(claim)
        self.report_new(prepared)
        return prepared

    async def _unprepare_lost(self, ref: ClaimRef) -> None:
        """Gives a claim without a checkpoint back, with the files that are left of it."""
        lost = [other for other in self.lost() if other.uid == ref.uid]
        if not lost:
            self._remove_lost(ref.uid)
            return

        # The status of the claim may still have our report.
        prepared = msgspec.structs.replace(lost[0], namespace=ref.namespace, name=ref.name)
        try:
            await self.checkpoints.store_uncleared(prepared)
        except OSError as error:
            # A status that stays is less harm than a pod that cannot end.
            log.warning("the status of claim %s will not be cleared: %s", prepared.title, error)
        self._remove_lost(ref.uid)
        self.reports.clear(prepared)

    def _remove_lost(self, uid: str) -> None:
        """Removes the files of a claim that has ended and has no checkpoint."""
        self.files.remove_unrecorded(uid)
        self.checkpoints.remove_quarantined(uid)

    async def _remove(self, prepared: PreparedClaim, *, uncleared: bool) -> None:
        """Removes the files, then the checkpoint.

        With `uncleared`, a later process learns from the folder that the status must be cleared.
        """
        self.reports.confirmed.discard(prepared.uid)
        self._first_report.pop(prepared.uid, None)
        self.restorer.forget(prepared.uid)

        try:
            self.files.remove(prepared)
            await self.vm_gpus.give_back(prepared)
            await self.checkpoints.remove(
                prepared.uid, uncleared=uncleared, sync_first=self.files.specs.sync
            )
        except BaseException:
            # The claim is still prepared, so it needs its files again.
            self.restorer.is_due = True
            raise


def _needs_clearing(prepared: PreparedClaim) -> bool:
    """Returns True if the claim and its status still exist after the claim's use.

    A claim that was made for one pod is deleted together with the pod, and its status with it.
    """
    return bool(prepared.devices) and not prepared.goes_with_its_pod


def _check_same_claim(ref: ClaimRef, prepared: PreparedClaim) -> None:
    """Raises ClaimError if the kubelet asks for the uid of another claim.

    A uid belongs to one name for ever. A caller with the wrong name does not learn the claim's
    devices.
    """
    if (ref.namespace, ref.name) != (prepared.namespace, prepared.name):
        raise errors.ClaimError(
            f"the claim with uid {ref.uid} is {prepared.title}, not {ref.namespace}/{ref.name}"
        )
