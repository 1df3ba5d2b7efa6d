"""The API server's address and our identity, from a kubeconfig or from the pod's service account.

The functions read files and send no request. They raise UsageError if the configuration is wrong.
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
    """Returns the configuration of the node plugin's client.

    It comes from the kubeconfig file if one is named, otherwise from the service account of our own
    pod, whose files are in the folder `account`. All files are read once, so that a mistake in them
    raises UsageError when the plugin starts.
    """
    if kubeconfig:
        # Imported here, because a pod does not need it and would pay for it at each start.
        from . import kubeconfig as kubeconfigs

        return kubeconfigs.load(Path(kubeconfig))
    return in_cluster(account, os.environ if environment is None else environment)


def as_kubectl(
    kubeconfig: str, context: str, account: Path, environment: Mapping[str, str]
) -> ClientConfig:
    """Returns the configuration that kubectl would use, for the commands that people type.

    The first of these that exists is used: the file `kubeconfig`, the files in $KUBECONFIG,
    ~/.kube/config, the service account of our own pod. `context` names a context of the files;
    empty means their current context. UsageError if there is no configuration, or a wrong one.
    """
    # Imported here, because a pod does not need it.
    from . import kubeconfig as kubeconfigs

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
    """Returns the configuration of the pod's service account.

    `account` is the folder with `token` and `ca.crt` that the kubelet mounts into the pod. The
    kubelet also sets the environment variables with the API server's address. UsageError if one of
    them is missing or wrong.
    """
    host = environment.get("KUBERNETES_SERVICE_HOST", "")
    port = environment.get("KUBERNETES_SERVICE_PORT", "")
    if not host or not port.isdigit():
        raise errors.UsageError(
            f"no API server is known: KUBERNETES_SERVICE_HOST is {host!r} and "
            f"KUBERNETES_SERVICE_PORT is {port!r}, which a pod has from the kubelet; "
            "outside a pod give --kubeconfig FILE"
        )

    # Both files are read once, so that a missing or unusable one is reported at the start.
    ca = account / "ca.crt"
    credentials.read_file(ca, "the certificate authority of the cluster")
    token = credentials.TokenFile(account / "token")
    token.read()

    config = ClientConfig(host=host, port=int(port), ca=ca, credentials=token)
    tls.check(config)
    return config
