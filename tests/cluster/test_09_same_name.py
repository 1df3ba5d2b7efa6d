"""Line 9: a claim is deleted and created again with the same name while its pod terminates."""

from __future__ import annotations

import pytest

from tests.cluster.conftest import Running
from tests.cluster.deadline import wait_for
from tests.cluster.driver import Driver, given
from tests.cluster.kubectl import Kubectl, KubectlError
from tests.cluster.objects import claim, container, pod

SLOW = ["sh", "-c", "trap 'sleep 3; exit 0' TERM; while :; do sleep 0.1; done"]


@pytest.mark.parametrize("force", [False, True], ids=["gently", "by force"])
def test_claim_again_while_its_pod_ends(
    ns: Kubectl, driver: Driver, running: Running, force: bool
) -> None:
    old = pod("old", driver.node, {"gpu": "same"}, [container("main", "gpu", command=SLOW)])
    old["spec"]["terminationGracePeriodSeconds"] = 6
    ns.create(claim("same"), old)
    running("old")
    first = ns.get("resourceclaim", "same")["metadata"]["uid"]

    ns.delete("pod", "old", wait=False, force=force)
    ns.delete("resourceclaim", "same", wait=False)

    def created() -> bool:
        try:
            ns.create(claim("same"))
        except KubectlError as error:
            assert "AlreadyExists" not in str(error), "the old claim is still there"
            raise
        return True

    wait_for("the name to be free", created, seconds=60)
    second = ns.get("resourceclaim", "same")["metadata"]["uid"]
    assert second != first
    ns.create(pod("new", driver.node, {"gpu": "same"}))

    # The kubelet may refuse the claim once. It tries again after 90 s at most.
    running("new", seconds=150)

    assert len(given(ns, "new")) == 1
    wait_for(
        "the old claim's files to go",
        lambda: first not in driver.cdi_files() + driver.records(),
        seconds=90,
    )
    assert second in driver.cdi_files()
    assert second in driver.records()
    (entry,) = wait_for(
        "status of the new claim", lambda: ns.get("resourceclaim", "same")["status"].get("devices")
    )
    assert entry["data"]["pciBusID"] in given(ns, "new")
