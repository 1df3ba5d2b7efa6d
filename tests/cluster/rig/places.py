"""The rig's paths and addresses, the versions that it runs, the choices of `up`, and its errors.

This module starts no daemon.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

STATE = Path(os.environ.get("RIG_STATE", "/var/tmp/rig"))
CACHE = Path(os.environ.get("RIG_CACHE", Path.home() / ".cache/rig"))
NODE = os.environ.get("RIG_NODE", "rig-node")

PKI = STATE / "pki"
LOGS = STATE / "logs"
KUBELET_ROOT = Path("/var/lib/kubelet")
CDI_FOLDER = Path("/var/run/cdi")

KUBE = "1.37.1"
OLDER_KUBELET = "1.34.4"
ETCD = "3.7.3"
HELM = "4.3.1"
INTEL_PLUGINS = "0.36.0"

# The image of pod sandboxes.
IMAGE = "localhost/claimd:dev"  # claimd of this checkout
PAUSE = "rig.local/pause:1"

# The API server listens on the address of the `kubernetes` service. So pods on the host's network
# reach it without kube-proxy.
API_ADDRESS = "127.96.0.1"
API = f"https://{API_ADDRESS}:443"
SERVICE_RANGE = "127.96.0.0/24"


@dataclass(frozen=True, kw_only=True)
class Runtime:
    """A version of a container runtime that the node may run."""

    version: str
    # The OCI runtime that starts its containers by default.
    oci: str
    # The newest kubelet that works with this container runtime.
    newest_kubelet: str = KUBE


RUNTIMES = {
    "containerd": Runtime(version="2.2.9", oci="runc"),
    # The kubelet does not work with containerd 1.7 since Kubernetes 1.36.
    "containerd-1.7": Runtime(version="1.7.35", oci="runc", newest_kubelet=OLDER_KUBELET),
    "crio": Runtime(version="1.34.0", oci="crun"),
}
OCI_RUNTIMES = ("runc", "crun")
# crun comes from a later Debian. Debian 12 has crun 1.8.1, which refuses the containers of all
# runtimes above ("unknown version specified"), because their specs have version 1.1 or later.
CRUN = "1.21"
CRUN_DEBIAN = "trixie"
# "on": the container runtime reads CDI specs from CDI_FOLDER. "off": it reads none.
# "elsewhere": it reads CDI specs, but not those in CDI_FOLDER.
CDI_CHOICES = ("on", "off", "elsewhere")


class RigError(Exception):
    """An error whose message says what was seen, what was expected and what to do."""


class NoCluster(RigError):
    """Reports that a verb needs a cluster and that there is no cluster."""


@dataclass(frozen=True, kw_only=True)
class Choices:
    """The options of `up`. They are saved with the cluster's state, for the verbs that come later."""

    kube: str = KUBE
    kubelet: str = KUBE
    feature_gates: str = ""
    runtime_config: str = "api/all=true"
    control_plane_only: bool = False
    api_server_only: bool = False
    etcd_fsync: bool = False
    runtime: str = "containerd"
    oci: str = "runc"
    cdi: str = "on"
    # The node is a machine of its own with cgroup v2, so that the kubelet divides its cgroups.
    whole_machine: bool = False

    def save(self) -> None:
        STATE.mkdir(parents=True, exist_ok=True)
        (STATE / "choices.json").write_text(json.dumps(dataclasses.asdict(self), indent=1))

    @staticmethod
    def saved() -> Choices:
        """Returns the choices of the cluster; raises NoCluster if there is no cluster."""
        try:
            return Choices(**json.loads((STATE / "choices.json").read_text()))
        except FileNotFoundError:
            raise NoCluster(f"there is no cluster in {STATE}; start one with `up`") from None


def run(*command: object, **options: Any) -> subprocess.CompletedProcess[Any]:
    """Runs a command and waits for its end. Raises if it fails, unless `check=False` is passed."""
    options.setdefault("check", True)
    return subprocess.run([str(word) for word in command], **options)  # noqa: PLW1510 - set above


def oci_binary(oci: str) -> Path:
    """Returns the binary of one of OCI_RUNTIMES: crun from the cache, or runc from PATH."""
    if oci == "crun":
        return CACHE / "bin" / f"crun-{CRUN}" / "crun"
    return Path(shutil.which(oci) or oci)


def newest_kubelet(kube: str, runtime: str) -> str:
    """Returns the API server's version, or an older one if the runtime needs it."""
    limit = RUNTIMES[runtime].newest_kubelet
    return min(kube, limit, key=lambda version: [int(part) for part in version.split(".")])


def kube_binary(tool: str, version: str) -> Path:
    return CACHE / "bin" / f"kube-{version}" / tool


def etcd_binary() -> Path:
    return CACHE / "bin" / f"etcd-{ETCD}" / "etcd"


def helm_binary() -> Path:
    return CACHE / "bin" / f"helm-{HELM}" / "helm"


def runtime_folder(runtime: str) -> Path:
    """Returns the folder with the binaries of one of RUNTIMES."""
    name = runtime.split("-", maxsplit=1)[0]
    return CACHE / "bin" / f"{name}-{RUNTIMES[runtime].version}"
