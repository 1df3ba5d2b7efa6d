"""Garbage collection: claims that are prepared but not ours any more, whose unprepare never came.

Three must agree, twice, a grace period apart. The API server says of this very claim that it is
deleted, created anew, deallocated or allocated elsewhere; a failed request says nothing. The
kubelet says that none of its pods uses it; if it cannot be asked, nothing is collected. And nobody
prepares the claim at the same time: that is the driver's part.

The kubelet itself unprepares, in rounds of a minute, what is left of pods that it remembers, also
of those deleted by force, which its list does not have. A grace of two rounds, the default of the
setting `garbage-grace`, leaves to us what the kubelet has forgotten.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field

from claimd.common import errors, metrics, names, pacing
from claimd.common import log as logs
from claimd.kubernetes.api.resource import ResourceClaim
from claimd.kubernetes.kube import errors as kube_errors
from claimd_devices import values

from ..prepared import PreparedClaim
from ..report import events
from . import driver

log = logging.getLogger(__name__)

PERIOD = 60.0  # seconds between two sweeps, or the grace period if that is shorter
SPACING = 0.2  # seconds between two requests of a sweep
# Seconds for which a claim that the API server knows as ours is not asked about again.
CONFIRMED_FOR = 300.0
# Seconds for the API server: the last question is asked with the checkpoints locked.
REQUEST_TIMEOUT = 3.0

# By pod, namespace and name: by claim, the CDI ids that the pod's containers were given.
Pods = Mapping[tuple[str, str], Mapping[str, frozenset[str]]]


@values.dataclass(slots=True, kw_only=True, eq=False, repr=False)
class GarbageCollector:
    """Sweeps the checkpoints for ever. `sweep` may also be called by itself."""

    driver: driver.Driver
    pods: Callable[[], Awaitable[Pods]]  # the kubelet's pods; OSError if it cannot be asked
    may_collect: Callable[[], bool]  # one of several instances is enough
    record_event: events.RecordEvent
    grace: float  # seconds
    spacing: float = SPACING

    # By uid and the loop's clock: since when a claim is known to be garbage, and when the API
    # server last knew one as ours.
    _garbage_since: dict[str, float] = field(default_factory=dict)
    _confirmed_at: dict[str, float] = field(default_factory=dict)
    _kubelet_failed: bool = False  # when it was last asked

    async def run(self) -> None:
        """Sweeps about once a minute, or as often as the grace period needs it."""
        period = min(PERIOD, self.grace)
        while True:
            # Spread over the nodes of a cluster.
            await asyncio.sleep(period * pacing.between(0.8, 1.2))
            try:
                await self.sweep()
            except (OSError, errors.ClaimError) as error:
                log.warning("cannot look for claims that were left behind, trying again: %s", error)

    async def sweep(self) -> None:
        """Looks at every prepared claim once, and collects those whose grace period is over.

        Asks the API server only about claims that no pod uses, one after the other. A claim that
        could not be looked at, for whatever reason, starts its grace period anew.
        """
        garbage_since, self._garbage_since = self._garbage_since, {}
        if not self.may_collect():
            return

        checkpoints = self.driver.claims.checkpoints
        async with checkpoints.lock():
            claims = dict(checkpoints.claims)
        self._confirmed_at = {uid: at for uid, at in self._confirmed_at.items() if uid in claims}
        if not claims:
            return
        pods = await self._kubelets_pods()
        if pods is None:
            return

        for uid, prepared in claims.items():
            now = asyncio.get_running_loop().time()
            confirmed_at = self._confirmed_at.get(uid, now - CONFIRMED_FOR)
            if pod_using(prepared, pods) or confirmed_at > now - CONFIRMED_FOR:
                continue
            try:
                await self._look_at(prepared, garbage_since.get(uid, now), now)
            except kube_errors.ApiError as error:
                log.info(
                    "claim %s stays, since the API server does not tell: %s", prepared.title, error
                )
                # A sick API server is asked once a sweep.
                if kube_errors.is_transient(error):
                    return
            except errors.ClaimError as error:
                log.warning("claim %s cannot be unprepared: %s", prepared.title, error)
            await asyncio.sleep(self.spacing)

    async def _look_at(self, prepared: PreparedClaim, since: float, now: float) -> None:
        """One claim that no pod uses, which has been garbage `since` then if it is."""
        if not await self._reason(prepared):
            self._confirmed_at[prepared.uid] = now
        elif now - since < self.grace or not await self._collect(prepared):
            self._garbage_since[prepared.uid] = since

    async def _collect(self, prepared: PreparedClaim) -> bool:
        """Unprepares the claim, if kubelet and API server still agree; whether it was done."""
        logs.begin()
        reason = ""

        async def still_unused() -> bool:
            nonlocal reason
            pods = await self._kubelets_pods()
            if pods is None or pod_using(prepared, pods):
                return False
            reason = await self._reason(prepared)
            return bool(reason)

        if not await self.driver.collect(prepared, still_unused):
            return False

        metrics.GARBAGE.add()
        note = (
            f"Claim {prepared.title} (uid {prepared.uid}) was unprepared by the driver: {reason}, "
            f"and no pod uses it; it had {prepared.device_names}"
        )
        log.warning("%s", note, extra={"claim_uid": prepared.uid})
        self.record_event(
            events.node(self.driver.claims.node), "ClaimCollected", f"{note}.", warning=False
        )
        return True

    async def _reason(self, prepared: PreparedClaim) -> str:
        """Why the claim is garbage to the API server, empty if it is not; ApiError if unknown."""
        try:
            claim = await self.driver.resources.claim(
                prepared.namespace, prepared.name, REQUEST_TIMEOUT
            )
        except kube_errors.NotFound:
            return "it does not exist any more"
        return reason_to_unprepare(
            prepared, claim, self.driver.claims.name, self.driver.claims.node
        )

    async def _kubelets_pods(self) -> Pods | None:
        """The kubelet's pods and what they were given; None, logged once, if it cannot be asked."""
        try:
            pods = await self.pods()
        except OSError as error:
            if not self._kubelet_failed:
                log.warning(
                    "the kubelet cannot be asked who uses a claim, so none is collected "
                    "(said once): %s",
                    error,
                )
            self._kubelet_failed = True
            return None
        self._kubelet_failed = False
        return pods


