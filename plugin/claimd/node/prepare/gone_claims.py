"""Taints the devices of claims that are gone from the API server while a pod still uses them.

A finalizer keeps a claim as long as a pod uses it, but a person can remove both by force. The
scheduler then gives the devices to other claims, which cannot be prepared, again and again. As long
as the old claim is prepared, a taint on its devices makes the scheduler choose others.

A claim is looked at only after it has kept another claim from its devices. So this costs no request
while all is well, and the first such pod is not spared.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import field

from claimd.common import errors, pacing
from claimd.kubernetes.api.resource import DeviceTaint
from claimd.kubernetes.kube import errors as kube_errors
from claimd_devices import values

from ..prepared import PreparedClaim
from ..report import events, health
from . import claim_taints, driver, garbage

log = logging.getLogger(__name__)

# Seconds before the first look, and between two looks at most. Usually the kubelet unprepares the
# old claim in this time, and the API server need not be asked.
FIRST_DELAY = 5.0
LAST_DELAY = 15.0

# Seconds for which a claim must be gone before its devices are tainted. The pod of a claim that ends
# in the usual way may take a little longer than the claim.
TAINT_AFTER = 10.0

TAINT = f"{health.DOMAIN}/claim-gone"


@values.dataclass(slots=True, kw_only=True)
class _Gone:
    """A prepared claim that the API server does not have any more, since a time of two clocks."""

    claim: PreparedClaim
    reason: str
    since: float  # by the loop's clock
    since_wall: float
    is_told: bool = False


@values.dataclass(slots=True, kw_only=True, eq=False, repr=False)
class GoneClaims:
    """Looks for such claims while `run` runs. `sweep` may also be called alone."""

    driver: driver.Driver
    record_event: events.RecordEvent

    # Publishes the taints of devices, by the device's name. They replace those of the last call.
    set_taints: Callable[[Mapping[str, DeviceTaint]], None]

    _gone: dict[str, _Gone] = field(default_factory=dict)  # by uid

    # The taints that were published last.
    _taints: dict[str, DeviceTaint] = field(default_factory=dict)

    async def run(self) -> None:
        """Sweeps after a claim could not get its devices, until their holders are explained."""
        claims = self.driver.claims
        while True:
            await claims.is_held.wait()
            claims.is_held.clear()
            backoff = pacing.Backoff(FIRST_DELAY, LAST_DELAY)
            while claims.holders:
                await asyncio.sleep(backoff.next_delay())
                try:
                    await self.sweep()
                except (OSError, errors.ClaimError) as error:
                    log.info("the checkpoints cannot be looked at, trying again: %s", error)

    async def sweep(self) -> None:
        """Looks once at each claim that kept another one from its devices."""
        claims = self.driver.claims
        async with claims.checkpoints.lock():
            prepared = dict(claims.checkpoints.claims)

        for uid in list(claims.holders):
            claim = prepared.get(uid)
            if claim is None or not await self._is_gone(claim):
                claims.holders.discard(uid)
                self._gone.pop(uid, None)
        self._publish_taints()

    async def _is_gone(self, claim: PreparedClaim) -> bool:
        """Returns False if the API server still has the claim as it was prepared."""
        try:
            reason = await garbage.read_reason(claim, self.driver)
        except kube_errors.ApiError:
            # That says nothing about the claim.
            return True
        if reason and claim.uid not in self._gone:
            now = asyncio.get_running_loop().time()
            self._gone[claim.uid] = _Gone(
                claim=claim, reason=reason, since=now, since_wall=time.time()
            )
        return bool(reason)

    def _publish_taints(self) -> None:
        now = asyncio.get_running_loop().time()
        inventory = self.driver.claims.hardware.inventory
        taints: dict[str, DeviceTaint] = {}
        for gone in self._gone.values():
            if now - gone.since < TAINT_AFTER:
                continue
            taints |= claim_taints.taints_for(gone.claim, inventory, TAINT, gone.since_wall)
            self._tell(gone)
        if taints != self._taints:
            self._taints = taints
            self.set_taints(taints)

    def _tell(self, gone: _Gone) -> None:
        if gone.is_told:
            return
        gone.is_told = True
        claim = gone.claim
        note = (
            f"{claim.device_names} cannot be given to other claims: it is still prepared for claim "
            f"{claim.title} (uid {claim.uid}){_describe_pods(claim)}, but {gone.reason}. The taint "
            f"{TAINT} keeps other pods away until the pod has ended"
        )
        log.warning("%s", note, extra={"claim_uid": claim.uid})
        self.record_event(events.node(self.driver.claims.node), "ClaimGone", f"{note}.")


def _describe_pods(claim: PreparedClaim) -> str:
    """Returns the pods for which the claim was reserved when it was prepared, as a clause."""
    pods = []
    for consumer in claim.reserved_for:
        resource, _, rest = consumer.partition("/")
        if resource == "pods":
            pods.append(f"{claim.namespace}/{rest.partition(' ')[0]}")
    return f" of pod {', '.join(pods)}" if pods else ""
