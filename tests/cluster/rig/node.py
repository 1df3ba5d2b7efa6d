"""containerd and kubelet: the one node, its reboot and its removal. Images are made elsewhere."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

from . import build, control_plane, daemons
from .places import (
    CDI_FOLDER,
    CONTAINERD,
    KUBELET_ROOT,
    NODE,
    PKI,
    STATE,
    Choices,
    containerd_folder,
    kube_binary,
    run,
)

ROOT = STATE / "containerd"
SOCKET = ROOT / "containerd.sock"
PAUSE = "rig.local/pause:1"
DAEMONS = ("containerd", "kubelet")
ROOT_WAS_PRIVATE = STATE / "root-was-private"

CONTAINERD_TOML = f"""version = 3
root = "{ROOT}/root"
state = "{ROOT}/state"
[grpc]
  address = "{SOCKET}"
[plugins."io.containerd.cri.v1.images"]
  snapshotter = "overlayfs"
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = "{PAUSE}"
[plugins."io.containerd.cri.v1.runtime"]
  enable_cdi = true
  cdi_spec_dirs = ["/etc/cdi", "{CDI_FOLDER}"]
  restrict_oom_score_adj = true
  disable_apparmor = true
  enable_unprivileged_ports = true
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["/usr/lib/cni"]
    conf_dir = "{STATE}/cni"
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
      SystemdCgroup = false
"""
CONTAINERD_1_TOML = f"""version = 2
root = "{ROOT}/root"
state = "{ROOT}/state"
[grpc]
  address = "{SOCKET}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  enable_cdi = true
  cdi_spec_dirs = ["/etc/cdi", "{CDI_FOLDER}"]
  restrict_oom_score_adj = true
  disable_apparmor = true
  enable_unprivileged_ports = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{STATE}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
"""
POD_NETWORK = {
    "cniVersion": "1.0.0",
    "name": "rig",
    "plugins": [
        {
            "type": "ptp",
            "ipMasq": False,
            "ipam": {"type": "host-local", "ranges": [[{"subnet": "127.64.0.0/24"}]]},
        }
    ],
}


def start_containerd() -> None:
    build.containerd()
    _share_root()
    (STATE / "cni").mkdir(parents=True, exist_ok=True)
    (STATE / "cni" / "10-rig.conflist").write_text(json.dumps(POD_NETWORK))
    is_first = CONTAINERD.startswith("1.")
    (STATE / "containerd.toml").write_text(CONTAINERD_1_TOML if is_first else CONTAINERD_TOML)
    binaries = containerd_folder()
    path = {**os.environ, "PATH": f"{binaries}:{os.environ['PATH']}"}  # it looks for its shim there
    daemons.start(
        "containerd", binaries / "containerd", "--config", STATE / "containerd.toml", env=path
    )
    daemons.wait_for("containerd", lambda: ctr("version", capture_output=True), needs="containerd")


def start_kubelet(choices: Choices) -> None:
    """Starts it; does not wait for the node to be ready, since a pod of ours may have to come
    first.
    """
    build.kubernetes(choices.kubelet, ["kubelet"])
    _name_the_node()
    (STATE / "kubelet.yaml").write_text(json.dumps(_kubelet_configuration(choices), indent=1))
    daemons.start(
        "kubelet",
        kube_binary("kubelet", choices.kubelet),
        f"--config={STATE}/kubelet.yaml",
        f"--kubeconfig={STATE}/kubelet.kubeconfig",
        f"--hostname-override={NODE}",
        f"--root-dir={KUBELET_ROOT}",
        "--v=3",
    )
    choices.save()


def wait_until_ready() -> None:
    """The API server's word alone could be from before a restart."""
    healthy = "http://127.0.0.1:10248/healthz"
    daemons.wait_for(
        "the kubelet",
        lambda: urllib.request.urlopen(healthy, timeout=2).status == 200,
        needs="kubelet",
    )
    daemons.wait_for(f"node {NODE}", lambda: control_plane.node_is_ready(NODE), needs="kubelet")


def ctr(*words: object, **options: Any) -> subprocess.CompletedProcess[Any]:
    """containerd's own client, in the kubelet's namespace."""
    return run(containerd_folder() / "ctr", "--address", SOCKET, "-n", "k8s.io", *words, **options)


