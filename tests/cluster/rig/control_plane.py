"""etcd, kube-apiserver, controller manager and scheduler. No node is known here."""

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
DAEMONS = ("etcd", "apiserver", "controller-manager", "scheduler")  # in the order of their start


def up(choices: Choices) -> None:
    if daemons.pid_of("apiserver"):
        raise RigError("already up: say `down` first")
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
    for name in reversed(DAEMONS):
        daemons.stop(name)


def start_apiserver(choices: Choices) -> None:
    """Starts it and waits until it is ready."""
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
        # the node authorizer wants resource.k8s.io/v1: without a node an API server may do without
        # both
        f"--authorization-mode={'RBAC' if choices.control_plane_only else 'Node,RBAC'}",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        f"--service-cluster-ip-range={SERVICE_RANGE}",
        "--endpoint-reconciler-type=none",
        f"--runtime-config={choices.runtime_config}",
        f"--kubelet-client-certificate={PKI}/admin.crt",
        f"--kubelet-client-key={PKI}/admin.key",
        "--kubelet-preferred-address-types=Hostname",
        *_gates(choices),
    )
    daemons.wait_for("kube-apiserver", lambda: api_get("/readyz") == b"ok", needs="apiserver")


def restart_apiserver(choices: Choices) -> None:
    """As an upgrade does it: the old one ends, another version or another set of APIs takes its
    place.
    """
    build.kubernetes(
        choices.kube, ["kube-apiserver"]
    )  # first, so that it is away for a moment only
    choices.save()
    daemons.stop("apiserver", seconds=2)  # it would wait a minute for its watches to end
    start_apiserver(choices)


def api_get(path: str) -> bytes:
    """Asks the API server as the administrator."""
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
    """Starts it with these flags besides its own."""
    _start_controller(
        "controller-manager",
        choices,
        f"--service-account-private-key-file={PKI}/sa.key",
        f"--root-ca-file={PKI}/ca.crt",
        *flags,
    )


def start_scheduler(choices: Choices, *flags: str) -> None:
    """Starts it with these flags besides its own; it needs no controller manager."""
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
        *_gates(choices),
    )


def _gates(choices: Choices) -> list[str]:
    return [f"--feature-gates={choices.feature_gates}"] if choices.feature_gates else []
