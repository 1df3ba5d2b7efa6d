"""Claims that are recorded but not ours any more, with an Unprepare that never came: we unprepare
them by ourselves.

Three must agree, twice, a grace period apart. The API server says of this very claim that it is
deleted, created anew, deallocated or allocated elsewhere; a failed request says nothing. The
kubelet says that none of its pods uses it; if it cannot be asked, nothing is collected. And nobody
prepares it at the same time: that is the driver's part.

The kubelet itself unprepares, in rounds of a minute, what is left of pods that it remembers, also
of those deleted by force, which its list does not have. A grace of two rounds leaves to us what the
kubelet has forgotten.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from .. import errors, metrics, names
from .. import log as logs
from ..api.resource import ResourceClaim
from ..kube import errors as kube_errors
from ..prepared import PreparedClaim
from ..report import events
from . import driver

log = logging.getLogger(__name__)

PERIOD = 60.0  # seconds between two sweeps
SPACING = 0.2  # seconds between two requests of a sweep
ALIVE = (
    300.0  # seconds for which a claim that the API server knows as ours is not asked about again
)
PATIENCE = 3.0  # seconds for the API server; other instances wait for the records as long

# By pod, namespace and name: by claim the CDI ids that its containers were given.
Pods = Mapping[tuple[str, str], Mapping[str, frozenset[str]]]


@dataclass(slots=True, kw_only=True)
class GarbageCollector:
    driver: driver.Driver
    pods: Callable[[], Awaitable[Pods]]  # the kubelet's pods; OSError if it cannot be asked
    may_collect: Callable[[], bool]  # one of several instances is enough
    record_event: events.RecordEvent
    grace: float  # seconds
    spacing: float = SPACING
    _gone: dict[str, float] = field(
        default_factory=dict
    )  # by uid, since when we know, by the loop's clock
    _alive: dict[str, float] = field(
        default_factory=dict
    )  # by uid, when the API server last knew it as ours
    _said: bool = False  # that the kubelet cannot be asked

    async def run(self) -> None:
        period = min(PERIOD, self.grace)
        while True:
            await asyncio.sleep(period * random.uniform(0.8, 1.2))  # noqa: S311  # spreads the nodes of a cluster
            try:
                await self.sweep()
            except (OSError, errors.ClaimError) as error:
                log.warning("cannot look for claims that were left behind, trying again: %s", error)

    async def sweep(self) -> None:
        """One look at every recorded claim. Asks the API server only about those that no pod uses."""
        before, self._gone = self._gone, {}
        if not self.may_collect():
            return
        async with self.driver.checkpoints.locked():
            recorded = dict(self.driver.checkpoints.claims)
        self._alive = {uid: at for uid, at in self._alive.items() if uid in recorded}
        pods = await self._listed() if recorded else None
        if pods is None:
            return
        for uid, prepared in recorded.items():
            now = asyncio.get_running_loop().time()
            if pod_using(prepared, pods) or self._alive.get(uid, now - ALIVE) > now - ALIVE:
                continue
            try:
                await self._look(prepared, before.get(uid, now), now)
            except kube_errors.ApiError as error:
                log.info(
                    "claim %s stays, since the API server does not tell: %s", prepared.title, error
                )
                if kube_errors.is_transient(error):
                    return  # it is sick: one request a sweep is enough
            await asyncio.sleep(self.spacing)

    async def _look(self, prepared: PreparedClaim, since: float, now: float) -> None:
        if not await self._absence(prepared):
            self._alive[prepared.uid] = now
        elif now - since < self.grace or not await self._collect(prepared):
            self._gone[prepared.uid] = since

    async def _collect(self, prepared: PreparedClaim) -> bool:
        logs.begin()
        why = ""

        async def still_unused() -> bool:
            nonlocal why
            pods = await self._listed()
            if pods is None or pod_using(prepared, pods):
                return False
            why = await self._absence(prepared)
            return bool(why)

        if not await self.driver.collect(prepared, still_unused):
            return False
        metrics.GARBAGE.add()
        devices = prepared.device_names
        note = f"Claim {prepared.title} (uid {prepared.uid}) was unprepared by the driver: {why}, and no pod uses it; "
        log.warning("%sit had %s", note, devices, extra={"claim_uid": prepared.uid})
        self.record_event(
            events.node(self.driver.node),
            "ClaimCollected",
            f"{note}it had {devices}.",
            warning=False,
        )
        return True

    async def _absence(self, prepared: PreparedClaim) -> str:
        """Why the claim is not ours any more, nothing if it is; ApiError if the API server does not
        tell.
        """
        try:
            claim = await self.driver.resources.claim(prepared.namespace, prepared.name, PATIENCE)
        except kube_errors.NotFound:
            return "it does not exist any more"
        return reason_to_unprepare(prepared, claim, self.driver.name, self.driver.node)

    async def _listed(self) -> Pods | None:
        try:
            pods = await self.pods()
        except OSError as error:
            if not self._said:
                log.warning(
                    "the kubelet cannot be asked who uses a claim, so none is collected (said once): %s",
                    error,
                )
            self._said = True
            return None
        self._said = False
        return pods


def reason_to_unprepare(
    prepared: PreparedClaim, claim: ResourceClaim, driver_name: str, pool: str
) -> str:
    """Why this object is no reason any more to keep the claim prepared; nothing if it is one."""
    if claim.metadata.uid != prepared.uid:
        return f"it was created anew with uid {claim.metadata.uid}"
    allocation = claim.status.allocation
    if allocation is None:
        return "it is not allocated any more"
    ours = any(
        result.driver == driver_name and result.pool == pool
        for result in allocation.devices.results
    )
    return "" if ours or not prepared.devices else "it is allocated elsewhere"


def pod_using(prepared: PreparedClaim, pods: Pods) -> str:
    """A pod that uses the claim, or may use it for all that the kubelet says; nothing if there is
    none.
    """
    given = f"{names.CDI_KIND}={prepared.uid}-"
    for (namespace, pod), used in pods.items():
        if namespace != prepared.namespace:
            continue
        ids = used.get(prepared.name)
        if ids is None:
            # A kubelet that does not tell of claims tells of pods all the same.
            if not used and any(who.startswith(f"pods/{pod} ") for who in prepared.reserved_for):
                return f"{namespace}/{pod}"
            continue
        ours = [id_ for id_ in ids if id_.startswith(f"{names.CDI_KIND}=")]
        if not ours or any(id_.startswith(given) for id_ in ours):
            return f"{namespace}/{pod}"
    return ""
