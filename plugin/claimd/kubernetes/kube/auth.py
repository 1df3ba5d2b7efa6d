"""Which API server we ask, and as whom: a kubeconfig, or the service account of the pod we run in.

Reads files and sends nothing. What is wrong from the start is a UsageError.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from claimd.common import errors

from . import credentials, tls
from .client_config import ClientConfig


def client_config(
    kubeconfig: str, account: Path, environment: Mapping[str, str] | None = None
) -> ClientConfig:
    """By the kubeconfig file if one is named, else as the pod that we run in.

    Reads the files that are named, so that what is wrong with them is known at the start.
    """
    if kubeconfig:
        from . import kubeconfig as kubeconfigs  # not needed in a pod

        return kubeconfigs.load(Path(kubeconfig))
    return in_cluster(account, os.environ if environment is None else environment)


def as_kubectl(
    kubeconfig: str, context: str, account: Path, environment: Mapping[str, str]
) -> ClientConfig:
    """As kubectl would find it, for commands that people type.

    The file that is named, else those of $KUBECONFIG that are there, else ~/.kube/config, else the
    pod that we run in. `context` is one of the files', empty for their current one.
    """
    from . import kubeconfig as kubeconfigs  # not needed in a pod

    if kubeconfig:
        return kubeconfigs.load(Path(kubeconfig), context=context)

    files = kubeconfigs.default_files(environment)
    present = [file for file in files if file.exists()]
    if present:
        return kubeconfigs.load(*present, context=context)

    if context or not environment.get("KUBERNETES_SERVICE_HOST"):
        raise errors.UsageError(
            f"no cluster is known: there is no {' and no '.join(map(str, files))}, where kubectl "
            "looks as well; give --kubeconfig FILE, or set KUBECONFIG"
        )
    return in_cluster(account, environment)


def in_cluster(account: Path, environment: Mapping[str, str]) -> ClientConfig:
    """As the service account whose folder, with token and ca.crt, the kubelet mounts into a pod."""
    host = environment.get("KUBERNETES_SERVICE_HOST", "")
    port = environment.get("KUBERNETES_SERVICE_PORT", "")
    if not host or not port.isdigit():
        raise errors.UsageError(
            f"no API server is known: KUBERNETES_SERVICE_HOST is {host!r} and "
            f"KUBERNETES_SERVICE_PORT is {port!r}, which a pod has from the kubelet; "
            "outside a pod give --kubeconfig FILE"
        )

    ca = account / "ca.crt"
    credentials.read_file(ca, "the certificate authority of the cluster")
    token = credentials.TokenFile(account / "token")
    token.read()

    config = ClientConfig(host=host, port=int(port), ca=ca, credentials=token)
    tls.check(config)
    return config
