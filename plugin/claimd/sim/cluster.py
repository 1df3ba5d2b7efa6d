"""A whole cluster in one process: API server, scheduler, controllers, kubelets and claimd.

This module starts and stops the parts. They communicate only over HTTP and unix sockets.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import logging
import math
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from claimd.common import names, timestamps
from claimd.common.errors import UsageError
from claimd.kubernetes.api.document import Document
from claimd.kubernetes.kube import client, errors, kubeconfig
from claimd.kubernetes.scheduling import binding_conditions
from claimd_devices import fake, faults

from . import (
    controllers,
    crash,
    daemon,
    dynamic_client,
    manifests,
    requests,
    scheduler,
    simulated_fields,
    upstream,
)
from .apiserver import kinds as served_kinds
from .apiserver import server
from .client import ApiClient
from .controllers import loops, templates, workloads
from .kubelet import kubelet as kubelets
from .kubelet.timing import Timing
from .runtime.executed import Executed
from .runtime.runtime import Runtime

log = logging.getLogger(__name__)

# Earlier releases lack a version of the resource API that claimd and the simulated scheduler
# support.
RELEASES = ("1.34", "1.35", "1.36", "1.37", "1.38")
NAMESPACE, DRIVER, ACCOUNT = "claimd-system", "gpu.claimd.dev", "claimd"
WITH_CLAIMD = {
    "claimd.dev/simulated": "claimd"
}  # the label of nodes with claimd, if others lack it
_TOKEN_SECONDS = 10 * 365 * 86400
# Retries come within a second, where a real kubelet takes a minute or more.
TIMING = Timing(registry_poll=0.25, prepare_retry=1.0, unprepare_retry=1.0, health_retry=0.5)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Machine:
    """The configuration of a node."""

    name: str
    gpus: Sequence[str]  # as `claimd fake write` takes them
    settings: Mapping[str, str] = dataclasses.field(
        default_factory=dict
    )  # of the node's `claimd run`
    claimd: bool = True  # False if the node waits for another driver


@dataclasses.dataclass(frozen=True, kw_only=True)
class Programs:
    """Kubernetes' own programs that replace simulated parts; None means simulated.

    The kube-controller-manager runs the controllers in `enabled`, in the syntax of its flag, and
    replaces the simulated loops in `replaced`. With either scheduler, allocated devices have
    `binding_timeout` seconds to become ready.
    """

    scheduler: Path | None = None
    controllers: Path | None = None
    enabled: str = "*"
    replaced: Collection[object] = tuple(
        controller for controller in loops.ALL if controller is not loops.NotSimulated
    )
    binding_timeout: float = binding_conditions.TIMEOUT


OURS = Programs()


@dataclasses.dataclass(slots=True, kw_only=True)
class Node:
    """A node with claimd."""

    name: str
    folder: Path
    daemon: daemon.Daemon

    @property
    def tree(self) -> Path:
        """The folder of its fake GPUs."""
        return self.folder / "tree"

    def crash_in_prepare(self) -> crash.CrashInPrepare:
        """Prepares a kill of the node's plugin in its next prepare."""
        checkpoints = names.plugin_folder(self.folder / "kubelet", DRIVER) / "claims"
        return crash.CrashInPrepare(self.daemon, checkpoints, self.folder / "cdi", DRIVER)


def check_release(profile: str) -> None:
    """Raises UsageError for a release that a whole cluster cannot simulate."""
    if profile not in RELEASES:
        raise UsageError(f"profile {profile!r}: a cluster can be like {', '.join(RELEASES)}")


def find_programs(
    scheduler_: str, controllers_: str, binding_timeout: float | None = None
) -> Programs:
    """Returns the programs of --scheduler and --controllers. An empty path means the simulated
    part, and None the scheduler's default.

    Raises UsageError if a program does not exist, or if the time is shorter than Kubernetes allows.
    """
    programs = OURS
    if binding_timeout is not None:
        if not 1 <= binding_timeout < math.inf:
            raise UsageError(f"--binding-timeout {binding_timeout:g}: expected a second or more")
        programs = dataclasses.replace(programs, binding_timeout=binding_timeout)
    if scheduler_:
        path = upstream.find("--scheduler", scheduler_, upstream.SCHEDULER)
        programs = dataclasses.replace(programs, scheduler=path)
    if controllers_:
        path = upstream.find("--controllers", controllers_, upstream.CONTROLLERS)
        programs = dataclasses.replace(programs, controllers=path)
    return programs


