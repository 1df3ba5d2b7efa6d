"""Line 14: GPUs that are divided. The API server takes their counters, the scheduler counts by
them, and a container gets its part and nothing of the others.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from devices import fake, scan, uevents
from devices.gpu import Gpu, Inventory, Roots
from tests.cluster.__main__ import FAKE_TREE
from tests.cluster.conftest import Rig, Running
from tests.cluster.deadline import wait_for
from tests.cluster.driver import Driver, allotted, given, nodes
from tests.cluster.kubectl import Kubectl, Object
from tests.cluster.objects import DRIVER, claim, devices, pod, request

DIVIDED = ["nvidia:a100,mig=2", "amd:mi300x,mode=cpx,memory_mode=nps4"]
COUNTERS = {"nvidia": ("instances", "2"), "amd": ("partitions", "8")}
SETTLE = 30.0  # seconds: GPUs that were there before stay for the grace


def write(tree: Path, description: Object) -> Inventory:
    fake.write(tree, description)
    uevents.broadcast(tree, uevents.message("change", "/devices/pci0000:10", "pci"))
    return scan.scan(Roots.under(tree))


def published(driver: Driver) -> set[str]:
    return {
        device["name"] for each in driver.slices() for device in each["spec"].get("devices", [])
    }


@pytest.fixture(scope="module")
def divided(driver: Driver, rig: Rig) -> Iterator[Inventory]:
    """The node has two more fake GPUs for a while."""
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
    (found,) = {gpu.parent for gpu in there.gpus if gpu.vendor == vendor and gpu.parent is not None}
    whole = there.named(found)
    assert whole is not None
    return whole


def part_of(vendor: str) -> Object:
    expression = f'device.attributes["{DRIVER}"].vendor == "{vendor}"'
    return request(device_class=f"part.{DRIVER}", selectors=[{"cel": {"expression": expression}}])


def all_of(whole: Gpu) -> Object:
    expression = f'device.attributes["resource.kubernetes.io"].pciBusID == "{whole.address}"'
    return request(
        device_class=f"{whole.vendor}.{DRIVER}", selectors=[{"cel": {"expression": expression}}]
    )


def refusal(ns: Kubectl, name: str) -> str:
    """What the scheduler says of a pod that it has no place for."""
    for condition in ns.get("pod", name).get("status", {}).get("conditions", []):
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return str(condition["message"])
    return ""


def test_the_api_server_keeps_the_counters(divided: Inventory, driver: Driver, vendor: str) -> None:
    whole = whole_of(divided, vendor)
    name, total = COUNTERS[vendor]
    sets = {
        one["name"]: one["counters"]
        for each in driver.slices()
        for one in each["spec"].get("sharedCounters", [])
    }
    assert sets[whole.name] == {name: {"value": total}}
    taken = {
        d["name"]: d.get("consumesCounters")
        for s in driver.slices()
        for d in s["spec"].get("devices", [])
    }
    for gpu in (gpu for gpu in divided.gpus if whole.name in (gpu.name, gpu.parent)):
        amount = total if gpu.name == whole.name else "1"
        assert taken[gpu.name] == [
            {"counterSet": whole.name, "counters": {name: {"value": amount}}}
        ]


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
        part = divided.named(device)
        assert part is not None
        assert part.kind == "partition"
        assert nodes(ns, name) == {node.path: (node.major, node.minor) for node in part.nodes}
        assert given(ns, name) == [part.address]
        held.append(device)
    assert held[0] != held[1]
    whole = whole_of(divided, vendor)
    ns.create(claim("all", devices(all_of(whole))), pod("greedy", driver.node, {"gpu": "all"}))
    wait_for(
        "the scheduler's no", lambda: "cannot allocate all claims" in refusal(ns, "greedy"), 30
    )
    ns("delete", "pod", "user", "neighbour", seconds=60)
    ns("delete", "resourceclaim", "part", "beside", seconds=60)
    running("greedy")
    assert nodes(ns, "greedy") == {node.path: (node.major, node.minor) for node in whole.nodes}
    ns.create(claim("late", devices(part_of(vendor))), pod("later", driver.node, {"gpu": "late"}))
    wait_for("the scheduler's no", lambda: "cannot allocate all claims" in refusal(ns, "later"), 30)
