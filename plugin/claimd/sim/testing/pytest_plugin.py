"""The pytest fixtures `claimd_cluster` and `claimd_cluster_factory` (docs/ci.md).

pytest loads this module wherever claimd is installed, so it imports only the standard library,
pytest and `import_path`. The cluster runs in its own process, in
`claimd.sim.testing.conversation`.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import pytest

from claimd.common import import_path

if TYPE_CHECKING:
    import pluggy

MARKER = "claimd_cluster"
NODES = {"node-1": "nvidia:h100=2"}  # the default
_END_WITHIN = 30.0  # seconds
_LOG_LINES = 15

Document = dict[str, Any]
Manifests = str | os.PathLike[str] | Document | Sequence[Document]


class ClusterError(Exception):
    """An operation on the cluster is impossible or has timed out.

    The message describes the cluster's state.
    """


@dataclass(frozen=True)
class Node:
    """A node of the cluster, with the folders for a driver."""

    name: str
    folder: Path
    _cluster: Cluster

    @property
    def kubelet_dir(self) -> Path:
        """The kubelet's folder with plugins/ and plugins_registry/: /var/lib/kubelet on a real
        node.
        """
        return self.folder / "kubelet"

    @property
    def cdi_dir(self) -> Path:
        """The folder for CDI specs, which is /var/run/cdi on a real node."""
        return self.folder / "cdi"

    @property
    def root(self) -> Path:
        """The folder with /sys, /proc and /dev of the fake machine, as `claimd fake write` creates
        it."""
        return self.folder / "tree"

    @property
    def claimd_log(self) -> Path:
        return self.folder / "claimd.log"

    def fault(self, fault: str, gpu: str, value: str = "") -> None:
        """Injects a fault into a GPU or heals it, as `claimd fake fault` does."""
        __tracebackhide__ = True
        self._cluster.ask("fault", node=self.name, fault=fault, device=gpu, value=value)

    def kill_claimd(self) -> None:
        """Kills claimd with SIGKILL; it restarts like a pod of a DaemonSet."""
        __tracebackhide__ = True
        self._cluster.ask("kill", node=self.name)

    def stop(self, part: str = "claimd") -> None:
        """Stops `claimd` or the `kubelet` of the node until `start`.

        Containers keep running, as on a real node.
        """
        __tracebackhide__ = True
        self._cluster.ask("stop", part=part, node=self.name)

    def start(self, part: str = "claimd") -> None:
        __tracebackhide__ = True
        self._cluster.ask("start", part=part, node=self.name)

    def restart(self, part: str = "claimd") -> None:
        __tracebackhide__ = True
        self.stop(part)
        self.start(part)


class Cluster:
    """A running cluster. Its methods raise ClusterError."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        """Configures a cluster; `bring_up` starts it."""
        self._options = options
        self._lock = threading.Lock()
        self._number = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._errors: IO[bytes] | None = None
        self.folder = Path()
        self.address = ""
        self.nodes: dict[str, Node] = {}

    def bring_up(self) -> None:
        """Starts the cluster. Returns when all nodes are ready and every claimd has published."""
        __tracebackhide__ = True
        # A short path, because socket paths below it are limited to 107 bytes and TMPDIR may be
        # long.
        self.folder = Path(tempfile.mkdtemp(prefix="claimd-", dir="/tmp"))
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - `end` closes it
        python_path = import_path.python_path(os.environ.get("PYTHONPATH", ""))
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "claimd.sim.testing.conversation"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=os.environ | {"PYTHONPATH": python_path},
            start_new_session=True,  # so that Ctrl-C reaches only pytest
        )
        self._write({"folder": str(self.folder), **self._options})
        self.address = self._read_answer(0)["address"]
        self.nodes = {name: Node(name, self.folder / name, self) for name in self._options["nodes"]}

    def end(self) -> None:
        """Ends all processes of the cluster and removes its folder. May be repeated."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
        try:
            process.wait(_END_WITHIN)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()
        if self._errors is not None:
            self._errors.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    # ---------------------------------------------------------------- for the test's own programs

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.folder / "kubeconfig"

    @property
    def environ(self) -> dict[str, str]:
        """This process's environment with KUBECONFIG, for programs that use the cluster."""
        return os.environ | {"KUBECONFIG": str(self.kubeconfig)}

    # ---------------------------------------------------------------- objects

    def apply(self, manifests: Manifests, namespace: str = "default") -> list[Document]:
        """Creates or updates the objects, and returns them as stored.

        `manifests` is a file, a folder of files, YAML text, an object, or several objects.
        """
        __tracebackhide__ = True
        arguments: dict[str, Any] = {"objects": manifests}
        if isinstance(manifests, dict):
            arguments = {"objects": [manifests]}
        elif isinstance(manifests, os.PathLike) or _is_path(manifests):
            arguments = {"path": os.path.abspath(os.fspath(manifests))}  # type: ignore[arg-type]
        elif isinstance(manifests, str):
            arguments = {"content": manifests}
        applied: list[Document] = self.ask("apply", namespace=namespace, **arguments)
        return applied

    def get(self, what: str, namespace: str = "default") -> Document:
        """Returns an object such as `pod/trainer`; any name that kubectl knows for the kind works."""
        __tracebackhide__ = True
        obj: Document = self.ask("get", what=what, namespace=namespace)
        return obj

    def list(self, kind: str, namespace: str = "default") -> Sequence[Document]:
        """Returns all objects of the kind: in a namespace, or in the cluster if they have none."""
        __tracebackhide__ = True
        objects: Sequence[Document] = self.ask("list", kind=kind, namespace=namespace)
        return objects

    def delete(self, what: str, namespace: str = "default") -> None:
        """Deletes the object without waiting; `wait(what, "gone")` waits for its end."""
        __tracebackhide__ = True
        self.ask("delete", what=what, namespace=namespace)

    def logs(self, pod: str, namespace: str = "default", container: str = "") -> str:
        __tracebackhide__ = True
        printed: str = self.ask("logs", pod=pod, namespace=namespace, container=container)
        return printed

    def exec(
        self,
        pod: str,
        command: Sequence[str],
        namespace: str = "default",
        container: str = "",
        *,
        timeout: float = 30.0,
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command in a container, by default the first, as `kubectl exec` does.

        The exit code is not checked: call `check_returncode()` of the result.
        """
        __tracebackhide__ = True
        ran = self.ask(
            "exec",
            pod=pod,
            command=list(command),
            namespace=namespace,
            container=container,
            timeout=timeout,
        )
        return subprocess.CompletedProcess(list(command), ran["code"], ran["out"], ran["err"])

    # ---------------------------------------------------------------- facts

    def wait(
        self,
        what: str,
        until: str | Mapping[str, Any] | None = None,
        *,
        namespace: str = "default",
        timeout: float = 30.0,
    ) -> Document:
        """Waits until a pod is ready or any other object exists, and returns the object.

        `until` is a phase of a pod, facts as in stories ({"status.phase": "Running"},
        docs/stories.md), or "gone", which returns an empty object.
        """
        __tracebackhide__ = True
        obj = self.ask("wait", what=what, until=until, namespace=namespace, timeout=timeout)
        return obj or {}

    def explain(self, pod: str, namespace: str = "default") -> str:
        """Returns the output of `claimd explain` for the pod."""
        __tracebackhide__ = True
        explanation: str = self.ask("explain", pod=pod, namespace=namespace)
        return explanation

    def describe(self) -> str:
        """Describes unhealthy pods, with events and explanations; empty if all are healthy."""
        description: str = self.ask("describe")
        return description

    # ---------------------------------------------------------------- parts that fail

    def stop(self, part: str) -> None:
        """Stops `apiserver`, `scheduler` or `controllers` until `start`.

        A stopped API server refuses connections, and keeps its objects.
        """
        __tracebackhide__ = True
        self.ask("stop", part=part, node="")

    def start(self, part: str) -> None:
        __tracebackhide__ = True
        self.ask("start", part=part, node="")

    def restart(self, part: str) -> None:
        __tracebackhide__ = True
        self.stop(part)
        self.start(part)

    # ---------------------------------------------------------------- the conversation

    def ask(self, operation: str, **arguments: Any) -> Any:
        """Returns the result of an operation in the cluster's process."""
        __tracebackhide__ = True
        with self._lock:
            self._number += 1
            self._write({"id": self._number, "do": operation, "with": arguments})
            return self._read_answer(self._number)

    def _write(self, asked: Mapping[str, Any]) -> None:
        __tracebackhide__ = True
        if self._process is None:
            raise ClusterError("the cluster has been ended")
        assert self._process.stdin is not None
        line = json.dumps(asked).encode() + b"\n"
        # If the process is gone, the read reports it.
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(line)
            self._process.stdin.flush()

    def _read_answer(self, number: int) -> Any:
        """Returns the answer with this number, and skips answers to interrupted requests."""
        __tracebackhide__ = True
        assert self._process is not None
        assert self._process.stdout is not None
        while line := self._process.stdout.readline():
            answer = json.loads(line)
            if answer["id"] != number:
                continue
            if "refused" in answer:
                raise ClusterError(answer["refused"])
            return answer["gives"]

        code = self._process.wait()
        raise ClusterError(
            f"the cluster's process has ended with exit code {code}:\n{self._end_of_errors()}"
        )

    def _end_of_errors(self) -> str:
        assert self._errors is not None
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").splitlines()
        return "\n".join(lines[-_LOG_LINES:])


class ClusterFactory:
    """Starts clusters that end with the session at the latest."""

    def __init__(self) -> None:
        self._clusters: list[Cluster] = []

    def __call__(
        self,
        nodes: Mapping[str, Any] | Sequence[str] | None = None,
        *,
        profile: str = "",
        scheduler: str | os.PathLike[str] = "",
        controllers: str | os.PathLike[str] = "",
        binding_timeout: float | None = None,
    ) -> Cluster:
        """Starts a cluster and returns it when it is ready.

        `nodes` maps names to GPUs, as `claimd fake write` takes them: {"a": "nvidia:h100=2
        amd:mi300x", "b": "machine:dgx-h100"}. {"a": {"gpus": …, "settings": {…}}} adds settings
        of claimd. ["a", "b"] or {"a": ""} creates nodes without claimd, for another driver.
        `profile` is the simulated release of Kubernetes. `scheduler` and `controllers` are paths
        of a kube-scheduler and a kube-controller-manager that replace the simulated ones. Devices
        with binding conditions have `binding_timeout` seconds to become ready, by default 600.
        """
        __tracebackhide__ = True
        if nodes is None:
            nodes = NODES
        if not isinstance(nodes, Mapping):
            nodes = dict.fromkeys(nodes, "")
        cluster = Cluster(
            {
                "nodes": dict(nodes),
                "profile": profile,
                "scheduler": os.fspath(scheduler),
                "controllers": os.fspath(controllers),
                "binding_timeout": binding_timeout,
            }
        )
        self._clusters.append(cluster)
        try:
            cluster.bring_up()
        except BaseException:
            cluster.end()
            raise
        return cluster

    def end(self) -> None:
        for cluster in self._clusters:
            cluster.end()


def _is_path(manifests: object) -> bool:
    """Returns True for one line that is not YAML of an object.

    A misspelled path is then reported as such.
    """
    return isinstance(manifests, str) and "\n" not in manifests and ": " not in manifests


# ---------------------------------------------------------------- pytest's side


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        f"{MARKER}(nodes=…, profile=…): what the fixture of this name gives a test; docs/ci.md",
    )


