"""Garbage collection: unprepares claims that the kubelet has forgotten to unprepare.

A claim is collected only if three conditions hold, and hold again after a grace period:

- The API server says that this claim is deleted, created again with another uid, deallocated, or
  allocated elsewhere. A failed request proves nothing. A claim whose name was lost cannot be asked
  for: there the kubelet's list alone counts, if this kubelet lists claims at all.
- The kubelet says that no pod uses the claim. If the kubelet cannot be asked, nothing is collected.
- No call prepares the claim at the same time. The driver takes care of that.

Once a minute, the kubelet itself unprepares the claims of pods that it remembers. That includes
pods that were deleted by force and are not in its list. By default, the setting `garbage-grace` is
twice this time, so that only claims which the kubelet has forgotten are left to this module.
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

# Seconds between two sweeps, or the grace period if that is shorter.
PERIOD = 60.0

# Seconds between two requests of a sweep.
SPACING = 0.2

# Seconds without another request for a claim after the API server has confirmed that it is ours.
CONFIRMED_FOR = 300.0

# Seconds for the API server to answer. It is short, since the last request of a collection holds
# the lock of the checkpoints.
REQUEST_TIMEOUT = 3.0

# Maps a pod, by namespace and name, to its claims, and each claim to the CDI ids of the pod's
# containers.
Pods = Mapping[tuple[str, str], Mapping[str, frozenset[str]]]


@values.dataclass(slots=True, kw_only=True, eq=False, repr=False)
class GarbageCollector:
    """Sweeps the checkpoints once a minute. `sweep` may also be called alone."""

    driver: driver.Driver

    # Asks the kubelet for its pods. Raises OSError if it cannot be asked.
    pods: Callable[[], Awaitable[Pods]]

    # Returns True if this instance collects. One of several instances is enough.
    may_collect: Callable[[], bool]

    record_event: events.RecordEvent
    grace: float  # seconds
    spacing: float = SPACING

    # By uid: the time from which on a claim is known to be garbage. Times are of the loop's clock.
    _garbage_since: dict[str, float] = field(default_factory=dict)

    # By uid: the time at which the API server last confirmed that a claim is ours.
    _confirmed_at: dict[str, float] = field(default_factory=dict)

    # True if the kubelet could not be asked the last time.
    _kubelet_failed: bool = False

    async def run(self) -> None:
        """Sweeps about once a minute, or more often if the grace period is shorter."""
        period = min(PERIOD, self.grace)
        while True:
            # The jitter spreads the requests of a cluster's nodes.
            await asyncio.sleep(period * pacing.between(0.8, 1.2))
            try:
                await self.sweep()
            except (OSError, errors.ClaimError) as error:
                log.warning("cannot look for claims that were left behind, trying again: %s", error)

    async def sweep(self) -> None:
        """Checks every prepared claim once, and collects those whose grace period is over.

        Only claims that no pod uses cost a request to the API server, one after the other. A claim
        that could not be checked, for any reason, starts its grace period again.
        """
        garbage_since, self._garbage_since = self._garbage_since, {}
        if not self.may_collect():
            return

        checkpoints = self.driver.claims.checkpoints
        async with checkpoints.lock():
            claims = dict(checkpoints.claims)

            # A claim whose checkpoint was lost ends by the same rule.
            for lost in self.driver.claims.lost():
                claims[lost.uid] = lost

        # Claims that were unprepared meanwhile are forgotten here.
        for uid in self._confirmed_at.keys() - claims.keys():
            del self._confirmed_at[uid]
        if not claims:
            return

        pods = await self._ask_kubelet()
        if pods is None:
            return

        for uid, prepared in claims.items():
            now = asyncio.get_running_loop().time()
            confirmed_at = self._confirmed_at.get(uid, now - CONFIRMED_FOR)
            if find_user(prepared, pods) or confirmed_at > now - CONFIRMED_FOR:
                continue
            try:
                await self._check(prepared, pods, garbage_since.get(uid, now), now)
            except kube_errors.ApiError as error:
                log.info(
                    "claim %s stays, since the API server cannot be asked: %s",
                    prepared.title,
                    error,
                )

                # A failing API server gets only one request per sweep.
                if kube_errors.is_transient(error):
                    return
            except errors.ClaimError as error:
                log.warning("claim %s cannot be unprepared: %s", prepared.title, error)
            await asyncio.sleep(self.spacing)

    async def _check(self, prepared: PreparedClaim, pods: Pods, since: float, now: float) -> None:
        """Checks a claim that no pod uses. `since` is when it was first known to be garbage."""
        if not await self._reason_for_garbage(prepared, pods):
            # What the kubelet says costs no request, so it is asked each time.
            if prepared.name:
                self._confirmed_at[prepared.uid] = now
        elif now - since < self.grace or not await self._collect(prepared):
            self._garbage_since[prepared.uid] = since

    async def _collect(self, prepared: PreparedClaim) -> bool:
        """Unprepares the claim if kubelet and API server still agree; returns True if done."""
        logs.begin()
        reason = ""

        async def still_unused() -> bool:
            nonlocal reason
            pods = await self._ask_kubelet()
            if pods is None or find_user(prepared, pods):
                return False
            reason = await self._reason_for_garbage(prepared, pods)
            return bool(reason)

        if not await self.driver.collect(prepared, still_unused):
            return False

        metrics.GARBAGE.add()
        claim = f"{prepared.title} (uid {prepared.uid})" if prepared.name else f"uid {prepared.uid}"
        note = (
            f"Claim {claim} was unprepared by the driver: {reason}, "
            f"and no pod uses it; it had {prepared.device_names}"
        )
        log.warning("%s", note, extra={"claim_uid": prepared.uid})
        self.record_event(
            events.node(self.driver.claims.node), "ClaimCollected", f"{note}.", warning=False
        )
        return True

    async def _reason_for_garbage(self, prepared: PreparedClaim, pods: Pods) -> str:
        """Returns the reason why a claim that no pod uses is garbage, or "" if it is not.

        Raises ApiError if the API server does not answer.
        """
        if not prepared.name:
            return _reason_without_name(pods)
        return await read_reason(prepared, self.driver)

    async def _ask_kubelet(self) -> Pods | None:
        """Returns the kubelet's pods, or None if it cannot be asked, which is logged once."""
        try:
            pods = await self.pods()
        except OSError as error:
            if not self._kubelet_failed:
                log.warning(
                    "the kubelet cannot be asked who uses a claim, so none is collected "
                    "(logged once): %s",
                    error,
                )
            self._kubelet_failed = True
            return None
        self._kubelet_failed = False
        return pods


