"""Line 14: GPUs that are divided into parts.

The API server accepts their counters, the scheduler uses them, and a container gets its own part
only. A claim for a GPU does not get the divided GPU as a whole.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from claimd_devices import fake, scan, uevents
from claimd_devices.gpu import Gpu, Inventory, Roots
from tests.cluster.__main__ import FAKE_TREE
from tests.cluster.conftest import Rig, Running
from tests.cluster.deadline import wait_for
from tests.cluster.driver import Driver, allotted, given, nodes, variables
from tests.cluster.kubectl import Kubectl, Object
from tests.cluster.objects import DRIVER, claim, devices, pod, request

DIVIDED = ["nvidia:a100,mig=3g.40gb:1g.10gb", "amd:mi300x,mode=cpx,memory_mode=nps4,kfd=closed"]
COUNTERS = {"nvidia": ("instances", "2"), "amd": ("partitions", "8")}
# Seconds until the published devices are those of the tree. Vanished GPUs stay for the grace period.
SETTLE = 30.0
ALL = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": f"all.{DRIVER}"},
    "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]},
}


def write(tree: Path, description: Object) -> Inventory:
    fake.write(tree, description)
    uevents.broadcast(tree, uevents.message("change", "/devices/pci0000:10", "pci"))
    return scan.scan(Roots.in_folder(tree))


def published(driver: Driver) -> set[str]:
    return {
        device["name"] for each in driver.slices() for device in each["spec"].get("devices", [])
    }


@pytest.fixture(scope="module")
def divided(driver: Driver, rig: Rig) -> Iterator[Inventory]:
    """Adds two fake GPUs to the node, and removes them after the tests."""
    before = json.loads((FAKE_TREE / fake.MARKER).read_text())
    more = fake.parse(DIVIDED)["devices"]
    assert isinstance(more, list)
    there = write(FAKE_TREE, {**before, "devices": [*before["devices"], *more]})
    try:
        wait_for(
            "the divided GPUs",
            lambda: published(driver) == {gpu.name for gpu in there.gpus},
            SETTLE,
        )
        yield there
    finally:
        there = write(FAKE_TREE, before)
        wait_for(
            "the GPUs of before",
            lambda: published(driver) == {gpu.name for gpu in there.gpus},
            SETTLE,
        )


@pytest.fixture(params=["nvidia", "amd"])
def vendor(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def whole_of(there: Inventory, vendor: str) -> Gpu:
    (parent,) = {
        gpu.parent for gpu in there.gpus if gpu.vendor == vendor and gpu.parent is not None
    }
    whole = there.find_gpu(parent)
    assert whole is not None
    return whole


def part_of(vendor: str) -> Object:
    expression = f'device.attributes["{DRIVER}"].vendor == "{vendor}"'
    return request(device_class=f"part.{DRIVER}", selectors=[{"cel": {"expression": expression}}])


def all_of(whole: Gpu, device_class: str) -> Object:
    kind = f'device.attributes["{DRIVER}"].type == "{whole.kind}"'
    address = f'device.attributes["resource.kubernetes.io"].pciBusID == "{whole.address}"'
    selectors: list[Object] = [{"cel": {"expression": part}} for part in (kind, address)]
    return request(device_class=device_class, selectors=selectors)


def refusal(ns: Kubectl, name: str) -> str:
    """Returns the scheduler's message about a pod that does not fit, or ""."""
    for condition in ns.get("pod", name).get("status", {}).get("conditions", []):
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return str(condition["message"])
    return ""


def test_the_api_server_keeps_the_counters(divided: Inventory, driver: Driver, vendor: str) -> None:
    whole = whole_of(divided, vendor)
    name, total = COUNTERS[vendor]
    sets = {
        counter_set["name"]: counter_set["counters"]
        for each in driver.slices()
        for counter_set in each["spec"].get("sharedCounters", [])
    }
    assert sets[whole.name] == {name: {"value": total}}
    taken = {
        d["name"]: d.get("consumesCounters")
        for s in driver.slices()
        for d in s["spec"].get("devices", [])
    }
    assert taken[whole.name] is None
    for part in (gpu for gpu in divided.gpus if gpu.parent == whole.name):
        assert taken[part.name] == [{"counterSet": whole.name, "counters": {name: {"value": "1"}}}]


