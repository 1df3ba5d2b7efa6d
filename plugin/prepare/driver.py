"""The heart: prepare, unprepare, restore. Fetches, lets claims plan, and commits: record first,
then the CDI file.

Each claim gets its own answer; nothing that befalls one claim touches its neighbours. State changes
in memory the moment a decision is made, so that no other call can decide the same; what takes time
comes before or after. gRPC and the words of the API server's protocol do not belong here.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import re
import time
import weakref
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from devices.gpu import Inventory
from devices.health import HealthReport

from .. import errors, metrics, pacing, timestamps
from ..api.meta import Condition
from ..api.resource import AllocatedDeviceStatus, ResourceClaim
from ..kube import errors as kube_errors
from ..kube import resources
from ..prepared import PreparedClaim
from ..report import device_status, events, health, status
from . import cdi, checkpoint, plan

log = logging.getLogger(__name__)

T = TypeVar("T")

# seconds to wait for the API server within a call; the deadline of the call counts as well
API_PATIENCE = 40.0
RECORDED_PATIENCE = 3.0  # the same when the record can answer instead
MARGIN = 2.0  # seconds kept back for the answer to reach the kubelet before it gives up


class Hardware(Protocol):
    """What the driver needs of devices.watch."""

    @property
    def last(self) -> Inventory | None: ...

    async def rescan(self) -> Inventory: ...


@dataclass(frozen=True, slots=True)
class ClaimRef:
    """A claim as the kubelet names it."""

    namespace: str
    name: str
    uid: str


@dataclass(slots=True, kw_only=True)
class Driver:
    name: str
    node: str
    resources: resources.Resources
    checkpoints: checkpoint.CheckpointFolder
    specs: cdi.SpecFolder
    reporter: status.StatusReporter
    hardware: Hardware
    record_event: events.RecordEvent = events.discard
    _said: dict[str, Mapping[str, Condition]] = field(
        default_factory=dict
    )  # beside Ready, by type and device
    _confirmed: set[str] = field(
        default_factory=set
    )  # claims whose allocation this process has seen in the API
    _unreported: dict[str, bool] = field(
        default_factory=dict
    )  # prepared by a call under way; whether for the first time
    _missed: dict[str, str] = field(
        default_factory=dict
    )  # why a claim's GPU was not there at the last look
    _followed: int = 0  # the read of the records that we have followed up, by our count of reads
    _unrestored: bool = False  # a CDI file could not be written: again at the next glance
    # One call at a time for each claim; a lock is gone when nobody holds it or waits for it.
    _turns: weakref.WeakValueDictionary[str, asyncio.Lock] = field(
        default_factory=weakref.WeakValueDictionary
    )

    async def prepare(
        self, refs: Iterable[ClaimRef], deadline: float
    ) -> dict[str, PreparedClaim | str]:
        """A PreparedClaim or the reason of refusal for every claim, by uid. `deadline` is by the
        loop's clock.
        """
        answers = await self._each(
            refs, lambda ref: self._prepare(ref, deadline - MARGIN), metrics.PREPARES
        )
        for uid, answer in answers.items():  # only now: what the kubelet waits for comes first
            if uid in self._unreported and isinstance(answer, PreparedClaim):
                self._report(answer, fresh=self._unreported.pop(uid))
        return answers

    async def unprepare(self, refs: Iterable[ClaimRef]) -> dict[str, str | None]:
        """None or the reason of failure for every claim, by uid. What was never prepared is
        unprepared.
        """
        return await self._each(refs, self._unprepare, metrics.UNPREPARES)

    async def collect(self, prepared: PreparedClaim, still: Callable[[], Awaitable[bool]]) -> bool:
        """Unprepares a claim that the kubelet has forgotten, if it is recorded as given and `still`
        agrees while nobody can prepare it: neither we, since it is the claim's turn, nor another
        instance, since the lock is held.
        """
        async with self._turns.setdefault(prepared.uid, asyncio.Lock()), self.checkpoints.locked():
            if self.checkpoints.claims.get(prepared.uid) != prepared or not await still():
                return False
            await self._forget(prepared, uncleared=False)
        return True  # the status has nothing of ours any more: it can name only what is allocated

    async def restore(self) -> None:
        """Makes the CDI folder what the records say, with the device numbers of now. Level: safe at
        any time.
        """
        async with self.checkpoints.locked():
            self._unrestored = False
            for uid, prepared in list(self.checkpoints.claims.items()):
                if (
                    uid not in self.checkpoints.in_flight
                ):  # a call is at it, and leaves its file right
                    self._restore_spec(prepared)
            for uid in self.specs.written() - set(self.checkpoints.claims):
                log.warning("removing the CDI file of claim uid %s: no checkpoint names it", uid)
                self.specs.remove(uid)
            self.specs.keep(set(self.checkpoints.claims))

    async def repair(self) -> None:
        """Puts right what others did to our CDI files, and minds those of another instance; cheap
        when nothing was done.
        """
        behind = (
            self.checkpoints.is_stale() or self.checkpoints.reads != self._followed
        )  # a call may have caught up before us
        if behind or self._unrestored or self.specs.disturbed():
            await self.restore()
        if behind:
            await self.report_all()
            self._followed = self.checkpoints.reads

    def judge(self, report: HealthReport) -> None:
        """From now on this is how the GPUs are: told to whoever has one that is not what it was.
        Claims come first, since Events are few; of a part, the node's Event about its GPU says
        enough.
        """
        sick = health.conditions(report)
        news = sorted(self.say("Healthy", sick))
        holders = [
            (name, events.claim(prepared.namespace, prepared.name, prepared.uid))
            for name in news
            for prepared in self.checkpoints.claims.values()
            if any(device.device == name for device in prepared.devices)
        ]
        parents = {gpu.name: gpu.parent for gpu in (*report.retained, *self._inventory.gpus)}
        whole = [(name, events.node(self.node)) for name in news if parents.get(name) not in news]
        for name, about in (*holders, *whole):
            if name in sick:
                self.record_event(
                    about, "DeviceUnhealthy", f"{name} on {self.node}: {sick[name].message}"
                )
            elif self._inventory.named(name) is not None:  # else it was given up
                self.record_event(
                    about, "DeviceHealthy", f"{name} on {self.node} is well again", warning=False
                )

    def say(self, what: str, conditions: Mapping[str, Condition]) -> set[str]:
        """From now on these, by the device's name, stand in the status of the claims as their
        conditions of this type. Returns the devices of which something else is said than before.
        """
        before = self._said.get(what, {})
        self._said[what] = conditions
        news = {name for name in {*before, *conditions} if before.get(name) != conditions.get(name)}
        for prepared in self.checkpoints.claims.values():
            if any(device.device in news for device in prepared.devices):
                self._report(prepared)
        return news

    async def report_all(self) -> None:
        """Reports and clears what this process has not: it may have been lost with the process that
        uncleared it.
        """
        async with self.checkpoints.locked():
            for prepared in self.checkpoints.claims.values():
                if not self.reporter.has_report(prepared):
                    self._report(prepared)
            for prepared in self.checkpoints.uncleared.values():
                self.reporter.clear(
                    prepared,
                    functools.partial(self._status, prepared),
                    self._settle,
                    by_another=True,
                )

    # ------------------------------------------------------------------ one claim

    async def _each(
        self,
        refs: Iterable[ClaimRef],
        work: Callable[[ClaimRef], Awaitable[T]],
        counts: metrics.Histogram,
    ) -> dict[str, T | str]:
        wanted = {ref.uid: ref for ref in refs}
        if len(wanted) == 1:  # as it mostly is: no tasks of their own
            return {uid: await self._answer(ref, work, counts) for uid, ref in wanted.items()}
        answers = await asyncio.gather(
            *(self._answer(ref, work, counts) for ref in wanted.values())
        )
        return dict(zip(wanted, answers, strict=True))

    async def _answer(
        self, ref: ClaimRef, work: Callable[[ClaimRef], Awaitable[T]], counts: metrics.Histogram
    ) -> T | str:
        began, result = time.monotonic(), "failed"
        try:
            if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", ref.uid):
                return f"claim {ref.namespace}/{ref.name} has the uid {ref.uid!r}, which cannot name a file"
            async with self._turns.setdefault(ref.uid, asyncio.Lock()):
                answer = await work(ref)
            result = "ok"
            return answer
        except errors.ClaimError as error:
            result = "refused"
            return str(error)
        except OSError as error:
            return f"cannot keep the checkpoint or the CDI file of claim {ref.namespace}/{ref.name}: {error}"
        except Exception as error:
            # This claim's trouble must not become its neighbours', nor the process's end.
            log.exception("claim %s/%s: unexpected trouble", ref.namespace, ref.name)
            return f"unexpected trouble in the plugin, see its log: {error!r}"
        finally:
            counts.add(time.monotonic() - began, result)

    async def _prepare(self, ref: ClaimRef, deadline: float) -> PreparedClaim:
        if ref.uid in self._confirmed:
            async with self.checkpoints.locked():
                if (prepared := self.checkpoints.claims.get(ref.uid)) is not None:
                    self._ensure_spec(prepared)
                    return prepared
                self._confirmed.discard(ref.uid)
        loop = asyncio.get_running_loop()
        began, backoff = loop.time(), pacing.Backoff(0.1, 2.0)
        while True:
            try:
                return await self._attempt(ref, deadline)
            except errors.NotReadyError as error:
                pause = backoff.next_delay()
                if loop.time() + pause > min(deadline, began + error.patience):
                    raise
                log.info("claim %s/%s has to wait: %s", ref.namespace, ref.name, error)
            await asyncio.sleep(pause)
            await self.hardware.rescan()

    async def _attempt(self, ref: ClaimRef, deadline: float) -> PreparedClaim:
        claim = await self._fetch(ref, deadline)
        async with self.checkpoints.locked():
            prepared = self.checkpoints.claims.get(ref.uid)
            if claim is None:
                if prepared is None:
                    raise errors.NotReadyError(
                        f"claim {ref.namespace}/{ref.name} was unprepared by another instance of the plugin just now",
                        patience=API_PATIENCE,
                    )
                self._ensure_spec(prepared)
                return prepared
            before = prepared
            if prepared is None or not plan.still_allocated(prepared, claim, self.name, self.node):
                prepared = plan.plan(
                    claim,
                    driver=self.name,
                    pool=self.node,
                    inventory=self._inventory,
                    prepared=self.checkpoints.claims.values(),
                    now=timestamps.now(),
                )
                # The API server may still have what was said of it before it was given back.
                fresh = before is None and ref.uid not in self.checkpoints.uncleared
                await self.checkpoints.put(prepared)
                self._unreported[ref.uid] = fresh
                log.info(
                    "prepared claim %s: %s",
                    prepared.title,
                    _devices(prepared),
                    extra={"claim_uid": ref.uid},
                )
            self._ensure_spec(prepared)
            self._confirmed.add(ref.uid)
        return prepared

    async def _fetch(self, ref: ClaimRef, deadline: float) -> ResourceClaim | None:
        """The claim, or None if the API server does not answer and the record can stand in."""
        if self.checkpoints.is_stale():
            async with (
                self.checkpoints.locked()
            ):  # what another instance has recorded counts as well
                pass
        recorded = ref.uid in self.checkpoints.claims
        patience = RECORDED_PATIENCE if recorded else API_PATIENCE
        loop = asyncio.get_running_loop()
        timeout = max(0.1, min(patience, deadline - loop.time()))
        try:
            claim = await self.resources.claim(ref.namespace, ref.name, min(timeout, 10.0))
        except kube_errors.NotFound:
            raise errors.ClaimError(
                f"claim {ref.namespace}/{ref.name} does not exist any more"
            ) from None
        except kube_errors.ApiError as error:
            if recorded:
                log.warning(
                    "claim %s/%s is answered from its checkpoint: %s",
                    ref.namespace,
                    ref.name,
                    error,
                )
                return None
            message = f"cannot read claim {ref.namespace}/{ref.name}: {error}"
            if kube_errors.is_transient(error):
                raise errors.NotReadyError(message, patience=API_PATIENCE) from error
            raise errors.ClaimError(message) from error
        if claim.metadata.uid != ref.uid:
            raise errors.ClaimError(
                f"claim {ref.namespace}/{ref.name} was created anew: the kubelet asks for uid {ref.uid}, "
                f"the API server has {claim.metadata.uid}; it is prepared when the kubelet asks for that one"
            )
        return claim

    async def _unprepare(self, ref: ClaimRef) -> None:
        async with self.checkpoints.locked():
            prepared = self.checkpoints.claims.get(ref.uid)
            if prepared is None:
                self._confirmed.discard(ref.uid)
                self.specs.remove(ref.uid)
                return
            unsent = self.reporter.drop_unsent(prepared)
            uncleared = bool(prepared.devices) and not unsent
            try:
                await self._forget(prepared, uncleared=uncleared)
            except BaseException:
                if unsent:
                    self._report(prepared, fresh=True)
                raise
        log.info(
            "unprepared claim %s: %s",
            prepared.title,
            _devices(prepared),
            extra={"claim_uid": ref.uid},
        )
        if uncleared:
            self.reporter.clear(prepared, functools.partial(self._status, prepared), self._settle)

    async def _forget(self, prepared: PreparedClaim, *, uncleared: bool) -> None:
        self._confirmed.discard(prepared.uid)
        self._unreported.pop(prepared.uid, None)
        self._missed.pop(prepared.uid, None)
        self.specs.remove(prepared.uid)
        try:
            await self.checkpoints.remove(prepared.uid, uncleared=uncleared)
        except BaseException:
            self._unrestored = True  # it is still recorded, so its file has to be there
            raise

    # ------------------------------------------------------------------ what follows from a record

    @property
    def _inventory(self) -> Inventory:
        return self.hardware.last or Inventory()

    def _ensure_spec(self, prepared: PreparedClaim) -> None:
        if prepared.devices and self.specs.ensure(
            prepared.uid, cdi.build(prepared, self._inventory)
        ):
            log.debug("wrote the CDI file of claim %s", prepared.title)

    def _restore_spec(self, prepared: PreparedClaim) -> None:
        try:
            if prepared.devices and self.specs.ensure(
                prepared.uid, cdi.build(prepared, self._inventory)
            ):
                metrics.CDI_RESTORED.add()
                log.info(
                    "restored the CDI file of claim %s",
                    prepared.title,
                    extra={"claim_uid": prepared.uid},
                )
            if self._missed.pop(prepared.uid, None):
                self._report(prepared)
        except errors.ClaimError as error:
            # Better no file than one whose numbers may be another GPU's by now.
            self.specs.remove(prepared.uid)
            if self._missed.get(prepared.uid) != str(error):
                self._missed[prepared.uid] = str(error)
                log.error("claim %s stays prepared, without a CDI file: %s", prepared.title, error)
                about = events.claim(prepared.namespace, prepared.name, prepared.uid)
                self.record_event(
                    about, "DeviceUnavailable", f"Prepared on {self.node}, but {error}"
                )
                self._report(prepared)
        except OSError as error:
            self._unrestored = True
            log.error(
                "cannot restore the CDI file of claim %s, trying again: %s", prepared.title, error
            )

    def _report(self, prepared: PreparedClaim, *, fresh: bool = False) -> None:
        if prepared.devices:
            build = functools.partial(self._status, prepared)
            self.reporter.report(prepared, build, fresh=fresh)

    async def _status(self, prepared: PreparedClaim) -> list[AllocatedDeviceStatus] | None:
        """What is true of the claim now; None if there is nothing to say, as another instance has
        said it.
        """
        async with self.checkpoints.locked():
            recorded = self.checkpoints.claims.get(prepared.uid)
            if recorded is None and prepared.uid in self.checkpoints.uncleared:
                return []
            if recorded != prepared:
                return None
        said = {
            device.device: [
                found
                for told in self._said.values()
                if (found := told.get(device.device)) is not None
            ]
            for device in prepared.devices
        }
        return device_status.entries(prepared, self.name, self._inventory, said)

    async def _settle(self, prepared: PreparedClaim) -> None:
        async with self.checkpoints.locked():
            if (
                prepared.uid not in self.checkpoints.claims
            ):  # else its record, once it is there, settles it
                try:
                    self.checkpoints.mark_cleared(prepared.uid)
                except OSError as error:
                    raise errors.ClaimError(
                        f"it is cleared, but this could not be noted: {error}"
                    ) from error


def _devices(prepared: PreparedClaim) -> str:
    return ", ".join(device.device for device in prepared.devices) or "no device of ours"
