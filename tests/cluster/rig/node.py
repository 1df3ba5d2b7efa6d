"""The node: starts, restarts and removes the container runtime and the kubelet, and plays a reboot.

The module `images` makes the images.
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
    """Replaces the container runtime. Its containers keep running, as in an update on a node."""
    daemons.stop(runtimes.of(choices).DAEMON)
    start_runtime(choices)


def start_kubelet(choices: Choices) -> None:
    """Starts the kubelet, and does not wait until the node is ready.

    The caller may have to start a pod before the node can become ready.
    """
    build.kubernetes(choices.kubelet, ["kubelet"])
    add_node_to_hosts()
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
    """Waits until the kubelet is healthy and its node is ready.

    The node's condition alone is not enough: after a restart of the kubelet the API server still
    has the condition from before the restart.
    """
    wait_until_healthy()
    daemons.wait_for(f"node {NODE}", lambda: control_plane.node_is_ready(NODE), needs="kubelet")


def wait_until_healthy() -> None:
    healthy = "http://127.0.0.1:10248/healthz"
    daemons.wait_for(
        "the kubelet",
        lambda: urllib.request.urlopen(healthy, timeout=2).status == 200,
        needs="kubelet",
    )


def reboot(choices: Choices) -> None:
    """Does to the node what a reboot does: kills the kubelet and the pods, deletes what /var/run
    holds, and starts everything again.

    The kernel's boot id does not change. A driver under test reads its boot id from the proc root
    that its configuration names.
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
    """Stops the node's daemons and pods, unmounts their file systems and deletes their state."""
    runtime = runtimes.of(choices)
    daemons.stop("kubelet")
    runtime.kill_pods(choices)
    daemons.stop(runtime.DAEMON)
    mounts.unmount(STATE)
    mounts.unmount(KUBELET_ROOT)
    mounts.unshare_root()
    # device-plugins has a checkpoint with resource names. The next cluster's kubelet would report
    # these names with the count 0 for as long as it runs.
    for folder in ("pods", "plugins", "plugins_registry", "device-plugins"):
        shutil.rmtree(KUBELET_ROOT / folder, ignore_errors=True)
    for file in (
        "dra_manager_state",
        "dra_health_state",
        "cpu_manager_state",
        "memory_manager_state",
    ):
        (KUBELET_ROOT / file).unlink(missing_ok=True)


def add_node_to_hosts() -> None:
    """Adds the node's name to /etc/hosts. The API server uses it for `kubectl logs` and `exec`."""
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
        # The machine has no systemd and little disk. It may itself be a container, with no cgroup
        # that the kubelet could divide.
        "cgroupDriver": "cgroupfs",
        "cgroupsPerQOS": choices.whole_machine,
        "enforceNodeAllocatable": ["pods"] if choices.whole_machine else [],
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
        configuration["failCgroupV1"] = choices.whole_machine
    if choices.feature_gates:
        pairs = (gate.split("=") for gate in choices.feature_gates.split(","))
        configuration["featureGates"] = {name: value == "true" for name, value in pairs}
    return configuration
