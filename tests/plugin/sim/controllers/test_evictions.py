import pytest

from plugin.sim.controllers import evictions
from tests.support.planes import claim, copies, pod, result, rule, slice_

ADDED = "2026-01-01T00:00:00Z"
START = 1767225600.0
WEDGED = {"key": "claimd.dev/wedged", "value": "yes", "effect": "NoExecute", "timeAdded": ADDED}


def there(taints=(), tolerations=(), rules=(), pods=("p",)):
    return copies(
        pods=[pod(name, claims=["mine"], on="node-1") for name in pods],
        resourceclaims=[
            claim("mine", devices=[result("gpu-0", tolerations=list(tolerations))], pods=pods)
        ],
        resourceslices=[slice_("node-1", gpu_0={"taints": list(taints)})],
        devicetaintrules=rules,
    )


def evicted(world, now=START + 1):
    _, deletes, later = evictions.decide(evictions.due(world), now)
    return [call.name for call in deletes], later


def toleration(seconds=None, **more):
    found = {"key": "claimd.dev/wedged", "operator": "Exists", "effect": "NoExecute"} | more
    return found | ({"tolerationSeconds": seconds} if seconds is not None else {})


def test_a_taint_of_the_slice_evicts_with_a_condition_and_an_event():
    marks, (delete,), later = evictions.decide(evictions.due(there([WEDGED])), START + 1)
    assert [(call.kind, call.sub) for call in marks] == [("events", ""), ("pods", "status")]
    (condition,) = marks[1].body["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("DisruptionTarget", "True")
    assert condition["reason"] == "DeletionByDeviceTaintManager"
    assert (delete.method, delete.name, delete.body["preconditions"]) == (
        "DELETE",
        "p",
        {"uid": "uid-p"},
    )
    assert later is None


def test_all_pods_that_share_the_device_go():
    assert evicted(there([WEDGED], pods=("a", "b"))) == (["a", "b"], None)


@pytest.mark.parametrize(
    "world",
    [
        there(),
        there([WEDGED | {"effect": "NoSchedule"}]),
        there([WEDGED | {"effect": "None"}]),
        there([WEDGED], [toleration()]),
        there([WEDGED], [toleration(operator="Equal", value="yes")]),
        there([WEDGED], [toleration(key="")]),
        there([WEDGED], [toleration(5), toleration()]),
        there(rules=[rule("r", WEDGED, device="gpu-1")]),
        there(rules=[rule("r", WEDGED, driver="other.example.com")]),
    ],
)
def test_what_evicts_nobody(world):
    assert evicted(world) == ([], None)


@pytest.mark.parametrize(
    "tolerations",
    [
        [toleration(operator="Equal", value="no")],
        [toleration(key="other")],
        [
            toleration(effect="")
        ],  # as in a real cluster: what is for every effect is not for eviction
        [toleration(effect="NoSchedule")],
    ],
)
def test_what_does_not_tolerate(tolerations):
    assert evicted(there([WEDGED], tolerations)) == (["p"], None)


def test_a_taint_may_be_tolerated_for_a_while():
    world = there([WEDGED], [toleration(30), toleration(10), toleration(0, key="other")])
    assert evicted(world, START + 4) == ([], 6)
    assert evicted(world, START + 10) == (["p"], None)


def test_pods_without_a_node_or_that_leave_already_or_have_ended_are_left_alone():
    world = there([WEDGED])
    one = world["pods"]["default/p"]
    one["metadata"]["deletionTimestamp"] = ADDED
    assert evicted(world) == ([], None)
    del one["metadata"]["deletionTimestamp"]
    one["status"]["phase"] = "Succeeded"
    assert evicted(world) == ([], None)
    one["status"]["phase"] = "Pending"
    del one["spec"]["nodeName"]
    assert evicted(world) == ([], None)


def test_a_slice_of_an_older_generation_says_nothing():
    world = there([WEDGED])
    new = slice_("node-1")
    new["metadata"]["name"] = "newer"
    new["spec"]["pool"]["generation"] = 2
    world["resourceslices"]["newer"] = new
    assert evicted(world) == ([], None)


def test_a_rule_evicts_and_tells_how_far_it_is():
    world = there(rules=[rule("r", WEDGED, pool="node-1")])
    assert evicted(world) == (["p"], None)
    dues = evictions.due(world)
    (call,), later = evictions.tell(world, dues, {}, START + 1)
    (condition,) = call.body["status"]["conditions"]
    assert (condition["status"], condition["reason"]) == ("True", "PodsPendingEviction")
    assert condition["message"] == "1 pod needs to be evicted in 1 namespace."
    assert later is None

    world["devicetaintrules"]["r"]["status"] = {"conditions": [condition]}
    world["pods"].clear()
    calls, later = evictions.tell(world, evictions.due(world), {"uid-r": 1}, START + 3)
    assert (calls, later) == ([], 8)  # a status changes once in ten seconds
    (call,), later = evictions.tell(world, evictions.due(world), {"uid-r": 1}, START + 11)
    (condition,) = call.body["status"]["conditions"]
    assert (condition["status"], condition["reason"]) == ("False", "Completed")
    assert condition["message"] == "1 pod evicted since the controller was started."
    world["devicetaintrules"]["r"]["status"] = {"conditions": [condition]}
    assert evictions.tell(world, [], {"uid-r": 1}, START + 12) == ([], None)


def test_a_rule_without_effect_tells_once_what_it_would_do():
    world = there(
        rules=[rule("r", WEDGED | {"effect": "None"}, driver="gpu.example.com")], pods=("p", "q")
    )
    (call,), later = evictions.tell(world, evictions.due(world), {}, START)
    (condition,) = call.body["status"]["conditions"]
    assert (condition["status"], condition["reason"], later) == ("False", "NoEffect", None)
    assert condition["message"].startswith(
        "2 published devices selected. 1 allocated device selected. "
        "2 pods would be evicted in 1 namespace if the effect was NoExecute."
    )
    world["devicetaintrules"]["r"]["status"] = {"conditions": [condition]}
    world["pods"].clear()
    assert evictions.tell(world, [], {}, START + 60) == ([], None)
