"""The heart of the node plugin: prepare and unprepare claims, restore after a restart, repair.

Each step fetches what it needs first, then decides and commits under the lock of the checkpoints.
A decision stands in memory the moment it is made, so that no other call can make it as well; the
slow write follows, and is taken back if it fails. A claim's checkpoint is durable before its files
of metadata are written, and these before the CDI file that mounts them; what comes first goes last.

gRPC, the words of the API server's protocol and what is said of a claim do not belong here.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import math
import re
import time
import weakref
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import msgspec

from devices.gpu import Inventory

from .. import budgets, durable, errors, metrics, pacing, plain_text, timestamps
from ..api.resource import ResourceClaim
from ..kube import errors as kube_errors
from ..kube import resources
from ..prepared import PreparedClaim, PreparedDevice
from ..report import events
from . import cdi, checkpoint, claim_reports, library_hook, metadata, mps, passthrough, plan

log = logging.getLogger(__name__)

T = TypeVar("T")

# Seconds within one call in which an API server that fails is asked again; the call's deadline
# counts as well.
API_PATIENCE = 40.0
# Seconds that the API server has to answer about a claim whose checkpoint can answer instead. It is
# asked once.
CHECKPOINT_PATIENCE = 3.0
# Seconds that one request may take, so that a call has time for another try.
REQUEST_TIMEOUT = 10.0
# Seconds kept back for the answer to reach the kubelet before it gives up: its deadline is read from
# the call, in `kubelet.dra`.
MARGIN = 2.0
# Seconds that another try has to have: one cut short would blame the API server for being slow, and
# what it said before would not be told.
SHORTEST_TRY = 1.0
# Seconds that one look at the hardware may take. Each device that hangs costs it two, once; what
# hangs for longer hangs for ever.
SCAN_PATIENCE = 10.0
# Files of metadata that a claim may have and be prepared by the loop: each takes 0.1 ms of it.
MOST_FILES = 8


class Hardware(Protocol):
    """What the driver needs of devices.watch."""

    @property
    def last(self) -> Inventory | None: ...

    async def rescan(self) -> Inventory: ...


class ClaimRef(msgspec.Struct, frozen=True):
    """A claim as the kubelet names it."""

    namespace: str
    name: str
    uid: str


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class Driver:
    """Prepares the claims of one node, as one of the processes that may do so.

    Every method may be called at any time and any number of times, also several at once. Calls for
    one claim take turns; calls for different claims run side by side.
    """

    name: str
    node: str
    resources: resources.Resources
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

    # Claims with a checkpoint whose allocation this process has seen in the API server.
    _confirmed: set[str] = field(default_factory=set)
    # Prepared by a call that is still under way: whether its report is to be the claim's first.
    _first_report: dict[str, bool] = field(default_factory=dict)
    # Prepared claims without a CDI file, and why their GPU was missing at the last restore.
    _unavailable: dict[str, str] = field(default_factory=dict)
    # A CDI file could not be written, or a checkpoint not be removed: the next repair restores.
    _restore_due: bool = False
    # Claims whose files a thread is writing.
    _writing: set[str] = field(default_factory=set)
    # The read of the checkpoints that was followed up last, by their count of reads.
    _followed_read: int = 0
    # One call at a time for each claim. A lock vanishes when nobody holds it or waits for it.
    _turns: weakref.WeakValueDictionary[str, asyncio.Lock] = field(
        default_factory=weakref.WeakValueDictionary
    )

    # ------------------------------------------------------------------ what the kubelet asks for

    async def prepare(
        self,
        refs: Iterable[ClaimRef],
        deadline: float,
        answers: dict[str, PreparedClaim | str] | None = None,
    ) -> dict[str, PreparedClaim | str]:
        """Prepares the claims; for each, by uid, what was prepared or why it was not.

        Each claim has its own answer, whatever becomes of the others. Once a claim is answered as
        prepared, its checkpoint is durable and its CDI file is there. Until it is unprepared, every
        further call for the same allocation gives the same devices and ids, also by another process
        or after a crash. The kubelet may ask for the same claims again at any time, during the call
        as well. A claim that was refused has left nothing behind, or a checkpoint that the next
        call finds and completes.

        `deadline`, by the loop's clock, is when the kubelet gives up. It tries again only after 60
        to 90 seconds, so trouble that may pass within the call is waited out: an API server that
        does not answer, a GPU whose driver is coming up, a device that its last claim has not yet
        given back. A caller that stops waiting should let the work go on, as kubelet.dra does: the
        next call then finds it done. No deadline ends what waits for a disk or the kernel. Each
        answer is put into `answers`, if the caller gives it, as soon as there is one.
        """
        answers = {} if answers is None else answers
        until = deadline - MARGIN
        await self._answer_each(
            refs, answers, until, metrics.PREPARES, lambda ref: self._prepare_claim(ref, until)
        )

        # Only now, since what the kubelet waits for comes first.
        for uid, answer in answers.items():
            if uid in self._first_report and isinstance(answer, PreparedClaim):
                self.reports.report(answer, first=self._first_report.pop(uid))
        return answers

    async def unprepare(
        self,
        refs: Iterable[ClaimRef],
        deadline: float | None = None,
        answers: dict[str, str | None] | None = None,
    ) -> dict[str, str | None]:
        """Gives the claims back; for each, by uid, None or why it could not be done.

        Needs nothing but the disk: claim and API server may be gone. A claim that is not prepared
        is a success. After a failure the claim is still prepared, and the kubelet asks again.
        `deadline` and `answers` are those of `prepare`.
        """
        answers = {} if answers is None else answers
        until = None if deadline is None else deadline - MARGIN
        await self._answer_each(refs, answers, until, metrics.UNPREPARES, self._unprepare_claim)
        return answers

    async def collect(
        self, prepared: PreparedClaim, still_unused: Callable[[], Awaitable[bool]]
    ) -> bool:
        """Unprepares a claim that the kubelet has forgotten; whether it was done.

        Nothing is done if the claim is not prepared like this any more, or if `still_unused` says
        no. It is asked while nobody can prepare the claim: neither this process, since it is the
        claim's turn, nor another one, since the checkpoints are locked.
        """
        turn = self._turn(prepared.uid)
        # It is in use, or hangs: garbage of other claims is not kept waiting.
        if turn.locked():
            return False
        async with turn, self.checkpoints.locked():
            if self.checkpoints.claims.get(prepared.uid) != prepared or not await still_unused():
                return False

            # An allocation that is gone has taken its entries of the status with it.
            await self._remove(prepared, uncleared=False)
        return True

    # ------------------------------------------------------------------ each claim by itself

    async def _answer_each(
        self,
        refs: Iterable[ClaimRef],
        answers: dict[str, T | str],
        deadline: float | None,
        histogram: metrics.Histogram,
        work: Callable[[ClaimRef], Awaitable[T]],
    ) -> None:
        """Does `work` for all claims at once; by uid, its result or why it failed.

        It is `_prepare_claim` or `_unprepare_claim`.
        """

        async def answer(ref: ClaimRef) -> None:
            answers[ref.uid] = await self._answer(ref, deadline, histogram, work)

        # Nearly every call has one claim, which needs no task of its own.
        claims = list({ref.uid: ref for ref in refs}.values())
        if len(claims) == 1:
            await answer(claims[0])
        else:
            await asyncio.gather(*(answer(ref) for ref in claims))

    async def _answer(
        self,
        ref: ClaimRef,
        deadline: float | None,
        histogram: metrics.Histogram,
        work: Callable[[ClaimRef], Awaitable[T]],
    ) -> T | str:
        """One claim, in its turn. No failure of it gets past here to its neighbours."""
        began, result = time.monotonic(), "failed"
        try:
            if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", ref.uid):
                return (
                    f"a claim has the uid '{plain_text.brief(ref.uid)}', which cannot name a file"
                )
            # On with `_prepare_claim` or `_unprepare_claim`, below.
            turn = self._turn(ref.uid)
            await _take_turn(turn, ref.uid, deadline)
            try:
                answer = await work(ref)
            finally:
                turn.release()
            result = "ok"
            return answer
        except errors.ClaimError as error:
            result = "refused"
            return str(error)
        except OSError as error:
            return (
                "cannot keep the checkpoint or the CDI file of claim "
                f"{ref.namespace}/{ref.name}: {error}"
            )
        except Exception as error:
            log.exception("claim %s/%s: unexpected trouble", ref.namespace, ref.name)
            return f"unexpected trouble in the plugin, see its log: {error!r}"
        finally:
            histogram.add(time.monotonic() - began, result)

    def _turn(self, uid: str) -> asyncio.Lock:
        return self._turns.setdefault(uid, asyncio.Lock())

    # ------------------------------------------------------------------ prepare, step by step

    async def _prepare_claim(self, ref: ClaimRef, deadline: float) -> PreparedClaim:
        """The claim, prepared now or before. ClaimError and OSError say why it is not."""
        # They go into a path of the API server's, and into logs.
        for text in (ref.namespace, ref.name):
            if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}", text):
                raise errors.ClaimError(
                    f"the claim with uid {ref.uid} is asked for by '{plain_text.brief(text)}', which is no name "
                    "of a claim or a namespace"
                )

        # What is written into a CDI file depends on whether there is one.
        await self.library_hook.ensure()

        # This process has seen the claim's allocation before. It does not change while a pod uses
        # the claim, and the kubelet unprepares before it does: nobody needs to be asked again.
        if ref.uid in self._confirmed:
            prepared = await self._prepare_from_checkpoint(ref)
            if prepared is not None:
                return prepared
            # Another instance has unprepared it. What is allocated now, we have not seen.
            self._confirmed.discard(ref.uid)

        # What may pass is waited out within the call, with a new look at the hardware each time.
        loop = asyncio.get_running_loop()
        began, backoff = loop.time(), pacing.Backoff(0.1, 2.0)
        while True:
            try:
                claim = await self._read_claim(ref, deadline)
                if claim is None:
                    return await self._prepare_unread(ref)
                return await self._prepare_from_claim(ref, claim)
            except errors.NotReadyError as error:
                pause = max(backoff.next_delay(), error.retry_after)
                if loop.time() + pause > min(deadline - SHORTEST_TRY, began + error.patience):
                    raise
                log.info("claim %s/%s has to wait: %s", ref.namespace, ref.name, error)

            await asyncio.sleep(pause)
            # What hangs may be about hardware that the claim has nothing to do with.
            with contextlib.suppress(_LookHangsError):
                await self._rescan(deadline)

    async def _read_claim(self, ref: ClaimRef, deadline: float) -> ResourceClaim | None:
        """The claim as the API server has it, or None if its checkpoint has to do instead.

        That is when the API server fails or does not answer and there is a checkpoint. Without one
        it is a NotReadyError, or a ClaimError where waiting would not help.
        """
        # What another instance has prepared meanwhile counts as well: taking the lock reads it.
        if self.checkpoints.is_stale():
            async with self.checkpoints.locked():
                pass

        has_checkpoint = ref.uid in self.checkpoints.claims
        patience = CHECKPOINT_PATIENCE if has_checkpoint else API_PATIENCE
        remaining = deadline - asyncio.get_running_loop().time()
        timeout = min(max(0.1, min(patience, remaining)), REQUEST_TIMEOUT)

        try:
            claim = await self.resources.claim(ref.namespace, ref.name, timeout)
        except kube_errors.NotFound:
            raise errors.ClaimError(
                f"claim {ref.namespace}/{ref.name} does not exist any more"
            ) from None
        except kube_errors.ApiError as error:
            if has_checkpoint:
                log.warning(
                    "claim %s/%s is answered from its checkpoint: %s",
                    ref.namespace,
                    ref.name,
                    error,
                )
                return None
            message = f"cannot read claim {ref.namespace}/{ref.name}: {error}"
            if kube_errors.is_transient(error):
                retry_after = error.retry_after or 0.0
                raise errors.NotReadyError(
                    message, patience=API_PATIENCE, retry_after=retry_after
                ) from error
            raise errors.ClaimError(message) from error

        if claim.metadata.uid != ref.uid:
            raise errors.ClaimError(
                f"claim {ref.namespace}/{ref.name} was created anew: the kubelet asks for uid "
                f"{ref.uid}, the API server has {claim.metadata.uid}; it is prepared when the "
                "kubelet asks for that one"
            )
        return claim

    async def _prepare_unread(self, ref: ClaimRef) -> PreparedClaim:
        """The answer of a claim that cannot be read, from the checkpoint that it had just now."""
        prepared = await self._prepare_from_checkpoint(ref)
        if prepared is None:
            raise errors.NotReadyError(
                f"claim {ref.namespace}/{ref.name} was unprepared by another instance of "
                "the plugin just now",
                patience=API_PATIENCE,
            )
        return prepared

    async def _prepare_from_checkpoint(self, ref: ClaimRef) -> PreparedClaim | None:
        """What is prepared already, with its CDI file put right; None if nothing is."""
        async with self.checkpoints.locked():
            prepared = self.checkpoints.claims.get(ref.uid)
            if prepared is not None:
                _check_same_claim(ref, prepared)
                if prepared.has_passthrough:
                    prepared = await self._bind(prepared)
                await self._make_files(prepared)
            return prepared

    async def _prepare_from_claim(self, ref: ClaimRef, claim: ResourceClaim) -> PreparedClaim:
        """The plan, the checkpoint, then what a container is given, unless all is right already.

        A crash in between leaves a checkpoint without a file, which the next prepare or restore
        makes; never a file that nobody knows of. A checkpoint of another allocation is replaced.
        """
        async with self.checkpoints.locked():
            prepared = self.checkpoints.claims.get(ref.uid)
            if prepared is None or not plan.still_allocated(prepared, claim, self.name, self.node):
                prepared = await self._plan_and_store(claim, replaces=prepared)
            if prepared.has_passthrough:
                prepared = await self._bind(prepared)
            await self._make_files(prepared)
            self._confirmed.add(ref.uid)
            return prepared

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
        if any(device.mps for device in prepared.devices):
            await asyncio.to_thread(self.mps_daemons.refuse_without, prepared)
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

    async def _bind(self, prepared: PreparedClaim) -> PreparedClaim:
        """Binds the claim's GPUs to vfio-pci. Its checkpoint is stored, so nobody else has them."""
        assert self.binder is not None, "only who has one finds such GPUs"
        with self.binder.working_on(prepared.uid):
            prepared = await self._bind_by(self.binder, prepared)
            if self._lacks_bound_nodes(prepared):
                await self._rescan()
        return prepared

    async def _bind_by(self, binder: passthrough.Binder, prepared: PreparedClaim) -> PreparedClaim:
        try:
            return await binder.bind(prepared, self.checkpoints.put, self._rescan)
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
                await self._rescan()
        except errors.ClaimError as error:
            log.error("claim %s stays prepared: %s", prepared.title, error)
            self.record_event(
                events.claim(prepared.namespace, prepared.name, prepared.uid),
                "DriverNotRestored",
                f"Not unprepared on {self.node}, and tried again: {error}",
            )
            raise

    async def _make_files(self, prepared: PreparedClaim) -> None:
        """`_ensure_files`; by a thread where there are many, for the loop is everybody's."""
        if metadata.count(prepared) <= MOST_FILES:
            self._ensure_files(prepared)
            return

        # A restore passes these files over, and is made up for.
        self._writing.add(prepared.uid)
        try:
            await durable.in_thread(functools.partial(self._ensure_files, prepared))
        finally:
            self._writing.discard(prepared.uid)

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

    def _remove_files(self, prepared: PreparedClaim) -> None:
        self.specs.remove(prepared.uid)
        self.metadata.remove(prepared)

    async def _rescan(self, deadline: float = math.inf) -> Inventory:
        """A new look at the hardware; what it raises is raised. _LookHangsError if it is not back
        in time, which it may be later.
        """
        now = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout_at(min(deadline, now + self.scan_patience)):
                return await self.hardware.rescan()
        except TimeoutError:
            raise _LookHangsError from None

    @property
    def _inventory(self) -> Inventory:
        return self.hardware.last or Inventory()

    # ------------------------------------------------------------------ unprepare, step by step

    async def _unprepare_claim(self, ref: ClaimRef) -> None:
        async with self.checkpoints.locked():
            prepared = self.checkpoints.claims.get(ref.uid)
            if prepared is None:
                # A CDI file without a checkpoint may be left of a crash.
                self._confirmed.discard(ref.uid)
                self.specs.remove(ref.uid)
                return

            # The API server has to be told only of what it may have heard of.
            unsent = self.reports.drop_unsent(prepared)
            uncleared = bool(prepared.devices) and not unsent
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
            self._restore_due = True
            raise

    # ------------------------------------------------------------------ restore and repair

    async def restore(self) -> None:
        """Makes the CDI folder what the checkpoints say, with the device numbers of now.

        Files of ours without a checkpoint go, those of others are not touched. A claim whose GPU
        is missing keeps its checkpoint and loses its file. Level-triggered: right at any time, and
        what could not be written is left to the next `repair`.
        """
        await self.library_hook.ensure()
        async with self.checkpoints.locked():
            # Another instance may have bound a GPU since it was last seen here.
            if any(self._lacks_bound_nodes(prepared) for prepared in self._idle_claims()):
                with contextlib.suppress(_LookHangsError):
                    await self._rescan()

            self._restore_due = False
            for prepared in self._idle_claims():
                self._restore_files(prepared)

            # What a thread is writing looks like what a dead writer has left.
            if self._writing:
                self._restore_due = True
                return
            for uid in self.specs.sweep() - set(self.checkpoints.claims):
                log.warning("removing the CDI file of claim uid %s: no checkpoint names it", uid)
                self.specs.remove(uid)
            self.specs.keep(set(self.checkpoints.claims))
            self.metadata.keep(self.checkpoints.claims.values())

    def _idle_claims(self) -> list[PreparedClaim]:
        """Those at which no call is at this moment: it leaves the files right itself."""
        busy = self.binder.busy if self.binder is not None else set()
        under_way = self.checkpoints.in_flight | busy | self._writing
        claims = self.checkpoints.claims.items()
        return [prepared for uid, prepared in claims if uid not in under_way]

    async def repair(self) -> None:
        """Puts right what others did to our CDI files, and follows up other instances' commits.

        Meant to be called twice a second: it costs next to nothing when nothing was done.
        """
        # A call may have read the folder before us, and has not followed it up.
        others_committed = (
            self.checkpoints.is_stale() or self.checkpoints.reads != self._followed_read
        )
        disturbed = (
            self.specs.disturbed() or self.metadata.disturbed() or self.library_hook.disturbed()
        )
        if others_committed:
            await self.follow_up()
        elif self._restore_due or disturbed:
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
            self._restore_due = True
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


async def _take_turn(turn: asyncio.Lock, uid: str, deadline: float | None) -> None:
    """Waits until no other call is at the claim. ClaimError if one still is at the deadline."""
    # Nearly always nobody is, and to keep the time costs more than all else here.
    if not turn.locked():
        await turn.acquire()
        return
    try:
        async with asyncio.timeout_at(deadline):
            await turn.acquire()
    except TimeoutError:
        raise errors.ClaimError(
            f"an earlier call for the claim with uid {uid} has not come to its end; ask again"
        ) from None


class _LookHangsError(errors.ClaimError):
    """A device hangs in a way that no deadline of a read ends."""

    def __init__(self) -> None:
        super().__init__(
            "the look at the hardware has not come back: a device hangs, or its driver; "
            "see the plugin's log and the kernel's"
        )


def _check_same_claim(ref: ClaimRef, prepared: PreparedClaim) -> None:
    """A uid belongs to one name for ever: whoever asks by another is not told what it was given."""
    if (ref.namespace, ref.name) != (prepared.namespace, prepared.name):
        raise errors.ClaimError(
            f"the claim with uid {ref.uid} is {prepared.title}, not {ref.namespace}/{ref.name}"
        )
