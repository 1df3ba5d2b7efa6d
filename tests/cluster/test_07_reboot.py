"""Line 7: the node reboots, or someone empties folders of the driver."""

from __future__ import annotations

import contextlib
import uuid
from pathlib import Path

from tests.cluster.conftest import Rig, Running
from tests.cluster.deadline import wait_for
from tests.cluster.driver import (
    CDI,
    CLAIMS,
    TREE,
    Driver,
    container_id,
    given,
    is_ready,
    nodes,
    phase,
)
from tests.cluster.kubectl import Kubectl, KubectlError, Object
from tests.cluster.objects import DRIVER, claim, container, pod

# The folder of the fake GPUs on the node.
HOST_TREE = Path("/var/lib/claimd-fake")
PLUGIN, REGISTRY = Path(CLAIMS).parent, "/var/lib/kubelet/plugins_registry"
BOOT_ID = HOST_TREE / "proc/sys/kernel/random/boot_id"


def test_reboot_of_the_node(rig: Rig, ns: Kubectl, driver: Driver, running: Running) -> None:
    users = [f"user-{number}" for number in range(3)]
    ns.create(
        *(claim(user) for user in users), *(pod(user, driver.node, {"gpu": user}) for user in users)
    )
    before = {user: container_id(running(user)) for user in users}
    given_before = {user: given(ns, user) for user in users}
    uids = {ns.get("resourceclaim", user)["metadata"]["uid"] for user in users}

    boot_id = f"{uuid.uuid4()}\n"
    BOOT_ID.write_text(boot_id)
    rig("reboot")

    def all_back() -> bool:
        for user in users:
            pod_ = ns.get("pod", user)
            assert is_ready(pod_), phase(pod_)
            assert container_id(pod_) != before[user], (
                f"{user} still shows its container from before"
            )
        return True

    wait_for("every pod to run again", all_back, seconds=150)
    assert driver.read(f"{TREE}/{BOOT_ID.relative_to(HOST_TREE)}") == boot_id, (
        "the driver saw no new boot"
    )
    assert uids <= set(driver.cdi_files())
    assert {user: given(ns, user) for user in users} == given_before
    for user in users:
        (address,) = given_before[user]
        expected = driver.tree_numbers(address)
        assert {path: nodes(ns, user).get(path) for path in expected} == expected


def test_cdi_folder_emptied_under_a_running_pod(
    ns: Kubectl, driver: Driver, running: Running
) -> None:
    ns.create(claim("one"), pod("user", driver.node, {"gpu": "one"}))
    before = container_id(running("user"))
    address = given(ns, "user")
    uid = ns.get("resourceclaim", "one")["metadata"]["uid"]

    driver.exec("find", CDI, "-mindepth", "1", "-delete")
    # The container may end before kubectl gets its answer.
    with contextlib.suppress(KubectlError):
        ns.exec("user", "touch", "/tmp/end")

    def again() -> Object:
        pod_ = ns.get("pod", "user")
        assert is_ready(pod_), phase(pod_)
        assert container_id(pod_) != before, "the container has not restarted yet"
        return pod_

    wait_for("the container to run again", again, seconds=60)
    assert given(ns, "user") == address
    assert uid in driver.cdi_files()


def test_emptied_cdi_folder_is_filled_within_a_second(
    ns: Kubectl, driver: Driver, running: Running
) -> None:
    users = ["a", "b"]
    containers = {user: [container("main", "gpu")] for user in users}
    ns.create(
        *(claim(u) for u in users), *(pod(u, driver.node, {"gpu": u}, containers[u]) for u in users)
    )
    for user in users:
        running(user)
    uids = {ns.get("resourceclaim", user)["metadata"]["uid"] for user in users}
    # Empties the folder, and lists it after a second. One command does both, because each call of
    # kubectl takes time.
    told = driver.exec("sh", "-c", f"find {CDI} -mindepth 1 -delete; sleep 1; ls {CDI}")
    assert all(uid in told for uid in uids), f"after a second: {told}"


def test_emptied_plugin_folder_and_registry(ns: Kubectl, driver: Driver, running: Running) -> None:
    """The kubelet notices that the plugin has gone and come back. A prepared claim stays prepared."""
    ns.create(claim("before"), pod("before", driver.node, {"gpu": "before"}))
    container = container_id(running("before"))
    held, registered = set(driver.records()), driver.registrations()
    driver.exec(
        "sh", "-c", f"find {PLUGIN} -mindepth 1 -delete; find {REGISTRY} -name '{DRIVER}*' -delete"
    )

    def again() -> bool:
        assert driver.registrations() > registered
        return True

    wait_for("the kubelet to register the driver again", again, seconds=20)
    ns.create(claim("after"), pod("after", driver.node, {"gpu": "after"}))
    running("after")
    assert held < set(driver.records()), "records of before are written again"
    assert container_id(ns.get("pod", "before")) == container
    assert given(ns, "before") != given(ns, "after")
