"""Rebuilds checkpoints that were lost: damaged, emptied, or removed while claimd did not run.

A pod may use the devices of such a claim, and its containers can restart only while the CDI file is
there. The kubelet does not prepare a claim again for a restart. So the CDI file stays, and the
devices stay taken. When the API server shows that the claim is still allocated to this node, it is
planned again from its allocation. If the claim has ended, the garbage collector removes its files.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from dataclasses import field

import msgspec

from claimd.common import errors, metrics, names, pacing
from claimd.common import log as logs
from claimd.kubernetes.kube import errors as kube_errors
from claimd_devices import values

from ..prepared import PreparedClaim
from ..report import events
from . import driver, garbage, plan

log = logging.getLogger(__name__)

# Seconds between two tries, at first and at most.
FIRST_DELAY = 1.0
LAST_DELAY = 60.0


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

    # By the claim's uid: why a checkpoint could not be rebuilt the last time. Each reason is
    # reported once.
    _reasons: dict[str, str] = field(default_factory=dict)

    async def run(self) -> None:
        """Sweeps soon after a checkpoint was found missing, and again until it is rebuilt."""
        while True:
            await self.driver.claims.files.has_unrecorded.wait()
            backoff = pacing.Backoff(FIRST_DELAY, LAST_DELAY)
            while self.driver.claims.lost():
                await self.sweep()
                if self.driver.claims.lost():
                    await asyncio.sleep(backoff.next_delay())

            # Only claims with an unreadable checkpoint may be left, which need no rebuilding.
            self.driver.claims.files.has_unrecorded.clear()

    async def sweep(self) -> None:
        """Tries once to rebuild each checkpoint that is missing."""
        lost = self.driver.claims.lost()
        for uid in self._reasons.keys() - {claim.uid for claim in lost}:
            del self._reasons[uid]
        if not lost or self.another_publishes():
            return

        # The kubelet knows the names of claims whose metadata is gone as well.
        pods: garbage.Pods | None = {}
        if not all(claim.name for claim in lost):
            try:
                pods = await self.pods()
            except OSError:
                pods = None

        for claim in lost:
            try:
                reason = await self._rebuild(claim, pods)
            except kube_errors.ApiError as error:
                reason = f"the API server cannot be asked: {error}"
            except (errors.ClaimError, OSError) as error:
                reason = str(error)
            if reason:
                self._announce(claim, reason)

    async def _rebuild(self, lost: PreparedClaim, pods: garbage.Pods | None) -> str:
        """Rebuilds the checkpoint of a claim; returns "", or the reason why this failed."""
        if not lost.name:
            named = None if pods is None else _find_name(lost, pods)
            if named is None and pods is None:
                return "its name is not known, and the kubelet cannot be asked for it"
            if named is None:
                return "its name is not known, and the kubelet lists no container that uses it"
            lost = named

        # The claim must still have the allocation that it had when the CDI file was written.
        ours = self.driver.claims
        try:
            claim = await self.driver.resources.claim(
                lost.namespace, lost.name, garbage.REQUEST_TIMEOUT
            )
        except kube_errors.NotFound:
            return f"claim {lost.title} does not exist any more"
        reason = garbage.reason_to_unprepare(lost, claim, ours.name, ours.node)
        if reason:
            return f"claim {lost.title} is not as it was: {reason}"
        if lost.devices and not plan.is_still_allocated(lost, claim, ours.name, ours.node):
            return f"claim {lost.title} is allocated with other devices by now"

        logs.begin()
        prepared = await self.driver.rebuild(claim)
        if prepared is None:
            return ""

        metrics.CHECKPOINTS_REBUILT.add()
        note = (
            f"The checkpoint of claim {prepared.title} (uid {prepared.uid}) was lost and is "
            f"rebuilt from the claim's allocation; it has {prepared.device_names}"
        )
        log.warning("%s", note, extra={"claim_uid": prepared.uid})
        self.record_event(events.node(ours.node), "RecordRebuilt", f"{note}.", warning=False)
        return ""

    def _announce(self, lost: PreparedClaim, reason: str) -> None:
        if self._reasons.get(lost.uid) == reason:
            return
        self._reasons[lost.uid] = reason
        path = self.driver.claims.files.specs.path(lost.uid)
        if not os.path.exists(path):
            # No container needs it. The quarantine of the checkpoint was announced already.
            log.info("the checkpoint of claim uid %s is not rebuilt: %s", lost.uid, reason)
            return
        note = (
            f"The checkpoint of the claim with uid {lost.uid} is missing and cannot be rebuilt yet: "
            f"{reason}; its CDI file {path} stays, with its devices, until the claim is over"
        )
        log.warning("%s (logged once)", note, extra={"claim_uid": lost.uid})
        self.record_event(events.node(self.driver.claims.node), "RecordLost", f"{note}.")


def _find_name(lost: PreparedClaim, pods: garbage.Pods) -> PreparedClaim | None:
    """Returns the claim with the name that the kubelet lists for its CDI ids, or None."""
    prefix = f"{names.CDI_KIND}={lost.uid}-"
    for (namespace, _), claims in pods.items():
        for name, cdi_ids in claims.items():
            if any(id_.startswith(prefix) for id_ in cdi_ids):
                return msgspec.structs.replace(lost, namespace=namespace, name=name)
    return None
