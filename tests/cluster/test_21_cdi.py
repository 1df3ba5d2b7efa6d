"""Line 21: users see what happens if the container runtime does not read the driver's CDI specs."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.cluster.conftest import Rig, Running
from tests.cluster.deadline import wait_for
from tests.cluster.driver import Driver, given, nodes
from tests.cluster.kubectl import Kubectl, Object
from tests.cluster.objects import claim, pod

Turn = Callable[[str], None]


@pytest.fixture
def cdi(rig: Rig) -> Iterator[Turn]:
    """Returns a function that restarts the container runtime with a choice of CDI_CHOICES."""

    def turn(choice: str) -> None:
        rig("runtime", "restart", "--cdi", choice)

    yield turn
    turn("on")


def test_with_cdi_off_a_pod_runs_without_its_gpu_and_nobody_says_so(
    cdi: Turn, ns: Kubectl, driver: Driver, running: Running
) -> None:
    if driver.runtime().startswith("cri-o"):
        pytest.skip("CRI-O cannot turn CDI off")
    cdi("off")
    ns.create(claim("one"), pod("user", driver.node, {"gpu": "one"}))
    running("user")
    assert given(ns, "user") == []
    assert nodes(ns, "user") == {}

    # The driver has prepared the claim. It cannot know that the runtime ignores the CDI spec.
    asked = ns.get("resourceclaim", "one")
    assert asked["metadata"]["uid"] in driver.cdi_files()
    assert _warnings(ns) == []


def test_with_cdi_elsewhere_the_pod_waits_and_its_events_say_why(
    cdi: Turn, ns: Kubectl, driver: Driver, running: Running
) -> None:
    cdi("elsewhere")
    ns.create(claim("one"), pod("user", driver.node, {"gpu": "one"}))

    def refused() -> Object:
        statuses = ns.get("pod", "user")["status"].get("containerStatuses", [])
        states = [status["state"].get("waiting", {}) for status in statuses]
        waits = [state for state in states if state.get("reason") == "CreateContainerError"]
        assert waits, states
        warning: Object = waits[0]
        return warning

    uid = ns.get("resourceclaim", "one")["metadata"]["uid"]
    expected = f"unresolvable CDI devices claimd.dev/claim={uid}"
    assert expected in wait_for("the container to be refused", refused, seconds=60)["message"]
    told = _warnings(ns)
    assert {event["reason"] for event in told} == {"Failed"}, "not by the kubelet alone"
    assert any(expected in event["message"] for event in told)

    cdi("on")
    running("user")
    assert len(given(ns, "user")) == 1


def _warnings(ns: Kubectl) -> list[Object]:
    """Returns the pod's warnings, without the warning that a cluster like the rig has no DNS."""
    events = ns.list("events", "--field-selector=type=Warning")
    return [event for event in events if event["reason"] != "MissingClusterDNS"]
