"""The control plane: starts and stops etcd, kube-apiserver, controller manager and scheduler.

This module knows nothing about the node's daemons.
"""

from __future__ import annotations

import json
import ssl
import urllib.request
from typing import Any

from . import build, certificates, daemons
from .places import (
    API,
    API_ADDRESS,
    PKI,
    SERVICE_RANGE,
    STATE,
    Choices,
    RigError,
    etcd_binary,
    kube_binary,
)

ETCD_URL = "http://127.0.0.1:12379"
# In the order in which they are started.
DAEMONS = ("etcd", "apiserver", "controller-manager", "scheduler")


def up(choices: Choices) -> None:
    """Starts the daemons that were chosen, with new certificates, and waits until they work."""
    if daemons.pid_of("apiserver"):
        raise RigError("a cluster runs already; stop it with `down` first")
    choices.save()
    certificates.make()
    _start_etcd(choices)
    start_apiserver(choices)
    if choices.api_server_only:
        return
    _start_controllers(choices)
    daemons.wait_for(
        "the default service account",
        lambda: api_get("/api/v1/namespaces/default/serviceaccounts/default"),
        needs="controller-manager",
    )


def down() -> None:
    """Stops the daemons of the control plane that run."""
    for name in reversed(DAEMONS):
        daemons.stop(name)


def start_apiserver(choices: Choices) -> None:
    """Starts the API server and waits until it is ready."""
    build.kubernetes(choices.kube, ["kube-apiserver"])
    daemons.start(
        "apiserver",
        kube_binary("kube-apiserver", choices.kube),
        f"--etcd-servers={ETCD_URL}",
        f"--bind-address={API_ADDRESS}",
        "--secure-port=443",
        f"--tls-cert-file={PKI}/apiserver.crt",
        f"--tls-private-key-file={PKI}/apiserver.key",
        f"--client-ca-file={PKI}/ca.crt",
        f"--service-account-key-file={PKI}/sa.key",
        f"--service-account-signing-key-file={PKI}/sa.key",
        "--service-account-issuer=https://kubernetes.default.svc",
        # The node authorizer needs resource.k8s.io/v1. A control plane without a node needs neither.
        f"--authorization-mode={'RBAC' if choices.control_plane_only else 'Node,RBAC'}",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        f"--service-cluster-ip-range={SERVICE_RANGE}",
        "--endpoint-reconciler-type=none",
        f"--runtime-config={choices.runtime_config}",
        f"--kubelet-client-certificate={PKI}/admin.crt",
        f"--kubelet-client-key={PKI}/admin.key",
        "--kubelet-preferred-address-types=Hostname",
        *_feature_gate_flags(choices),
    )
    daemons.wait_for("kube-apiserver", lambda: api_get("/readyz") == b"ok", needs="apiserver")


def restart_apiserver(choices: Choices) -> None:
    """Replaces the API server by one of another version or with other APIs, as an upgrade does."""
    # The build comes first, so that there is no API server for a moment only.
    build.kubernetes(choices.kube, ["kube-apiserver"])
    choices.save()

    # An API server that is asked to stop waits a minute for its watches, so it is killed after 2 s.
    daemons.stop("apiserver", seconds=2)
    start_apiserver(choices)


def api_get(path: str) -> bytes:
    """Sends a GET to the API server as the administrator and returns the body of the answer."""
    context = ssl.create_default_context(cafile=str(PKI / "ca.crt"))
    context.load_cert_chain(PKI / "admin.crt", PKI / "admin.key")
    with urllib.request.urlopen(API + path, context=context, timeout=5) as answer:
        body: bytes = answer.read()
        return body


def node_is_ready(name: str) -> bool:
    node: dict[str, Any] = json.loads(api_get(f"/api/v1/nodes/{name}"))
    return any(
        c["type"] == "Ready" and c["status"] == "True" for c in node["status"].get("conditions", [])
    )


def _start_etcd(choices: Choices) -> None:
    peers = "http://127.0.0.1:12380"
    daemons.start(
        "etcd",
        etcd_binary(),
        f"--data-dir={STATE}/etcd",
        f"--listen-client-urls={ETCD_URL}",
        f"--advertise-client-urls={ETCD_URL}",
        f"--listen-peer-urls={peers}",
        f"--initial-advertise-peer-urls={peers}",
        f"--initial-cluster=default={peers}",
        "--log-level=warn",
        *([] if choices.etcd_fsync else ["--unsafe-no-fsync"]),
    )


def _start_controllers(choices: Choices) -> None:
    start_controller_manager(choices, "--use-service-account-credentials=true")
    start_scheduler(choices)


def start_controller_manager(choices: Choices, *flags: str) -> None:
    """Starts the controller manager with these flags in addition to the usual ones."""
    _start_controller(
        "controller-manager",
        choices,
        f"--service-account-private-key-file={PKI}/sa.key",
        f"--root-ca-file={PKI}/ca.crt",
        *flags,
    )


def start_scheduler(choices: Choices, *flags: str) -> None:
    """Starts the scheduler with these flags in addition to the usual ones.

    The scheduler does not need a controller manager.
    """
    _start_controller("scheduler", choices, *flags)


def _start_controller(name: str, choices: Choices, *flags: str) -> None:
    config = STATE / f"{name}.kubeconfig"
    daemons.start(
        name,
        kube_binary(f"kube-{name}", choices.kube),
        *(
            f"--{flag}={config}"
            for flag in ("kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig")
        ),
        "--bind-address=127.0.0.1",
        "--leader-elect=false",
        *flags,
        *_feature_gate_flags(choices),
    )


def _feature_gate_flags(choices: Choices) -> list[str]:
    return [f"--feature-gates={choices.feature_gates}"] if choices.feature_gates else []
