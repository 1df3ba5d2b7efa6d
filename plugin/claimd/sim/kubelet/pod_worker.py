"""The worker of one pod, from its binding until it is gone.

Each round starts from the pod as it is now. Claims are prepared before the sandbox is created.
They are unprepared after the last container and before the API server learns that the pod has
ended. The module `pod_actions` decides what to do after a container ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import time
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from claimd.common import pacing, timestamps
from claimd.kubernetes.api.document import Document
from claimd.kubernetes.kube import errors

from ..assume_cache import object_key
from ..runtime import cdi_spec
from ..runtime import container as containers
from ..runtime.runtime import Runtime, Sandbox
from . import container_config, pod_actions, probes, status, volumes
from .api import KubeletApi
from .claim_info import ClaimInfoCache, ClaimsError
from .health import HealthInfoCache
from .timing import Timing

log = logging.getLogger(__name__)

_WRITE_RETRY = 1.0  # seconds until a failed write is retried
_DEFAULT_GRACE = 30.0  # seconds
_VOLUMES = ".volumes"  # the folder of a pod's volumes; no container can have this name


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeServices:
    """The services of the node for its pods."""

    api: KubeletApi
    claims: ClaimInfoCache
    health: HealthInfoCache
    runtime: Runtime
    timing: Timing
    address: str  # of the node


class PodWorker:
    """Runs one pod. The kubelet passes it each change of the pod with `update`."""

    def __init__(self, node: NodeServices, pod: Document) -> None:
        self.pod = pod
        self.uid: str = pod["metadata"]["uid"]
        self.phase: str = (pod.get("status") or {}).get("phase") or pod_actions.PENDING
        self.problem = ""  # why it makes no progress
        self._node = node
        self._wake = asyncio.Event()
        self._ending = asyncio.Event()
        self._deleted = False  # it does not exist in the API server any more
        self._waiting: dict[str, tuple[str, str]] = {}  # by container: reason and message
        # By container: when a failed creation may be retried, in seconds since 1970.
        self._not_before: dict[str, float] = {}
        self._probes: dict[str, probes.Probes] = {}  # by container, of the latest attempt

    def update(self, pod: Document | None) -> None:
        """Takes over the pod from the API server; None if it does not exist there any more."""
        before = self.pod
        self.pod = pod or self.pod
        self._deleted = pod is None
        if self._deleted or self.pod["metadata"].get("deletionTimestamp"):
            self._ending.set()
        if self._deleted or _relevant_part(before) != _relevant_part(self.pod):
            self._wake.set()

    @property
    def _full_name(self) -> str:
        """The pod's name as kubelet messages write it."""
        metadata = self.pod["metadata"]
        return f"{metadata['name']}_{metadata['namespace']}({self.uid})"

    def wake(self) -> None:
        self._wake.set()

    async def run(self) -> None:
        """Runs the pod, and returns when nothing of it is left on the node.

        It retries after failures of claims or of the API server. A cancelled worker leaves the
        containers running.
        """
        self.update(self.pod)
        self._wake.set()
        pause: float | None = None
        try:
            while True:
                await pacing.wait(self._wake, pause)
                self._wake.clear()
                try:
                    if self._ending.is_set():
                        await self._terminate()
                        return
                    pause = await self._sync()
                except ClaimsError as error:
                    self.problem = str(error)
                    log.warning("%s: %s", object_key(self.pod), error)
                    pause = self._node.timing.unprepare_retry
                except errors.ApiError as error:
                    log.warning("%s: %s", object_key(self.pod), error)
                    pause = _WRITE_RETRY
        finally:
            self._stop_probes()
            if (sandbox := self._node.runtime.sandboxes.get(self.uid)) is not None:
                sandbox.on_exit = lambda: None

    # ------------------------------------------------------------------ running

    async def _sync(self) -> float | None:
        """Runs one round. Returns the seconds until the next, if nothing happens before."""
        sandbox = self._node.runtime.sandboxes.get(self.uid)
        if self.phase in (pod_actions.SUCCEEDED, pod_actions.FAILED):
            if sandbox is not None:
                await self._node.runtime.stop(sandbox, 0)
            await self._node.claims.unprepare(self.uid)
            return None

        left = pod_actions.time_left(self.pod, time.time())
        if left is not None and left <= 0:
            await self._exceed_deadline(sandbox)
            return None
        pause = await self._sync_active(sandbox)
        return min((each for each in (pause, left) if each is not None), default=None)

    async def _sync_active(self, sandbox: Sandbox | None) -> float | None:
        """Runs a round of a pod that has not ended. Returns the seconds until the next."""
        if sandbox is None:
            # A pod whose runtime was lost stays Running until it is started again.
            await self._report(None, pod_actions.PodActions(phase=self.phase))
            if not await self._prepare() or not await self._set_up_volumes():
                return self._node.timing.prepare_retry
            sandbox = self._node.runtime.create(self.uid, self.pod["metadata"]["name"])
            sandbox.earlier_starts = _earlier_starts(self.pod)
        # An end of a container wakes the worker.
        sandbox.on_exit = self._wake.set

        actions = self._compute_actions(sandbox)
        while actions.start and not self._ending.is_set():
            for name in actions.start:
                await self._start(sandbox, name)
            actions = self._compute_actions(sandbox)

        # Unprepare before the phase is reported: clients that wait for the pod's end may want its
        # devices.
        if actions.is_terminal:
            await self._stop(sandbox)  # sidecars still run
            await self._node.claims.unprepare(self.uid)
        await self._record_back_offs()
        await self._report(sandbox, actions)
        return actions.look_again

    async def _exceed_deadline(self, sandbox: Sandbox | None) -> None:
        """Fails the pod, regardless of its containers, and unprepares its claims."""
        reason, message = pod_actions.DEADLINE_EXCEEDED, pod_actions.DEADLINE_MESSAGE
        await self._node.api.record_event(self.pod, reason, message, warning=False)
        if sandbox is not None:
            await self._stop(sandbox)
        await self._node.claims.unprepare(self.uid)
        initialized = sandbox is not None and self._compute_actions(sandbox).initialized
        actions = pod_actions.PodActions(
            phase=pod_actions.FAILED, initialized=initialized, reason=reason, message=message
        )
        await self._report(sandbox, actions)

    async def _prepare(self) -> bool:
        """Prepares the claims. Returns True if that succeeded and the pod is still wanted."""
        try:
            await self._unless_ending(self._node.claims.prepare(self.pod))
        except ClaimsError as error:
            self.problem = str(error)
            message = f"Failed to prepare dynamic resources: {error}"
            await self._node.api.record_event(self.pod, "FailedPrepareDynamicResources", message)
            return False
        self.problem = ""
        return not self._ending.is_set()

    async def _set_up_volumes(self) -> bool:
        """Writes the volumes. Returns True if all of them are complete."""
        namespace = self.pod["metadata"]["namespace"]
        for volume in volumes.supported_volumes(self.pod):
            read = {}
            for resource, name in volumes.sources(volume):
                read[resource, name] = await self._node.api.read_files(resource, namespace, name)
            tokens = {}
            for audience, seconds in volumes.tokens(volume):
                token = await self._node.api.create_token(self.pod, audience, seconds)
                tokens[audience, seconds] = token
            try:
                files = volumes.contents(self.pod, volume, read, tokens)
                volumes.write(self._volumes / volume["name"], files)
            except (volumes.MissingSource, ValueError) as error:
                message = f'MountVolume.SetUp failed for volume "{volume["name"]}" : {error}'
                self.problem = message
                await self._node.api.record_event(self.pod, "FailedMount", message)
                return False
        self.problem = ""
        return True

    @property
    def _volumes(self) -> Path:
        """The folder that contains the pod's volumes by name."""
        return self._node.runtime.folder_of(self.uid) / _VOLUMES

    async def _mounts_of(self, container: Document) -> tuple[cdi_spec.Mount, ...]:
        """Returns the container's mounts, and reports an event if this cluster cannot mount them."""
        mounts = volumes.mounts(self.pod, container, self._volumes)
        volumes.make_sub_paths(self.pod, container, self._volumes)
        if mounts and not self._node.runtime.namespace:
            message = (
                "not simulated: containers have no mounts of their own where the cluster is not "
                f"run by root: the volumes are in {self._volumes}"
            )
            await self._node.api.record_event(self.pod, "NotSimulated", message)
        return mounts

    async def _unless_ending(self, work: Coroutine[Any, Any, None]) -> None:
        """Awaits the work unless the pod is deleted.

        So a driver that hangs does not block the deletion.
        """
        task = asyncio.create_task(work)
        ending = asyncio.create_task(self._ending.wait())
        try:
            await asyncio.wait([task, ending], return_when=asyncio.FIRST_COMPLETED)
        finally:
            is_unfinished = task.cancel()
            ending.cancel()
        if not is_unfinished:
            return await task
        with contextlib.suppress(asyncio.CancelledError):
            await task

    def _compute_actions(self, sandbox: Sandbox) -> pod_actions.PodActions:
        """Returns the actions for this moment, and updates why containers wait."""
        self._probe(sandbox)
        now = time.time()
        histories = {}
        for name in {*sandbox.containers, *self._not_before}:
            attempts = sandbox.containers.get(name, [])
            history = _history(attempts, self._not_before.get(name, 0.0))
            if name in sandbox.starting:
                history = dataclasses.replace(history, is_starting=True)
            histories[name] = history

            backoff = pod_actions.restart_backoff(history, self._node.timing)
            if history.exit_code is not None and backoff and now < history.finished + backoff:
                self._waiting[name] = ("CrashLoopBackOff", self._back_off_message(name, backoff))
            elif name not in self._not_before:
                self._waiting.pop(name, None)
        return pod_actions.compute_pod_actions(self.pod, histories, now, self._node.timing)

    def _back_off_message(self, name: str, seconds: float) -> str:
        minutes, rest = divmod(seconds, 60)
        period = f"{minutes:g}m{rest:g}s" if minutes else f"{seconds:g}s"
        return f"back-off {period} restarting failed container={name} pod={self._full_name}"

    async def _record_back_offs(self) -> None:
        """Reports each container in back-off once."""
        for name, (reason, _) in list(self._waiting.items()):
            if reason == "CrashLoopBackOff":
                message = f"Back-off restarting failed container {name} in pod {self._full_name}"
                await self._node.api.record_event(self.pod, "BackOff", message)

    def _probe(self, sandbox: Sandbox) -> None:
        """Starts probes for every running attempt, and copies their results to the sandbox."""
        for name in sandbox.containers:
            latest = sandbox.latest(name)
            current = self._probes.get(name)
            if latest is None or not latest.running or self._ending.is_set():
                continue
            if current is None or current.attempt is not latest:
                current = self._probes[name] = self._new_probes(name, latest)

            if current.has_started:
                sandbox.starting.discard(name)
            else:
                sandbox.starting.add(name)
            if current.is_ready:
                sandbox.unready.discard(name)
            else:
                sandbox.unready.add(name)

    def _new_probes(self, name: str, attempt: containers.Container) -> probes.Probes:
        if name in self._probes:
            self._probes[name].stop()

        async def tell(message: str) -> None:
            await self._node.api.record_event(self.pod, "Unhealthy", message)

        async def kill(kind: str, probe: Document) -> None:
            message = f"Container {name} failed {kind} probe, will be restarted"
            await self._node.api.record_event(self.pod, "Killing", message, warning=False)
            grace = probe.get("terminationGracePeriodSeconds")
            await attempt.stop(self._grace() if grace is None else float(grace))

        spec = _container_spec(self.pod, name)
        callbacks = probes.Callbacks(changed=self._wake.set, tell=tell, kill=kill)
        started = probes.Probes(spec, attempt, callbacks)
        started.start()
        return started

    def _stop_probes(self) -> None:
        for container_probes in self._probes.values():
            container_probes.stop()

    async def _start(self, sandbox: Sandbox, name: str) -> None:
        """Starts one attempt of a container, and reports the result as an event."""
        container = _container_spec(self.pod, name)
        cdi_ids = container_config.cdi_devices(self._node.claims.uses_of(self.pod, container))
        values = {}
        for resource, source in container_config.sources(container):
            namespace = self.pod["metadata"]["namespace"]
            read = await self._node.api.read_values(resource, namespace, source)
            values[resource, source] = read

        self._not_before.pop(name, None)
        try:
            config = container_config.generate(
                self.pod, container, cdi_ids, sandbox.address, self._node.address, values
            )
            mounts = await self._mounts_of(container)
            await self._node.runtime.start(sandbox, dataclasses.replace(config, mounts=mounts))
        except container_config.MissingSource as error:
            self._waiting[name] = ("CreateContainerConfigError", str(error))
            self._not_before[name] = time.time() + self._node.timing.prepare_retry
            await self._node.api.record_event(self.pod, "Failed", f"Error: {error}")
        except cdi_spec.InvalidSpec as error:
            self._waiting[name] = ("CreateContainerError", str(error))
            self._not_before[name] = time.time() + self._node.timing.prepare_retry
            await self._node.api.record_event(self.pod, "Failed", f"Error: {error}")
        except containers.StartError as error:
            message = f"Error: cannot start container {name}: {error}"
            await self._node.api.record_event(self.pod, "Failed", message)
        else:
            self._waiting.pop(name, None)
            message = f"Container started: {name}"
            await self._node.api.record_event(self.pod, "Started", message, warning=False)

    async def _report(self, sandbox: Sandbox | None, actions: pod_actions.PodActions) -> None:
        """Writes the pod's status if the API server has another one."""

        def resource_statuses(container: Document) -> list[Document]:
            return self._node.health.resource_statuses(
                self._node.claims.uses_of(self.pod, container)
            )

        wanted = status.generate_pod_status(
            self.pod, sandbox, actions, self._waiting, resource_statuses, self._node.address
        )
        before = self.pod.get("status") or {}
        if status.differs(wanted, before):
            patch = status.generate_patch(wanted, before, timestamps.now())
            # The pod may be gone or replaced by now.
            with contextlib.suppress(errors.NotFound, errors.Conflict):
                await self._node.api.patch_pod_status(self.pod, patch)
        # Set the phase only after the write: a pod that has ended is not synced again.
        self.phase = actions.phase

    # ------------------------------------------------------------------ termination

    async def _terminate(self) -> None:
        """Stops the containers, unprepares the claims and removes the pod.

        Each step is retried until it succeeds.
        """
        sandbox = self._node.runtime.sandboxes.get(self.uid)
        if sandbox is not None:
            message = "Stopping the containers"
            await self._node.api.record_event(self.pod, "Killing", message, warning=False)
            await self._stop(sandbox)

        while True:
            try:
                await self._node.claims.unprepare(self.uid)
                if not self._deleted:
                    await self._report_end(sandbox)
                    await self._node.api.remove_pod(self.pod)
                break
            except ClaimsError as error:
                self.problem = str(error)
                await self._node.api.record_event(
                    self.pod, "FailedUnprepareDynamicResources", str(error)
                )
                pause = self._node.timing.unprepare_retry
            except errors.ApiError as error:
                log.warning("%s: %s", object_key(self.pod), error)
                pause = _WRITE_RETRY
            await asyncio.sleep(pause)

        await self._node.runtime.remove(self.uid)
        self._node.api.forget_events(self.uid)

    async def _stop(self, sandbox: Sandbox) -> None:
        """Stops the containers within the grace period, which may be shortened meanwhile."""
        self._stop_probes()
        last = pod_actions.sidecars(self.pod)[::-1]
        stopping = asyncio.create_task(self._node.runtime.stop(sandbox, self._grace(), last))
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
        if self._deleted:
            return 0.0
        grace = self.pod["metadata"].get("deletionGracePeriodSeconds")
        if grace is None:
            grace = self.pod["spec"].get("terminationGracePeriodSeconds")
        return _DEFAULT_GRACE if grace is None else float(grace)

    async def _report_end(self, sandbox: Sandbox | None) -> None:
        """Writes the final phase of a deleted pod, for clients that watch it to its end."""
        if sandbox is None or self.phase in (pod_actions.SUCCEEDED, pod_actions.FAILED):
            return
        failed = any(attempts[-1].exit_code for attempts in sandbox.containers.values())
        phase = pod_actions.FAILED if failed else pod_actions.SUCCEEDED
        await self._report(sandbox, pod_actions.PodActions(phase=phase, initialized=True))


