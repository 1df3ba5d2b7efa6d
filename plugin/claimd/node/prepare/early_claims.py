"""Prepares claims before their pods are bound, where the scheduler waits for that.

A device may be published with binding conditions (`publish.before_bind`). The scheduler allocates
it, and binds the pod only when the claim's status says that the device is prepared. If the status
says that preparing failed, the scheduler takes the allocation back and looks for other devices,
perhaps on another node. Without this, the pod would stay on the node for ever.

This module compares the allocated claims of the API server with the prepared ones, and acts on the
difference. So it does the same after a crash at any point. It writes no status: `claim_reports`
does. A condition belongs to one allocation, and the API server drops it together with that.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import field

import msgspec

from claimd.common import errors, names, pacing, timestamps
from claimd.common import log as logs
from claimd.kubernetes.api.document import Document
from claimd.kubernetes.api.resource import DeviceTaint, ResourceClaim
from claimd.kubernetes.kube import watch
from claimd_devices import values

from ..prepared import ClaimRef, PreparedClaim
from ..publish import before_bind
from ..report import health
from . import driver, plan
from .call_time import CallTime
from .claim_reports import Refusal

log = logging.getLogger(__name__)

# Seconds between two looks when nothing is reported.
PERIOD = 10.0

# Seconds that one claim may take. A failure that may pass is tried again within this time.
PATIENCE = 60.0

# Seconds that the watch of the claims goes on after the last device with binding conditions. This
# is the time after which the scheduler gives up.
LINGER = 600.0

# Seconds after an unprepare in which the claim is not prepared again for the same allocation. The
# pod has ended, and Kubernetes takes the allocation back. This is also the longest time between two
# tries of an undo.
REST = 30.0

# Seconds until an undo that was not done is tried again, which double each time, and until an
# instance that may not act looks again whether it may.
RETRY = 0.5

# Seconds for which a device is tainted that could not be prepared. Otherwise the scheduler might
# choose it again and again.
TAINTED_FOR = 300.0

TAINT = f"{health.DOMAIN}/prepare-failed"


class _Allocated(msgspec.Struct, frozen=True):
    """A claim that is allocated to devices of ours, as the API server has it."""

    claim: ResourceClaim
    devices: PreparedClaim  # the claim with our devices, as they are allocated

    @property
    def uid(self) -> str:
        return self.claim.metadata.uid

    @property
    def allocated_at(self) -> str | None:
        """The time of the allocation, which tells it from later ones."""
        allocation = self.claim.status.allocation
        return allocation.allocation_timestamp if allocation else None

    @property
    def is_awaited(self) -> bool:
        """True if the scheduler waits for a device of ours, or has waited for it."""
        return any(device.is_awaited for device in self.devices.devices)

    def has_condition(self, type_: str, *, driver: str, since: str = "") -> bool:
        """Returns True if each device that is waited for has such a condition, of any status.

        Conditions from before `since` do not count.
        """
        found = set()
        for entry in self.claim.status.devices:
            for condition in entry.conditions or ():
                if condition.type == type_ and condition.last_transition_time >= since:
                    found.add((entry.driver, entry.pool, entry.device, entry.share_id))
        for device in self.devices.devices:
            key = (driver, device.pool, device.device, device.share_id)
            if device.is_awaited and key not in found:
                return False
        return True


@values.dataclass(slots=True, kw_only=True)
class _Last:
    """A claim that was prepared when we last looked."""

    allocated_at: str | None
    unprepared_at: float | None = None  # by the loop's clock


@values.dataclass(slots=True, kw_only=True, eq=False, repr=False)
class EarlyClaims:
    """Prepares such claims, and undoes what was not used, while `run` runs."""

    driver: driver.Driver

    # Returns True if this instance acts. One of several instances is enough.
    may_act: Callable[[], bool]

    # Returns the devices that have failed, each with a text for people.
    failed_devices: Callable[[], Mapping[str, str]]

    # Publishes the taints of devices, by the device's name. They replace those of the last call.
    set_taints: Callable[[Mapping[str, DeviceTaint]], None]

    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _last_published: float = -LINGER  # by the loop's clock
    _informer: watch.Informer | None = None
    _group: asyncio.TaskGroup | None = None

    # By the informer's key: its objects, and the claims that they were decoded to.
    _decoded: dict[str, tuple[Document, _Allocated | None]] = field(default_factory=dict)

    # By uid: the claims that are worked on, and those that were prepared for their allocation.
    _working: set[str] = field(default_factory=set)
    _last: dict[str, _Last] = field(default_factory=dict)

    # By the device's name: its taint, and when that ends by the loop's clock.
    _taints: dict[str, tuple[DeviceTaint, float]] = field(default_factory=dict)

    async def run(self) -> None:
        """Watches the claims of the cluster while a device of ours needs that."""
        self.driver.resources.slices.subscribe(self._wake.set)
        while True:
            self._wake.clear()
            if self._is_needed():
                informer = self._informer = self.driver.resources.allocated_claims()
                informer.subscribe(self._wake.set)
                async with asyncio.TaskGroup() as self._group:
                    watching = self._group.create_task(informer.run())
                    await self._follow(informer)
                    watching.cancel()
                self._informer = self._group = None
            await pacing.wait(self._wake, None)

    def _is_needed(self) -> bool:
        """Returns True if the scheduler may wait for a device of ours."""
        now = asyncio.get_running_loop().time()
        if before_bind.is_published(self.driver.resources.slices.objects):
            self._last_published = now
        return now < self._last_published + LINGER or bool(self._working or self._taints)

    async def _follow(self, informer: watch.Informer) -> None:
        while self._is_needed():
            self._wake.clear()
            self._end_taints()
            acts = informer.synced and self.may_act()
            if acts:
                self._compare(self._find_allocated())
            await pacing.wait(self._wake, PERIOD if acts else RETRY)

    def _find_allocated(self) -> dict[str, _Allocated]:
        """Returns the claims that are allocated to devices of ours now, by uid."""
        # A claim is decoded again only if it has changed: shares may be thousands.
        last, self._decoded = self._decoded, {}
        allocated: dict[str, _Allocated] = {}
        for key, obj in self._informer.objects.items() if self._informer else ():
            known = last.get(key)
            claim = known[1] if known is not None and known[0] is obj else self._decode(obj)
            self._decoded[key] = (obj, claim)
            if claim is not None:
                allocated[claim.uid] = claim
        return allocated

    def _decode(self, obj: Document) -> _Allocated | None:
        """Returns the claim, or None if it makes no sense, which keeps no other claim back."""
        claims = self.driver.claims
        try:
            claim = msgspec.json.decode(msgspec.json.encode(obj), type=ResourceClaim)
            devices = plan.describe_allocated(claim, claims.name, claims.node, timestamps.now())
        except (msgspec.ValidationError, errors.ClaimError):
            return None
        return _Allocated(claim, devices)

    # ------------------------------------------------------------------ one look

    def _compare(self, allocated: Mapping[str, _Allocated]) -> None:
        """Starts the work for each claim that is not as it should be."""
        claims = self.driver.claims
        refused = claims.reports.refused
        for uid in list(refused):
            if uid not in allocated or refused[uid].allocated_at != allocated[uid].allocated_at:
                del refused[uid]
        for uid in list(self._last):
            if uid not in allocated or self._last[uid].allocated_at != allocated[uid].allocated_at:
                del self._last[uid]

        for uid, claim in allocated.items():
            if claim.is_awaited and uid not in self._working:
                self._compare_one(claim)
        for prepared in list(claims.checkpoints.claims.values()):
            uid = prepared.uid
            if prepared.is_early and uid not in allocated and uid not in self._working:
                self._start(uid, self._undo(prepared))

    def _compare_one(self, allocated: _Allocated) -> None:
        claims, uid = self.driver.claims, allocated.uid
        prepared = claims.checkpoints.claims.get(uid)
        if prepared is not None and plan.is_still_allocated(
            prepared, allocated.claim, claims.name, claims.node
        ):
            self._last[uid] = _Last(allocated_at=allocated.allocated_at)
            if not prepared.is_early:
                self._ensure_reported(allocated, prepared)
                return
            if uid in claims.reports.confirmed and uid not in claims.reports.refused:
                failure = self._find_failure(allocated)
                if failure:
                    self._refuse(allocated, failure)
                else:
                    self._ensure_reported(allocated, prepared)
                return

        if uid in claims.reports.refused:
            self._ensure_reported(allocated, None)
            return

        # An earlier process may have refused this allocation. A request that arrives late may
        # write the refusal of an earlier allocation, so the time counts.
        since = allocated.allocated_at or ""
        if allocated.has_condition(names.PREPARE_FAILED_CONDITION, driver=claims.name, since=since):
            return
        if prepared is None and self._rests(uid):
            return
        if allocated.claim.status.reserved_for:
            self._start(uid, self._prepare(allocated))

    def _ensure_reported(self, allocated: _Allocated, prepared: PreparedClaim | None) -> None:
        """Reports the claim if its status does not say whether it is prepared."""
        reports = self.driver.claims.reports
        type_ = names.PREPARED_CONDITION if prepared else names.PREPARE_FAILED_CONDITION
        if reports.reporter.has_unsent(allocated.devices):
            return
        if not allocated.has_condition(type_, driver=self.driver.claims.name):
            if prepared is None:
                reports.report_refused(reports.refused[allocated.uid])
            else:
                reports.report(prepared)

    def _rests(self, uid: str) -> bool:
        """Returns True if the claim was unprepared a moment ago, since its pod has ended."""
        last = self._last.get(uid)
        if last is None:
            return False
        now = asyncio.get_running_loop().time()
        if last.unprepared_at is None:
            last.unprepared_at = now
        return now < last.unprepared_at + REST

    def _find_failure(self, allocated: _Allocated) -> str:
        """Returns the reason why a device of the claim cannot be used, or "" if all can."""
        failed = self.failed_devices()
        allocation = allocated.claim.status.allocation
        for result in allocation.devices.results if allocation else ():
            is_ours = result.driver == self.driver.claims.name
            is_tolerated = result.admin_access or result.tolerations
            if is_ours and not is_tolerated and result.device in failed:
                return f"{result.device} has failed: {failed[result.device]}"
        return ""

    # ------------------------------------------------------------------ work

    def _start(self, uid: str, work: Coroutine[None, None, None]) -> None:
        async def run() -> None:
            logs.begin()
            try:
                await work
            finally:
                self._working.discard(uid)
                self._wake.set()

        assert self._group is not None, "only a look starts work"
        self._working.add(uid)
        self._group.create_task(run())

    async def _prepare(self, allocated: _Allocated) -> None:
        """Prepares the claim and reports it, or reports why it cannot be prepared."""
        metadata = allocated.claim.metadata
        ref = ClaimRef(metadata.namespace, metadata.name, metadata.uid)
        call_time = CallTime(asyncio.get_running_loop().time() + PATIENCE)

        def read_claim() -> ResourceClaim:
            failure = self._find_failure(allocated)
            if failure:
                raise errors.ClaimError(failure)
            if not self._is_current(allocated):
                raise errors.ClaimError("it is not allocated any more as it was")
            return allocated.claim

        reports = self.driver.claims.reports
        try:
            prepared = await self.driver.prepare_early(ref, read_claim, call_time)
        except errors.ClaimError as error:
            self._refuse(allocated, str(error), error.device)
        except OSError as error:
            self._refuse(allocated, f"cannot keep the checkpoint or the CDI file: {error}")
        except Exception as error:
            # A bug that one claim causes must not keep the other claims from being prepared.
            log.exception("claim %s: unexpected trouble", allocated.devices.title)
            self._refuse(allocated, f"unexpected trouble in the plugin, see its log: {error!r}")
        else:
            reports.refused.pop(ref.uid, None)
            self.driver.claims.report_new(prepared)
            reports.reporter.hurry(logs.operation.get())

    def _is_current(self, allocated: _Allocated) -> bool:
        """Returns True if the claim still has this allocation."""
        now = self._find_allocated().get(allocated.uid)
        return now is not None and now.allocated_at == allocated.allocated_at

    def _refuse(self, allocated: _Allocated, sentence: str, device: str = "") -> None:
        """Reports that the claim cannot be prepared. Taints the device, if it is to blame."""
        if device:
            now = asyncio.get_running_loop().time()
            added = timestamps.rfc3339(time.time())
            taint = DeviceTaint(key=TAINT, effect="NoSchedule", time_added=added)
            self._taints[device] = (taint, now + TAINTED_FOR)
            self._publish_taints()

        if self._is_current(allocated):
            log.warning(
                "claim %s was not prepared before its pod is bound: %s",
                allocated.devices.title,
                sentence,
                extra={"claim_uid": allocated.uid},
            )
            self.driver.claims.reports.report_refused(
                Refusal(
                    claim=msgspec.structs.replace(allocated.devices, prepared_at=timestamps.now()),
                    allocated_at=allocated.allocated_at,
                    sentence=sentence,
                )
            )

    async def _undo(self, prepared: PreparedClaim) -> None:
        """Unprepares a claim that was prepared early and is not allocated to us any more.

        Tries again until that is done, or until the claim is allocated to us or prepared again.
        """

        async def still_unused() -> bool:
            return prepared.uid not in self._find_allocated()

        backoff = pacing.Backoff(RETRY, REST)
        checkpoints = self.driver.claims.checkpoints
        while checkpoints.claims.get(prepared.uid) == prepared and await still_unused():
            try:
                if await self.driver.collect(prepared, still_unused):
                    log.info(
                        "unprepared claim %s, whose pod was not bound: %s",
                        prepared.title,
                        prepared.device_names,
                        extra={"claim_uid": prepared.uid},
                    )
                    return
            except (errors.ClaimError, OSError) as error:
                log.warning("claim %s cannot be unprepared yet: %s", prepared.title, error)
            await asyncio.sleep(backoff.next_delay())

    # ------------------------------------------------------------------ taints

    def _end_taints(self) -> None:
        now = asyncio.get_running_loop().time()
        over = [device for device, (_, end) in self._taints.items() if end <= now]
        for device in over:
            del self._taints[device]
        if over:
            self._publish_taints()

    def _publish_taints(self) -> None:
        self.set_taints({device: taint for device, (taint, _) in self._taints.items()})