def reboot(choices: Choices) -> None:
    """What a reboot does to a node: kubelet and pods die, /var/run is empty, all comes back. The
    kernel's boot id stays what it is: a driver under test reads its own from the proc root that it
    is given.
    """
    daemons.stop("kubelet", signal.SIGKILL)
    _kill_pods()
    daemons.stop("containerd", signal.SIGKILL)
    _unmount(KUBELET_ROOT)
    shutil.rmtree(CDI_FOLDER, ignore_errors=True)
    start_containerd()
    start_kubelet(choices)
    wait_until_ready()


def down() -> None:
    daemons.stop("kubelet")
    _kill_pods()
    daemons.stop("containerd")
    _unmount(STATE)
    _unmount(KUBELET_ROOT)
    _unshare_root()
    for folder in ("pods", "plugins", "plugins_registry"):
        shutil.rmtree(KUBELET_ROOT / folder, ignore_errors=True)
    for file in (
        "dra_manager_state",
        "dra_health_state",
        "cpu_manager_state",
        "memory_manager_state",
    ):
        (KUBELET_ROOT / file).unlink(missing_ok=True)


def _share_root() -> None:
    """A node's root mount is shared, as systemd makes it; a machine without it may have it private.

    Pods that see what the host mounts later (HostToContainer) are refused there otherwise.
    """
    if not _is_private(Path("/proc/self/mountinfo").read_text()):
        return
    run("mount", "--make-shared", "/")
    ROOT_WAS_PRIVATE.touch()


def _unshare_root() -> None:
    if ROOT_WAS_PRIVATE.exists():
        run("mount", "--make-private", "/")
        ROOT_WAS_PRIVATE.unlink()


def _is_private(mounts: str) -> bool:
    for line in mounts.splitlines():
        before, _, _ = line.partition(" - ")
        words = before.split()
        if words[4] == "/":
            return not any(word.startswith(("shared:", "master:")) for word in words[6:])
    return True


def _kill_pods() -> None:
    if not SOCKET.exists() or not daemons.pid_of("containerd"):
        return
    quiet = {"check": False, "capture_output": True}
    names = ctr("tasks", "ls", "-q", check=False, capture_output=True, text=True).stdout.split()
    for name in names:
        ctr("tasks", "kill", "-s", "SIGKILL", "-a", name, **quiet)
    for name in names:
        ctr("tasks", "rm", "-f", name, **quiet)
        ctr("containers", "rm", name, **quiet)

    for pid in _shims():
        os.kill(pid, signal.SIGKILL)


def _shims() -> list[int]:
    """Those of our containerd: one of a sandbox outlives its tasks."""
    pids = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = file.read_bytes().decode(errors="replace").split("\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if words[0].endswith("containerd-shim-runc-v2") and str(SOCKET) in words:
            pids.append(int(file.parent.name))
    return pids


def _unmount(folder: Path) -> None:
    mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for mount in sorted((m for m in mounts if m.startswith(f"{folder}/")), key=len, reverse=True):
        run("umount", "-l", mount, stderr=subprocess.DEVNULL, check=False)


def _name_the_node() -> None:
    """`kubectl logs` and `exec` reach the kubelet by its host name."""
    hosts = Path("/etc/hosts")
    text = hosts.read_text()
    if NODE not in text.split():
        hosts.write_text(text.rstrip("\n") + f"\n127.0.0.1 {NODE}\n")


def _kubelet_configuration(choices: Choices) -> dict[str, Any]:
    configuration: dict[str, Any] = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": f"{PKI}/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": f"{PKI}/apiserver.crt",
        "tlsPrivateKeyFile": f"{PKI}/apiserver.key",
        "containerRuntimeEndpoint": f"unix://{SOCKET}",
        "address": "127.0.0.1",
        "healthzPort": 10248,
        "readOnlyPort": 0,
        "registerNode": True,
        "resolvConf": "",
        # a machine that is itself a container: no systemd, no cgroup of its own to divide, little
        # disk
        "cgroupDriver": "cgroupfs",
        "cgroupsPerQOS": False,
        "enforceNodeAllocatable": [],
        "failSwapOn": False,
        "localStorageCapacityIsolation": False,
        "evictionHard": {
            "memory.available": "100Mi",
            "nodefs.available": "1%",
            "imagefs.available": "1%",
        },
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
    }
    if int(choices.kubelet.split(".")[1]) >= 31:
        configuration["failCgroupV1"] = False
    if choices.feature_gates:
        pairs = (gate.split("=") for gate in choices.feature_gates.split(","))
        configuration["featureGates"] = {name: value == "true" for name, value in pairs}
    return configuration
