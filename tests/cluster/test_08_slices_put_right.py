"""Line 8: someone deletes or edits a slice by hand."""

from __future__ import annotations

import itertools
import time

from tests.cluster.deadline import wait_for
from tests.cluster.driver import Driver
from tests.cluster.kubectl import Kubectl, Object

ROUNDS = 3
# The least number of looks. On a busy machine each look takes a second.
LOOKS = 5


def test_deleted_slice_is_back_within_a_second(kube: Kubectl, driver: Driver) -> None:
    for _ in range(ROUNDS):
        wanted = _steady(driver)
        victim = driver.slices()[0]["metadata"]
        kube.delete("resourceslice", victim["name"], wait=False)
        _right_again(driver, wanted, gone=victim["uid"])


def test_edited_slice_is_right_within_a_second(kube: Kubectl, driver: Driver) -> None:
    for _ in range(ROUNDS):
        wanted = _steady(driver)
        victim = driver.slices()[0]["metadata"]["name"]
        kube.patch("resourceslice", victim, "json", [{"op": "remove", "path": "/spec/devices/0"}])
        _right_again(driver, wanted)


def test_edited_attribute_is_right_within_a_second(kube: Kubectl, driver: Driver) -> None:
    wanted = _steady(driver)
    victim = driver.slices()[0]["metadata"]["name"]
    lie = [
        {
            "op": "replace",
            "path": "/spec/devices/0/attributes/vendor",
            "value": {"string": "nobody"},
        }
    ]
    kube.patch("resourceslice", victim, "json", lie)
    _right_again(driver, wanted)


def test_foreign_slice_of_our_pool_is_removed(kube: Kubectl, driver: Driver) -> None:
    """A slice that a former version left would make the pool incomplete forever."""
    wanted = _steady(driver)
    stray = driver.slices()[0]
    stray["metadata"] = {
        "name": "stray-of-the-suite",
        "ownerReferences": stray["metadata"]["ownerReferences"],
    }
    stray["spec"]["devices"] = []
    kube.create(stray)
    _right_again(driver, wanted)


def _content(driver: Driver) -> list[Object]:
    return [device for each in driver.slices() for device in each["spec"]["devices"]]


def _steady(driver: Driver) -> list[Object]:
    """Waits until exactly the GPUs of the tree are published, and returns their devices."""
    addresses = driver.tree_addresses()
    wait_for("all GPUs", lambda: sorted(driver.published()) == addresses)
    return _content(driver)


def _right_again(driver: Driver, wanted: list[Object], gone: str = "") -> None:
    """Checks that the slices have this content again within a second after the change.

    A look counts as in time if it began in time.
    """
    deed = time.monotonic()
    for looks in itertools.count(1):
        began = time.monotonic()
        slices = driver.slices()
        content = [device for each in slices for device in each["spec"]["devices"]]
        pools = [each["spec"]["pool"] for each in slices]
        whole = all(pool["resourceSliceCount"] == len(pools) for pool in pools)
        uids = [each["metadata"]["uid"] for each in slices]
        if content == wanted and whole and gone not in uids:
            return
        assert began - deed <= 1 or looks <= LOOKS, (
            f"not right after {began - deed:.2f} s: {len(content)} devices, pools {pools}"
        )
