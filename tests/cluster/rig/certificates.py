"""Makes the certificates and kubeconfigs of a cluster. Each cluster gets new ones.

This module reads no secrets of other programs.
"""

from __future__ import annotations

import base64
import json
import subprocess

from .places import API, API_ADDRESS, NODE, PKI, STATE, run

NAMES = ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", NODE]
SUBJECTS = {
    "apiserver": "/CN=kube-apiserver",
    "admin": "/O=system:masters/CN=admin",
    "controller-manager": "/CN=system:kube-controller-manager",
    "scheduler": "/CN=system:kube-scheduler",
    "kubelet": f"/O=system:nodes/CN=system:node:{NODE}",
}
KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def make() -> None:
    """Writes the certificates into PKI, and a kubeconfig per client into STATE."""
    PKI.mkdir(parents=True, exist_ok=True)
    ca = PKI / "ca.crt"
    _openssl(
        "req",
        "-x509",
        *KEY,
        "-days",
        "30",
        "-subj",
        "/CN=rig-ca",
        "-keyout",
        PKI / "ca.key",
        "-out",
        ca,
    )
    _openssl("genrsa", "-out", PKI / "sa.key", "2048")
    for name, subject in SUBJECTS.items():
        _sign(name, subject)
    for name in SUBJECTS:
        if name != "apiserver":
            _kubeconfig(name)


def _sign(name: str, subject: str) -> None:
    key, request, certificate, extensions = (
        PKI / f"{name}.{end}" for end in ("key", "csr", "crt", "ext")
    )
    _openssl("req", *KEY, "-subj", subject, "-keyout", key, "-out", request)
    names = [f"IP:127.0.0.1,IP:{API_ADDRESS}", *(f"DNS:{host}" for host in NAMES)]
    extensions.write_text(
        f"subjectAltName={','.join(names)}\nextendedKeyUsage=serverAuth,clientAuth\n"
    )
    authority = ("-CA", PKI / "ca.crt", "-CAkey", PKI / "ca.key", "-CAcreateserial")
    _openssl(
        "x509",
        "-req",
        "-in",
        request,
        *authority,
        "-days",
        "30",
        "-extfile",
        extensions,
        "-out",
        certificate,
    )


def _kubeconfig(name: str) -> None:
    cluster = {"server": API, "certificate-authority-data": _base64(PKI / "ca.crt")}
    user = {
        "client-certificate-data": _base64(PKI / f"{name}.crt"),
        "client-key-data": _base64(PKI / f"{name}.key"),
    }
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "rig",
        "clusters": [{"name": "rig", "cluster": cluster}],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": "rig", "context": {"cluster": "rig", "user": name}}],
    }
    path = STATE / f"{name}.kubeconfig"
    path.touch(mode=0o600)
    path.write_text(json.dumps(document, indent=1))


def _base64(path: object) -> str:
    with open(str(path), "rb") as file:
        return base64.b64encode(file.read()).decode()


def _openssl(*words: object) -> None:
    run("openssl", *words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
