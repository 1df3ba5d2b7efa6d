"""Line 19: pods with the resource names of the vendors' device plugins, and the steps of
docs/migrate.md that hand a node over from a device plugin to claimd.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import device_plugin, test_14_parts
from tests.cluster import driver as drivers
from tests.cluster.__main__ import FAKE_TREE
from tests.cluster.conftest import ROOT, Rig, Running
from tests.cluster.deadline import wait_for
from tests.cluster.device_plugin import DevicePlugin, IntelPlugin
from tests.cluster.driver import Driver, allotted, given, phase, variables
from tests.cluster.kubectl import Kubectl, Object
from tests.cluster.objects import DRIVER, container, pod

COMPONENTS = ROOT / "deploy/components"
VENDORS = ("nvidia", "amd", "intel")
divided = test_14_parts.divided


@pytest.fixture(scope="module", autouse=True)
def names(kube: Kubectl, driver: Driver) -> Iterator[None]:
    """Creates the DeviceClasses of the three components, and deletes them after the tests."""
    if driver.kubelet() < (1, 36):
        pytest.skip(f"{driver.older_kubelet()} has DRAExtendedResource off by default")
    files = [f"--filename={COMPONENTS}/{each}-resources/deviceclasses.yaml" for each in VENDORS]
    kube("apply", "--server-side", *files)
    yield
    kube("delete", *files)


def asking(name: str, node: str, *limits: dict[str, str]) -> Object:
    """Builds a pod without a claim, with a container for each of these limits."""
    pod_ = pod(name, node, containers=[container(f"c{number}") for number in range(len(limits))])
    for each, limit in zip(pod_["spec"]["containers"], limits, strict=True):
        each["resources"] = {"limits": limit}
    return pod_


def claim_of(ns: Kubectl, name: str) -> Object:
    """Returns the claim that the scheduler made for the pod."""
    status = ns.get("pod", name)["status"]["extendedResourceClaimStatus"]
    return ns.get("resourceclaim", status["resourceClaimName"])


@pytest.mark.parametrize(
    ("resource", "count", "vendor"),
    [
        ("nvidia.com/gpu", 1, "nvidia"),
        ("amd.com/gpu", 2, "amd"),
        ("gpu.intel.com/i915", 1, "intel"),
    ],
)
def test_the_names_of_the_device_plugins(
    ns: Kubectl, driver: Driver, running: Running, resource: str, count: int, vendor: str
) -> None:
    ns.create(asking("user", driver.node, {resource: str(count)}))
    running("user")
    addresses = given(ns, "user", "c0")
    assert len(addresses) == count
    published = driver.published()
    for address in addresses:
        assert published[address]["attributes"]["vendor"]["string"] == vendor

    uid = claim_of(ns, "user")["metadata"]["uid"]
    ns.delete("pod", "user")
    wait_for("unprepare", lambda: uid not in driver.cdi_files(), seconds=30)


def test_a_part_by_its_profile(
    ns: Kubectl, divided: object, driver: Driver, running: Running, rig: Rig
) -> None:
    ns.create(asking("user", driver.node, {"nvidia.com/mig-1g.10gb": "1"}))
    running("user")
    ((device,),) = allotted(claim_of(ns, "user")).values()
    assert "-mig-" in device
    assert len(given(ns, "user", "c0")) == 1


def test_each_container_gets_its_own(ns: Kubectl, driver: Driver, running: Running) -> None:
    """Checks two vendors, and an init container that gets the same GPU as a later container."""
    user = asking("user", driver.node, {"nvidia.com/gpu": "1"}, {"nvidia.com/gpu": "2"}, {})
    user["spec"]["containers"][0]["resources"]["limits"]["amd.com/gpu"] = "1"
    first = container("first", command=["env"])
    first["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
    user["spec"]["initContainers"] = [first]
    ns.create(user)
    running("user")

    each = [given(ns, "user", f"c{number}") for number in range(3)]
    assert [len(addresses) for addresses in each] == [2, 2, 0]
    assert len({*each[0], *each[1]}) == 4
    log = ns("logs", "user", "--container=first")
    before = [line.partition("=")[2] for line in log.splitlines() if line.startswith("CLAIMD_GPU_")]
    assert len(before) == 1
    assert before[0] in {*each[0], *each[1]}


def test_the_api_server_finds_nothing_wrong_with_the_policies(
    kube: Kubectl, driver: Driver
) -> None:
    """The API server's controller checks the types in the policies' expressions."""
    name = f"gpuconfigs.{DRIVER}"

    def status() -> Object:
        status_: Object = kube.get("validatingadmissionpolicy", name).get("status", {})
        assert status_.get("observedGeneration"), status_
        return status_

    checked = wait_for("the check of types", status, 30)
    assert not checked.get("typeChecking", {}).get("expressionWarnings"), checked


# ---------------------------------------------------------------- from a device plugin

RESOURCE = "nvidia.com/gpu"


def allocatable(kube: Kubectl, node: str, resource: str = RESOURCE) -> str | None:
    amount: str | None = kube.get("node", node)["status"]["allocatable"].get(resource)
    return amount


def test_a_node_goes_from_a_device_plugin_to_claimd_and_back(
    kube: Kubectl, ns: Kubectl, driver: Driver, running: Running, rig: Rig
) -> None:
    """Uses the same resource name and pod all the time. Running pods keep running at each change."""
    if not Path(device_plugin.FOLDER).is_dir():
        pytest.skip("the kubelet has no folder for device plugins on this machine")
    plugin = DevicePlugin(RESOURCE, 2)
    plugin.start()
    try:
        wait_for("the plugin's devices", lambda: allocatable(kube, driver.node) == "2", 60)

        # While both are on the node, the resource is the device plugin's, and no claim is made.
        ns.create(asking("old", driver.node, {RESOURCE: "1"}))
        running("old")
        assert variables(ns, "old", "c0")[device_plugin.VARIABLE] == RESOURCE
        assert given(ns, "old", "c0") == []
        assert "extendedResourceClaimStatus" not in ns.get("pod", "old")["status"]
    finally:
        plugin.stop()

    # The plugin has stopped, so the node has 0 of its devices. The pod keeps running.
    wait_for("no devices of the plugin", lambda: allocatable(kube, driver.node) in (None, "0"), 90)
    assert drivers.is_ready(ns.get("pod", "old"))
    ns.create(asking("new", driver.node, {RESOURCE: "1"}))
    running("new")
    assert len(given(ns, "new", "c0")) == 1

    # On the way back a pod with a claimd GPU keeps it, and its claim, until the pod ends. The
    # scheduler counts both pods against the plugin's devices, so a third pod needs a third device.
    plugin = DevicePlugin(RESOURCE, 3)
    plugin.start()
    try:
        wait_for("the plugin's devices", lambda: allocatable(kube, driver.node) == "3", 60)
        ns.create(asking("again", driver.node, {RESOURCE: "1"}))
        running("again")
        assert variables(ns, "again", "c0")[device_plugin.VARIABLE] == RESOURCE
        assert drivers.is_ready(ns.get("pod", "new")), phase(ns.get("pod", "new"))
        assert allotted(claim_of(ns, "new"))
    finally:
        plugin.stop()


def test_intel_s_own_device_plugin_hands_a_node_over_and_has_it_back(
    kube: Kubectl, ns: Kubectl, driver: Driver, running: Running, rig: Rig, tmp_path: Path
) -> None:
    if not Path(device_plugin.FOLDER).is_dir():
        pytest.skip("the kubelet has no folder for device plugins on this machine")
    plugin, node = IntelPlugin(tmp_path, FAKE_TREE), driver.node
    resource = plugin.RESOURCE

    def by_the_plugin(name: str) -> None:
        plugin.start()
        wait_for("the plugin's GPUs", lambda: allocatable(kube, node, resource) == "2", 60)
        ns.create(asking(name, node, {resource: "1"}))
        running(name)
        assert ns.exec(name, "ls", str(plugin.nodes), container="c0").startswith("card")
        assert given(ns, name, "c0") == []
        ns.delete("pod", name)

    try:
        by_the_plugin("old")
    finally:
        plugin.stop()

    # claimd puts the device nodes where programs look for them.
    wait_for("no GPUs of the plugin", lambda: allocatable(kube, node, resource) in (None, "0"), 90)
    ns.create(asking("new", node, {resource: "1"}))
    running("new")
    assert len(given(ns, "new", "c0")) == 1
    assert allotted(claim_of(ns, "new"))
    ns.delete("pod", "new")
    try:
        by_the_plugin("again")
    finally:
        plugin.stop()
        wait_for("no GPUs of the plugin", lambda: allocatable(kube, node, resource) == "0", 90)
