"""Line 31: a pod runs on another node if its GPU cannot be prepared on the first.

The scheduler is real. Two processes `claimd run` serve nodes that are objects without a kubelet. The
test plays their kubelet.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from claimd_devices import fake, faults
from tests.cluster import objects
from tests.cluster.conftest import ROOT
from tests.cluster.deadline import wait_for
from tests.cluster.kubectl import Kubectl, Object
from tests.cluster.kubelet import Kubelet
from tests.support import playing_kernel

DRIVER = "early.claimd.dev"
# The names of the two nodes. The pods prefer the first.
LIKED, OTHER = "early-liked", "early-other"
GPU = "0000:11:00.0"
DEVICE = "gpu-0000-11-00-0"
VFIO = {"vfio-bind": GPU, "prepare-before-bind": "slow"}


@dataclass(kw_only=True)
class Machine:
    name: str
    tree: Path
    kernel: playing_kernel.PlayingKernel
    kubelet: Kubelet

    def prepare(self, claim: Object) -> None:
        self.kubelet.prepare(*(claim["metadata"][key] for key in ("namespace", "name", "uid")))


Start = Callable[..., tuple[Machine, Machine]]


@pytest.fixture
def start(kube: Kubectl) -> Iterator[Start]:
    """Starts the two nodes, each with one GPU and these settings."""
    with contextlib.ExitStack() as stack:
        # The name is short, because the path of a socket has at most 107 characters.
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="e-")))

        def begin(settings: Object, **of_liked: str) -> tuple[Machine, Machine]:
            liked = settings | {key.replace("_", "-"): value for key, value in of_liked.items()}
            stack.callback(kube.delete, "deviceclass", DRIVER, wait=False)
            selector = {"cel": {"expression": f"device.driver == '{DRIVER}'"}}
            kube.create(
                {
                    "apiVersion": objects.API,
                    "kind": "DeviceClass",
                    "metadata": {"name": DRIVER},
                    "spec": {"selectors": [selector]},
                }
            )
            one = stack.enter_context(_machine(kube, LIKED, folder / "a", liked))
            return one, stack.enter_context(_machine(kube, OTHER, folder / "b", settings))

        yield begin


@contextlib.contextmanager
def _machine(kube: Kubectl, name: str, folder: Path, settings: Object) -> Iterator[Machine]:
    ample = {"cpu": "8", "memory": "8Gi", "pods": "9"}
    kube.create(
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
            "status": {"capacity": ample, "allocatable": ample},
        }
    )
    tree = folder / "tree"
    fake.write(tree, fake.parse(["nvidia:l4=1", "iommu=1"]))
    faults.enable(tree)
    kubelet = Kubelet(folder / "k")
    all_settings = {
        "node-name": name,
        "driver-name": DRIVER,
        "kubelet-dir": kubelet.root,
        "cdi-dir": folder / "cdi",
        "root": tree,
        "kubeconfig": kube.kubeconfig,
        "health-interval": 1,
        **settings,
    }
    command = [sys.executable, "-m", "claimd", "run"]
    command += [f"--{key}={value}" for key, value in all_settings.items()]
    clean = {key: value for key, value in os.environ.items() if not key.startswith("CLAIMD_")}
    with playing_kernel.playing(tree) as kernel, (folder / "log").open("ab") as out:
        process = subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=out, env=clean)
        try:
            kubelet.register()
            wait_for(f"the slice of {name}", lambda: _devices(kube, name))
            yield Machine(name=name, tree=tree, kernel=kernel, kubelet=kubelet)
        finally:
            process.terminate()
            process.wait(30)
            print(f"--- {name}", (folder / "log").read_text(), sep="\n")
            kube.delete("resourceslice", "none", *_slices(kube, name), wait=False)
            kube.delete("node", name, wait=False)


def _slices(kube: Kubectl, node: str) -> dict[str, Object]:
    selector = f"--field-selector=spec.driver={DRIVER},spec.nodeName={node}"
    return {each["metadata"]["name"]: each for each in kube.list("resourceslices", selector)}


def _devices(kube: Kubectl, node: str) -> list[Object]:
    return [d for each in _slices(kube, node).values() for d in each["spec"].get("devices", [])]


def create_pod(ns: Kubectl, name: str = "p") -> float:
    """Creates a pod that prefers the first node, and its claim. Returns the time."""
    pod = objects.pod(name, "", {"gpu": name})
    preferred = {
        "weight": 100,
        "preference": {
            "matchExpressions": [
                {"key": "kubernetes.io/hostname", "operator": "In", "values": [LIKED]}
            ]
        },
    }
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [preferred]}}
    pod["spec"] |= {"affinity": affinity, "tolerations": [{"operator": "Exists"}]}
    del pod["spec"]["nodeSelector"]
    ns.create(objects.claim(name, objects.devices(objects.request(device_class=DRIVER))))
    began = time.monotonic()
    ns.create(pod)
    return began


def node_of(ns: Kubectl, name: str = "p") -> str:
    """Waits until the pod is bound, and returns its node."""
    return str(wait_for("a node", lambda: ns.get("pod", name)["spec"].get("nodeName"), 120))


def condition(ns: Kubectl, type_: str, name: str = "p") -> Object:
    def look() -> Object | None:
        for entry in ns.get("resourceclaim", name).get("status", {}).get("devices", ()):
            for each in entry["conditions"]:
                if each["type"] == type_ and each["status"] == "True":
                    return dict(each)
        return None

    return wait_for(f"the condition {type_}", look, every=0.05)


def events_of(ns: Kubectl, reason: str) -> list[str]:
    return [each["message"] for each in ns.list("events") if each["reason"] == reason]


def claim_requests(kube: Kubectl) -> dict[str, int]:
    """Counts the requests about claims so far, by their kind."""
    counts: dict[str, int] = {}
    for line in kube("get", "--raw", "/metrics").splitlines():
        if line.startswith("apiserver_request_total{") and 'resource="resourceclaims"' in line:
            labels, value = line.removeprefix("apiserver_request_total{").split("} ")
            words = dict(pair.split("=") for pair in labels.replace('"', "").split(","))
            key = f"{words['verb']} {words['subresource']}".strip()
            counts[key] = counts.get(key, 0) + int(float(value))
    return counts


def leave(ns: Kubectl, name: str = "p") -> None:
    ns.delete("pod", name, force=True)
    ns.delete("resourceclaim", name)


@pytest.mark.parametrize("case", ["vfio", "libraries"])
def test_a_pod_whose_gpu_cannot_be_prepared_runs_on_the_other_node(
    kube: Kubectl, ns: Kubectl, start: Start, case: str
) -> None:
    if case == "vfio":
        liked, other = start(VFIO)
        liked.kernel.unwilling.add("vfio-pci")
    else:
        liked, other = start({"prepare-before-bind": "slow"}, require_libraries="true")
    began = create_pod(ns)
    assert node_of(ns) == OTHER
    print(f"FIGURE {case}: bound to the other node after {time.monotonic() - began:.1f} s")

    (refusal,) = [each for each in events_of(ns, "FailedScheduling") if "PrepareFailed" in each]
    assert DEVICE in refusal
    (device,) = _devices(kube, LIKED)
    assert [taint["key"] for taint in device["taints"]] == ["claimd.dev/prepare-failed"]
    other.prepare(ns.get("resourceclaim", "p"))
    leave(ns)


def test_a_gpu_that_fails_while_the_pod_waits(ns: Kubectl, start: Start) -> None:
    liked, other = start({"prepare-before-bind": "all"})
    began = create_pod(ns)
    condition(ns, "claimd.dev/Prepared")
    faults.inject(liked.tree, "xid", GPU, "79")
    failure = condition(ns, "claimd.dev/PrepareFailed")
    assert "has failed" in failure["message"]
    assert node_of(ns) == OTHER
    print(f"FIGURE sick: bound to the other node after {time.monotonic() - began:.1f} s")
    other.prepare(ns.get("resourceclaim", "p"))
    wait_for("the undo", lambda: not list((liked.kubelet.root.parent / "cdi").glob("*.json")))
    leave(ns)


@pytest.mark.parametrize("setting", ["off", "slow"])
def test_a_pod_whose_gpu_is_well(kube: Kubectl, ns: Kubectl, start: Start, setting: str) -> None:
    liked, _ = start(VFIO | {"prepare-before-bind": setting})
    before = claim_requests(kube)
    began = create_pod(ns)
    assert node_of(ns) == LIKED
    print(f"FIGURE {setting}: bound after {time.monotonic() - began:.1f} s")
    claim = ns.get("resourceclaim", "p")
    liked.prepare(claim)
    condition(ns, "Ready")
    after = claim_requests(kube)
    more = {key: count - before.get(key, 0) for key, count in after.items()}
    print(f"FIGURE {setting}: {json.dumps({key: n for key, n in more.items() if n})}")
    (result,) = claim["status"]["allocation"]["devices"]["results"]
    assert bool(result.get("bindingConditions")) == (setting == "slow")
    assert liked.kernel.driver(GPU) == "vfio-pci"
    liked.kubelet.unprepare(claim["metadata"]["namespace"], "p", claim["metadata"]["uid"])
    leave(ns)


def test_with_the_setting_off_the_pod_stays_where_it_cannot_run(ns: Kubectl, start: Start) -> None:
    liked, _ = start(VFIO | {"prepare-before-bind": "off"})
    liked.kernel.unwilling.add("vfio-pci")
    create_pod(ns)
    assert node_of(ns) == LIKED
    with pytest.raises(AssertionError, match="vfio-pci does not take"):
        liked.prepare(ns.get("resourceclaim", "p"))
    leave(ns)
