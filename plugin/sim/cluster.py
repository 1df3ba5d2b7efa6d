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
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from devices import fake, faults

from .. import names, timestamps
from ..api.document import Document
from ..kube import client, errors, kubeconfig
from . import (
    controllers,
    crash,
    daemon,
    dynamic_client,
    manifests,
    requests,
    scheduler,
    simulated_fields,
)
from .apiserver import server
from .client import ApiClient
from .controllers import templates
from .kubelet import kubelet as kubelets
from .kubelet.timing import Timing
from .runtime.runtime import Runtime

log = logging.getLogger(__name__)

NAMESPACE, DRIVER, ACCOUNT = "claimd-system", "gpu.claimd.dev", "claimd"
_TOKEN_SECONDS = 10 * 365 * 86400
# A real kubelet takes a minute or more where this takes a second.
TIMING = Timing(registry_poll=0.25, prepare_retry=1.0, unprepare_retry=1.0, health_retry=0.5)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Machine:
    """A node as somebody wants it."""

    name: str
    gpus: Sequence[str]  # as `claimd fake write` takes them
    settings: Mapping[str, str] = dataclasses.field(default_factory=dict)  # of its `claimd run`


@dataclasses.dataclass(slots=True, kw_only=True)
class Node:
    name: str
    folder: Path
    daemon: daemon.Daemon
    kubelet: kubelets.Kubelet

    @property
    def tree(self) -> Path:
        """Its fake GPUs."""
        return self.folder / "tree"

    def crash_in_prepare(self) -> crash.CrashInPrepare:
        """A kill of its plugin that waits for a prepare."""
        checkpoints = names.plugin_folder(self.folder / "kubelet", DRIVER) / "claims"
        return crash.CrashInPrepare(self.daemon, checkpoints, self.folder / "cdi", DRIVER)


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

    def changed(self) -> None:
        for subscriber in self._subscribers:
            subscriber()

    def logs(self, namespace: str, pod: str, container: str = "") -> str:
        """What the containers of a pod have printed so far, or one of them."""
        printed = []
        for node in self.nodes.values():
            for view in node.kubelet.pods.values():
                if (view.namespace, view.name) != (namespace, pod):
                    continue
                for part in view.containers:
                    if container in ("", part.name):
                        printed.append(node.kubelet.logs(view.uid, part.name))
        return "".join(printed)


@contextlib.asynccontextmanager
async def up(
    machines: Sequence[Machine], folder: Path, *, options: server.Options
) -> AsyncIterator[Cluster]:
    """Running, with claimd's manifests applied, until the context ends.

    Then nothing is left of it but `folder`. The path should be short, as sockets lie below it.
    """
    async with contextlib.AsyncExitStack() as stack:
        folder.mkdir(parents=True, exist_ok=True)
        api = await stack.enter_async_context(server.serve(options))
        admin = _client(stack, api.kubeconfig(folder / "kubeconfig"), "claimd-demo")
        cluster = Cluster(api, admin, folder)
        api.serve_logs(cluster.logs)
        api.registry.advice = simulated_fields.sentences
        kinds = dynamic_client.DynamicClient(admin)
        daemon_set = await _install(kinds)

        runtimes = []
        for number, machine in enumerate(machines):
            runtime = Runtime(
                folder / machine.name / "run",
                [folder / machine.name / "cdi"],
                network=f"10.88.{number}",
            )
            runtimes.append(await stack.enter_async_context(runtime))
        part_clients = [
            (part, _client(stack, cluster.kubeconfig, part.NAME))
            for part in (scheduler, controllers)
        ]
        kubelet_clients = [_client(stack, cluster.kubeconfig, "kubelet") for _ in machines]

        # Entered last, so that the tasks end before what they use.
        tasks = await stack.enter_async_context(_Tasks())
        for machine, runtime, kubelet_client in zip(
            machines, runtimes, kubelet_clients, strict=True
        ):
            kubelet = kubelets.Kubelet(
                machine.name,
                folder / machine.name / "kubelet",
                kubelet_client,
                runtime,
                timing=TIMING,
            )
            await _add_node(cluster, kinds, daemon_set, machine, kubelet, tasks)

        # The controllers would take the plugins' pods for mistakes while there are no nodes.
        for part, part_client in part_clients:
            tasks.start(part.run(part_client), part.NAME)
        yield cluster


async def _add_node(
    cluster: Cluster,
    kinds: dynamic_client.DynamicClient,
    daemon_set: Document,
    machine: Machine,
    kubelet: kubelets.Kubelet,
    tasks: _Tasks,
) -> None:
    """The Node object, the plugin's pod and process, and the kubelet."""
    await kinds.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": machine.name}})
    pod = await _create_plugin_pod(kinds, daemon_set, machine.name)
    node = Node(
        name=machine.name,
        folder=cluster.folder / machine.name,
        daemon=await _make_daemon(cluster, machine, pod),
        kubelet=kubelet,
    )
    cluster.nodes[node.name] = node
    tasks.start(kubelet.run(), f"the kubelet of {node.name}")
    tasks.start(node.daemon.run(), f"claimd on {node.name}")
    tasks.start(_report_plugin_pod(cluster, node.daemon, pod), f"the pod of claimd on {node.name}")


