"""Where everything of the rig lies, which versions it runs, and how it says what went wrong. It
starts no daemon.
"""

from __future__ import annotations

import dataclasses
import json
import os
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
CONTAINERD = os.environ.get("RIG_CONTAINERD", "2.2.9")  # or 1.7.35, for kubelets up to 1.35
ETCD = "3.7.3"
HELM = "4.3.1"
INTEL_PLUGINS = "0.36.0"

# The address of the `kubernetes` service as well: pods on the host's network reach the API server
# without a proxy.
API_ADDRESS = "127.96.0.1"
API = f"https://{API_ADDRESS}:443"
SERVICE_RANGE = "127.96.0.0/24"


class RigError(Exception):
    """What was seen, what was expected, what to do."""


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

    def save(self) -> None:
        STATE.mkdir(parents=True, exist_ok=True)
        (STATE / "choices.json").write_text(json.dumps(dataclasses.asdict(self), indent=1))

    @staticmethod
    def saved() -> Choices:
        try:
            return Choices(**json.loads((STATE / "choices.json").read_text()))
        except FileNotFoundError:
            raise RigError(f"no cluster in {STATE}: say `up` first") from None


def run(*command: object, **options: Any) -> subprocess.CompletedProcess[Any]:
    """Runs a command to its end and raises if it fails, unless `check=False` is said."""
    options.setdefault("check", True)
    return subprocess.run([str(word) for word in command], **options)  # noqa: PLW1510 - set above


def kube_binary(tool: str, version: str) -> Path:
    return CACHE / "bin" / f"kube-{version}" / tool


def etcd_binary() -> Path:
    return CACHE / "bin" / f"etcd-{ETCD}" / "etcd"


def helm_binary() -> Path:
    return CACHE / "bin" / f"helm-{HELM}" / "helm"


def containerd_folder() -> Path:
    return CACHE / "bin" / f"containerd-{CONTAINERD}"
