"""Line 16: any two components of the manifests together, and the pods that check what a program in
a container finds.

The component openshift is left out, because only OpenShift has the kind that it adds.
"""

from __future__ import annotations

import itertools
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import driver as drivers
from tests.cluster.__main__ import OVERLAY
from tests.cluster.conftest import ROOT, Rig, Running
from tests.cluster.deadline import wait_for
from tests.cluster.driver import Driver, given, is_ready
from tests.cluster.kubectl import Kubectl, Object
from tests.cluster.objects import claim, pod
from tests.cluster.rig.places import IMAGE

COMPONENTS = ("amd", "kernel-log", "nvidia", "nvml")
CHECK = ROOT / "deploy/examples/container-check"


def apply(kube: Kubectl, folder: str | Path) -> None:
    there = kube.within(drivers.NAMESPACE)
    there("apply", "--server-side", "--force-conflicts", f"--kustomize={folder}")
    there("rollout", "status", "daemonset/claimd", "--timeout=240s")


@pytest.fixture(scope="module")
def restored(kube: Kubectl, driver: Driver, rig: Rig) -> Iterator[None]:
    """Applies the suite's own overlay again after the last test of this file."""
    yield
    apply(kube, ROOT / OVERLAY)
    wait_for_one_pod(driver)


def wait_for_one_pod(driver: Driver) -> None:
    """Waits until there is one claimd pod, since the pod from before an update may still be there."""
    wait_for("one pod of claimd", lambda: [is_ready(each) for each in driver.pods()] == [True], 60)


def kustomization(components: tuple[str, ...], folder: Path) -> None:
    """Writes a kustomization with the suite's overlay, which has fake GPUs, and these components."""
    root = os.path.relpath(ROOT, folder.resolve())
    document = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [f"{root}/{OVERLAY}"],
        "components": [f"{root}/deploy/components/{name}" for name in components],
    }
    (folder / "kustomization.yaml").write_text(json.dumps(document))


@pytest.mark.parametrize("pair", list(itertools.combinations(COMPONENTS, 2)), ids="+".join)
def test_pods_run_beside_any_two_components(
    kube: Kubectl,
    ns: Kubectl,
    driver: Driver,
    running: Running,
    restored: None,
    pair: tuple[str, str],
) -> None:
    with tempfile.TemporaryDirectory(prefix="claimd-test-") as folder:
        kustomization(pair, Path(folder))
        apply(kube, folder)
    wait_for_one_pod(driver)

    ns.create(claim("c"), pod("user", driver.node, {"gpu": "c"}))
    running("user")
    assert len(given(ns, "user")) == 1


@pytest.mark.parametrize("vendor", ["nvidia", "amd", "intel"])
def test_the_check_of_a_container_shows_what_it_was_given(
    ns: Kubectl, driver: Driver, rig: Rig, vendor: str
) -> None:
    """A fake GPU has no driver, so the check says what it found and fails."""
    text = (CHECK / f"{vendor}.yaml").read_text().replace("image: claimd", f"image: {IMAGE}")
    ns("create", "--filename=-", text=text)
    name = f"container-check-{vendor}"

    def ended() -> Object:
        status: Object = ns.get("pod", name)["status"]
        assert status["phase"] in ("Succeeded", "Failed"), status["phase"]
        return status

    assert wait_for("the check to end", ended, 110)["phase"] == "Failed"
    log = ns("logs", name)
    assert "CLAIMD_GPU_" in log, log
    nodes = [line for line in log.splitlines() if line.startswith("/dev/")]
    assert nodes
    assert all("no driver is behind it" in line or ": opened" in line for line in nodes), log