class _Tasks(contextlib.AbstractAsyncContextManager["_Tasks"]):
    """Cancelled at the end, all at once.

    One that fails before is told in the log, and the others go on: a demo shows more with a
    scheduler than without one.
    """

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[Any]] = []

    def start(self, work: Coroutine[Any, Any, Any], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        task.add_done_callback(_log_failure)
        self._tasks.append(task)

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _log_failure(task: asyncio.Task[Any]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("%s has failed, which is a mistake in claimd", task.get_name(), exc_info=error)


def _client(stack: contextlib.AsyncExitStack, path: Path, agent: str) -> client.Client:
    client_ = client.Client(kubeconfig.load(path), agent=agent)
    stack.push_async_callback(client_.close)
    return client_


async def _install(kinds: dynamic_client.DynamicClient) -> Document:
    """What `kubectl apply -k deploy/base` does. The DaemonSet as it is then."""
    daemon_set: Document = {}
    for obj in manifests.base():
        if obj["kind"] == "DaemonSet":
            # Its pods are ours to make: they are processes, and not the kubelet's.
            obj["spec"] |= {"updateStrategy": {"type": "OnDelete"}}
            obj["metadata"]["annotations"] = {kubelets.MIRROR: "claimd-demo"}
            daemon_set = await kinds.apply(obj)
        else:
            await kinds.apply(obj)
    return daemon_set


async def _create_plugin_pod(
    kinds: dynamic_client.DynamicClient, daemon_set: Document, node: str
) -> Document:
    """The DaemonSet's pod on the node.

    `claimd run` is a process of ours, but its token is bound to a pod, as in a real cluster.
    """
    metadata, template = daemon_set["metadata"], daemon_set["spec"]["template"]
    owner = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    digest = templates.template_hash(template)
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{metadata['name']}-{node}",
            "namespace": NAMESPACE,
            "labels": template["metadata"]["labels"] | {templates.TEMPLATE_HASH: digest},
            "annotations": {kubelets.MIRROR: node},
            "ownerReferences": [owner],
        },
        "spec": template["spec"] | {"nodeName": node},
    }
    return await kinds.apply(pod)


async def _make_daemon(cluster: Cluster, machine: Machine, pod: Document) -> daemon.Daemon:
    """The plugin of a node, with its folders and its fake GPUs."""
    folder = cluster.folder / machine.name
    kubelet_folder = folder / "kubelet"
    for path in (kubelet_folder / "plugins_registry", kubelet_folder / "plugins", folder / "cdi"):
        path.mkdir(parents=True, exist_ok=True)
    fake.write(folder / "tree", fake.parse(machine.gpus))
    faults.enable(folder / "tree")

    # Refused here if a path is too long for a socket.
    uid = pod["metadata"]["uid"]
    names.dra_socket(kubelet_folder, DRIVER, uid)
    names.registration_socket(kubelet_folder, DRIVER, uid)

    settings = {
        "node-name": machine.name,
        "pod-uid": uid,
        "root": str(folder / "tree"),
        "kubelet-dir": str(kubelet_folder),
        "cdi-dir": str(folder / "cdi"),
        "kubeconfig": str(await _plugin_kubeconfig(cluster, pod, folder / "kubeconfig")),
        "log-format": "text",
        **machine.settings,
    }
    environment = {
        f"CLAIMD_{name.replace('-', '_').upper()}": value for name, value in settings.items()
    }
    return daemon.Daemon(environment, folder / "claimd.log", cluster.changed)


async def _plugin_kubeconfig(cluster: Cluster, pod: Document, path: Path) -> Path:
    """As the service account, by a token that is bound to the pod, as a kubelet would mount one."""
    metadata = pod["metadata"]
    bound = {"kind": "Pod", "apiVersion": "v1", "name": metadata["name"], "uid": metadata["uid"]}
    body = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"audiences": [], "expirationSeconds": _TOKEN_SECONDS, "boundObjectRef": bound},
    }
    token_path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{ACCOUNT}/token"
    answer = await cluster.client.request("POST", token_path, body=msgspec.json.encode(body))
    token = msgspec.json.decode(answer)["status"]["token"]
    return cluster.api.kubeconfig(path, token=token, namespace=NAMESPACE)


async def _report_plugin_pod(cluster: Cluster, daemon_: daemon.Daemon, pod: Document) -> None:
    """Keeps the status of the plugin's pod as its process is."""
    api = ApiClient(cluster.client)
    changed = asyncio.Event()
    cluster.subscribe(changed.set)
    while True:
        changed.clear()
        status = _plugin_pod_status(daemon_, timestamps.now())
        try:
            await api.send(requests.patch_status("pods", pod, status))
        except errors.ApiError as error:
            log.warning("the pod of claimd is not shown as it is: %s", error)
        await changed.wait()


def _plugin_pod_status(daemon_: daemon.Daemon, now: str) -> Document:
    running = daemon_.state == daemon.RUNNING
    state: Document = {"running": {"startedAt": now}}
    if not running:
        state = {"waiting": {"reason": daemon_.state.capitalize()}}
    container = {
        "name": "claimd",
        "image": "claimd",
        "imageID": "",
        "ready": running,
        "started": running,
        "state": state,
        "restartCount": daemon_.restarts,
    }
    return {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": str(running), "lastTransitionTime": now}],
        "containerStatuses": [container],
    }
