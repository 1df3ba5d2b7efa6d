"""One pod on the node, from the moment that it is bound to the moment that it is gone.

Every look begins from the pod as it is now: prepare before the sandbox, unprepare after the last
container and before anybody hears that the pod has ended. What follows from the containers' fates
is decided in `lifecycle`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from ... import pacing, timestamps
from ...api.document import Document
from ...kube import errors
from .. import client
from ..runtime import container as containers
from ..runtime import specs
from ..runtime.runtime import Runtime, Sandbox
from . import container_config, lifecycle, status
from .api import Api
from .claims import Book, ClaimsError
from .health import Health
from .timing import Timing

log = logging.getLogger(__name__)

_AGAIN = 1.0  # seconds until a write is tried again that the API server did not take


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What all pods of the node share."""

    api: Api
    book: Book
    health: Health
    runtime: Runtime
    timing: Timing
    address: str  # of the node


class PodWorker:
    def __init__(self, parts: Parts, pod: Document) -> None:
        self.pod = pod
        self.uid: str = pod["metadata"]["uid"]
        self.phase: str = (pod.get("status") or {}).get("phase") or lifecycle.PENDING
        self.trouble = ""  # why it does not go on
        self._parts = parts
        self._wake = asyncio.Event()
        self._ending = asyncio.Event()
        self._gone = False  # from the API server
        self._refused: dict[str, tuple[str, str]] = {}
        self._retry: dict[
            str, float
        ] = {}  # by container, when it may be tried again, in seconds since 1970

    def update(self, pod: Document | None) -> None:
        """The pod as the API server has it now; None if it does not have it any more."""
        before, self.pod = self.pod, pod or self.pod
        self._gone = pod is None
        if self._gone or self.pod["metadata"].get("deletionTimestamp"):
            self._ending.set()
        if self._gone or _matters(before) != _matters(self.pod):
            self._wake.set()

    def wake(self) -> None:
        self._wake.set()

    async def run(self) -> None:
        """Returns when nothing of the pod is left here."""
        self.update(self.pod)
        self._wake.set()
        pause: float | None = None
        try:
            while True:
                await pacing.wait(self._wake, pause)
                self._wake.clear()
                try:
                    if self._ending.is_set():
                        await self._end()
                        return
                    pause = await self._sync()
                except ClaimsError as error:
                    self.trouble = str(error)
                    log.warning("%s: %s", client.key_of(self.pod), error)
                    pause = self._parts.timing.unprepare_again
                except errors.ApiError as error:
                    log.warning("%s: %s", client.key_of(self.pod), error)
                    pause = _AGAIN
        finally:
            if (sandbox := self._parts.runtime.sandboxes.get(self.uid)) is not None:
                sandbox.changed = lambda: None

    async def _sync(self) -> float | None:
        """One look. Seconds until the next, if nothing happens before."""
        runtime = self._parts.runtime
        sandbox = runtime.sandboxes.get(self.uid)
        if self.phase in (lifecycle.SUCCEEDED, lifecycle.FAILED):
            if sandbox is not None:
                await runtime.stop(sandbox, 0)
            await self._parts.book.unprepare(self.uid)
            return None
        if sandbox is None:
            await self._report(
                None, lifecycle.Plan(phase=self.phase)
            )  # Running, if a runtime was lost
            if not await self._prepared():
                return self._parts.timing.prepare_again
            sandbox = runtime.create(self.uid, self.pod["metadata"]["name"])
            sandbox.earlier = _earlier(self.pod)
        sandbox.changed = self._wake.set
        plan = self._plan(sandbox)
        while plan.start and not self._ending.is_set():
            for name in plan.start:
                await self._start(sandbox, name)
            plan = self._plan(sandbox)
        if plan.terminal:
            await runtime.stop(sandbox, 0)  # those that go on beside the others
            await self._parts.book.unprepare(self.uid)
        await self._report(sandbox, plan)
        return plan.again

    async def _prepared(self) -> bool:
        try:
            await self._unless_ending(self._parts.book.prepare(self.pod))
        except ClaimsError as error:
            self.trouble = str(error)
            message = f"Failed to prepare dynamic resources: {error}"
            await self._parts.api.tell(self.pod, "FailedPrepareDynamicResources", message)
            return False
        self.trouble = ""
        return not self._ending.is_set()

    async def _unless_ending(self, work: Coroutine[Any, Any, None]) -> None:
        """A pod that is deleted does not wait for a driver that hangs."""
        task, ending = asyncio.create_task(work), asyncio.create_task(self._ending.wait())
        try:
            await asyncio.wait([task, ending], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in (task, ending):
                each.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    def _plan(self, sandbox: Sandbox) -> lifecycle.Plan:
        now = time.time()
        pasts = {}
        for name in {*sandbox.containers, *self._retry}:
            past = _past(sandbox.containers.get(name, []), self._retry.get(name, 0.0))
            pasts[name] = past
            pause = lifecycle.pause(past, self._parts.timing)
            if past.code is not None and pause and now < past.finished + pause:
                text = f"back-off {pause:g}s restarting failed container={name} pod={client.key_of(self.pod)}"
                self._refused[name] = ("CrashLoopBackOff", text)
            elif name not in self._retry:
                self._refused.pop(name, None)
        return lifecycle.plan(self.pod, pasts, now, self._parts.timing)

    async def _start(self, sandbox: Sandbox, name: str) -> None:
        spec = self.pod["spec"]
        wanted = next(
            c
            for c in (*(spec.get("initContainers") or ()), *spec["containers"])
            if c["name"] == name
        )
        api, ids = self._parts.api, container_config.ids(self._parts.book.of(self.pod, wanted))
        self._retry.pop(name, None)
        try:
            order = container_config.order(
                self.pod, wanted, ids, sandbox.address, self._parts.address
            )
            await self._parts.runtime.start(sandbox, order)
        except specs.InvalidSpec as error:
            self._refused[name] = ("CreateContainerError", str(error))
            self._retry[name] = time.time() + self._parts.timing.prepare_again
            await api.tell(self.pod, "Failed", f"Error: {error}")
        except containers.StartError as error:
            await api.tell(self.pod, "Failed", f"Error: cannot start container {name}: {error}")
        else:
            self._refused.pop(name, None)
            await api.tell(self.pod, "Started", f"Container started: {name}", warning=False)

    async def _report(self, sandbox: Sandbox | None, plan: lifecycle.Plan) -> None:
        parts = self._parts
        made = status.status(
            self.pod,
            sandbox,
            plan,
            self._refused,
            lambda container: parts.health.shown(parts.book.of(self.pod, container)),
            parts.address,
        )
        before = self.pod.get("status") or {}
        if status.differs(made, before):
            with contextlib.suppress(
                errors.NotFound, errors.Conflict
            ):  # it is going, or is another by now
                await parts.api.write_status(self.pod, status.patch(made, before, timestamps.now()))
        self.phase = (
            plan.phase
        )  # not before it is written: a pod that has ended is not looked at again

    async def _end(self) -> None:
        """Containers, then claims, then the pod itself; each again until it is done."""
        parts = self._parts
        sandbox = parts.runtime.sandboxes.get(self.uid)
        if sandbox is not None:
            await parts.api.tell(self.pod, "Killing", "Stopping the containers", warning=False)
            await self._stop(sandbox)
        while True:
            try:
                await parts.book.unprepare(self.uid)
                if not self._gone:
                    await self._last_words(sandbox)
                    await parts.api.remove_pod(self.pod)
                break
            except ClaimsError as error:
                self.trouble = str(error)
                await parts.api.tell(self.pod, "FailedUnprepareDynamicResources", str(error))
                pause = parts.timing.unprepare_again
            except errors.ApiError as error:
                log.warning("%s: %s", client.key_of(self.pod), error)
                pause = _AGAIN
            await asyncio.sleep(pause)
        await parts.runtime.remove(self.uid)
        parts.api.forget(self.uid)

    async def _stop(self, sandbox: Sandbox) -> None:
        """Ends the containers within the grace, which may become shorter meanwhile."""
        stopping = asyncio.create_task(self._parts.runtime.stop(sandbox, self._grace()))
        try:
            while not stopping.done():
                self._wake.clear()
                if self._grace() == 0:
                    sandbox.kill()
                waking = asyncio.create_task(self._wake.wait())
                await asyncio.wait([stopping, waking], return_when=asyncio.FIRST_COMPLETED)
                waking.cancel()
        finally:
            stopping.cancel()
        await stopping

    def _grace(self) -> float:
        grace = self.pod["metadata"].get("deletionGracePeriodSeconds")
        return 0.0 if self._gone else float(30 if grace is None else grace)

    async def _last_words(self, sandbox: Sandbox | None) -> None:
        if sandbox is None or self.phase in (lifecycle.SUCCEEDED, lifecycle.FAILED):
            return
        codes = [each.code for attempts in sandbox.containers.values() if (each := attempts[-1])]
        phase = lifecycle.FAILED if any(codes) else lifecycle.SUCCEEDED
        await self._report(sandbox, lifecycle.Plan(phase=phase, initialized=True))


def _matters(pod: Document) -> Document:
    """All of a pod but what we write ourselves."""
    about, told = pod["metadata"], pod.get("status") or {}
    return {
        "spec": pod["spec"],
        "deletion": about.get("deletionTimestamp"),
        "annotations": about.get("annotations"),
        "claims": told.get("resourceClaimStatuses"),
        "extended": told.get("extendedResourceClaimStatus"),
    }


def _past(attempts: list[containers.Container], refused: float) -> lifecycle.Past:
    if not attempts:
        return lifecycle.Past(refused=refused)
    ends = 0
    for each in reversed(attempts):
        if each.began and each.finished:
            if (each.finished - each.began).total_seconds() > lifecycle.STEADY:
                break
            ends += 1
    latest = attempts[-1]
    return lifecycle.Past(
        code=latest.code,
        began=latest.began.timestamp() if latest.began else 0.0,
        finished=latest.finished.timestamp() if latest.finished else 0.0,
        ends=ends,
        refused=refused,
    )


def _earlier(pod: Document) -> dict[str, int]:
    """Starts that an earlier runtime has made, by container."""
    told = pod.get("status") or {}
    every = (*(told.get("containerStatuses") or ()), *(told.get("initContainerStatuses") or ()))
    return {
        each["name"]: each.get("restartCount", 0) + 1 for each in every if each.get("containerID")
    }
