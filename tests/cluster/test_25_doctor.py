"""Line 25: `claimd doctor` on a real node finds nothing on a healthy node, and names each fault."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import driver as drivers
from tests.cluster import objects
from tests.cluster.conftest import ROOT, Rig
from tests.cluster.deadline import wait_for
from tests.cluster.driver import Driver
from tests.cluster.kubectl import Kubectl, Object
from tests.cluster.objects import API, DRIVER, claim, pod
from tests.cluster.rig import places

BAD = ("error", "warning")
Findings = list[Object]


def in_pod(driver: Driver, *words: str) -> Findings:
    """Runs doctor in claimd's pod, as an administrator does."""
    command = f'claimd doctor -o json {" ".join(words)}; echo "exit code $?" >&2'
    return parsed(driver.exec("sh", "-c", command))


def parsed(text: str) -> Findings:
    findings: Findings = json.loads(text)["findings"]
    return findings


def bad(findings: Findings) -> set[str]:
    return {finding["check"] for finding in findings if finding["level"] in BAD}


def seen(findings: Findings, check: str) -> str:
    return "; ".join(finding["seen"] for finding in findings if finding["check"] == check)


def remedy(findings: Findings, check: str) -> str:
    (remedy_,) = [finding["remedy"] for finding in findings if finding["check"] == check]
    return str(remedy_)


def from_outside(kube: Kubectl, *words: str, clock: str = "") -> Findings:
    """Runs doctor on the node itself, with an administrator's kubeconfig."""
    command = [sys.executable, "-m", "claimd", "doctor", "-o", "json"]
    command += [f"--kubeconfig={kube.kubeconfig}", *words]
    if clock:
        command = ["faketime", "-f", clock, *command]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    return parsed(done.stdout)


@pytest.fixture
def doctor_pod(kube: Kubectl, driver: Driver, rig: Rig) -> Iterator[Kubectl]:
    """Creates the pod of deploy/doctor/pod.yaml. It sleeps, so that tests can run doctor in it."""
    document = objects.doctor_pod(driver.node)
    spec = document["spec"]
    (container,) = spec["containers"]
    container |= {"command": ["sleep", "3600"], "args": []}
    container["env"].append({"name": "CLAIMD_ROOT", "value": drivers.TREE})
    container["volumeMounts"].append({"name": "fake", "mountPath": drivers.TREE})
    spec["volumes"].append({"name": "fake", "hostPath": {"path": "/var/lib/claimd-fake"}})

    there = kube.within(drivers.NAMESPACE)
    there.create(document)
    wait_for(
        "the doctor's pod",
        lambda: there.get("pod", "claimd-doctor")["status"]["phase"] == "Running",
    )
    try:
        yield there
    finally:
        there.delete("pod", "claimd-doctor", force=True)


def has_crio(driver: Driver) -> bool:
    return driver.runtime().startswith("cri-o")


def config_of(driver: Driver) -> Path:
    """Returns the configuration file with which the rig started the container runtime."""
    return places.STATE / ("crio.conf" if has_crio(driver) else "containerd.toml")


def by_doctor_pod(there: Kubectl) -> Findings:
    return parsed(there.exec("claimd-doctor", "sh", "-c", "claimd doctor -o json || true"))


# ---------------------------------------------------------------- a healthy node


def test_a_node_that_is_well_has_nothing(ns: Kubectl, driver: Driver, running: object) -> None:
    assert callable(running)
    ns.create(claim("c"), pod("p", driver.node, {"c": "c"}))
    running("p")
    findings = in_pod(driver)
    assert bad(findings) == set(), [f for f in findings if f["level"] in BAD]
    levels = {finding["check"]: finding["level"] for finding in findings}
    assert levels["kubelet-answers"] == levels["registered"] == levels["rights"] == "well"
    assert levels["admission-policy"] == levels["slices"] == levels["cdi-files"] == "well"
    if has_crio(driver):
        assert levels["cdi-enabled"] == "well", "it is always on there"
    else:
        assert levels["cdi-enabled"] == "not looked at", (
            "a pod does not see the runtime's configuration"
        )
    assert "1 claims are in use" in seen(findings, "kubelet-claims")


def test_a_pod_that_sees_the_host_sees_the_runtime(doctor_pod: Kubectl, driver: Driver) -> None:
    findings = by_doctor_pod(doctor_pod)
    assert bad(findings) == set(), [f for f in findings if f["level"] in BAD]
    enabled = "has CDI always" if has_crio(driver) else f"{config_of(driver)}: enable_cdi = true"
    assert enabled in seen(findings, "cdi-enabled")
    assert "/var/run/cdi is among" in seen(findings, "cdi-folders")
    assert "files open, and may have" in seen(findings, "open-files")


