"""A node of the simulated control plane: API server, kubelet with runtime, and a real `claimd run`
on a fake tree.

The tests are the scheduler: they allocate, reserve and bind by themselves.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from claimd.kubernetes.kube import auth, client, errors
from claimd.sim.apiserver.server import Api, Options, serve
from claimd.sim.kubelet.kubelet import Kubelet
from claimd.sim.kubelet.timing import Timing
from claimd.sim.runtime.runtime import Runtime
from claimd_devices import fake, faults, scan
from claimd_devices.gpu import Roots
from tests.support import apiserver
from tests.support.worlds import DRIVER, NODE

LONG = 90.0  # seconds that a fact may take on a machine that is busy
QUICK = Timing(
    registry_poll=0.05,
    prepare_retry=0.2,
    unprepare_retry=0.2,
    wiping_delay=0.5,
    reconcile=0.3,
    health_retry=0.2,
    restart_backoff=0.3,
    registration_backoff=0.1,
)


async def until(fact: Callable[[], object], timeout: float = LONG) -> None:
    await apiserver.until(fact, timeout)


class SimNode:
    def __init__(self, folder: Path, api: Api, asker: client.Client, runtime: Runtime) -> None:
        self.folder, self.api, self.client, self.runtime = folder, api, asker, runtime
        self.kubelet: Kubelet | None = None
        self.plugins: list[asyncio.subprocess.Process] = []
        self._running: asyncio.Task[None] | None = None
        self._count = 0
        fake.write(folder / "tree", fake.parse(["amd:mi300x=2", "nvidia:h100=2"]))
        faults.enable(folder / "tree")
        self.gpus = scan.scan(Roots.in_folder(folder / "tree")).gpus

    async def start_kubelet(
        self, running: bool = True, client_: client.Client | None = None, **timing: float
    ) -> Kubelet:
        quick = dataclasses.replace(QUICK, **timing)
        asker = client_ or self.client
        self.kubelet = Kubelet(NODE, self.folder / "kubelet", asker, self.runtime, timing=quick)
        if running:
            self._running = asyncio.create_task(self.kubelet.run())
        return self.kubelet

    async def stop_kubelet(self) -> None:
        if self._running is not None:
            self._running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._running
            self._running = None

    async def start_plugin(self, **settings: object) -> asyncio.subprocess.Process:
        self._count += 1
        arguments = {
            "node-name": NODE,
            "kubelet-dir": self.folder / "kubelet",
            "cdi-dir": self.folder / "cdi",
            "root": self.folder / "tree",
            "kubeconfig": self.folder / "kubeconfig",
            **{key.replace("_", "-"): value for key, value in settings.items()},
        }
        with (self.folder / f"plugin-{self._count}.log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "claimd",
                "run",
                *(f"--{k}={v}" for k, v in arguments.items()),
                stdout=log,
                stderr=log,
            )
        self.plugins.append(process)
        return process

    async def registered(self) -> None:
        assert self.kubelet is not None
        known = self.kubelet.plugins.plugins
        await until(lambda: any(each.connected for each in known.get(DRIVER, ())))

    async def ask(self, method: str, path: str, body: Any = None, **query: str) -> Any:
        form = "application/merge-patch+json" if method == "PATCH" else "application/json"
        data = json.dumps(body).encode() if body is not None else None
        return json.loads(
            await self.client.request(method, path, query=query, body=data, content_type=form)
        )

    async def claim(
        self,
        name: str,
        *gpus: int,
        config: list[dict[str, Any]] | None = None,
        owner: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """An allocated claim, reserved for nobody yet; perhaps made for a pod, its owner."""
        metadata: dict[str, Any] = {"name": name}
        if owner:
            about = {"apiVersion": "v1", "kind": "Pod", "controller": True}
            metadata["ownerReferences"] = [
                about | {key: owner["metadata"][key] for key in ("name", "uid")}
            ]
        requests = [
            {"name": f"r{n}", "exactly": {"deviceClassName": "gpu.claimd.dev"}}
            for n in range(len(gpus))
        ]
        path = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
        await self.ask(
            "POST", path, {"metadata": metadata, "spec": {"devices": {"requests": requests}}}
        )
        results = [
            {"request": f"r{n}", "driver": DRIVER, "pool": NODE, "device": self.gpus[gpu].name}
            for n, gpu in enumerate(gpus)
        ]
        status = {"allocation": {"devices": {"results": results, "config": config or []}}}
        return await self.ask("PATCH", f"{path}/{name}/status", {"status": status})

    async def pod(
        self,
        name: str,
        *claims: str,
        command: tuple[str, ...] = (),
        reserved: bool = True,
        bound: bool = True,
        metadata: dict[str, Any] | None = None,
        **spec: Any,
    ) -> dict[str, Any]:
        """A pod that is bound to the node, with the claims reserved for it."""
        container: dict[str, Any] = {"name": "main", "image": "any", "command": list(command)}
        if claims:
            container["resources"] = {"claims": [{"name": f"c-{claim}"} for claim in claims]}
        body = {
            "metadata": {"name": name, **(metadata or {})},
            "spec": {
                "containers": [container],
                "resourceClaims": [
                    {"name": f"c-{claim}", "resourceClaimName": claim} for claim in claims
                ],
                "terminationGracePeriodSeconds": 2,
                **spec,
            },
        }
        pod = await self.ask("POST", "/api/v1/namespaces/default/pods", body)
        for claim in claims if reserved else ():
            await self.reserve(claim, pod)
        if bound:
            await self.bind(name)
        return pod

    async def bind(self, name: str) -> None:
        target = {"apiVersion": "v1", "kind": "Node", "name": NODE}
        await self.ask(
            "POST",
            f"/api/v1/namespaces/default/pods/{name}/binding",
            {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target},
        )

    async def reserve(self, claim: str, *pods: dict[str, Any]) -> None:
        users = [
            {"resource": "pods", "name": p["metadata"]["name"], "uid": p["metadata"]["uid"]}
            for p in pods
        ]
        path = f"/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/{claim}"
        known = (await self.ask("GET", path))["status"].get("reservedFor") or []
        await self.ask("PATCH", f"{path}/status", {"status": {"reservedFor": known + users}})

    async def status(self, name: str) -> dict[str, Any]:
        return (await self.ask("GET", f"/api/v1/namespaces/default/pods/{name}")).get(
            "status"
        ) or {}

    async def phase(self, name: str, phase: str, timeout: float = LONG) -> dict[str, Any]:
        return await self.wait(lambda s: s.get("phase") == phase, name, timeout)

    async def wait(self, fact: Any, name: str, timeout: float = LONG) -> dict[str, Any]:
        """The pod's status as soon as the fact is so of it."""
        status: dict[str, Any] = {}
        try:
            async with asyncio.timeout(timeout):
                while not fact(status := await self.status(name)):
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise AssertionError(
                f"{name} is not so in time: {json.dumps(status, indent=1)}"
            ) from None
        return status

    async def events(self, reason: str) -> list[str]:
        answer = await self.ask("GET", "/apis/events.k8s.io/v1/namespaces/default/events")
        return [each["note"] for each in answer["items"] if each["reason"] == reason]

    async def told(self, reason: str, part: str, timeout: float = LONG) -> None:
        """Returns when an Event with this reason has this part in its message."""
        notes: list[str] = []
        try:
            async with asyncio.timeout(timeout):
                while part not in "\n".join(notes := await self.events(reason)):
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise AssertionError(
                f"no event {reason} with {part!r}, only {notes}; {self.log()[-2000:]}"
            ) from None

    async def published(self, fact: Any = bool, timeout: float = LONG) -> dict[str, str]:
        """The slices, by uid their names, as soon as the fact is so of them."""
        async with asyncio.timeout(timeout):
            while True:
                answer = await self.ask("GET", "/apis/resource.k8s.io/v1/resourceslices")
                slices = {
                    each["metadata"]["uid"]: each["metadata"]["name"] for each in answer["items"]
                }
                if fact(slices):
                    return slices
                await asyncio.sleep(0.02)

    async def phase_of_node(self, timeout: float = LONG) -> None:
        """Returns when the Node says that it is ready and its lease is there."""
        async with asyncio.timeout(timeout):
            while True:
                with contextlib.suppress(errors.NotFound):
                    node = await self.ask("GET", f"/api/v1/nodes/{NODE}")
                    await self.ask(
                        "GET",
                        f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{NODE}",
                    )
                    if {"Ready": "True"}.items() <= {
                        c["type"]: c["status"] for c in node["status"]["conditions"]
                    }.items():
                        return
                await asyncio.sleep(0.02)

    async def delete(self, name: str, **query: str) -> None:
        await self.ask("DELETE", f"/api/v1/namespaces/default/pods/{name}", **query)

    async def gone(self, name: str, timeout: float = LONG) -> None:
        async with asyncio.timeout(timeout):
            while any(
                p["metadata"]["name"] == name
                for p in (await self.ask("GET", "/api/v1/pods"))["items"]
            ):
                await asyncio.sleep(0.02)

    async def clean(self) -> None:
        """Removes every object of a test from the API server."""
        pods = (await self.ask("GET", "/api/v1/namespaces/default/pods"))["items"]
        for pod in pods:
            grace = "0" if pod["metadata"].get("annotations") else "1"
            await self.delete(pod["metadata"]["name"], gracePeriodSeconds=grace)
        for pod in pods:
            await self.gone(pod["metadata"]["name"])
        await self.ask("DELETE", "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims")
        await self.ask("DELETE", "/apis/events.k8s.io/v1/namespaces/default/events")

    def give(self, order: str, gpu: int, value: str = "") -> None:
        """Gives an order to the fake tree."""
        faults.inject(self.folder / "tree", order, self.gpus[gpu].address, value)

    def log(self) -> str:
        """Returns what the last plugin has logged."""
        return (self.folder / f"plugin-{self._count}.log").read_text() if self._count else ""

    def records(self) -> set[str]:
        folder = self.folder / "kubelet" / "plugins" / DRIVER / "claims"
        return {path.stem for path in folder.glob("*.json")} if folder.exists() else set()


@contextlib.asynccontextmanager
async def node() -> AsyncIterator[SimNode]:
    # A folder of pytest's would be too long for the sockets.
    folder = Path(tempfile.mkdtemp(prefix="n-"))
    try:
        async with serve(Options()) as api, Runtime(folder / "run", [folder / "cdi"]) as runtime:
            api.kubeconfig(folder / "kubeconfig")
            asker = client.Client(
                auth.client_config(str(folder / "kubeconfig"), folder), agent="tests"
            )
            sim_node_ = SimNode(folder, api, asker, runtime)
            try:
                yield sim_node_
            finally:
                for process in sim_node_.plugins:
                    if process.returncode is None:
                        process.send_signal(signal.SIGKILL)
                        await process.wait()
                await sim_node_.stop_kubelet()
                await asker.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