class Part:
    """A task of the cluster that can be stopped and restarted, such as the scheduler or a kubelet."""

    def __init__(self, name: str, make: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        """Creates a part without starting it; `make` creates the coroutine at every start."""
        self.name, self._make = name, make
        self._task: asyncio.Task[Any] | None = None

    @property
    def running(self) -> bool:
        return self._task is not None and not self._task.done()

    def start(self) -> None:
        """Starts the task; does nothing if it runs."""
        if not self.running:
            self._task = asyncio.create_task(self._make(), name=self.name)
            self._task.add_done_callback(_log_failure)

    async def stop(self) -> None:
        """Stops the task until `start`, and returns when it has ended."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


class Cluster:
    """A running cluster. `client` and the kubeconfig have the administrator's rights."""

    def __init__(self, api: server.Api, client_: client.Client, folder: Path) -> None:
        self.api, self.client, self.folder = api, client_, folder
        self.nodes: dict[str, Node] = {}  # those with claimd
        self.kubelets: dict[str, kubelets.Kubelet] = {}  # by node
        self.parts: dict[str, Part] = {}  # scheduler, controllers, and `kubelet NODE`
        self.kubeconfig = folder / "kubeconfig"
        self._subscribers: list[Callable[[], None]] = []

    def subscribe(self, changed: Callable[[], None]) -> None:
        """Calls `changed` when the process of a node has started or ended."""
        self._subscribers.append(changed)

    def notify(self) -> None:
        """Calls the subscribers."""
        for subscriber in self._subscribers:
            subscriber()

    def logs(self, namespace: str, pod: str, container: str = "") -> str:
        """Returns the output of a pod's containers, or of one container."""
        printed = []
        for kubelet in self.kubelets.values():
            for view in kubelet.pods.values():
                if (view.namespace, view.name) != (namespace, pod):
                    continue
                for part in view.containers:
                    if container in ("", part.name):
                        printed.append(kubelet.logs(view.uid, part.name))
        return "".join(printed)

    async def execute(
        self,
        namespace: str,
        pod: str,
        container: str,
        command: Sequence[str],
        stdin: bool,
        tty: bool,
    ) -> Executed | None:
        """Runs a command in a container; returns None if the container is not running."""
        location = self._find(namespace, pod)
        if location is None:
            return None
        kubelet, uid = location
        return await kubelet.execute(uid, container, command, stdin=stdin, tty=tty)

    def follow_logs(self, namespace: str, pod: str, container: str) -> AsyncIterator[bytes] | None:
        """Returns the output of a container until its end, or None if it has not started."""
        location = self._find(namespace, pod)
        if location is None:
            return None
        kubelet, uid = location
        return kubelet.follow(uid, container)

    def _find(self, namespace: str, pod: str) -> tuple[kubelets.Kubelet, str] | None:
        """Returns the kubelet that runs the pod, and the pod's uid, or None."""
        for kubelet in self.kubelets.values():
            for view in kubelet.pods.values():
                if (view.namespace, view.name) == (namespace, pod):
                    return kubelet, view.uid
        return None


@contextlib.asynccontextmanager
async def up(
    machines: Sequence[Machine],
    folder: Path,
    *,
    options: server.Options,
    programs: Programs = OURS,
) -> AsyncIterator[Cluster]:
    """Runs a cluster until the context ends.

    If a machine has claimd, claimd's manifests are applied. Afterwards only `folder` is left. Its
    path should be short, because sockets are below it. Raises Fatal if a program of Kubernetes does
    not start.
    """
    if programs.controllers and programs.enabled == OURS.enabled:
        # The program also creates default service accounts and collects garbage.
        options = dataclasses.replace(options, housekeeping=False)
    async with contextlib.AsyncExitStack() as stack:
        folder.mkdir(parents=True, exist_ok=True)
        api = await stack.enter_async_context(server.serve(options))
        admin = _client(stack, api.kubeconfig(folder / "kubeconfig"), "claimd-demo")
        cluster = Cluster(api, admin, folder)
        api.serve_logs(cluster.logs, cluster.follow_logs)
        api.serve_exec(cluster.execute)
        api.registry.advice = _advice
        kinds = dynamic_client.DynamicClient(admin)
        daemon_set: Document = {}
        if any(machine.claimd for machine in machines) or not machines:
            daemon_set = await _install(kinds, machines)

        runtimes = []
        for number, machine in enumerate(machines):
            runtime = Runtime(
                folder / machine.name / "run",
                [folder / machine.name / "cdi"],
                network=f"10.88.{number}",
            )
            runtimes.append(await stack.enter_async_context(runtime))
        scheduler_client = _client(stack, cluster.kubeconfig, scheduler.NAME)
        controllers_client = _client(stack, cluster.kubeconfig, controllers.NAME)
        kubelet_clients = [_client(stack, cluster.kubeconfig, "kubelet") for _ in machines]

        # Entered last, so that the tasks end before the objects that they use.
        tasks = await stack.enter_async_context(_Tasks())
        for machine, runtime, kubelet_client in zip(
            machines, runtimes, kubelet_clients, strict=True
        ):
            labels = WITH_CLAIMD if machine.claimd else {}
            metadata = {"name": machine.name, "labels": labels}
            await kinds.apply({"apiVersion": "v1", "kind": "Node", "metadata": metadata})
            _make_folders(folder / machine.name)
            if machine.claimd:
                await _add_plugin(cluster, kinds, daemon_set, machine, tasks)
            run_kubelet = functools.partial(
                _run_kubelet, cluster, machine.name, kubelet_client, runtime
            )
            cluster.parts[f"kubelet {machine.name}"] = tasks.start(
                run_kubelet, f"the kubelet of {machine.name}"
            )

        # Start the controllers after the nodes exist, or they would delete the plugins' pods.
        await _start_scheduler(cluster, tasks, programs, scheduler_client)
        await _start_controllers(cluster, tasks, programs, controllers_client)
        yield cluster


async def _start_scheduler(
    cluster: Cluster, tasks: _Tasks, programs: Programs, client_: client.Client
) -> None:
    timeout = programs.binding_timeout
    run: Callable[[], Coroutine[Any, Any, None]] = functools.partial(
        scheduler.run, client_, timeout
    )
    if programs.scheduler is None:
        cluster.parts["scheduler"] = tasks.start(run, scheduler.NAME)
        return
    program = upstream.scheduler(programs.scheduler, cluster.api, cluster.folder, timeout)
    cluster.parts["scheduler"] = tasks.start(program.run, upstream.SCHEDULER)
    await program.wait_until_ready()


async def _start_controllers(
    cluster: Cluster, tasks: _Tasks, programs: Programs, client_: client.Client
) -> None:
    """Starts the simulated controllers, or the program and those simulated ones that it does not
    replace.
    """
    if programs.controllers is None:
        run = functools.partial(controllers.run, client_)
        cluster.parts["controllers"] = tasks.start(run, controllers.NAME)
        return
    rest = functools.partial(controllers.run, client_, without=programs.replaced)
    tasks.start(rest, "the other controllers")
    program = upstream.controllers(
        programs.controllers, cluster.api, cluster.folder, programs.enabled
    )
    cluster.parts["controllers"] = tasks.start(program.run, upstream.CONTROLLERS)
    await program.wait_until_ready()


def _advice(obj: Document) -> list[str]:
    """Returns warnings about fields of the object that this cluster does not simulate."""
    kind = obj.get("kind", "")
    if served_kinds.is_kept(obj.get("apiVersion", ""), kind):
        return [f"not simulated: {kind}: {simulated_fields.KIND_IS_STORED}"]
    return simulated_fields.sentences(obj)


def _make_folders(node: Path) -> None:
    """Creates the folders that a driver expects on a node."""
    kubelet = node / "kubelet"
    for path in (kubelet / "plugins_registry", kubelet / "plugins", node / "cdi"):
        path.mkdir(parents=True, exist_ok=True)


async def _run_kubelet(
    cluster: Cluster, node: str, client_: client.Client, runtime: Runtime
) -> None:
    """Runs a new kubelet, which starts from its checkpoint and the runtime's containers."""
    kubelet = kubelets.Kubelet(
        node, cluster.folder / node / "kubelet", client_, runtime, timing=TIMING
    )
    cluster.kubelets[node] = kubelet
    await kubelet.run()


async def _add_plugin(
    cluster: Cluster,
    kinds: dynamic_client.DynamicClient,
    daemon_set: Document,
    machine: Machine,
    tasks: _Tasks,
) -> None:
    """Creates the plugin's pod and starts its process."""
    pod = await _create_plugin_pod(kinds, daemon_set, machine.name)
    node = Node(
        name=machine.name,
        folder=cluster.folder / machine.name,
        daemon=await _make_daemon(cluster, machine, pod),
    )
    cluster.nodes[node.name] = node
    tasks.start(node.daemon.run, f"claimd on {node.name}")
    report = functools.partial(_report_plugin_pod, cluster, node.daemon, pod)
    tasks.start(report, f"the pod of claimd on {node.name}")


class _Tasks(contextlib.AbstractAsyncContextManager["_Tasks"]):
    """Parts that are stopped together at the end.

    A failure of one is logged and does not stop the others: a demo without its scheduler shows
    more than no demo.
    """

    def __init__(self) -> None:
        self._parts: list[Part] = []

    def start(self, make: Callable[[], Coroutine[Any, Any, Any]], name: str) -> Part:
        part = Part(name, make)
        part.start()
        self._parts.append(part)
        return part

    async def __aexit__(self, *_: object) -> None:
        # Each part is cancelled once; a second cancellation would interrupt its cleanup.
        await asyncio.gather(*(part.stop() for part in self._parts))


def _log_failure(task: asyncio.Task[Any]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("%s has failed, which is a mistake in claimd", task.get_name(), exc_info=error)


def _client(stack: contextlib.AsyncExitStack, path: Path, agent: str) -> client.Client:
    client_ = client.Client(kubeconfig.load(path), agent=agent)
    stack.push_async_callback(client_.close)
    return client_


async def _install(kinds: dynamic_client.DynamicClient, machines: Sequence[Machine]) -> Document:
    """Applies the manifests as `kubectl apply -k deploy/base` does, and returns the DaemonSet."""
    everywhere = all(machine.claimd for machine in machines)
    daemon_set: Document = {}
    for obj in manifests.base():
        if obj["kind"] == "DaemonSet":
            # This module creates the pods, because they are processes that no kubelet runs.
            obj["spec"] |= {"updateStrategy": {"type": "OnDelete"}}
            obj["metadata"]["annotations"] = {kubelets.MIRROR: "claimd-demo"}
            if not everywhere:
                obj["spec"]["template"]["spec"]["nodeSelector"] = WITH_CLAIMD
            daemon_set = await kinds.apply(obj)
        else:
            await kinds.apply(obj)
    return daemon_set


async def _create_plugin_pod(
    kinds: dynamic_client.DynamicClient, daemon_set: Document, node: str
) -> Document:
    """Creates the DaemonSet's pod on the node.

    `claimd run` is a child process, but its token is bound to this pod, as in a real cluster.
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
            "labels": template["metadata"]["labels"] | {workloads.POD_LABEL: digest},
            "annotations": {kubelets.MIRROR: node},
            "ownerReferences": [owner],
        },
        "spec": template["spec"] | {"nodeName": node},
    }
    return await kinds.apply(pod)


async def _make_daemon(cluster: Cluster, machine: Machine, pod: Document) -> daemon.Daemon:
    """Returns the plugin's process, after creating its folders and fake GPUs."""
    folder = cluster.folder / machine.name
    kubelet_folder = folder / "kubelet"
    fake.write(folder / "tree", fake.parse(machine.gpus))
    faults.enable(folder / "tree")

    # Raises an error here if a path is too long for a socket.
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
    return daemon.Daemon(environment, folder / "claimd.log", cluster.notify)


async def _plugin_kubeconfig(cluster: Cluster, pod: Document, path: Path) -> Path:
    """Writes a kubeconfig with a token of the service account that is bound to the pod."""
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
    """Keeps the status of the plugin's pod in line with its process."""
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
