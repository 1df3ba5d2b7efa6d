"""Rebuilds checkpoints that were lost: damaged, emptied, or removed while claimd did not run.

A pod may use the devices of such a claim, and its containers can restart only while the CDI file is
there. The kubelet does not prepare a claim again for a restart. So the CDI file stays, and the
devices stay taken. When the API server shows that the claim is still allocated to this node, it is
planned again from its allocation. Until then an Event, the condition of the claim and taints on its
devices say that its checkpoint is lost. If the claim has ended, the garbage collector removes its
files.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field

import msgspec

from claimd.common import errors, metrics, names, pacing, timestamps
from claimd.common import log as logs
from claimd.kubernetes.api.resource import DeviceTaint, ResourceClaim
from claimd.kubernetes.kube import errors as kube_errors
from claimd_devices import values

from ..prepared import PreparedClaim
from ..report import events, health
from . import checkpoint_trouble, claim_taints, driver, garbage, plan

log = logging.getLogger(__name__)

# Seconds between two tries, at first and at most.
FIRST_DELAY = 1.0
LAST_DELAY = 15.0

# Seconds of failed tries before a claim's devices are tainted. After a start of the node, the
# kubelet may answer a little later than the API server.
TAINT_AFTER = 10.0

TAINT = f"{health.DOMAIN}/record-lost"


class _Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint that could not be rebuilt at the last try."""

    reason: str

    # The claim that is still allocated to this node, if it could be read.
    claim: ResourceClaim | None = None

    # False if the API server could not be asked. That says nothing about the claim.
    is_decided: bool = True

    # Since when every try has failed: by the loop's clock, and by the wall clock.
    since: float
    since_wall: float


