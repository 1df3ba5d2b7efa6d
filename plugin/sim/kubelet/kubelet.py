"""The kubelet of one node: builds its parts, keeps a worker for every pod, and its Node object
alive.

async with runtime.Runtime(folder / "run", [cdi]) as containers:
    kubelet = Kubelet("node-a", folder, client, containers)
    await kubelet.run()  # until cancelled; the containers go on until their runtime ends
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ... import names
from ...api.document import Document
from ...kube.client import Client
from ..runtime.runtime import Runtime
from . import claims, lifecycle, node, podresources
from .api import Api
from .health import Device, Health
from .plugins import Plugins
from .timing import Timing
from .worker import Parts, PodWorker

log = logging.getLogger(__name__)

# annotation of a pod that is only shown to the API server: others run it
MIRROR = "kubernetes.io/config.mirror"


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenContainer:
    name: str
    state: str  # waiting, running or ended
    env: Mapping[str, str]
    devices: tuple[str, ...]  # paths
    cdi: tuple[str, ...]
    log: Path | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenPod:
    """A pod as it is on the node: for pictures and for tests."""

    namespace: str
    name: str
    uid: str
    phase: str
    trouble: str
    containers: tuple[SeenContainer, ...]


class Kubelet:
    """`folder` has its sockets and its record; plugins are given it as their kubelet's folder."""

    def __init__(
        self,
        name: str,
        folder: Path,
        client: Client,
        runtime: Runtime,
        *,
        timing: Timing | None = None,
        shape: node.Shape | None = None,
    ) -> None:
        self.name = name
        self._folder, self._runtime = folder, runtime
        self._timing = timing or Timing()
        self._api = Api(client, name)
        self._node = node.Node(self._api, self._timing, shape or node.Shape())
        self._health = Health(self._timing, self._healed_or_sick)
        self.plugins = Plugins(
            folder / "plugins_registry",
            self._timing,
            lost=self._api.wipe_slices,
            watch=self._health.watch,
        )
        self.book = claims.Book(folder, self._api, self.plugins, self._timing)
        self._parts = Parts(
            api=self._api,
            book=self.book,
            health=self._health,
            runtime=runtime,
            timing=self._timing,
            address=self._node.address,
        )
        self._workers: dict[str, PodWorker] = {}  # by the pod's uid
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._changed, self._synced = asyncio.Event(), asyncio.Event()

    @property
    def pods(self) -> dict[str, SeenPod]:
        """By uid."""
        return {uid: self._seen(worker) for uid, worker in self._workers.items()}

    def logs(self, uid: str, container: str) -> str:
        return self._runtime.logs(uid, container)

    async def run(self) -> None:
        """Until cancelled. An API server that is away is waited for; a folder that cannot be
        written to is an error.
        """
        for folder in ("plugins", "plugins_registry"):
            (self._folder / folder).mkdir(parents=True, exist_ok=True)
        self.book.load()
        lister = podresources.PodResources(self._active, self.book.of)
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
            tasks = list(self._tasks.values())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await server.stop(0)

    async def _dispatch(self) -> None:
        """Every pod of the node has a worker, which hears of all that changes."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            if not self._api.pods.synced:
                continue
            self._synced.set()
            now = self._listed()
            for uid, pod in now.items():
                if uid in self._workers:
                    self._workers[uid].update(pod)
                else:
                    self._begin(uid, PodWorker(self._parts, pod))
            for uid, worker in self._workers.items():
                if uid not in now:
                    worker.update(None)
            for uid in self._runtime.sandboxes.keys() - self._workers.keys():
                await self._runtime.remove(uid)  # of a pod that went while there was no kubelet

    def _listed(self) -> dict[str, Document]:
        """The pods that are ours to run, by uid."""
        every = self._api.pods.objects.values()
        return {
            pod["metadata"]["uid"]: pod
            for pod in every
            if MIRROR not in (pod["metadata"].get("annotations") or {})
        }

    def _begin(self, uid: str, worker: PodWorker) -> None:
        def ended(task: asyncio.Task[None]) -> None:
            self._workers.pop(uid, None)
            self._tasks.pop(uid, None)
            if not task.cancelled() and (error := task.exception()) is not None:
                log.error("the pod %s is given up", uid, exc_info=error)

        self._workers[uid] = worker
        task = self._tasks[uid] = asyncio.create_task(worker.run(), name=f"pod {uid}")
        task.add_done_callback(ended)

    async def _reconcile(self) -> None:
        """Gives back claims of pods that went without us."""
        while True:
            await self._synced.wait()
            known = self._listed().keys() | self._workers.keys()
            for uid in {uid for entry in self.book.entries.values() for uid in entry.pods} - known:
                try:
                    await self.book.unprepare(uid)
                except claims.ClaimsError as error:
                    log.warning("claims of the pod %s, which is gone: %s", uid, error)
            await asyncio.sleep(self._timing.reconcile)

    def _healed_or_sick(self, devices: set[Device]) -> None:
        for uid in self.book.users_of(devices):
            if (worker := self._workers.get(uid)) is not None:
                worker.wake()

    def _active(self) -> list[Document]:
        return [
            worker.pod
            for worker in self._workers.values()
            if worker.phase not in (lifecycle.SUCCEEDED, lifecycle.FAILED)
        ]

    def _seen(self, worker: PodWorker) -> SeenPod:
        sandbox = self._runtime.sandboxes.get(worker.uid)
        seen = []
        for container in (
            *(worker.pod["spec"].get("initContainers") or ()),
            *worker.pod["spec"]["containers"],
        ):
            latest = sandbox.latest(container["name"]) if sandbox is not None else None
            seen.append(
                SeenContainer(
                    name=container["name"],
                    state="waiting" if latest is None else "running" if latest.running else "ended",
                    env=latest.env if latest is not None else {},
                    devices=latest.devices if latest is not None else (),
                    cdi=latest.merged.ids if latest is not None else (),
                    log=latest.log if latest is not None else None,
                )
            )
        meta = worker.pod["metadata"]
        return SeenPod(
            namespace=meta["namespace"],
            name=meta["name"],
            uid=worker.uid,
            phase=worker.phase,
            trouble=worker.trouble,
            containers=tuple(seen),
        )