def test_a_cluster_that_is_well_has_nothing(kube: Kubectl, driver: Driver, rig: Rig) -> None:
    findings = from_outside(kube, "--cluster")
    assert bad(findings) == set(), [f for f in findings if f["level"] in BAD]
    levels = {finding["check"]: finding["level"] for finding in findings}
    assert levels["api-server-gates"] == "well"
    assert levels["rights"] == levels["admission-policy"] == levels["claimd-pods"] == "well"


# ---------------------------------------------------------------- faults


@contextlib.contextmanager
def changed(config: Path, old: str, new: str) -> Iterator[None]:
    before = config.read_text()
    assert old in before
    config.write_text(before.replace(old, new))
    try:
        yield
    finally:
        config.write_text(before)


@contextlib.contextmanager
def without(kube: Kubectl, kind: str, name: str) -> Iterator[None]:
    stored = kube.get(kind, name)
    kube.delete(kind, name)
    try:
        yield
    finally:
        stored["metadata"] = {"name": name, "labels": stored["metadata"].get("labels", {})}
        kube.create(stored)


@contextlib.contextmanager
def without_verb(kube: Kubectl, resource: str, verb: str) -> Iterator[None]:
    role = kube.get("clusterrole", "claimd")
    rules = json.loads(json.dumps(role["rules"]))
    for rule in rules:
        if resource in rule["resources"]:
            rule["verbs"].remove(verb)
    rules = [rule for rule in rules if rule["verbs"]]
    kube.patch("clusterrole", "claimd", "merge", {"rules": rules})
    try:
        yield
    finally:
        kube.patch("clusterrole", "claimd", "merge", {"rules": role["rules"]})


@contextlib.contextmanager
def created(kube: Kubectl, document: Object) -> Iterator[None]:
    kube.create(document)
    try:
        yield
    finally:
        kube.delete(document["kind"], document["metadata"]["name"])


def slice_(name: str, driver: str, node: str, address: str) -> Object:
    attributes = {"resource.kubernetes.io/pciBusID": {"string": address}}
    spec = {
        "driver": driver,
        "nodeName": node,
        "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "d0", "attributes": attributes}],
    }
    return {"apiVersion": API, "kind": "ResourceSlice", "metadata": {"name": name}, "spec": spec}


@contextlib.contextmanager
def file_there(driver: Driver, path: str) -> Iterator[None]:
    driver.exec("sh", "-c", f"echo '{{}}' > {path}")
    try:
        yield
    finally:
        driver.exec("rm", path)


@contextlib.contextmanager
def device_plugin(kube: Kubectl, node: str) -> Iterator[None]:
    """Gives the Node the resource of a device plugin.

    The resource is that of GPUs in time slices. The kubelet would remove `nvidia.com/gpu` again,
    because an earlier test has registered a plugin for it.
    """
    escaped = "nvidia.com~1gpu.shared"
    add = [
        {"op": "add", "path": f"/status/{kind}/{escaped}", "value": "2"}
        for kind in ("capacity", "allocatable")
    ]
    kube("patch", "node", node, "--subresource=status", "--type=json", f"--patch={json.dumps(add)}")
    try:
        yield
    finally:
        remove = [{"op": "remove", "path": change["path"]} for change in add]
        kube(
            *("patch", "node", node, "--subresource=status", "--type=json"),
            f"--patch={json.dumps(remove)}",
        )


def test_cdi_off_in_the_runtime(doctor_pod: Kubectl, driver: Driver) -> None:
    if has_crio(driver):
        pytest.skip("CRI-O cannot turn CDI off")
    with changed(config_of(driver), "enable_cdi = true", "enable_cdi = false"):
        findings = by_doctor_pod(doctor_pod)
    assert bad(findings) == {"cdi-enabled"}
    # A process names the file, so that it is in what was seen, and not in what to do.
    assert str(config_of(driver)) in seen(findings, "cdi-enabled")
    assert "in the file that is named above" in remedy(findings, "cdi-enabled")


def test_the_runtime_looks_into_other_folders(doctor_pod: Kubectl, driver: Driver) -> None:
    with changed(config_of(driver), f', "{places.CDI_FOLDER}"', ', "/elsewhere"'):
        findings = by_doctor_pod(doctor_pod)
    assert bad(findings) == {"cdi-folders"}
    assert "the runtime looks in /etc/cdi, /elsewhere" in seen(findings, "cdi-folders")
    # A process names the file, so that it is in what was seen, and not in what to do.
    assert str(config_of(driver)) in seen(findings, "cdi-folders")
    assert "in the file that is named above" in remedy(findings, "cdi-folders")


