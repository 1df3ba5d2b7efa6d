"""Line 30: the commands of the pages work as they are printed.

The stories install, upgrade, roll back and remove claimd by Helm and by kustomize, hand a node over,
and run each command of troubleshooting.md. All manifests and examples are applied too.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import test_applied
from tests.cluster import device_plugin, typed
from tests.cluster import driver as drivers
from tests.cluster import test_19_extended_resources as resources
from tests.cluster import test_20_chart as chart
from tests.cluster.__main__ import FAKE_TREE, OVERLAY
from tests.cluster.conftest import ROOT, Rig, Running
from tests.cluster.deadline import wait_for
from tests.cluster.driver import Driver, given, is_ready, phase
from tests.cluster.kubectl import Kubectl, Object
from tests.cluster.objects import claim, pod
from tests.cluster.rig import build

FIRST_POD = "one-pod-one-gpu"
# What the rig needs in addition: an image that is not pulled, and the network of the API server.
RIG_PATCHES = (
    {"op": "add", "path": "/spec/template/spec/hostNetwork", "value": True},
    *(
        {
            "op": "add",
            "path": f"/spec/template/spec/{containers}/0/imagePullPolicy",
            "value": "Never",
        }
        for containers in ("containers", "initContainers")
    ),
)
CLAIMD = """\
#!/bin/sh
PYTHONPATH={plugin}:{devices} CLAIMD_ROOT={tree} exec {python} -m claimd "$@"
"""


class Typist:
    """Types the commands of a page in the folders that install.md describes."""

    def __init__(self, kube: Kubectl, node: str, folder: Path) -> None:
        self.names = {"NODE": node}
        self._parent, self._repository = folder, folder / "claimd"
        self._repository.mkdir()
        (self._repository / "deploy").symlink_to(ROOT / "deploy")
        (folder / "gpus").mkdir()
        programs = folder / "programs"
        programs.mkdir()
        script = CLAIMD.format(
            plugin=ROOT / "plugin", devices=ROOT / "devices", tree=FAKE_TREE, python=sys.executable
        )
        (programs / "claimd").write_text(script)
        (programs / "claimd").chmod(0o755)
        path = f"{programs}:{build.helm().parent}:{os.environ['PATH']}"
        self._environment = {**os.environ, "KUBECONFIG": str(kube.kubeconfig), "PATH": path}

    def write_values(self, **settings: str) -> None:
        values = chart.VALUES | {"settings": {"taint-failed": "NoExecute", **settings}}
        (self._repository / "gpus.yaml").write_text(json.dumps(values))

    def write_overlay(self, *components: str, selector: str = "", **settings: str) -> None:
        patches: list[object] = list(RIG_PATCHES)
        for name, value in {"CLAIMD_TAINT_FAILED": "NoExecute", **settings}.items():
            variable = {"name": name, "value": value}
            path = "/spec/template/spec/containers/0/env/-"
            patches.append({"op": "add", "path": path, "value": variable})
        if selector:
            label, _, value = selector.partition("=")
            path = "/spec/template/spec/nodeSelector"
            patches.append({"op": "add", "path": path, "value": {label: value}})
        document = {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "resources": ["../claimd/deploy/base"],
            "components": [f"../claimd/deploy/components/{each}" for each in ("fake", *components)],
            "images": [{"name": "claimd", "newName": chart.REPOSITORY, "newTag": chart.TAG}],
            "patches": [
                {"target": {"kind": "DaemonSet", "name": "claimd"}, "patch": json.dumps(patches)}
            ],
        }
        (self._parent / "gpus/kustomization.yaml").write_text(json.dumps(document))

    def __call__(self, command: str, codes: tuple[int, ...] = (0,)) -> str:
        """Types a command of a page and returns what it prints."""
        folder = self._parent if " -k gpus" in command else self._repository
        text = command
        for name, value in self.names.items():
            text = text.replace(name, value)
        done = subprocess.run(
            ["bash", "-c", text], cwd=folder, env=self._environment, capture_output=True,
            text=True, timeout=300, check=False,
        )  # fmt: skip
        assert done.returncode in codes, f"{text}: {done.returncode}: {done.stdout}{done.stderr}"
        return done.stdout


@pytest.fixture
def typist(kube: Kubectl, driver: Driver, rig: Rig, tmp_path: Path) -> Typist:
    return Typist(kube, driver.node, tmp_path)


@pytest.fixture
def bare(driver: Driver) -> Iterator[None]:
    """Removes claimd from the cluster, and applies the suite's own overlay again after the test."""
    overlay = f"--kustomize={ROOT / OVERLAY}"
    driver.kube("delete", "--wait", overlay)
    wait_for("the slices to go", lambda: driver.slices() == [], 90)
    yield
    driver.kube("apply", "--server-side", "--force-conflicts", overlay, seconds=60)
    chart.settle(driver)