def reason_to_unprepare(
    prepared: PreparedClaim, claim: ResourceClaim, driver_name: str, pool: str
) -> str:
    """Why this object is no reason any more to keep the claim prepared; empty if it is one."""
    if claim.metadata.uid != prepared.uid:
        return f"it was created anew with uid {claim.metadata.uid}"
    allocation = claim.status.allocation
    if allocation is None:
        return "it is not allocated any more"

    # A claim that never had a device of ours is prepared all the same, for as long as it is there.
    if not prepared.devices:
        return ""
    for result in allocation.devices.results:
        if result.driver == driver_name and result.pool == pool:
            return ""
    return "it is allocated elsewhere"


def pod_using(prepared: PreparedClaim, pods: Pods) -> str:
    """A pod that uses the claim, or may do so for all that the kubelet says; empty if none does."""
    prefix = f"{names.CDI_KIND}="
    for (namespace, pod), claims in pods.items():
        if namespace != prepared.namespace:
            continue

        cdi_ids = claims.get(prepared.name)
        if cdi_ids is None:
            # A kubelet that does not tell of claims tells of pods all the same.
            is_user = any(user.startswith(f"pods/{pod} ") for user in prepared.reserved_for)
            if not claims and is_user:
                return f"{namespace}/{pod}"
            continue

        # The pod uses a claim of this name; our ids tell whether it is this very claim, by its uid.
        # Without an id of ours it may be.
        ours = [id_ for id_ in cdi_ids if id_.startswith(prefix)]
        if not ours or any(id_.startswith(f"{prefix}{prepared.uid}-") for id_ in ours):
            return f"{namespace}/{pod}"
    return ""