def test_who_has_a_part_excludes_who_wants_all(
    ns: Kubectl, divided: Inventory, driver: Driver, running: Running, vendor: str
) -> None:
    ns.create(
        claim("part", devices(part_of(vendor))),
        claim("beside", devices(part_of(vendor))),
        pod("user", driver.node, {"gpu": "part"}),
        pod("neighbour", driver.node, {"gpu": "beside"}),
    )
    held = []
    for name, of in (("user", "part"), ("neighbour", "beside")):
        running(name)
        ((device,),) = allotted(ns.get("resourceclaim", of)).values()
        part = divided.find_gpu(device)
        assert part is not None
        assert part.kind == "partition"
        assert nodes(ns, name) == {node.path: (node.major, node.minor) for node in part.nodes}
        assert given(ns, name) == [part.address]
        held.append(device)
    assert held[0] != held[1]
    whole = whole_of(divided, vendor)
    wanted = all_of(whole, f"{vendor}.{DRIVER}")
    ns.create(claim("all", devices(wanted)), pod("greedy", driver.node, {"gpu": "all"}))
    wait_for(
        "the scheduler's no", lambda: "cannot allocate all claims" in refusal(ns, "greedy"), 30
    )
    ns("delete", "pod", "user", "neighbour", seconds=60)
    ns("delete", "resourceclaim", "part", "beside", seconds=60)

    # No pod has a part any more. The divided GPU still cannot be allocated as a whole.
    time.sleep(2)
    assert "cannot allocate all claims" in refusal(ns, "greedy")


def test_a_monitor_has_admin_access_to_a_gpu_whose_parts_pods_have(
    ns: Kubectl, divided: Inventory, driver: Driver, running: Running, vendor: str
) -> None:
    """The fixture `ns` labels the namespace for admin access, because of this test's name."""
    whole = whole_of(divided, vendor)
    watched = all_of(whole, f"all.{DRIVER}")
    watched["exactly"]["adminAccess"] = True
    part = part_of(vendor)
    part["exactly"]["allocationMode"] = "All"
    ns.create(ALL, claim("parts", devices(part)), pod("user", driver.node, {"gpu": "parts"}))
    try:
        running("user")
        ns.create(
            claim("watched", devices(watched)), pod("monitor", driver.node, {"gpu": "watched"})
        )
        running("monitor")
        assert given(ns, "monitor") == [whole.address]
        assert variables(ns, "monitor")["DRA_ADMIN_ACCESS"] == "true"
        assert "DRA_ADMIN_ACCESS" not in variables(ns, "user")
    finally:
        ns.delete("deviceclass", f"all.{DRIVER}")


def reasons(ns: Kubectl, name: str) -> str:
    """Returns the reasons of the Events about a pod."""
    about = f"--field-selector=involvedObject.name={name}"
    return " ".join(str(event.get("message")) for event in ns.list("events", about))


def test_a_class_that_takes_anything_gets_a_divided_gpu_refused_by_name(
    ns: Kubectl, divided: Inventory, driver: Driver, vendor: str
) -> None:
    whole = whole_of(divided, vendor)
    wanted = all_of(whole, f"all.{DRIVER}")
    ns.create(ALL, claim("all", devices(wanted)), pod("greedy", driver.node, {"gpu": "all"}))
    try:
        advice = f"ask for a part of it, by the DeviceClass part.{DRIVER}"
        # This is long enough for a second try of the kubelet, as in the fixture `running`.
        wait_for("the reason", lambda: advice in reasons(ns, "greedy"), 110)
        assert f"{whole.name} is divided" in reasons(ns, "greedy")
    finally:
        ns.delete("deviceclass", f"all.{DRIVER}")


def test_a_claim_for_1g_10gb_gets_it(
    ns: Kubectl, divided: Inventory, driver: Driver, running: Running
) -> None:
    whole = whole_of(divided, "nvidia")
    profile = f'device.attributes["{DRIVER}"].?profile.orValue("") == "1g.10gb"'
    wanted = request(device_class=f"part.{DRIVER}", selectors=[{"cel": {"expression": profile}}])
    ns.create(claim("small", devices(wanted)), pod("user", driver.node, {"gpu": "small"}))
    running("user")
    ((device,),) = allotted(ns.get("resourceclaim", "small")).values()
    assert device == f"{whole.name}-mig-7-0"