def wait_until_removed(driver: Driver) -> None:
    wait_for("the slices to go", lambda: driver.slices() == [], 90)


def delete(ns: Kubectl, driver: Driver, name: str) -> None:
    ns.delete("pod", name)
    ns.delete("resourceclaim", name)
    wait_for("its claim to be given back", lambda: driver.cdi_files() == [])


def test_by_helm_from_the_first_command_to_the_last(
    kube: Kubectl, ns: Kubectl, driver: Driver, running: Running, typist: Typist, bare: None
) -> None:
    typist.write_values()
    for command in typed.BY_HELM:
        typist(command)
    chart.settle(driver)

    typist(typed.TRIED)
    there = kube.within("default")
    wait_for("the first pod", lambda: is_ready(there.get("pod", FIRST_POD)) or None, 110)
    log, _ = [typist(command) for command in typed.AND_SEEN]
    assert "CLAIMD_GPU_0000_" in log

    chart.start(ns, driver, running, "kept")
    kept, slices = chart.has(ns, "kept"), chart.published(driver)
    typist.write_values(**{"log-level": "debug"})
    typist(typed.UPGRADED_BY_HELM)
    chart.settle(driver)
    assert chart.settings(driver)["CLAIMD_LOG_LEVEL"] == "debug"
    typist(typed.BACK_BY_HELM)
    chart.settle(driver)
    assert "CLAIMD_LOG_LEVEL" not in chart.settings(driver)
    assert (chart.has(ns, "kept"), chart.published(driver)) == (kept, slices)

    assert f"{ns.namespace}" in typist(typed.USED)
    delete(ns, driver, "kept")
    assert ns.namespace not in typist(typed.USED)
    typist(typed.REMOVED_BY_HELM)
    wait_until_removed(driver)
    for command in typed.SWEPT:
        typist(command)
    assert not Path(drivers.CLAIMS).parent.exists()


def test_by_kustomize_and_then_to_helm_and_back(
    ns: Kubectl, driver: Driver, running: Running, typist: Typist, bare: None
) -> None:
    apply, status, _ = typed.BY_KUSTOMIZE
    typist.write_overlay()
    for command in typed.BY_KUSTOMIZE:
        typist(command)
    chart.settle(driver)
    chart.start(ns, driver, running, "kept")
    kept, slices = chart.has(ns, "kept"), chart.published(driver)

    typist.write_overlay(CLAIMD_LOG_LEVEL="debug")
    typist(apply)
    typist(status)
    chart.settle(driver)
    assert chart.settings(driver)["CLAIMD_LOG_LEVEL"] == "debug"
    typist(typed.BACK_BY_KUSTOMIZE)
    typist(status)
    chart.settle(driver)
    assert "CLAIMD_LOG_LEVEL" not in chart.settings(driver)

    typist.write_overlay()
    typist.write_values()
    for command in typed.TO_HELM:
        typist(command)
    chart.settle(driver)
    labels = driver.kube.get("daemonset", "claimd")["metadata"]["labels"]
    assert labels["app.kubernetes.io/managed-by"] == "Helm"
    assert (chart.has(ns, "kept"), chart.published(driver)) == (kept, slices)

    typist(typed.REMOVED_BY_HELM)
    typist(apply)
    chart.settle(driver)
    assert chart.has(ns, "kept") == kept
    delete(ns, driver, "kept")
    typist(typed.REMOVED_BY_KUSTOMIZE)
    wait_until_removed(driver)


