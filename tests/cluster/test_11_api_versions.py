"""Line 11: API servers that serve one version of resource.k8s.io only, and an API server that is
upgraded while claimd runs.

These tests start control planes one after the other, so no other cluster may be up. `claimd run` is
a process of this machine, and the test plays its kubelet. `python -m tests.cluster --matrix` runs
this file.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cluster.conftest import ROOT, Rig
from tests.cluster.deadline import wait_for
from tests.cluster.kubectl import Kubectl, Object
from tests.cluster.kubelet import Kubelet
from tests.cluster.objects import DRIVER
from tests.cluster.rig import daemons, places

NODE = "suite-node"
VERSIONS = ("v1beta1", "v1beta2", "v1")
# The least number of looks. On a busy machine each look takes a second.
LOOKS = 5


def serving(*wanted: str) -> str:
    """Returns the value of --runtime-config that serves these versions of resource.k8s.io only."""
    return ",".join(
        ["api/all=true", *(f"resource.k8s.io/{v}=false" for v in VERSIONS if v not in wanted)]
    )


@dataclass(kw_only=True)
class World:
    """A control plane, a node object, and `claimd run` with a kubelet."""

    rig: Rig
    kube: Kubectl
    kubelet: Kubelet
    process: subprocess.Popen[bytes]
    folder: Path
    version: str

    def kind(self, plural: str) -> str:
        return f"{plural}.{self.version}.resource.k8s.io"

    def slices(self) -> list[Object]:
        return sorted(
            self.kube.list(self.kind("resourceslices")), key=lambda s: str(s["metadata"]["name"])
        )

    def devices(self) -> list[str]:
        return [device["name"] for each in self.slices() for device in each["spec"]["devices"]]

    def all_published(self, seconds: float = 20) -> None:
        def look() -> bool:
            names = self.devices()
            assert len(names) == 6, f"{len(self.slices())} slices with {names}"
            return True

        wait_for("six GPUs in slices", look, seconds)

    def allocated(self, name: str, device: str) -> str:
        """Creates a claim with an allocation, as the scheduler writes it, and returns its UID."""
        flat = {"deviceClassName": DRIVER}
        asked = {"name": "gpu", **(flat if self.version == "v1beta1" else {"exactly": flat})}
        self.kube.create(
            {
                "apiVersion": f"resource.k8s.io/{self.version}",
                "kind": "ResourceClaim",
                "metadata": {"name": name},
                "spec": {"devices": {"requests": [asked]}},
            }
        )
        result = {"request": "gpu", "driver": DRIVER, "pool": NODE, "device": device}
        here = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [NODE]}]}]
        allocation = {"devices": {"results": [result]}, "nodeSelector": {"nodeSelectorTerms": here}}
        patch = f"--patch={json.dumps({'status': {'allocation': allocation}})}"
        self.kube(
            "patch",
            self.kind("resourceclaims"),
            name,
            "--subresource=status",
            "--type=merge",
            patch,
        )
        return str(self.claim(name)["metadata"]["uid"])

    def claim(self, name: str) -> Object:
        return self.kube.get(self.kind("resourceclaims"), name)

    def thread(self, name: str, device: str) -> None:
        """Prepares and unprepares a new claim, and checks the files and the status at each step."""
        uid = self.allocated(name, device)
        (prepared,) = self.kubelet.prepare("default", name, uid)
        assert (prepared.pool_name, prepared.device_name) == (NODE, device)
        assert list(prepared.request_names) == ["gpu"]
        file = self.folder / "cdi" / f"claimd.dev-claim_{DRIVER}_{uid}.json"
        assert file.exists()
        (entry,) = wait_for(
            "status.devices", lambda: self.claim(name)["status"].get("devices"), seconds=10
        )
        assert entry["device"] == device
        self.kubelet.unprepare("default", name, uid)
        assert not file.exists()
        wait_for("status to go", lambda: not self.claim(name)["status"].get("devices"), seconds=10)


Start = Callable[..., World]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    if daemons.pid_of("apiserver"):
        pytest.skip(
            "a cluster of the rig is up; these tests start control planes of their own (--matrix)"
        )
    rig, processes = Rig(), []

    def begin(*versions: str) -> World:
        rig("up", "--control-plane-only", "--runtime-config", serving(*versions))
        kube = Kubectl(kubeconfig=places.STATE / "admin.kubeconfig")
        kube.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})
        kubelet = Kubelet(tmp_path / "k")
        _claimd("fake", "write", str(tmp_path / "fake"), "nvidia:h100=4", "amd:mi300x=2").wait(30)
        settings = {
            "node-name": NODE,
            "kubelet-dir": kubelet.root,
            "cdi-dir": tmp_path / "cdi",
            "root": tmp_path / "fake",
            "kubeconfig": kube.kubeconfig,
        }
        process = _claimd(
            "run", *(f"--{key}={value}" for key, value in settings.items()), log=tmp_path / "log"
        )
        processes.append(process)
        kubelet.register()
        return World(
            rig=rig,
            kube=kube,
            kubelet=kubelet,
            process=process,
            folder=tmp_path,
            version=versions[0],
        )

    yield begin
    for process in processes:
        process.terminate()
        process.wait(10)
    rig("down")
    print((tmp_path / "log").read_text())  # pytest shows the log if the test has failed


@pytest.mark.parametrize("version", VERSIONS)
def test_only_one_version_is_served(start: Start, version: str) -> None:
    world = start(version)
    world.all_published()
    world.thread("one", world.devices()[-1])
    _deleted_slice_is_back(world)


@pytest.mark.parametrize(
    "steps", [(VERSIONS, ("v1",)), (("v1",),)], ids=["step by step", "at once"]
)
def test_api_server_is_upgraded_while_we_run(
    start: Start, steps: tuple[tuple[str, ...], ...]
) -> None:
    """Upgrades from v1beta1 only to v1 only. At each step prepared claims stay, and new ones work.

    Both versions may be served in between. By default 1.33 serves only the one, and 1.34 the other.
    """
    world = start("v1beta1")
    world.all_published()
    devices = world.devices()
    held = world.allocated("held", devices[0])
    world.kubelet.prepare("default", "held", held)
    uids = [each["metadata"]["uid"] for each in world.slices()]

    for step, versions in enumerate(steps):
        world.rig("apiserver", "restart", "--runtime-config", serving(*versions))
        world.version = versions[-1]
        world.all_published(seconds=10)
        assert [each["metadata"]["uid"] for each in world.slices()] == uids, (
            "the slices were written again"
        )
        assert world.process.poll() is None, "the plugin ended"
        world.thread(f"after-{step}", devices[1 + step])
        assert [
            device.device_name for device in world.kubelet.prepare("default", "held", held)
        ] == devices[:1]
        # claimd's watch may need time to reach the new API server.
        _deleted_slice_is_back(world, seconds=15)
        uids = [each["metadata"]["uid"] for each in world.slices()]

    world.kubelet.unprepare("default", "held", held)
    wait_for("status to go", lambda: not world.claim("held")["status"].get("devices"), seconds=10)


def _deleted_slice_is_back(world: World, seconds: float = 1) -> None:
    victim = world.slices()[0]["metadata"]
    world.kube.delete(world.kind("resourceslices"), victim["name"], wait=False)
    deed = time.monotonic()
    for looks in itertools.count(1):
        began = time.monotonic()
        uids = [each["metadata"]["uid"] for each in world.slices()]
        if uids and victim["uid"] not in uids:
            return
        in_time = began - deed <= seconds or looks <= LOOKS
        assert in_time, f"not back after {began - deed:.2f} s"


def _claimd(*words: str, log: Path | None = None) -> subprocess.Popen[bytes]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("CLAIMD_")}
    with open(log or os.devnull, "ab") as out:
        command = [sys.executable, "-m", "claimd", *words]
        return subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=out, env=environment)
