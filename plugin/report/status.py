"""claim.status.devices: what was prepared is reported there after the reply, and taken away after
unprepare.

One wish a claim, the newest; it is applied as the driver's own part of the list, so entries of
others are never touched. A failure is logged and tried again; nothing waits for a report, and none
ever fails a pod.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from .. import errors, metrics, pacing
from .. import log as logs
from ..api.resource import AllocatedDeviceStatus
from ..kube import errors as kube_errors
from ..kube import resources
from ..prepared import PreparedClaim

log = logging.getLogger(__name__)

AT_ONCE = 4  # reports under way at the same time
SPACING = 0.4  # seconds between two reports while the API server is sick
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 60.0
AFTER_REPLY = 0.01  # seconds that the kubelet's answer has to leave first
OTHERS_TURN = 5.0  # seconds in which another instance that lives does what it owes by itself


# What to report, asked for when it is sent; None: nothing any more, the claim was unprepared
# meanwhile.
Build = Callable[[], Awaitable[list[AllocatedDeviceStatus] | None]]
Done = Callable[
    [PreparedClaim], Awaitable[None]
]  # told when the API server has it, or need not have it


@dataclass(slots=True, eq=False)
class _Report:
    """What status.devices should say of one claim; of several for a claim the newest counts."""

    claim: PreparedClaim
    build: Build
    operation: str
    due: float  # by the loop's clock
    first: bool = False  # nobody can have told the API server anything of this claim yet
    done: Done | None = None
    backoff: pacing.Backoff = field(
        default_factory=lambda: pacing.Backoff(FIRST_PAUSE, LONGEST_PAUSE, jitter=(0.8, 1.2))
    )


class StatusReporter:
    def __init__(self, resources_: resources.Resources, driver: str) -> None:
        self._resources = resources_
        self._driver = driver
        self._reports: dict[str, _Report] = {}  # by claim uid, oldest first
        self._under_way: set[str] = set()
        self._told: set[str] = set()  # claims of which the API server may have a report by us
        self._wake = asyncio.Event()
        self._rest = (
            0.0  # nothing is sent before, by the loop's clock; not 0 while the API server is sick
        )

    def report(self, claim: PreparedClaim, build: Build, *, first: bool = False) -> None:
        """Reports what `build` gives, a moment later: the kubelet's answer leaves first. `first`:
        prepared just now.
        """
        self._wish(
            _Report(
                claim,
                build,
                logs.operation.get(),
                AFTER_REPLY,
                first and claim.uid not in self._told,
            )
        )

    def has_report(self, claim: PreparedClaim) -> bool:
        """Whether this process has reported the claim, or will."""
        return claim.uid in self._told or claim.uid in self._reports

    def drop_unsent(self, claim: PreparedClaim) -> bool:
        """Drops a report if the API server has heard of none for this claim; says whether it was
        so.
        """
        wish = self._reports.get(claim.uid)
        if wish is None or not wish.first:
            return False
        del self._reports[claim.uid]
        return True

    def clear(
        self, claim: PreparedClaim, build: Build, done: Done, *, by_another: bool = False
    ) -> None:
        """Takes our entries away. `by_another`: which may do it itself, and is given the time to."""
        if claim.uid not in self._reports or not by_another:
            pause = OTHERS_TURN if by_another else AFTER_REPLY
            self._wish(_Report(claim, build, logs.operation.get(), pause, done=done))

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as group:
            while True:
                self._wake.clear()
                waiting = [
                    (uid, wish) for uid, wish in self._reports.items() if uid not in self._under_way
                ]
                now, at_once = loop.time(), 1 if self._rest else AT_ONCE
                due = [(uid, wish) for uid, wish in waiting if max(wish.due, self._rest) <= now]
                for uid, wish in due[: max(0, at_once - len(self._under_way))]:
                    self._under_way.add(uid)
                    group.create_task(self._fulfil(uid, wish))
                later = min(
                    (at for _, wish in waiting if (at := max(wish.due, self._rest)) > now),
                    default=None,
                )
                try:
                    async with asyncio.timeout_at(later):
                        await self._wake.wait()
                except TimeoutError:
                    continue

    def _wish(self, wish: _Report) -> None:
        wish.due += asyncio.get_running_loop().time()
        self._reports.pop(wish.claim.uid, None)
        self._reports[wish.claim.uid] = wish
        self._wake.set()

    async def _fulfil(self, uid: str, wish: _Report) -> None:
        logs.operation.set(wish.operation)
        try:
            if self._reports.get(uid) is not wish:
                return  # dropped, or another took its place, since it became due
            wish.first = False
            await self._apply(wish)
            self._rest = 0.0
            if wish.done is not None:
                await wish.done(wish.claim)  # if it fails, the wish is kept and all is tried again
            if self._reports.get(uid) is wish:
                del self._reports[uid]
        except (
            Exception
        ) as error:  # a mistake of ours with one claim must not cost the others their reports
            metrics.STATUS_FAILURES.add()
            if not isinstance(error, kube_errors.ApiError | errors.ClaimError | OSError):
                log.exception(
                    "claim %s: status.devices was not written, by a mistake in claimd",
                    wish.claim.title,
                )
            delay = wish.backoff.next_delay()
            wait = getattr(error, "retry_after", None) or delay
            now = asyncio.get_running_loop().time()
            wish.due, self._rest = now + wait, now + SPACING
            log.warning(
                "claim %s: status.devices was not written, again in %.1f s: %s",
                wish.claim.title,
                wait,
                error,
            )
        finally:
            self._under_way.discard(uid)
            self._wake.set()

    async def _apply(self, wish: _Report) -> None:
        claim, devices = wish.claim, await wish.build()
        if devices is None:
            return
        self._told.add(claim.uid)
        try:
            kept = await self._resources.apply_devices(
                claim.namespace, claim.name, claim.uid, devices, self._driver
            )
            if not devices and any(entry.driver == self._driver for entry in kept.status.devices):
                # The API server forgets who applied what in a version that it serves no more, and
                # so keeps it.
                await self._resources.remove_devices(kept, self._driver)
        except kube_errors.NotFound:
            log.debug("claim %s is gone, and its status with it", claim.title)
        except kube_errors.Invalid as error:
            reason = _moved_on(error)
            if reason is None:
                raise
            log.debug(
                "claim %s: status.devices is not ours to write any more: %s", claim.title, reason
            )
        else:
            log.debug("claim %s: status.devices has %d of our devices", claim.title, len(devices))
            if devices:
                return
        self._told.discard(claim.uid)


def _moved_on(error: kube_errors.Invalid) -> str | None:
    """Why a refused write is no trouble: the claim was created anew, or was deallocated in the
    meantime.
    """
    text = str(error)
    if "metadata.uid" in text:
        return "it was created anew"
    if "must be an allocated device" in text:
        return "it was deallocated"
    return None
