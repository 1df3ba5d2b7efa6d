import pytest

from claimd.sim.controllers import evictions
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


def evict(objects, now=START + 1):
    _, deletes, later = evictions.sync(evictions.find_evictions(objects), now)
    return [call.name for call in deletes], later


def toleration(seconds=None, **more):
    toleration_ = {"key": "claimd.dev/wedged", "operator": "Exists", "effect": "NoExecute"} | more
    return toleration_ | ({"tolerationSeconds": seconds} if seconds is not None else {})


def test_a_taint_of_the_slice_evicts_with_a_condition_and_an_event():
    marks, (delete,), later = evictions.sync(evictions.find_evictions(there([WEDGED])), START + 1)
    assert [(call.resource, call.subresource) for call in marks] == [
        ("events", ""),
        ("pods", "status"),
    ]
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
    assert evict(there([WEDGED], pods=("a", "b"))) == (["a", "b"], None)


@pytest.mark.parametrize(
    "objects",
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
def test_what_evicts_nobody(objects):
    assert evict(objects) == ([], None)


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
    assert evict(there([WEDGED], tolerations)) == (["p"], None)


def test_a_taint_may_be_tolerated_for_a_while():
    objects = there([WEDGED], [toleration(30), toleration(10), toleration(0, key="other")])
    assert evict(objects, START + 4) == ([], 6)
    assert evict(objects, START + 10) == (["p"], None)


def test_pods_without_a_node_or_that_leave_already_or_have_ended_are_left_alone():
    objects = there([WEDGED])
    pod = objects["pods"]["default/p"]
    pod["metadata"]["deletionTimestamp"] = ADDED
    assert evict(objects) == ([], None)
    del pod["metadata"]["deletionTimestamp"]
    pod["status"]["phase"] = "Succeeded"
    assert evict(objects) == ([], None)
    pod["status"]["phase"] = "Pending"
    del pod["spec"]["nodeName"]
    assert evict(objects) == ([], None)


def test_a_slice_of_an_older_generation_says_nothing():
    objects = there([WEDGED])
    new = slice_("node-1")
    new["metadata"]["name"] = "newer"
    new["spec"]["pool"]["generation"] = 2
    objects["resourceslices"]["newer"] = new
    assert evict(objects) == ([], None)


def test_a_rule_evicts_and_tells_how_far_it_is():
    objects = there(rules=[rule("r", WEDGED, pool="node-1")])
    assert evict(objects) == (["p"], None)
    dues = evictions.find_evictions(objects)
    (call,), later = evictions.sync_rules(objects, dues, {}, START + 1)
    (condition,) = call.body["status"]["conditions"]
    assert (condition["status"], condition["reason"]) == ("True", "PodsPendingEviction")
    assert condition["message"] == "1 pod needs to be evicted in 1 namespace."
    assert later is None

    objects["devicetaintrules"]["r"]["status"] = {"conditions": [condition]}
    objects["pods"].clear()
    calls, later = evictions.sync_rules(
        objects, evictions.find_evictions(objects), {"uid-r": 1}, START + 3
    )
    assert (calls, later) == ([], 8)  # a status changes once in ten seconds
    (call,), later = evictions.sync_rules(
        objects, evictions.find_evictions(objects), {"uid-r": 1}, START + 11
    )
    (condition,) = call.body["status"]["conditions"]
    assert (condition["status"], condition["reason"]) == ("False", "Completed")
    assert condition["message"] == "1 pod evicted since starting the controller."
    objects["devicetaintrules"]["r"]["status"] = {"conditions": [condition]}
    assert evictions.sync_rules(objects, [], {"uid-r": 1}, START + 12) == ([], None)


def test_a_rule_without_effect_tells_once_what_it_would_do():
    objects = there(
        rules=[rule("r", WEDGED | {"effect": "None"}, driver="gpu.example.com")], pods=("p", "q")
    )
    (call,), later = evictions.sync_rules(objects, evictions.find_evictions(objects), {}, START)
    (condition,) = call.body["status"]["conditions"]
    assert (condition["status"], condition["reason"], later) == ("False", "NoEffect", None)
    assert condition["message"].startswith(
        "2 published devices selected. 1 allocated device selected. "
        "2 pods would be evicted in 1 namespace if the effect was NoExecute."
    )
    objects["devicetaintrules"]["r"]["status"] = {"conditions": [condition]}
    objects["pods"].clear()
    assert evictions.sync_rules(objects, [], {}, START + 60) == ([], None)


def test_pods_of_a_group_that_has_the_device_go():
    objects = there([WEDGED], pods=("a", "b"))
    group = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "u"}
    objects["resourceclaims"]["default/mine"]["status"]["reservedFor"] = [group]
    assert evict(objects) == ([], None)
    for each in objects["pods"].values():
        each["spec"]["schedulingGroup"] = {"podGroupName": "g"}
    assert evict(objects) == (["a", "b"], None)