def _relevant_part(pod: Document) -> Document:
    """Returns the fields of a pod that others write, without those that the kubelet writes."""
    metadata, pod_status = pod["metadata"], pod.get("status") or {}
    return {
        "spec": pod["spec"],
        "deletion": metadata.get("deletionTimestamp"),
        "annotations": metadata.get("annotations"),
        "claims": pod_status.get("resourceClaimStatuses"),
        "extended": pod_status.get("extendedResourceClaimStatus"),
    }


def _container_spec(pod: Document, name: str) -> Document:
    spec = pod["spec"]
    for container in (*(spec.get("initContainers") or ()), *spec["containers"]):
        if container["name"] == name:
            return container  # type: ignore[no-any-return]
    raise KeyError(name)


def _history(
    attempts: list[containers.Container], not_before: float
) -> pod_actions.ContainerHistory:
    if not attempts:
        return pod_actions.ContainerHistory(not_before=not_before)

    exits = 0
    for attempt in reversed(attempts):
        if attempt.started_at and attempt.finished_at:
            lived = attempt.finished_at - attempt.started_at
            if lived.total_seconds() > pod_actions.STABLE_AFTER:
                break
            exits += 1

    latest = attempts[-1]
    return pod_actions.ContainerHistory(
        exit_code=latest.exit_code,
        started=latest.started_at.timestamp() if latest.started_at else 0.0,
        finished=latest.finished_at.timestamp() if latest.finished_at else 0.0,
        exits=exits,
        not_before=not_before,
    )


def _earlier_starts(pod: Document) -> dict[str, int]:
    """Returns the starts by an earlier runtime, by container."""
    pod_status = pod.get("status") or {}
    starts = {}
    for field in ("containerStatuses", "initContainerStatuses"):
        for container in pod_status.get(field) or ():
            if container.get("containerID"):
                starts[container["name"]] = container.get("restartCount", 0) + 1
    return starts
