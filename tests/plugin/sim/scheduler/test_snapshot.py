"""The cluster at one moment, and after a decision."""

import pytest

from tests.support.planes import claim, node, parsed, pod, rule, slice_, snapshot

HOT = {"key": "example.com/hot", "effect": "NoSchedule"}


def names(pods):
    return [each.metadata.name for each in pods]


def queue(*pods):
    return names(snapshot(pods=pods).pending_pods())


def test_pods_that_want_a_node():
    going = pod("going")
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    ended = pod("ended")
    ended["status"]["phase"] = "Failed"
    assert queue(
        pod("a"),
        pod("b", schedulerName="default-scheduler"),
        pod("c", schedulerName="other"),
        pod("d", on="n"),
        pod("e", schedulingGates=[{"name": "g"}]),
        going,
        ended,
    ) == ["a", "b"]


def test_the_order_of_their_turns():
    early, middle, late = pod("early"), pod("middle", priority=0), pod("late")
    early["metadata"]["creationTimestamp"] = "2025-01-01T00:00:00Z"
    middle["metadata"]["creationTimestamp"] = "2025-01-01T00:00:01Z"
    late["metadata"]["creationTimestamp"] = "2025-01-01T00:00:02Z"
    assert queue(
        late,
        pod("low", priority=-1),
        pod("high", priority=5),
        early,
        pod("vital", priority=2_000_001_000),
        middle,
    ) == ["vital", "high", "early", "middle", "late", "low"]


@pytest.fixture
def world():
    return {
        "nodes": [node("node-1"), node("node-2")],
        "slices": [slice_("node-1"), slice_("node-2")],
        "claims": [claim("held", devices=["gpu-0"]), claim("free")],
    }


def test_devices_that_are_good_and_nobodys(world):
    before = snapshot(**world)
    first, second = before.nodes
    everything = before.count_free_devices(second)
    assert before.count_free_devices(first) == everything - 1
    tainted = snapshot(**world, rules=[rule("r", HOT, device="gpu-1")])
    assert tainted.count_free_devices(tainted.nodes[1]) == everything - 1


def test_what_is_taken_of_a_node():
    ended = pod("c", on="node-1", requests={"cpu": "4"})
    ended["status"]["phase"] = "Succeeded"
    pods = [
        pod("a", on="node-1", requests={"cpu": "1"}),
        pod("b", on="node-1", requests={"cpu": "2"}),
        ended,
        pod("d", on="elsewhere", requests={"cpu": "8"}),
        pod("e", requests={"cpu": "16"}),
    ]
    before = snapshot(nodes=[node("node-1"), node("node-2")], pods=pods)
    assert set(before.used_resources) == {"node-1", "node-2"}
    assert before.used_resources["node-2"] == {}
    busy = snapshot(nodes=[node("node-1")], pods=[pod("x", on="node-1", requests={"cpu": "3"})])
    assert before.used_resources["node-1"]["cpu"] == busy.used_resources["node-1"]["cpu"]
    assert {name: names(pods) for name, pods in before.pods_by_node.items()} == {
        "node-1": ["a", "b"],
        "elsewhere": ["d"],
    }


@pytest.mark.parametrize("is_computed", [True, False])
def test_after_a_decision_all_is_as_if_it_were_counted_anew(world, is_computed):
    waiting = pod("p", claims=["free"], requests={"cpu": "1"})
    before = snapshot(**world, pods=[pod("a", on="node-1", requests={"cpu": "1"}), waiting])
    if is_computed:
        assert (
            before.used_resources
            and before.pods_by_node
            and before.allocated_state
            and before.allocator
        )
    (placed,) = parsed(waiting)
    allocated = snapshot(claims=[claim("free", devices=["gpu-1"], pods=["p"])]).claims.values()
    after = before.with_decision(placed, allocated, "node-1")

    world["claims"] = [claim("held", devices=["gpu-0"]), claim("free", devices=["gpu-1"])]
    bound = [pod("a", on="node-1", requests={"cpu": "1"})]
    bound.append(pod("p", on="node-1", claims=["free"], requests={"cpu": "1"}))
    anew = snapshot(**world, pods=bound)
    assert after.used_resources == anew.used_resources
    assert {n: names(p) for n, p in after.pods_by_node.items()} == {"node-1": ["a", "p"]}
    assert after.allocated_state.devices == anew.allocated_state.devices
    assert [after.count_free_devices(each) for each in after.nodes] == [
        anew.count_free_devices(each) for each in anew.nodes
    ]
    assert after.pending_pods() == []
    assert names(before.pending_pods()) == ["p"]