async def read_reason(prepared: PreparedClaim, driver_: driver.Driver) -> str:
    """Reads the claim; returns why it need not stay prepared, or "" if it must stay.

    Raises ApiError if the API server does not answer.
    """
    try:
        claim = await driver_.resources.claim(prepared.namespace, prepared.name, REQUEST_TIMEOUT)
    except kube_errors.NotFound:
        return "it does not exist any more"
    return reason_to_unprepare(prepared, claim, driver_.claims.name, driver_.claims.node)


def reason_to_unprepare(
    prepared: PreparedClaim, claim: ResourceClaim, driver_name: str, pool: str
) -> str:
    """Returns why the present `claim` need not stay prepared, or "" if it must stay."""
    if claim.metadata.uid != prepared.uid:
        return f"it was created again with uid {claim.metadata.uid}"
    allocation = claim.status.allocation
    if allocation is None:
        return "it is not allocated any more"

    # A claim without a device of ours was prepared nevertheless. It stays until it is deallocated.
    if not prepared.devices:
        return ""
    for result in allocation.devices.results:
        if result.driver == driver_name and result.pool == pool:
            return ""
    return "it is allocated elsewhere"


def _reason_without_name(pods: Pods) -> str:
    """Returns why a claim is garbage if neither its name is known nor a pod uses it, or "".

    An old kubelet lists pods without their claims. Then nothing is known.
    """
    lists_claims = any(pods.values())
    return "its checkpoint and its name were lost" if lists_claims else ""


def find_user(prepared: PreparedClaim, pods: Pods) -> str:
    """Returns a pod that uses the claim, or may use it as far as we know; "" if no pod does."""
    prefix = f"{names.CDI_KIND}="
    if not prepared.name:
        for (namespace, pod), claims in pods.items():
            for given in claims.values():
                if any(id_.startswith(f"{prefix}{prepared.uid}-") for id_ in given):
                    return f"{namespace}/{pod}"
        return ""

    for (namespace, pod), claims in pods.items():
        if namespace != prepared.namespace:
            continue

        cdi_ids = claims.get(prepared.name)
        if cdi_ids is None:
            # Old kubelets list pods without their claims. Then the claim's own list of consumers
            # tells whether the pod is one.
            is_user = any(user.startswith(f"pods/{pod} ") for user in prepared.reserved_for)
            if not claims and is_user:
                return f"{namespace}/{pod}"
            continue

        # The pod uses a claim of this name. The uid in our CDI ids tells whether it is this claim
        # or an earlier one. Without an id of ours, it may be this one.
        ours = [id_ for id_ in cdi_ids if id_.startswith(prefix)]
        if not ours or any(id_.startswith(f"{prefix}{prepared.uid}-") for id_ in ours):
            return f"{namespace}/{pod}"
    return ""
