"""Where everything of the rig lies, which versions it runs, and how it says what went wrong. It
starts no daemon.
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

PAUSE = "rig.local/pause:1"  # the image of sandboxes

# The address of the `kubernetes` service as well: pods on the host's network reach the API server
# without a proxy.
API_ADDRESS = "127.96.0.1"
API = f"https://{API_ADDRESS}:443"
SERVICE_RANGE = "127.96.0.0/24"


@dataclass(frozen=True, kw_only=True)
class Runtime:
    """A container runtime that the node may have."""

    version: str
    oci: str  # what starts its containers, unless another is chosen
    newest_kubelet: str = KUBE  # of those that it works with


RUNTIMES = {
    "containerd": Runtime(version="2.2.9", oci="runc"),
    # kubelets from 1.36 on do without containerd 1.7
    "containerd-1.7": Runtime(version="1.7.35", oci="runc", newest_kubelet=OLDER_KUBELET),
    "crio": Runtime(version="1.34.0", oci="crun"),
}
OCI_RUNTIMES = ("runc", "crun")
# Debian 12 has crun 1.8.1, which refuses containers of every runtime here ("unknown version
# specified"): their specs are of version 1.1 and later.
CRUN = "1.21"
CRUN_DEBIAN = "trixie"
# Whether the runtime reads CDI specs; `elsewhere` is a runtime that reads them, from another folder.
CDI_CHOICES = ("on", "off", "elsewhere")


class RigError(Exception):
    """An error whose message says what was seen, what was expected and what to do."""


class NoCluster(RigError):
    """A verb that needs a cluster found none."""


@dataclass(frozen=True, kw_only=True)
class Choices:
    """What `up` was asked for. Kept beside the state, so that later verbs need not be told again."""

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

    def save(self) -> None:
        STATE.mkdir(parents=True, exist_ok=True)
        (STATE / "choices.json").write_text(json.dumps(dataclasses.asdict(self), indent=1))

    @staticmethod
    def saved() -> Choices:
        try:
            return Choices(**json.loads((STATE / "choices.json").read_text()))
        except FileNotFoundError:
            raise NoCluster(f"no cluster in {STATE}: say `up` first") from None


def run(*command: object, **options: Any) -> subprocess.CompletedProcess[Any]:
    """Runs a command to its end and raises if it fails, unless `check=False` is said."""
    options.setdefault("check", True)
    return subprocess.run([str(word) for word in command], **options)  # noqa: PLW1510 - set above


def oci_binary(oci: str) -> Path:
    """One of OCI_RUNTIMES. runc is the machine's."""
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
