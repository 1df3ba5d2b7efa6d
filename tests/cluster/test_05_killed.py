"""Line 5: the plugin is killed while pods run."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.cluster.conftest import Rig, Running
from tests.cluster.deadline import wait_for
from tests.cluster.driver import Driver, given
from tests.cluster.kubectl import Kubectl, Object
from tests.cluster.objects import claim, pod


def test_killed_while_pods_run(rig: Rig, ns: Kubectl, driver: Driver, running: Running) -> None:
    users = [f"old-{number}" for number in range(3)]
    ns.create(
        *(claim(user) for user in users), *(pod(user, driver.node, {"gpu": user}) for user in users)
    )
    for user in users:
        running(user)
    before = {user: given(ns, user) for user in users}
    slices = [_identity(each) for each in driver.slices()]
    plugin = driver.pod()

    for pid in processes_of(plugin["metadata"]["uid"]):
        os.kill(pid, signal.SIGKILL)
    name = plugin["metadata"]["name"]

    def back() -> bool:
        (status,) = driver.kube.get("pod", name)["status"]["containerStatuses"]
        assert (
            status["restartCount"] == plugin["status"]["containerStatuses"][0]["restartCount"] + 1
        )
        # The pod's condition can be from before the plugin was killed.
        return driver.is_registered()

    wait_for("the plugin to come back by itself", back, seconds=60)
    assert [_identity(each) for each in driver.slices()] == slices
    assert {user: given(ns, user) for user in users} == before

    ns.create(claim("new"), pod("new", driver.node, {"gpu": "new"}))
    running("new")
    assert given(ns, "new") not in before.values()

    uids = [ns.get("resourceclaim", user)["metadata"]["uid"] for user in users]
    ns.delete("pods", *users)
    wait_for(
        "unprepare of the old ones", lambda: not set(uids) & set(driver.cdi_files()), seconds=15
    )
    assert not set(uids) & set(driver.records())


def _identity(each: Object) -> tuple[object, ...]:
    return (
        each["metadata"]["name"],
        each["metadata"]["uid"],
        each["spec"]["pool"],
        each["spec"]["devices"],
    )


def processes_of(pod_uid: str) -> list[int]:
    """Returns the ids of the pod's `claimd run` processes, which have the pod's UID as a variable."""
    mark = f"CLAIMD_POD_UID={pod_uid}".encode()
    pids = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
            if b"run" in words and mark in (folder / "environ").read_bytes().split(b"\0"):
                pids.append(int(folder.name))
        except OSError:  # the process has ended
            continue
    assert pids, f"no process of pod {pod_uid} on this machine"
    return pids