def test_a_node_is_handed_over_and_back(
    kube: Kubectl, ns: Kubectl, driver: Driver, running: Running, typist: Typist, bare: None
) -> None:
    if not Path(device_plugin.FOLDER).is_dir():
        pytest.skip("the kubelet has no folder for device plugins on this machine")
    resource = resources.RESOURCE

    def run(name: str) -> None:
        ns.create(resources.asking(name, driver.node, {resource: "1"}))
        running(name)

    typist.write_overlay("nvidia-resources", selector="example.com/gpus=claimd")
    typist(typed.BY_KUSTOMIZE[0])
    plugin = device_plugin.DevicePlugin(resource, 2)
    plugin.start()
    try:
        wait_for("the plugin's devices", lambda: typist(typed.OFFERED) == "2", 60)
        assert driver.pods() == []
        run("old")

        typist(typed.CORDONED)
        assert typist(typed.PODS_OF_PLUGINS).split() == [f"{ns.namespace}/old"]
        ns.delete("pod", "old")
        assert typist(typed.PODS_OF_PLUGINS) == ""
        typist(typed.HANDED_OVER)
    finally:
        # The label makes the DaemonSet of the device plugin delete its pod.
        plugin.stop()
    try:
        wait_for("no devices of the plugin", lambda: typist(typed.OFFERED) in ("", "0"), 90)
        wait_for("claimd's slice", lambda: "gpu.claimd.dev" in typist(typed.PUBLISHED), 90)
        typist(typed.UNCORDONED)
        run("new")
        assert len(given(ns, "new", "c0")) == 1

        typist(typed.CORDONED)
        assert typist(typed.PODS_OF_CLAIMS).split() == [f"{ns.namespace}/new"]
        ns.delete("pod", "new")
        assert typist(typed.PODS_OF_CLAIMS) == ""
    finally:
        typist(typed.HANDED_BACK)
    wait_until_removed(driver)
    plugin = device_plugin.DevicePlugin(resource, 3)
    plugin.start()
    try:
        wait_for("the plugin's devices", lambda: typist(typed.OFFERED) == "3", 60)
        typist(typed.UNCORDONED)
        run("again")
        assert resources.variables(ns, "again", "c0")[device_plugin.VARIABLE] == resource
        ns.delete("pod", "again")
    finally:
        plugin.stop()
        typist(typed.UNCORDONED)
        typist(typed.REMOVED_BY_KUSTOMIZE)


@pytest.fixture
def train(kube: Kubectl, driver: Driver) -> Iterator[None]:
    """Runs a pod `train` with a claim of the same name in each namespace that the page uses."""
    kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-a"}})
    places = [kube.within(name) for name in ("default", "team-a")]
    try:
        for there in places:
            wait_for("the account", lambda there=there: there.find("serviceaccount", "default"))  # type: ignore[misc]
            there.create(claim("train"), pod("train", driver.node, {"gpu": "train"}))
        for there in places:
            wait_for(
                "pod train",
                lambda there=there: is_ready(there.get("pod", "train")) or None,  # type: ignore[misc]
                110,
            )
        yield
    finally:
        for there in places:
            there("delete", "--ignore-not-found", "pod/train", "resourceclaim/train")
        kube.delete("namespace", "team-a")


