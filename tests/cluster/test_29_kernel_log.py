"""Line 29: errors that NVIDIA's driver writes to the kernel's log, of a MIG instance, of an NVSwitch
and of a program.

The node gets eight H100 and a divided A100 for these tests.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from claimd_devices import fake
from claimd_devices.gpu import Gpu, Inventory
from tests.cluster.__main__ import FAKE_TREE
from tests.cluster.conftest import Rig, Running
from tests.cluster.deadline import wait_for
from tests.cluster.driver import Driver, allotted
from tests.cluster.kubectl import Kubectl
from tests.cluster.objects import DRIVER, claim, devices, pod, request
from tests.cluster.test_14_parts import SETTLE, part_of, published, write

MODELS = ["nvidia:h100=8", "nvidia:a100,mig=2"]
# The effect that tests/cluster/overlay configures.
EFFECT = "NoExecute"


@pytest.fixture(scope="module")
def machine(driver: Driver, rig: Rig) -> Iterator[Inventory]:
    before = json.loads((FAKE_TREE / fake.MARKER).read_text())
    more = fake.parse(MODELS)["devices"]
    assert isinstance(more, list)
    there = write(FAKE_TREE, {**before, "devices": [*before["devices"], *more]})
    try:
        wait_for(
            "the new GPUs", lambda: published(driver) == {gpu.name for gpu in there.gpus}, SETTLE
        )
        yield there
    finally:
        there = write(FAKE_TREE, before)
        wait_for(
            "the GPUs of before",
            lambda: published(driver) == {gpu.name for gpu in there.gpus},
            SETTLE,
        )


@pytest.fixture
def healed(driver: Driver, machine: Inventory) -> Iterator[None]:
    """Binds the driver of each NVIDIA GPU again after a test, which ends all findings."""
    yield
    for gpu in nvidia(machine):
        if gpu.parent is None:
            driver.give("heal", gpu.name)
    names = {gpu.name for gpu in nvidia(machine)}
    wait_for("the taints to go", lambda: tainted(driver).isdisjoint(names), seconds=10)


def nvidia(machine: Inventory) -> list[Gpu]:
    return [gpu for gpu in machine.gpus if gpu.vendor == "nvidia"]


def tainted(driver: Driver) -> set[str]:
    return {device for device, taints in driver.taints().items() if taints}


def test_an_error_of_one_mig_instance_evicts_its_pod_alone(
    ns: Kubectl, machine: Inventory, driver: Driver, running: Running, healed: None
) -> None:
    ns.create(
        claim("one", devices(part_of("nvidia"))),
        claim("two", devices(part_of("nvidia"))),
        pod("user", driver.node, {"gpu": "one"}),
        pod("neighbour", driver.node, {"gpu": "two"}),
    )
    running("user")
    running("neighbour")
    ((device,),) = allotted(ns.get("resourceclaim", "one")).values()
    ((beside,),) = allotted(ns.get("resourceclaim", "two")).values()
    whole, _, instance = device.partition("-mig-")
    assert beside.startswith(f"{whole}-mig-")

    driver.give("xid", whole, f"46,instance={instance.partition('-')[0]}")
    wait_for(
        "the taint", lambda: driver.taints()[device] == [("claimd.dev/xid", EFFECT)], seconds=15
    )
    wait_for("the pod's eviction", lambda: ns.find("pod", "user") is None, seconds=40)
    running("neighbour")
    assert tainted(driver) == {device}


def test_a_fatal_error_of_an_nvswitch_taints_all_gpus_of_nvidia(
    machine: Inventory, driver: Driver, healed: None
) -> None:
    names = {gpu.name for gpu in nvidia(machine)}
    eight = [gpu for gpu in nvidia(machine) if gpu.kind == "gpu"]
    assert len(eight) >= 8
    driver.give("sxid", eight[0].name)
    wait_for("the taints", lambda: tainted(driver) == names, seconds=15)
    taints = driver.taints()
    assert {tuple(taints[name]) for name in names} <= {
        (("claimd.dev/sxid", EFFECT),),
        (("claimd.dev/sxid", "NoSchedule"),),
    }


def test_an_error_of_a_program_changes_a_metric_alone(
    ns: Kubectl, machine: Inventory, driver: Driver, running: Running
) -> None:
    whole = f'device.attributes["{DRIVER}"].type == "gpu"'
    asked = request(device_class=f"nvidia.{DRIVER}", selectors=[{"cel": {"expression": whole}}])
    ns.create(claim("one", devices(asked)), pod("user", driver.node, {"gpu": "one"}))
    running("user")
    ((device,),) = allotted(ns.get("resourceclaim", "one")).values()
    before = driver.metric("claimd_device_events_total")
    published_before = [each["spec"] for each in driver.slices()]

    driver.give("xid", device, "31")
    wait_for(
        "the metric",
        lambda: driver.metric("claimd_device_events_total") == before + 1,
        seconds=15,
    )
    assert [each["spec"] for each in driver.slices()] == published_before
    assert tainted(driver) == set()
    (entry,) = ns.get("resourceclaim", "one")["status"]["devices"]
    assert [one for one in entry["conditions"] if one["type"] == "Healthy"] == []
    assert "DeviceUnhealthy" not in {event["reason"] for event in ns.list("events")}
    running("user")
