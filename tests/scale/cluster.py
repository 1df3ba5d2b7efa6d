"""The control plane that is asked: the rig's, brought up for the time of a run; and what a cluster
holds before the first plugin starts: nodes, accounts with their rights, the admission policies.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

from claimd.kubernetes.kube import kubeconfig as kubeconfigs
from tests.bench import api
from tests.bench.errors import BenchError
from tests.cluster.rig import control_plane, daemons, places

from . import layout

ROOT = Path(__file__).resolve().parents[2]
BASE = ROOT / "deploy/base"
TOKEN_SECONDS = 24 * 3600
NAMESPACE, ACCOUNT = "claimd-system", "claimd"
OTHERS = "scale-others"  # namespace of the neighbour, of claims, and of a peer's account
EXISTS, GONE = 409, 404

COLLECTIONS = {
    "Namespace": "/api/v1/namespaces",
    "ServiceAccount": "/api/v1/namespaces/{namespace}/serviceaccounts",
    "ConfigMap": "/api/v1/namespaces/{namespace}/configmaps",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "ValidatingAdmissionPolicy": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": (
        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
    ),
    "FlowSchema": "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas",
    "PriorityLevelConfiguration": (
        "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations"
    ),
}


@dataclass(frozen=True, kw_only=True)
class ControlPlane:
    """An API server, and the processes that it is made of as far as they are ours to measure."""

    kubeconfig: Path
    daemons: tuple[str, ...] = ()  # of the rig
    pid: int | None = None  # of an API server that is not the rig's

    @property
    def is_rig(self) -> bool:
        return bool(self.daemons)

    def pids(self) -> dict[str, int]:
        """What runs now, by name."""
        pids_ = {name: pid for name in self.daemons if (pid := daemons.pid_of(name))}
        return pids_ | ({"apiserver": self.pid} if self.pid else {})

    def restart(self) -> None:
        """The API server is killed, and started anew when that is done: it is back when this returns."""
        daemons.stop("apiserver", first=signal.SIGKILL)
        # A process counts as gone when its first thread is; its sockets go with the last.
        daemons.wait_for("the end of the API server that was killed", _nobody_listens)
        control_plane.start_apiserver(places.Choices.saved())

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """The API server takes no packet up and answers nothing, as behind a cut in the network;
        its connections stay open.
        """
        pid = self.pids()["apiserver"]
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)


def _nobody_listens() -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((places.API_ADDRESS, 443)) == errno.ECONNREFUSED


@contextlib.contextmanager
def rig() -> Iterator[ControlPlane]:
    """The rig's API server and etcd, taken down again; one that is up already is used as it is."""
    own = not daemons.pid_of("apiserver")
    try:
        if own:
            _rig("up", "--api-server-only")
        yield ControlPlane(
            kubeconfig=places.STATE / "admin.kubeconfig", daemons=("apiserver", "etcd")
        )
    finally:
        if own:
            _rig("down")


def _rig(*words: str) -> None:
    command = [sys.executable, "-m", "tests.cluster.rig", *words]
    done = subprocess.run(command, cwd=ROOT, stdout=sys.stderr, check=False)
    if done.returncode:
        raise BenchError(f"rig {' '.join(words)} ended with {done.returncode}; it has said why")


# ---------------------------------------------------------------- what the cluster holds


class Furniture:
    """Makes objects as the administrator. Everything may be repeated."""

    def __init__(self, plane: ControlPlane) -> None:
        self.admin = api.connect(plane.kubeconfig)
        self._config = kubeconfigs.load(plane.kubeconfig)

    def make(self, document: api.Object) -> api.Object:
        """The object, made or there already."""
        namespace = document["metadata"].get("namespace", NAMESPACE)
        path = COLLECTIONS[document["kind"]].format(namespace=namespace)
        stored = self.admin("POST", path, document, but=(EXISTS,))
        if stored.get("kind") == "Status":
            stored = self.admin("GET", f"{path}/{document['metadata']['name']}")
        return stored

    def install(self) -> None:
        """Account, rights, admission policies and the priority level as `deploy/base` has them."""
        for name in ("namespace.yaml", "rbac.yaml", "admission.yaml", "priority.yaml"):
            for document in yaml.safe_load_all((BASE / name).read_text()):
                self.make(document)

        # An API server takes a moment until it holds by a policy that is new to it.
        time.sleep(2)

    def others(self) -> None:
        """A namespace for all that is not ours."""
        self.make({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": OTHERS}})

    def account(self, name: str, rules: list[api.Object]) -> str:
        """The token of an account with these rights in the whole cluster."""
        group = "rbac.authorization.k8s.io"
        head = {"apiVersion": "v1", "kind": "ServiceAccount"}
        self.make({**head, "metadata": {"name": name, "namespace": OTHERS}})
        role = {"apiVersion": f"{group}/v1", "kind": "ClusterRole", "metadata": {"name": name}}
        self.make({**role, "rules": rules})
        subject = {"kind": "ServiceAccount", "name": name, "namespace": OTHERS}
        self.make(
            {
                "apiVersion": f"{group}/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": name},
                "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
                "subjects": [subject],
            }
        )
        return self._token(OTHERS, name, {})

    def nodes(self, prefix: str, first: int, count: int) -> dict[str, str]:
        """Nodes of these numbers; their uids by name."""
        uids = {}
        for number in range(first, first + count):
            name = layout.node_name(prefix, number)
            node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
            stored = self.admin("POST", "/api/v1/nodes", node, but=(EXISTS,))
            if stored["kind"] == "Status":
                stored = self.admin("GET", f"/api/v1/nodes/{name}")
            uids[name] = stored["metadata"]["uid"]
        return uids

    def accounts_of(self, uids: dict[str, str], folder: Path) -> None:
        """In each node's folder what the kubelet mounts into a pod, with a token bound to the node."""
        for name, uid in uids.items():
            bound = {"kind": "Node", "apiVersion": "v1", "name": name, "uid": uid}
            token = self._token(NAMESPACE, ACCOUNT, {"boundObjectRef": bound})
            place = folder / name / layout.ACCOUNT
            place.mkdir(parents=True, exist_ok=True)
            (place / "token").write_text(token)
            (place / "ca.crt").write_text(self.authority)

    def kubeconfig_of(self, token: str, path: Path) -> Path:
        """For a client that takes nothing else; the path."""
        authority = base64.b64encode(self.authority.encode()).decode()
        cluster = {"server": self.address, "certificate-authority-data": authority}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "scale",
            "contexts": [{"name": "scale", "context": {"cluster": "scale", "user": "scale"}}],
            "clusters": [{"name": "scale", "cluster": cluster}],
            "users": [{"name": "scale", "user": {"token": token}}],
        }
        path.write_text(json.dumps(document))
        return path

    @property
    def host(self) -> tuple[str, int]:
        return self._config.host, self._config.port

    @property
    def address(self) -> str:
        return f"https://{self._config.authority}"

    @property
    def authority(self) -> str:
        """The certificate that the API server's own is judged by, as PEM."""
        ca = self._config.ca
        return ca.read_text() if isinstance(ca, Path) else ca

    def version(self) -> str:
        version_: str = self.admin("GET", "/version")["gitVersion"]
        return version_

    def _token(self, namespace: str, name: str, more: api.Object) -> str:
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        head = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
        spec = {"expirationSeconds": TOKEN_SECONDS, **more}
        stored = self.admin("POST", path, {**head, "spec": spec})
        token: str = stored["status"]["token"]
        return token
