"""A whole cluster in one process: API server, scheduler, controllers, and nodes with a kubelet and
a real `claimd run`.

Brings it up and takes it down; what happens in it is decided by its parts, which talk to each other
over HTTP and unix sockets alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from devices import fake, faults

from .. import names, timestamps
from ..api.document import Document
from ..kube import client, errors, kubeconfig
from . import client as sim_client
from . import controllers, crash, daemon, dynamic_client, manifests, scheduler
from .apiserver import server
from .controllers import workloads
from .kubelet.kubelet import Kubelet
from .kubelet.timing import Timing
from .runtime.runtime import Runtime

log = logging.getLogger(__name__)


NAMESPACE, DRIVER, ACCOUNT = "claimd-system", "gpu.claimd.dev", "claimd"
MIRROR = "kubernetes.io/config.mirror"  # of a pod that others run than the kubelet
_TOKEN_SECONDS = 10 * 365 * 86400
# A real kubelet takes a minute or more where this takes a second.
TIMING = Timing(glance=0.25, prepare_again=1.0, unprepare_again=1.0, health_again=0.5)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Machine:
    """A node as somebody wants it."""

    name: str
    gpus: Sequence[str]  # as `claimd fake write` takes them
    settings: Mapping[str, str] = dataclasses.field(
        default_factory=dict
    )  # of its `claimd run`, by key


@dataclasses.dataclass(slots=True, kw_only=True)
class Node:
    name: str
    folder: Path
    daemon: daemon.Daemon
    kubelet: Kubelet

    @property
    def tree(self) -> Path:
        """Its fake GPUs."""
        return self.folder / "tree"

    def strike(self) -> crash.CrashInPrepare:
        """A kill of its plugin that lies in wait for a prepare."""
        records = names.plugin_folder(self.folder / "kubelet", DRIVER) / "claims"
        return crash.CrashInPrepare(self.daemon, records, self.folder / "cdi", DRIVER)


class Cluster:
    """`client` speaks as the administrator, as does the kubeconfig."""

    def __init__(self, api: server.Api, client_: client.Client, folder: Path) -> None:
        self.api, self.client, self.folder = api, client_, folder
        self.nodes: dict[str, Node] = {}
        self.kubeconfig = folder / "kubeconfig"
        self._subscribers: list[Callable[[], None]] = []

    def subscribe(self, changed: Callable[[], None]) -> None:
        """`changed` is called when the process of a node has come or gone."""
        self._subscribers.append(changed)

    def logs(self, namespace: str, pod: str, name: str = "") -> str:
        """What the containers of a pod have printed so far, or one of them."""
        found = [
            node.kubelet.logs(seen.uid, container.name)
            for node in self.nodes.values()
            for seen in node.kubelet.pods.values()
            if (seen.namespace, seen.name) == (namespace, pod)
            for container in seen.containers
            if name in ("", container.name)
        ]
        return "".join(found)

    def changed(self) -> None:
        for subscriber in self._subscribers:
            subscriber()


@contextlib.asynccontextmanager
async def up(
    machines: Sequence[Machine], folder: Path, *, options: server.Options
) -> AsyncIterator[Cluster]:
    """Running, with claimd's manifests applied, until the context ends; then nothing is left of it
    but `folder`.
    """
    async with contextlib.AsyncExitStack() as stack:
        folder.mkdir(parents=True, exist_ok=True)
        api = await stack.enter_async_context(server.serve(options))
        admin = _client(stack, api.kubeconfig(folder / "kubeconfig"), "claimd-demo")
        cluster = Cluster(api, admin, folder)
        api.serve_logs(cluster.logs)
        kinds = dynamic_client.DynamicClient(admin)
        daemonset = await _install(kinds)
        runtimes = [
            await stack.enter_async_context(
                Runtime(
                    folder / machine.name / "run",
                    [folder / machine.name / "cdi"],
                    network=f"10.88.{number}",
                )
            )
            for number, machine in enumerate(machines)
        ]
        parts = [
            (part, _client(stack, cluster.kubeconfig, part.NAME))
            for part in (scheduler, controllers)
        ]
        agents = [_client(stack, cluster.kubeconfig, "kubelet") for _ in machines]
        group = await stack.enter_async_context(_Tasks())  # ends before what it uses
        for machine, runtime, agent in zip(machines, runtimes, agents, strict=True):
            kubelet = Kubelet(
                machine.name, folder / machine.name / "kubelet", agent, runtime, timing=TIMING
            )
            await kinds.apply(
                {"apiVersion": "v1", "kind": "Node", "metadata": {"name": machine.name}}
            )
            pod = await _pod(kinds, daemonset, machine.name)
            node = Node(
                name=machine.name,
                folder=folder / machine.name,
                daemon=await _daemon(cluster, machine, pod),
                kubelet=kubelet,
            )
            cluster.nodes[node.name] = node
            group.start(kubelet.run(), f"the kubelet of {node.name}")
            group.start(node.daemon.run(), f"claimd on {node.name}")
            group.start(_report(cluster, node.daemon, pod), f"the pod of claimd on {node.name}")
        for (
            part,
            its_client,
        ) in parts:  # last: they would take the plugins' pods for mistakes while there are no nodes
            group.start(part.run(its_client), part.NAME)
        yield cluster


class _Tasks(contextlib.AbstractAsyncContextManager["_Tasks"]):
    """Cancelled at the end, all at once. One that fails before is told in the log; the others go
    on.
    """

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[Any]] = []

    def start(self, work: Any, name: str) -> None:
        task = asyncio.create_task(work, name=name)
        task.add_done_callback(_told)
        self._tasks.append(task)

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _told(task: asyncio.Task[Any]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("%s has failed, which is a mistake in claimd", task.get_name(), exc_info=error)


def _client(stack: contextlib.AsyncExitStack, path: Path, agent: str) -> client.Client:
    made = client.Client(kubeconfig.load(path), agent=agent)
    stack.push_async_callback(made.close)
    return made


async def _install(kinds: dynamic_client.DynamicClient) -> Document:
    """What `kubectl apply -k deploy/base` does. The DaemonSet as it is then."""
    daemonset: Document = {}
    for obj in manifests.base():
        if obj["kind"] == "DaemonSet":
            obj["spec"] |= {"updateStrategy": {"type": "OnDelete"}}  # its pods are ours to make
            daemonset = await kinds.apply(obj)
        else:
            await kinds.apply(obj)
    return daemonset


async def _daemon(cluster: Cluster, machine: Machine, pod: Document) -> daemon.Daemon:
    """The plugin of a node, with its folders and its fake GPUs."""
    folder = cluster.folder / machine.name
    kubelet = folder / "kubelet"
    for path in (kubelet / "plugins_registry", kubelet / "plugins", folder / "cdi"):
        path.mkdir(parents=True, exist_ok=True)
    fake.write(folder / "tree", fake.parse(machine.gpus))
    faults.enable(folder / "tree")
    uid = pod["metadata"]["uid"]
    names.dra_socket(kubelet, DRIVER, uid)  # refused here if a path is too long for a socket
    names.registration_socket(kubelet, DRIVER, uid)
    settings = {
        "node-name": machine.name,
        "pod-uid": uid,
        "root": str(folder / "tree"),
        "kubelet-dir": str(kubelet),
        "cdi-dir": str(folder / "cdi"),
        "kubeconfig": str(await _kubeconfig(cluster, pod, folder / "kubeconfig")),
        "log-format": "text",
        **machine.settings,
    }
    environment = {
        f"CLAIMD_{key.replace('-', '_').upper()}": value for key, value in settings.items()
    }
    return daemon.Daemon(environment, folder / "claimd.log", cluster.changed)


async def _pod(kinds: dynamic_client.DynamicClient, daemonset: Document, node: str) -> Document:
    """The DaemonSet's pod on the node: `claimd run` is a process of ours, but its token is bound to
    a pod.
    """
    metadata, template = daemonset["metadata"], daemonset["spec"]["template"]
    owner = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "name": metadata["name"],
        "uid": metadata["uid"],
    }
    return await kinds.apply(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"{metadata['name']}-{node}",
                "namespace": NAMESPACE,
                "labels": template["metadata"]["labels"]
                | {workloads.HASH: workloads.digest_of_template(template)},
                "annotations": {MIRROR: node},
                "ownerReferences": [owner | {"controller": True, "blockOwnerDeletion": True}],
            },
            "spec": template["spec"] | {"nodeName": node},
        },
    )


async def _kubeconfig(cluster: Cluster, pod: Document, path: Path) -> Path:
    """As the service account, by a token that is bound to the pod, as a kubelet would mount one."""
    metadata = pod["metadata"]
    bound = {"kind": "Pod", "apiVersion": "v1", "name": metadata["name"], "uid": metadata["uid"]}
    body = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"audiences": [], "expirationSeconds": _TOKEN_SECONDS, "boundObjectRef": bound},
    }
    where = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{ACCOUNT}/token"
    answer = msgspec.json.decode(
        await cluster.client.request("POST", where, body=msgspec.json.encode(body))
    )
    return cluster.api.kubeconfig(path, token=answer["status"]["token"], namespace=NAMESPACE)


async def _report(cluster: Cluster, daemon_: daemon.Daemon, pod: Document) -> None:
    """Keeps the status of the plugin's pod as its process is."""
    changed, api = asyncio.Event(), sim_client.Api(cluster.client)
    cluster.subscribe(changed.set)
    while True:
        changed.clear()
        runs = daemon_.state == daemon.RUNNING
        now = timestamps.now()
        state = (
            {"running": {"startedAt": now}}
            if runs
            else {"waiting": {"reason": daemon_.state.capitalize()}}
        )
        container = {
            "name": "claimd",
            "image": "claimd",
            "imageID": "",
            "ready": runs,
            "started": runs,
            "state": state,
        }
        status = {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": str(runs), "lastTransitionTime": now}],
            "containerStatuses": [container | {"restartCount": daemon_.restarts}],
        }
        try:
            await api.send(sim_client.patch_status("pods", pod, status))
        except errors.ApiError as error:
            log.warning("the pod of claimd is not shown as it is: %s", error)
        await changed.wait()
