"""The fixtures `claimd_cluster` and `claimd_cluster_factory` of pytest (docs/ci.md).

pytest loads this module wherever claimd is installed: it imports nothing but the standard library
and pytest. The cluster is a process of its own, which `claimd.sim.testing.conversation` is.
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
NODES = {"node-1": "nvidia:h100=2"}  # of whoever asks for none
_END_WITHIN = 30.0  # seconds
_LOG_LINES = 15

Document = dict[str, Any]
Manifests = str | os.PathLike[str] | Document | Sequence[Document]


class ClusterError(Exception):
    """What a test asked of its cluster cannot be, or did not come in time. The message says what
    the cluster saw.
    """


@dataclass(frozen=True)
class Node:
    """A node of the cluster, with the folders that a driver on it is given."""

    name: str
    folder: Path
    _cluster: Cluster

    @property
    def kubelet_dir(self) -> Path:
        """The kubelet's folder, with plugins/ and plugins_registry/; /var/lib/kubelet elsewhere."""
        return self.folder / "kubelet"

    @property
    def cdi_dir(self) -> Path:
        """Where a driver writes its CDI specs; /var/run/cdi elsewhere."""
        return self.folder / "cdi"

    @property
    def root(self) -> Path:
        """The /sys, /proc and /dev of the fake machine, as `claimd fake write` makes them."""
        return self.folder / "tree"

    @property
    def claimd_log(self) -> Path:
        return self.folder / "claimd.log"

    def fault(self, fault: str, gpu: str, value: str = "") -> None:
        """Makes a GPU sick, or well again, as `claimd fake fault` does."""
        __tracebackhide__ = True
        self._cluster.ask("fault", node=self.name, fault=fault, device=gpu, value=value)

    def kill_claimd(self) -> None:
        """SIGKILL; it is started again, as a DaemonSet's pod is."""
        __tracebackhide__ = True
        self._cluster.ask("kill", node=self.name)

    def stop(self, part: str = "claimd") -> None:
        """Ends `claimd` or the `kubelet` of the node, which stays away until `start`.

        Containers go on, as they do on a real node.
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
    """A cluster that runs. Its methods raise ClusterError."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        """Starts nothing: `bring_up` does."""
        self._options = options
        self._lock = threading.Lock()
        self._number = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._errors: IO[bytes] | None = None
        self.folder = Path()
        self.address = ""
        self.nodes: dict[str, Node] = {}

    def bring_up(self) -> None:
        """Returns when every node is ready and every claimd has published its devices."""
        __tracebackhide__ = True
        # Its path is short: those of sockets within may have 107 bytes, and TMPDIR may be long.
        self.folder = Path(tempfile.mkdtemp(prefix="claimd-", dir="/tmp"))
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - `end` closes it
        python_path = import_path.python_path(os.environ.get("PYTHONPATH", ""))
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "claimd.sim.testing.conversation"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=os.environ | {"PYTHONPATH": python_path},
            start_new_session=True,  # a Ctrl-C at the terminal is for pytest
        )
        self._write({"folder": str(self.folder), **self._options})
        self.address = self._read(0)["address"]
        self.nodes = {name: Node(name, self.folder / name, self) for name in self._options["nodes"]}

    def end(self) -> None:
        """Ends every process of the cluster and removes its folder. May be called again."""
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

    # ---------------------------------------------------------------- for programs of the test's own

    @property
    def kubeconfig(self) -> Path:
        """Of the administrator."""
        return self.folder / "kubeconfig"

    @property
    def environ(self) -> dict[str, str]:
        """This process's environment with KUBECONFIG, for a program that is to use the cluster."""
        return os.environ | {"KUBECONFIG": str(self.kubeconfig)}

    # ---------------------------------------------------------------- objects

    def apply(self, manifests: Manifests, namespace: str = "default") -> list[Document]:
        """Makes the objects, or changes those that are there, and gives them as they are then.

        `manifests` is a file, a folder of files, YAML as text, an object, or several.
        """
        __tracebackhide__ = True
        given: dict[str, Any] = {"objects": manifests}
        if isinstance(manifests, dict):
            given = {"objects": [manifests]}
        elif isinstance(manifests, os.PathLike) or _is_path(manifests):
            given = {"path": os.path.abspath(os.fspath(manifests))}  # type: ignore[arg-type]
        elif isinstance(manifests, str):
            given = {"content": manifests}
        applied: list[Document] = self.ask("apply", namespace=namespace, **given)
        return applied

    def get(self, what: str, namespace: str = "default") -> Document:
        """`pod/trainer`, in any word that kubectl knows for the kind."""
        __tracebackhide__ = True
        found: Document = self.ask("get", what=what, namespace=namespace)
        return found

    def list(self, kind: str, namespace: str = "default") -> Sequence[Document]:
        """All of the kind in a namespace, or in the cluster if the kind has no namespace."""
        __tracebackhide__ = True
        found: Sequence[Document] = self.ask("list", kind=kind, namespace=namespace)
        return found

    def delete(self, what: str, namespace: str = "default") -> None:
        """Returns at once; `wait(what, "gone")` waits until it is."""
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
        """A command in a container, the first if none is named, as `kubectl exec` runs it.

        Its exit code is not looked at: `check_returncode()` of the result does.
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
        """The object, once it is so: a pod that is ready, any other object that is there.

        `until` is a phase of a pod, facts as stories have them ({"status.phase": "Running"},
        docs/stories.md), or "gone", which gives an empty object.
        """
        __tracebackhide__ = True
        found = self.ask("wait", what=what, until=until, namespace=namespace, timeout=timeout)
        return found or {}

    def explain(self, pod: str, namespace: str = "default") -> str:
        """Why a pod gets no devices, in the words of `claimd explain`."""
        __tracebackhide__ = True
        told: str = self.ask("explain", pod=pod, namespace=namespace)
        return told

    def describe(self) -> str:
        """The pods that are not well, with their events and explain's words; empty if all are."""
        told: str = self.ask("describe")
        return told

    # ---------------------------------------------------------------- parts that fail

    def stop(self, part: str) -> None:
        """Ends `apiserver`, `scheduler` or `controllers`, which stays away until `start`.

        An API server that is stopped refuses connections, and keeps its objects.
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
        """What the cluster's process gives for an operation."""
        __tracebackhide__ = True
        with self._lock:
            self._number += 1
            self._write({"id": self._number, "do": operation, "with": arguments})
            return self._read(self._number)

    def _write(self, asked: Mapping[str, Any]) -> None:
        __tracebackhide__ = True
        if self._process is None:
            raise ClusterError("the cluster has been ended")
        assert self._process.stdin is not None
        line = json.dumps(asked).encode() + b"\n"
        # If it is gone, reading tells of it.
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(line)
            self._process.stdin.flush()

    def _read(self, number: int) -> Any:
        """The answer of this number; older ones belong to a question that was interrupted."""
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
    """Starts clusters that end with the session, or earlier."""

    def __init__(self) -> None:
        self._clusters: list[Cluster] = []

    def __call__(
        self,
        nodes: Mapping[str, Any] | Sequence[str] | None = None,
        *,
        profile: str = "",
        scheduler: str | os.PathLike[str] = "",
        controllers: str | os.PathLike[str] = "",
    ) -> Cluster:
        """A cluster that is ready. `nodes` are names with their GPUs.

        Such as {"a": "nvidia:h100=2 amd:mi300x", "b": "machine:dgx-h100"}, as `claimd fake write`
        takes them; {"a": {"gpus": …, "settings": {…}}} adds settings of claimd. ["a", "b"], or
        {"a": ""}, has kubelets without claimd, for another driver. `profile` is the release of
        Kubernetes to be like. `scheduler` and `controllers` are a kube-scheduler and a
        kube-controller-manager that take the place of the cluster's own.
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
    """A text of one line that is no YAML of an object: who misspells a path shall read of it."""
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
    """A cluster for one test, as its marker, its module's or its parameter says."""
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
    """Adds what the cluster saw to the report of a test that failed."""
    report = (yield).get_result()
    told_already = call.excinfo is None or call.excinfo.errisinstance(ClusterError)
    if report.when == "call" and report.failed and not told_already:
        _add_accounts(item, report)


def _add_accounts(item: pytest.Item, report: pytest.TestReport) -> None:
    for name, value in getattr(item, "funcargs", {}).items():
        if isinstance(value, Cluster):
            with contextlib.suppress(ClusterError):
                if told := value.describe():
                    report.sections.append((f"what the cluster of {name} saw", told))
