"""Container runtime and kubelet: the one node, its reboot and its removal. Images are made
elsewhere.
"""

from __future__ import annotations

import json
import shutil
import signal
import urllib.request
from pathlib import Path
from typing import Any

from . import build, control_plane, daemons, mounts, runtimes
from .places import CDI_FOLDER, KUBELET_ROOT, NODE, PKI, STATE, Choices, kube_binary

DAEMONS = (*(runtime.DAEMON for runtime in runtimes.ALL), "kubelet")
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


def start_runtime(choices: Choices) -> None:
    """Starts the container runtime and waits until it answers."""
    mounts.share_root()

    (STATE / "cni").mkdir(parents=True, exist_ok=True)
    (STATE / "cni" / "10-rig.conflist").write_text(json.dumps(POD_NETWORK))

    runtimes.of(choices).start(choices)
    choices.save()


def restart_runtime(choices: Choices) -> None:
    """Containers live on meanwhile, as they do when a node's runtime is updated."""
    daemons.stop(runtimes.of(choices).DAEMON)
    start_runtime(choices)


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


def reboot(choices: Choices) -> None:
    """What a reboot does to a node: kubelet and pods die, /var/run is empty, all comes back. The
    kernel's boot id stays what it is: a driver under test reads its own from the proc root that it
    is given.
    """
    runtime = runtimes.of(choices)
    daemons.stop("kubelet", signal.SIGKILL)
    runtime.kill_pods(choices)
    daemons.stop(runtime.DAEMON, signal.SIGKILL)
    runtime.forget()
    mounts.unmount(KUBELET_ROOT)
    shutil.rmtree(CDI_FOLDER, ignore_errors=True)
    start_runtime(choices)
    start_kubelet(choices)
    wait_until_ready()


def down(choices: Choices) -> None:
    runtime = runtimes.of(choices)
    daemons.stop("kubelet")
    runtime.kill_pods(choices)
    daemons.stop(runtime.DAEMON)
    mounts.unmount(STATE)
    mounts.unmount(KUBELET_ROOT)
    mounts.unshare_root()
    # device-plugins has the names that the kubelet knows; the next one would set them to 0 for ever
    for folder in ("pods", "plugins", "plugins_registry", "device-plugins"):
        shutil.rmtree(KUBELET_ROOT / folder, ignore_errors=True)
    for file in (
        "dra_manager_state",
        "dra_health_state",
        "cpu_manager_state",
        "memory_manager_state",
    ):
        (KUBELET_ROOT / file).unlink(missing_ok=True)


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
        "containerRuntimeEndpoint": f"unix://{runtimes.of(choices).SOCKET}",
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