def test_a_policy_that_is_not_bound(kube: Kubectl, driver: Driver) -> None:
    with without(kube, "validatingadmissionpolicybinding", f"resourceslices.{DRIVER}"):

        def look() -> None:
            # The API server needs a moment to notice the change.
            assert bad(in_pod(driver)) == {"admission-policy"}

        wait_for("the doctor to notice", lambda: look() or True, seconds=30)

    def well() -> None:
        assert bad(in_pod(driver)) == set()

    wait_for("the policy to hold again", lambda: well() or True, seconds=30)


@pytest.mark.parametrize(
    ("resource", "verb"),
    [
        ("resourceslices", "update"),
        ("resourceclaims/driver", "associated-node:patch"),
        ("events", "create"),
    ],
)
def test_a_verb_that_is_gone(kube: Kubectl, driver: Driver, resource: str, verb: str) -> None:
    with without_verb(kube, resource, verb):
        findings = wait_for("the doctor to notice", lambda: _with(in_pod(driver), "rights"), 30)
    assert bad(findings) == {"rights"}
    assert f"{verb} {resource}" in seen(findings, "rights")
    wait_for("the right to be back", lambda: not bad(in_pod(driver)), seconds=30)


def _with(findings: Findings, check: str) -> Findings:
    assert check in bad(findings)
    return findings


def test_a_clock_that_is_wrong(kube: Kubectl, driver: Driver, rig: Rig) -> None:
    if shutil.which("faketime") is None:
        pytest.skip("needs faketime")
    words = (f"--node-name={driver.node}",)
    findings = from_outside(kube, *words)
    assert "clock" not in bad(findings)
    # Doctor runs without --root, because the fake GPUs belong to the claimd that runs.
    assert "which are fake" in seen(findings, "gpus")
    assert not {"slices", "gpus-left-alone"} & bad(findings)
    findings = from_outside(kube, *words, clock="+3600s")
    assert "clock" in bad(findings)
    assert "s ahead of the API server's" in seen(findings, "clock")


def test_files_that_nobody_knows(driver: Driver) -> None:
    stray = f"{drivers.CDI}/claimd.dev-claim_{DRIVER}_00000000-0000-0000-0000-000000000000.json"
    with file_there(driver, stray):
        assert bad(in_pod(driver)) == {"cdi-files"}
    with file_there(driver, f"{drivers.CLAIMS}/x.json.damaged-1"):
        assert bad(in_pod(driver)) == {"checkpoints"}
    assert bad(in_pod(driver)) == set()


def test_another_driver_and_a_device_plugin(kube: Kubectl, driver: Driver, rig: Rig) -> None:
    address = driver.tree_addresses()[0]
    with created(kube, slice_("suite-rival", "gpu.example.com", driver.node, address)):
        findings = in_pod(driver)
        assert bad(findings) == {"other-drivers"}
        assert "the driver gpu.example.com as well" in seen(findings, "other-drivers")
        assert bad(from_outside(kube, "--cluster")) == {"other-drivers"}
    with device_plugin(kube, driver.node):
        findings = in_pod(driver)
        assert bad(findings) == {"device-plugins"}
        assert "nvidia.com/gpu.shared" in seen(findings, "device-plugins")
    assert bad(in_pod(driver)) == set()


def test_the_kubelets_folder_is_another(driver: Driver) -> None:
    findings = in_pod(driver, "--kubelet-dir=/var/lib/k0s/kubelet")
    assert {"kubelet-folder", "kubelet-answers"} <= bad(findings)
    assert "there is no folder /var/lib/k0s/kubelet" in seen(findings, "kubelet-folder")


def test_what_is_seen_from_outside_alone(kube: Kubectl, driver: Driver, rig: Rig) -> None:
    with created(kube, slice_("suite-ghost", DRIVER, "suite-no-node", "0000:01:00.0")):
        findings = from_outside(kube, "--cluster")
    assert bad(findings) == {"node-slices"}
    assert {f.get("node") for f in findings if f["level"] in BAD} == {"suite-no-node"}
    with contextlib.ExitStack() as stack:
        for each in kube.list("deviceclasses"):
            if DRIVER in json.dumps(each["spec"]):
                stack.enter_context(without(kube, "deviceclass", each["metadata"]["name"]))
        assert bad(from_outside(kube, "--cluster")) == {"device-classes"}
