"""The decision about a pod that waits on its node for its devices."""

import pytest

from claimd.sim.scheduler import prebind
from claimd.sim.scheduler.prebind import GiveUp, Wait
from claimd.sim.scheduler.scheduling_cycle import Bind
from tests.support import planes

START = 1767225600.0  # 2026-01-01
WAIT = Wait(node="node-1", since=START + 0.5)
POD = planes.pod("p", claims=["a", "b"])
BEGINNING = 'running PreBind plugin "DynamicResources": device binding '


def claim(name, *conditions, allocated="2026-01-01T00:00:00Z"):
    slow = {"bindingConditions": ["Ready"], "bindingFailureConditions": ["Broken"]}
    document = planes.claim(name, devices=[planes.result("gpu-0", **slow)], pods=["p"])
    document["status"]["allocation"]["allocationTimestamp"] = allocated
    reported = [{"type": type_, "status": "True", "reason": "Told"} for type_ in conditions]
    device = {"driver": planes.DRIVER, "pool": "node-1", "device": "gpu-0"}
    document["status"]["devices"] = [device | {"conditions": reported}]
    return document


def decide(*claims, now=START + 1, wait=WAIT, timeout=600.0):
    (pod,) = planes.parsed(POD)
    world = planes.snapshot(nodes=[planes.node("node-1")], pods=[POD], claims=claims)
    return prebind.decide(world, pod, wait, now, timeout)


def test_it_is_bound_when_all_claims_are_ready():
    assert decide(claim("a", "Ready"), claim("b")) == WAIT.since + 600
    assert decide(claim("a", "Ready"), claim("b", "Ready")) == Bind(node="node-1")
    assert decide(claim("a", "Ready"), planes.claim("b", devices=["gpu-1"])) == Bind(node="node-1")


def test_a_failure_ends_the_wait_and_the_claims_are_given_up_together():
    decision = decide(claim("a", "Ready"), claim("b", "Broken"))
    assert decision.message == f'{BEGINNING}failed: claim=b, reason=Told, message=""'
    assert [each.metadata.name for each in decision.claims] == ["a", "b"]


def test_a_claim_that_is_not_ready_hides_the_failure_of_the_next():
    assert decide(claim("a"), claim("b", "Broken")) == WAIT.since + 600


def test_the_time_is_over():
    waits = claim("a", "Ready"), claim("b")
    assert decide(*waits, now=WAIT.since + 599.9) == WAIT.since + 600
    late = decide(*waits, now=WAIT.since + 600)
    assert isinstance(late, GiveUp)
    assert late.message == f"{BEGINNING}timeout: context deadline exceeded"


def test_devices_that_were_allocated_before_the_wait_have_what_is_left_of_their_time():
    """This is so if the scheduler was restarted, or another pod waits for the same claim."""
    later = Wait(node="node-1", since=START + 300)
    waits = claim("a", "Ready"), claim("b")
    assert decide(*waits, wait=later, now=START + 301) == START + 600
    late = decide(*waits, wait=later, now=START + 600.5)
    assert late.message == f"{BEGINNING}timeout: claim=b"


@pytest.mark.parametrize("claims", [[], [claim("a", "Ready"), planes.claim("b")]])
def test_claims_that_are_gone_or_released_are_not_ready(claims):
    assert decide(*claims) == WAIT.since + 600
    assert isinstance(decide(*claims, now=WAIT.since + 601), GiveUp)
