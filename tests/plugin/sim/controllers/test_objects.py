"""The helpers that several controllers share."""

import pytest

from claimd.sim.controllers import objects

TAINT = {"key": "a", "value": "1", "effect": "NoExecute"}


def pod(phase=None, node="", going=False):
    metadata = {"name": "p", "uid": "u"} | ({"deletionTimestamp": "t"} if going else {})
    document = {"metadata": metadata, "spec": {"nodeName": node} if node else {}}
    return document | ({"status": {"phase": phase}} if phase else {})


@pytest.mark.parametrize(
    ("pod_", "ended", "done"),
    [
        (pod(), False, False),
        (pod("Pending"), False, False),
        (pod("Running", "n"), False, False),
        (pod("Succeeded", "n"), True, True),
        (pod("Failed", "n"), True, True),
        (pod("Running", "n", going=True), False, False),
        (pod("Pending", going=True), False, True),
    ],
)
def test_pods_that_will_not_run_any_more(pod_, ended, done):
    assert objects.has_ended(pod_) is ended
    assert objects.is_done(pod_) is done


def test_an_object_without_a_status():
    assert objects.status_of({"metadata": {}}) == objects.status_of({"status": None}) == {}


@pytest.mark.parametrize(
    ("changed", "controlled"),
    [({}, True), ({"controller": False}, False), ({"uid": "other"}, False)],
)
def test_who_controls_an_object(changed, controlled):
    owner = {"metadata": {"name": "o", "uid": "u"}}
    reference = objects.controller_reference("apps/v1", "ReplicaSet", owner)
    assert reference == {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": "o",
        "uid": "u",
        "controller": True,
    }
    other = {"uid": "u2", "controller": True}
    document = {"metadata": {"ownerReferences": [other, reference | changed]}}
    assert objects.is_controlled_by(document, owner) is controlled
    assert not objects.is_controlled_by({"metadata": {}}, owner)


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        ({"key": "a", "operator": "Equal", "value": "1", "effect": "NoExecute"}, True),
        ({"key": "a", "value": "1"}, True),
        ({"key": "a", "value": "1", "effect": ""}, True),
        ({"key": "a", "value": "1", "effect": "NoSchedule"}, False),
        ({"key": "a", "value": "2"}, False),
        ({"key": "a"}, False),
        ({"key": "b", "value": "1"}, False),
        ({"key": "a", "operator": "Exists"}, True),
        ({"operator": "Exists"}, True),
        ({"key": "b", "operator": "Exists"}, False),
    ],
)
def test_what_tolerates_a_taint(toleration, tolerated):
    assert objects.tolerates(toleration, TAINT) is tolerated
    assert objects.is_tolerated(TAINT, [{"key": "x"}, toleration]) is tolerated
    assert objects.tolerates({"key": "a"}, {"key": "a", "effect": "NoExecute"})
    assert not objects.is_tolerated(TAINT, [])


def test_a_suffix_is_always_the_same_for_its_text():
    suffix = objects.name_suffix("web-1", 5)
    assert suffix == objects.name_suffix("web-1", 5) != objects.name_suffix("web-2", 5)
    assert len(suffix) == 5
    assert not set(objects.name_suffix("x", 20)) & set("aeiou013")