def test_every_look_of_troubleshooting(driver: Driver, typist: Typist, train: None) -> None:
    typist.names |= {"POD": driver.pod()["metadata"]["name"], "NAME": "train"}
    told = {command: typist(command) for command in typed.LOOKED_AT}
    told |= {command: typist(command, codes=(0, 1)) for command in typed.FILTERED}

    def of(words: str) -> str:
        (answer,) = [text for command, text in told.items() if words in command]
        return answer

    assert "pod team-a/train: it runs on node" in of("claimd explain pod/train -n team-a")
    assert "pod default/train: it runs on node" in of("claimd explain pod/train -f")
    assert "CLAIMD_GPU_" in of("'env | grep CLAIMD; ls -l /dev'")
    assert of("auth can-i").strip() == "yes"
    assert "resource.k8s.io/v1\n" in of("api-versions")
    assert json.loads(of("get resourceclaim NAME"))[0]["driver"] == "gpu.claimd.dev"
    assert of("probe ready").strip() == "ok"


# ---------------------------------------------------------------- manifests and examples


@pytest.fixture(scope="module")
def namespaces(kube: Kubectl) -> Iterator[None]:
    """Creates the missing namespaces that manifests name, with their labels."""
    labels: dict[str, object] = {}
    for manifests in test_applied.MANIFESTS.values():
        for obj in manifests:
            metadata = obj["metadata"]
            if obj["kind"] == "Namespace":
                labels[metadata["name"]] = metadata.get("labels", {})
            elif "namespace" in metadata:
                labels.setdefault(metadata["namespace"], {})
    made = []
    for name, theirs in sorted(labels.items()):
        if kube.find("namespace", name) is None:
            metadata = {"name": name, "labels": theirs}
            kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
            made.append(name)
    yield
    for name in made:
        kube.delete("namespace", name, wait=False)


DRY_RUN = ("apply", "--server-side", "--force-conflicts", "--dry-run=server")


@pytest.mark.parametrize("place", test_applied.MANIFESTS)
def test_every_manifest_is_accepted(
    kube: Kubectl, driver: Driver, namespaces: None, place: str
) -> None:
    items = test_applied.MANIFESTS[place]
    document = {"apiVersion": "v1", "kind": "List", "items": items}
    command = ["kubectl", f"--kubeconfig={kube.kubeconfig}", *DRY_RUN, "--filename=-"]
    # A person writes the name of a node into deploy/doctor/pod.yaml.
    text = json.dumps(document).replace('"NODE"', f'"{driver.node}"')
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


COMPONENTS = sorted(
    path.name
    for path in (ROOT / "deploy/components").iterdir()
    # Only OpenShift has the kind that this component adds.
    if path.name != "openshift"
)


@pytest.mark.parametrize("component", COMPONENTS)
def test_every_component_is_accepted(driver: Driver, typist: Typist, component: str) -> None:
    typist.write_overlay(*{component} - {"fake"})
    typist(f"kubectl {' '.join(DRY_RUN)} -k gpus")


# The pods of the other examples need parts of GPUs or virtual machines, or test_16 runs them.
EXAMPLES = sorted(
    path.parent.name
    for path in (ROOT / "deploy/examples").glob("*/pod.yaml")
    if path.parent.name not in ("mig-profiles", "virtual-machine")
)


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_runs(kube: Kubectl, driver: Driver, typist: Typist, example: str) -> None:
    files = f"-f deploy/examples/{example}/"
    typist(f"kubectl apply {files}")
    try:
        place = f"deploy/examples/{example}/pod.yaml"
        for obj in test_applied.MANIFESTS[place]:
            if obj["kind"] == "Pod":
                namespace = obj["metadata"].get("namespace", "default")
                there, name = kube.within(namespace), obj["metadata"]["name"]

                def runs(there: Kubectl = there, name: str = name) -> Object:
                    pod_ = there.get("pod", name)
                    assert is_ready(pod_), phase(pod_)
                    return pod_

                wait_for(f"pod {name}", runs, 110)
                log = there("logs", name, "--all-containers")
                assert "CLAIMD_GPU_" in log, log
    finally:
        typist(f"kubectl delete --ignore-not-found {files}")
