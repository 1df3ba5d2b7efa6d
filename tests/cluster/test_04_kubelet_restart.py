"""Line 4: the kubelet restarts. It deletes the driver's slices when it starts, and knows the driver
again after it has found its socket.
"""

from __future__ import annotations

import time

from tests.cluster.conftest import Rig, Running
from tests.cluster.deadline import wait_for
from tests.cluster.driver import Driver, given
from tests.cluster.kubectl import Kubectl
from tests.cluster.objects import claim, pod


def test_kubelet_restart(rig: Rig, ns: Kubectl, driver: Driver, running: Running) -> None:
    ns.create(claim("one"), pod("before", driver.node, {"gpu": "one"}))
    before = running("before")
    uid = ns.get("resourceclaim", "one")["metadata"]["uid"]
    published = driver.published()
    old = {each["metadata"]["uid"] for each in driver.slices()}

    rig("node", "stop")
    rig("node", "start")
    began = time.monotonic()
    wait_for(
        "slices after the kubelet's clean-up",
        lambda: (now := driver.slices()) and not old & {each["metadata"]["uid"] for each in now},
        seconds=10,
    )
    wait_for(
        "all GPUs in them",
        lambda: driver.published() == published,
        seconds=10 - (time.monotonic() - began),
    )

    ns.create(claim("two"), pod("after", driver.node, {"gpu": "two"}))
    running("after")
    assert given(ns, "after") != given(ns, "before")

    now = ns.get("pod", "before")
    assert now["metadata"]["uid"] == before["metadata"]["uid"]
    kept = ("containerID", "restartCount", "ready")
    statuses = [
        [s[key] for key in kept] for p in (before, now) for s in p["status"]["containerStatuses"]
    ]
    assert statuses[0] == statuses[1], "the running pod was touched"

    ns.delete("pod", "before")
    wait_for(
        "unprepare of the older pod's claim", lambda: uid not in driver.cdi_files(), seconds=15
    )
    assert uid not in driver.records()