@pytest.fixture(scope="session")
def claimd_cluster_factory() -> Iterator[ClusterFactory]:
    """Starts clusters, for fixtures of wider scope: `claimd_cluster_factory(nodes={…})`."""
    factory = ClusterFactory()
    yield factory
    factory.end()


@pytest.fixture
def claimd_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Starts a cluster for one test, configured by its marker, its module or its parameter."""
    __tracebackhide__ = True
    options: dict[str, Any] = {}
    for marker in reversed(list(request.node.iter_markers(MARKER))):
        options |= marker.kwargs
    options |= getattr(request, "param", None) or {}

    factory = ClusterFactory()
    try:
        yield factory(**options)
    finally:
        factory.end()


@pytest.hookimpl(hookwrapper=True)  # which pytest 7 knows, too
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pluggy.Result[pytest.TestReport], None]:
    """Adds the cluster's state to the report of a failed test."""
    report = (yield).get_result()
    is_described = call.excinfo is None or call.excinfo.errisinstance(ClusterError)
    if report.when == "call" and report.failed and not is_described:
        _add_accounts(item, report)


def _add_accounts(item: pytest.Item, report: pytest.TestReport) -> None:
    for name, value in getattr(item, "funcargs", {}).items():
        if isinstance(value, Cluster):
            with contextlib.suppress(ClusterError):
                if description := value.describe():
                    title = f"what the cluster of {name} saw"
                    report.sections.append((title, description))