@values.dataclass(slots=True, kw_only=True, eq=False, repr=False)
class LostCheckpoints:
    """Rebuilds lost checkpoints while `run` runs. `sweep` may also be called alone."""

    driver: driver.Driver

    # Asks the kubelet for its pods. Raises OSError if it cannot be asked.
    pods: Callable[[], Awaitable[garbage.Pods]]

    # Returns True if another living instance publishes. That instance rebuilds the checkpoints
    # then.
    another_publishes: Callable[[], bool]

    record_event: events.RecordEvent

    # Publishes the taints of devices, by the device's name. They replace those of the last call.
    set_taints: Callable[[Mapping[str, DeviceTaint]], None]

    # By the claim's uid: the last failure. Each reason is reported once.
    _failures: dict[str, _Failure] = field(default_factory=dict)

    # The taints that were published last.
    _taints: dict[str, DeviceTaint] = field(default_factory=dict)

    async def run(self) -> None:
        """Sweeps soon after a checkpoint was found missing, and again until it is rebuilt."""
        while True:
            await self.driver.claims.files.has_unrecorded.wait()
            backoff = pacing.Backoff(FIRST_DELAY, LAST_DELAY)
            await self.sweep()
            while self.driver.claims.lost():
                await asyncio.sleep(backoff.next_delay())
                await self.sweep()

            # Only claims with an unreadable checkpoint may be left, which need no rebuilding.
            self.driver.claims.files.has_unrecorded.clear()

    async def sweep(self) -> None:
        """Tries once to rebuild each checkpoint that is missing."""
        lost = self.driver.claims.lost()
        for uid in self._failures.keys() - {claim.uid for claim in lost}:
            del self._failures[uid]
        if lost and not self.another_publishes():
            await self._rebuild_all(lost)
        # Meanwhile a claim may have been rebuilt, or given back.
        self._publish_taints(self.driver.claims.lost())

    async def _rebuild_all(self, lost: list[PreparedClaim]) -> None:
        # The kubelet knows the names of claims whose metadata is gone as well.
        pods: garbage.Pods | None = {}
        if not all(claim.name for claim in lost):
            try:
                pods = await self.pods()
            except OSError:
                pods = None

        for claim in lost:
            failure = await self._try(claim, pods)
            if failure is None:
                self._failures.pop(claim.uid, None)
                continue
            before = self._failures.get(claim.uid)
            self._failures[claim.uid] = failure
            if before is None or before.reason != failure.reason:
                self._announce(claim, failure)

    async def _try(self, lost: PreparedClaim, pods: garbage.Pods | None) -> _Failure | None:
        """Tries to rebuild the checkpoint of a claim; returns the failure, or None."""
        claim, is_decided = None, True
        try:
            claim = await self._read_claim(lost, pods)
            await self._rebuild(claim)
        except kube_errors.ApiError as error:
            reason, is_decided = f"the API server cannot be asked: {error}", False
        except (errors.ClaimError, OSError) as error:
            reason = str(error)
        else:
            return None

        before = self._failures.get(lost.uid)
        return _Failure(
            reason=reason,
            claim=claim,
            is_decided=is_decided,
            since=before.since if before else asyncio.get_running_loop().time(),
            since_wall=before.since_wall if before else time.time(),
        )

    async def _read_claim(self, lost: PreparedClaim, pods: garbage.Pods | None) -> ResourceClaim:
        """Returns the claim if it still has the allocation that it had when the CDI file was written.

        Raises ClaimError with the reason if it has not, and ApiError if it cannot be read.
        """
        if not lost.name:
            if pods is None:
                raise errors.ClaimError("its name is not known, and the kubelet cannot be asked")
            named = _find_name(lost, pods)
            if named is None:
                raise errors.ClaimError(
                    "its name is not known, and the kubelet lists no container that uses it"
                )
            lost = named

        ours = self.driver.claims
        try:
            claim = await self.driver.resources.claim(
                lost.namespace, lost.name, garbage.REQUEST_TIMEOUT
            )
        except kube_errors.NotFound:
            raise errors.ClaimError(f"claim {lost.title} does not exist any more") from None
        reason = garbage.reason_to_unprepare(lost, claim, ours.name, ours.node)
        if reason:
            raise errors.ClaimError(f"claim {lost.title} is not as it was: {reason}")
        if lost.devices and not plan.is_still_allocated(lost, claim, ours.name, ours.node):
            raise errors.ClaimError(f"claim {lost.title} is allocated with other devices by now")
        return claim

    async def _rebuild(self, claim: ResourceClaim) -> None:
        logs.begin()
        prepared = await self.driver.rebuild(claim)
        if prepared is None:
            return

        metrics.CHECKPOINTS_REBUILT.add()
        note = (
            f"The checkpoint of claim {prepared.title} (uid {prepared.uid}) was lost and is "
            f"rebuilt from the claim's allocation; it has {prepared.device_names}"
        )
        log.warning("%s", note, extra={"claim_uid": prepared.uid})
        node = events.node(self.driver.claims.node)
        self.record_event(node, "RecordRebuilt", f"{note}.", warning=False)

    # ------------------------------------------------------------------ reports

    def _announce(self, lost: PreparedClaim, failure: _Failure) -> None:
        ours = self.driver.claims
        path = ours.files.specs.path(lost.uid)
        if not os.path.exists(path):
            # No container needs it. The quarantine of the checkpoint was announced already.
            log.info("the checkpoint of claim uid %s is not rebuilt: %s", lost.uid, failure.reason)
            return

        sentence = checkpoint_trouble.describe_lost(lost.uid, path, failure.reason)
        log.warning("%s (logged once)", sentence, extra={"claim_uid": lost.uid})
        self.record_event(
            events.node(ours.node), "RecordLost", f"{sentence[0].upper()}{sentence[1:]}."
        )
        if failure.claim is not None:
            # The status still says that all is well.
            allocated = plan.describe_allocated(
                failure.claim, ours.name, ours.node, timestamps.now()
            )
            ours.reports.report_lost(allocated, sentence)

    def _publish_taints(self, lost: list[PreparedClaim]) -> None:
        """Taints the devices of claims whose checkpoints stay lost, so that no pod waits for them."""
        now = asyncio.get_running_loop().time()
        inventory = self.driver.claims.hardware.inventory
        taints: dict[str, DeviceTaint] = {}
        for claim in lost:
            failure = self._failures.get(claim.uid)
            if failure is None or not failure.is_decided or now - failure.since < TAINT_AFTER:
                continue
            taints |= claim_taints.taints_for(claim, inventory, TAINT, failure.since_wall)
        if taints != self._taints:
            self._taints = taints
            self.set_taints(taints)


def _find_name(lost: PreparedClaim, pods: garbage.Pods) -> PreparedClaim | None:
    """Returns the claim with the name that the kubelet lists for its CDI ids, or None."""
    prefix = f"{names.CDI_KIND}={lost.uid}-"
    for (namespace, _), claims in pods.items():
        for name, cdi_ids in claims.items():
            if any(id_.startswith(prefix) for id_ in cdi_ids):
                return msgspec.structs.replace(lost, namespace=namespace, name=name)
    return None
