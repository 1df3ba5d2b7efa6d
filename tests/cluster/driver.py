"""The deployed driver as the suite sees it: its pod, its files on the node, its slices, and the
devices of pods.

This module uses kubectl for everything, so it works on any cluster. It must not import the driver's
code.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from tests.cluster.deadline import wait_for
from tests.cluster.kubectl import Kubectl, KubectlError, Object
from tests.cluster.objects import DRIVER

NAMESPACE = "claimd-system"
SELECTOR = "app.kubernetes.io/name=claimd"
CLAIMS = f"/var/lib/kubelet/plugins/{DRIVER}/claims"
CDI = "/var/run/cdi"
TREE = "/fake"


@dataclass(frozen=True, kw_only=True)
class Driver:
    """The driver on one node. `kube` is kubectl for the driver's namespace."""

    kube: Kubectl
    node: str

    def pods(self) -> list[Object]:
        return self.kube.list(
            "pods", f"--selector={SELECTOR}", f"--field-selector=spec.nodeName={self.node}"
        )

    def pod(self) -> Object:
        """Waits for a pod that is ready and not being deleted, and returns it.

        After a start of the kubelet it takes a moment until the pod is ready again.
        """

        def look() -> Object:
            ready = [
                p for p in self.pods() if is_ready(p) and "deletionTimestamp" not in p["metadata"]
            ]
            assert ready, f"the pods are {[phase(p) for p in self.pods()]}"
            return ready[-1]

        return wait_for(f"a claimd pod that is ready on {self.node}", look, seconds=30)

    def kubelet(self) -> tuple[int, int]:
        """Returns the kubelet's major and minor version, which determine the default feature gates."""
        major, minor, *_ = self.kube.get("node", self.node)["status"]["nodeInfo"]["kubeletVersion"][
            1:
        ].split(".")
        return int(major), int(minor)

    def older_kubelet(self) -> str:
        """Returns which kubelet this is and why it is no newer, for the reason of a skipped test."""
        told = "kubelet {}.{}".format(*self.kubelet())
        if self.runtime().startswith("containerd://1."):
            told += ", since kubelets from 1.36 on do not work with containerd 1.7,"
        return told

    def runtime(self) -> str:
        """Returns the container runtime and its version, such as containerd://2.2.9."""
        told: str = self.kube.get("node", self.node)["status"]["nodeInfo"][
            "containerRuntimeVersion"
        ]
        return told

    def exec(self, *command: str) -> str:
        return self.kube.exec(self.pod()["metadata"]["name"], *command, container="claimd")

    def is_registered(self) -> bool:
        """Returns True if the driver says that it is registered and has published its slices.

        Raises AssertionError otherwise.
        """
        try:
            self.exec("claimd", "probe", "ready")
        except KubectlError as error:
            raise AssertionError(str(error)) from None
        return True

    def registrations(self) -> int:
        """Counts how often the kubelet has registered the current pod, by the pod's log."""
        return self.kube("logs", self.pod()["metadata"]["name"], "--container=claimd").count(
            "registered with the kubelet"
        )

    def read(self, path: str) -> str:
        return self.exec("cat", path)

    def files(self, folder: str) -> list[str]:
        return self.exec("sh", "-c", f"ls -A {folder} 2>/dev/null || true").split()

    def cdi_files(self) -> list[str]:
        """Returns the UIDs of the claims that have a CDI file of the driver."""
        pattern = re.compile(rf"claimd\.dev-claim_{re.escape(DRIVER)}_(.+)\.json")
        return [match[1] for name in self.files(CDI) if (match := pattern.fullmatch(name))]

    def records(self) -> list[str]:
        return [name.removesuffix(".json") for name in self.files(CLAIMS) if name.endswith(".json")]

    def cdi_file(self, uid: str) -> Object:
        document: Object = json.loads(self.read(f"{CDI}/claimd.dev-claim_{DRIVER}_{uid}.json"))
        return document

    def slices(self) -> list[Object]:
        selector = f"--field-selector=spec.driver={DRIVER},spec.nodeName={self.node}"
        return sorted(
            self.kube.list("resourceslices", selector), key=lambda s: str(s["metadata"]["name"])
        )

    def published(self) -> dict[str, Object]:
        """Returns the devices of all slices by their PCI address."""
        listed = [device for each in self.slices() for device in each["spec"]["devices"]]
        return {
            device["attributes"]["resource.kubernetes.io/pciBusID"]["string"]: device
            for device in listed
        }

    def give(self, order: str, device: str, *value: str) -> None:
        """Gives a fake GPU a fault, or takes the fault away."""
        self.exec("claimd", "fake", "fault", TREE, order, device, *value)

    def taints(self) -> dict[str, list[tuple[str, str]]]:
        """Returns the key and effect of each taint, by device."""
        # A slice of counters has no devices.
        listed = [device for each in self.slices() for device in each["spec"].get("devices", [])]
        return {d["name"]: [(t["key"], t["effect"]) for t in d.get("taints", [])] for d in listed}

    def metric(self, name: str) -> float:
        """Returns the metric's value, summed over all labels."""
        ask = "from claimd.common import probe; print(probe.ask('unix:/run/claimd/endpoint.sock', '/metrics')[1])"
        lines = self.exec("python3", "-c", ask).splitlines()
        return sum(float(line.split()[-1]) for line in lines if re.match(rf"{name}(\{{| )", line))

    def tree_addresses(self) -> list[str]:
        """Returns the PCI addresses of the fake tree's GPUs: the functions of the classes 03xx and
        12xx.
        """
        told = self.exec(
            "sh", "-c", f"cd {TREE}/sys/bus/pci/devices && grep -lE '^0x(03|12)' */class"
        )
        return sorted(line.split("/")[0] for line in told.split())

    def tree_numbers(self, address: str) -> dict[str, tuple[int, int]]:
        """Returns major and minor number of a GPU's device nodes, by their path.

        The fake tree has the numbers of DRM nodes for all vendors, and the minor of NVIDIA's nodes.
        """
        function = f"{TREE}/sys/bus/pci/devices/{address}"
        told = self.exec("sh", "-c", f"cd {function}; grep -H . drm/*/dev || true")
        numbers: dict[str, tuple[int, int]] = {}
        for line in told.splitlines():
            path, major, minor = line.split(":")
            numbers[f"/dev/dri/{path.split('/')[1]}"] = (int(major), int(minor))
        told = self.exec(
            "sh",
            "-c",
            f"cat {TREE}/proc/driver/nvidia/gpus/{address}/information 2>/dev/null || true",
        )
        if minor_of := re.search(r"Device Minor:\s*(\d+)", told):
            numbers[f"/dev/nvidia{minor_of[1]}"] = (195, int(minor_of[1]))
        return numbers


