"""The kubelet of one node: it runs a worker for every pod, and keeps the Node object alive.

async with runtime.Runtime(folder / "run", [cdi]) as containers:
    kubelet = Kubelet("node-a", folder, client, containers)
    await kubelet.run()  # until cancelled; the containers run until their runtime ends
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from claimd.common import names
from claimd.kubernetes.api.document import Document
from claimd.kubernetes.kube.client import Client

from ..runtime.container import Container
from ..runtime.executed import Executed
from ..runtime.runtime import Runtime
from . import claim_info, node, pod_actions, podresources
from .api import KubeletApi
from .health import Device, HealthInfoCache
from .plugins import PluginRegistry
from .pod_worker import NodeServices, PodWorker
from .timing import Timing

log = logging.getLogger(__name__)

# The annotation of a mirror pod: a static pod of another kubelet, shown in the API.
MIRROR = "kubernetes.io/config.mirror"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerView:
    """A snapshot of a container of such a pod."""

    name: str
    state: str  # waiting, running or ended
    env: Mapping[str, str]
    devices: tuple[str, ...]  # paths
    cdi: tuple[str, ...]  # qualified names
    log: Path | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodView:
    """A snapshot of a pod on the node, for displays and tests."""

    namespace: str
    name: str
    uid: str
    phase: str
    problem: str
    containers: tuple[ContainerView, ...]


class Kubelet:
    """The kubelet of one node."""

    def __init__(
        self,
        name: str,
        folder: Path,
        client: Client,
        runtime: Runtime,
        *,
        timing: Timing | None = None,
        profile: node.NodeProfile | None = None,
    ) -> None:
        """Builds the kubelet's parts. `folder` holds the sockets and the checkpoint, as
        /var/lib/kubelet does."""
        self.name = name
        self._folder, self._runtime = folder, runtime
        self._timing = timing or Timing()
        self._api = KubeletApi(client, name)
        self._node = node.Node(self._api, self._timing, profile or node.NodeProfile())
        self._health = HealthInfoCache(self._timing, self._wake_users)
        self.plugins = PluginRegistry(
            folder / "plugins_registry",
            self._timing,
            wipe=self._api.wipe_slices,
            watch_health=self._health.watch,
        )
        self.claims = claim_info.ClaimInfoCache(folder, self._api, self.plugins, self._timing)
        self._services = NodeServices(
            api=self._api,
            claims=self.claims,
            health=self._health,
            runtime=runtime,
            timing=self._timing,
            address=self._node.address,
        )
        self._workers: dict[str, PodWorker] = {}  # by uid of the pod
        self._tasks: dict[str, asyncio.Task[None]] = {}  # the workers' tasks
        self._changed, self._synced = asyncio.Event(), asyncio.Event()

    @property
    def pods(self) -> dict[str, PodView]:
        """Snapshots of the node's pods, by uid."""
        return {uid: self._view(worker) for uid, worker in self._workers.items()}

    def logs(self, uid: str, container: str) -> str:
        return self._runtime.logs(uid, container)

    def follow(self, uid: str, container: str) -> AsyncIterator[bytes] | None:
        """Returns the container's output so far and until its end, or None if it has not started."""
        return self._runtime.follow(uid, container)

    async def execute(
        self, uid: str, container: str, command: Sequence[str], *, stdin: bool, tty: bool
    ) -> Executed | None:
        """Runs a command in the container; returns None if the container is not running."""
        attempt = self._runtime.running(uid, container)
        return await attempt.begin(command, stdin=stdin, tty=tty) if attempt else None

    async def run(self) -> None:
        """Runs until cancelled; the containers keep running.

        It waits while the API server is away. A folder that cannot be written to is an error.
        """
        for folder in ("plugins", "plugins_registry"):
            (self._folder / folder).mkdir(parents=True, exist_ok=True)
        self.claims.load()

        # The checkpoint is loaded before the socket opens, so that the first List is complete.
        lister = podresources.PodResources(self._active_pods, self.claims.uses_of)
        server = await podresources.serve(names.pod_resources_socket(self._folder), lister)

        self._api.pods.subscribe(self._changed.set)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._node.run(), name="node")
                group.create_task(self._api.pods.run(), name="pods")
                group.create_task(self.plugins.run(), name="plugins")
                group.create_task(self._reconcile(), name="claims that were left behind")
                group.create_task(self._dispatch(), name="workers")
        finally:
            # Cancelled workers leave their containers running.
            tasks = list(self._tasks.values())
            for task in tasks:
                task.cancel()
            try:
                await asyncio.gather(*tasks, return_exceptions=True)
            finally:
                await server.stop(0)

    async def _dispatch(self) -> None:
        """Gives every pod of the node a worker, and passes it each change."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            if not self._api.pods.has_synced:
                continue
            self._synced.set()

            pods = self._pods_to_run()
            for uid, pod in pods.items():
                if uid in self._workers:
                    self._workers[uid].update(pod)
                else:
                    self._start_worker(uid, PodWorker(self._services, pod))
            for uid, worker in self._workers.items():
                if uid not in pods:
                    worker.update(None)

            # Remove sandboxes of pods that were deleted while no kubelet ran.
            for uid in self._runtime.sandboxes.keys() - self._workers.keys():
                await self._runtime.remove(uid)

    def _pods_to_run(self) -> dict[str, Document]:
        """Returns the pods that this kubelet runs, by uid.

        Mirror pods are left out: they only show static pods, which this kubelet does not run.
        """
        pods = {}
        for pod in self._api.pods.objects.values():
            if MIRROR not in (pod["metadata"].get("annotations") or {}):
                pods[pod["metadata"]["uid"]] = pod
        return pods

    def _start_worker(self, uid: str, worker: PodWorker) -> None:
        def forget_worker(task: asyncio.Task[None]) -> None:
            self._workers.pop(uid, None)
            self._tasks.pop(uid, None)
            if not task.cancelled() and (error := task.exception()) is not None:
                log.error("the pod %s is given up", uid, exc_info=error)

        self._workers[uid] = worker
        task = self._tasks[uid] = asyncio.create_task(worker.run(), name=f"pod {uid}")
        task.add_done_callback(forget_worker)

    async def _reconcile(self) -> None:
        """Unprepares claims of pods that were deleted while no kubelet ran."""
        while True:
            await self._synced.wait()
            # Only a complete list of pods shows which pods are gone.
            users: set[str] = set()
            for info in self.claims.infos.values():
                users |= info.pods
            for uid in users - self._pods_to_run().keys() - self._workers.keys():
                try:
                    await self.claims.unprepare(uid)
                except claim_info.ClaimsError as error:
                    log.warning("claims of the pod %s, which is gone: %s", uid, error)
            await asyncio.sleep(self._timing.reconcile)

    def _wake_users(self, devices: set[Device]) -> None:
        for uid in self.claims.users_of(devices):
            if (worker := self._workers.get(uid)) is not None:
                worker.wake()

    def _active_pods(self) -> list[Document]:
        ended = (pod_actions.SUCCEEDED, pod_actions.FAILED)
        return [worker.pod for worker in self._workers.values() if worker.phase not in ended]

    def _view(self, worker: PodWorker) -> PodView:
        sandbox = self._runtime.sandboxes.get(worker.uid)
        metadata, spec = worker.pod["metadata"], worker.pod["spec"]
        containers = []
        for container in (*(spec.get("initContainers") or ()), *spec["containers"]):
            latest = None
            if sandbox is not None:
                latest = sandbox.latest(container["name"])
            containers.append(_container_view(container["name"], latest))
        return PodView(
            namespace=metadata["namespace"],
            name=metadata["name"],
            uid=worker.uid,
            phase=worker.phase,
            problem=worker.problem,
            containers=tuple(containers),
        )


def _container_view(name: str, latest: Container | None) -> ContainerView:
    if latest is None:
        return ContainerView(name=name, state="waiting", env={}, devices=(), cdi=(), log=None)
    return ContainerView(
        name=name,
        state="running" if latest.running else "ended",
        env=latest.bundle.env,
        devices=latest.devices,
        cdi=latest.bundle.edits.device_ids,
        log=latest.bundle.log,
    )
