"""Line 1: the driver is registered, and its GPUs are published."""

from __future__ import annotations

from tests.cluster.deadline import wait_for
from tests.cluster.driver import Driver
from tests.cluster.kubectl import Kubectl
from tests.cluster.objects import DRIVER


def test_slices_list_every_fake_gpu(driver: Driver) -> None:
    expected = driver.tree_addresses()
    assert len(expected) >= 12, f"the fake tree is too small for this suite: {expected}"
    wait_for(
        "every GPU of the tree in a slice",
        lambda: sorted(driver.published()) == expected,
        seconds=30,
    )


def test_owner_is_the_node_and_pool_has_its_name(kube: Kubectl, driver: Driver) -> None:
    node = kube.get("node", driver.node)
    slices = driver.slices()
    assert slices
    for each in slices:
        owner = {
            "apiVersion": "v1",
            "kind": "Node",
            "name": driver.node,
            "uid": node["metadata"]["uid"],
        }
        assert [{key: o[key] for key in owner} for o in each["metadata"]["ownerReferences"]] == [
            owner
        ]
        assert each["spec"]["driver"] == DRIVER
        assert each["spec"]["nodeName"] == driver.node
        assert each["spec"]["pool"]["name"] == driver.node
        assert each["spec"]["pool"]["resourceSliceCount"] == len(slices)


def test_attributes_say_what_the_tree_says(driver: Driver) -> None:
    vendors = {"0x10de": "nvidia", "0x1002": "amd", "0x8086": "intel"}
    for address, device in driver.published().items():
        function = f"/fake/sys/bus/pci/devices/{address}"
        attributes = {
            name: next(iter(value.values())) for name, value in device["attributes"].items()
        }
        assert attributes["vendor"] == vendors[driver.read(f"{function}/vendor").strip()]
        assert attributes["deviceID"] == driver.read(f"{function}/device").strip()
        place = driver.exec("readlink", "-f", function)
        assert f"/{attributes['resource.kubernetes.io/pcieRoot']}/" in place


def test_kubelet_has_registered_it(driver: Driver) -> None:
    assert driver.is_registered()