def is_ready(pod: Object) -> bool:
    return any(
        c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", [])
    )


def phase(pod: Object) -> str:
    """Returns the pod's name and phase, and why its containers wait, for messages."""
    statuses = pod["status"].get("initContainerStatuses", []) + pod["status"].get(
        "containerStatuses", []
    )
    waiting = [s["state"]["waiting"].get("reason", "") for s in statuses if "waiting" in s["state"]]
    return " ".join([pod["metadata"]["name"], pod["status"].get("phase", "?"), *waiting])


def container_id(pod: Object) -> str:
    """Returns the id of the pod's first container, which another container would not have."""
    return str(pod["status"]["containerStatuses"][0].get("containerID", ""))


def allotted(claim: Object) -> dict[str, list[str]]:
    """Returns the names of the devices that the scheduler chose, by request."""
    chosen: dict[str, list[str]] = {}
    for result in claim["status"]["allocation"]["devices"]["results"]:
        chosen.setdefault(result["request"], []).append(result["device"])
    return chosen


def variables(kube: Kubectl, pod: str, container: str = "main") -> dict[str, str]:
    """Returns the environment of a new process in the container."""
    lines = kube.exec(pod, "env", container=container).splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)


def given(kube: Kubectl, pod: str, container: str = "main") -> list[str]:
    """Returns the PCI addresses of the container's GPUs, by the variables that claimd sets."""
    variables_ = variables(kube, pod, container)
    return sorted(value for name, value in variables_.items() if name.startswith("CLAIMD_GPU_"))


def nodes(kube: Kubectl, pod: str, container: str = "main") -> dict[str, tuple[int, int]]:
    """Returns major and minor number of the GPU device nodes in a container, by their path."""
    look = "for f in $(find /dev -type c); do stat -c '%n %t %T' $f; done"
    nodes_ = {}
    for line in kube.exec(pod, "sh", "-c", look, container=container).splitlines():
        path, major, minor = line.split()
        if re.match(r"/dev/(dri/|nvidia|kfd)", path):
            nodes_[path] = (int(major, 16), int(minor, 16))
    return nodes_
