import pytest

from claimd.sim.controllers import taint_evictions
from tests.support.planes import copies, node, pod

NOW = 1767225600.0
DRAIN = {"key": "drain", "value": "yes", "effect": "NoExecute"}


def tolerating(seconds=None, **more):
    toleration = {"key": "drain", "operator": "Exists"} | more
    return toleration if seconds is None else toleration | {"tolerationSeconds": seconds}


def review(*pods, taints=(DRAIN,), due=None, now=NOW):
    objects = copies(nodes=[node("n", taints=taints), node("other")], pods=pods)
    return taint_evictions.review(objects, due or {}, now)


def notes(reviewed):
    return [mark.body["note"] for mark in reviewed.marks if mark.resource == "events"]


def test_a_pod_that_does_not_tolerate_goes_at_once_marked_before():
    leaving = pod("p", on="n")
    reviewed = review(leaving, pod("q", on="other"), pod("waits"))
    event, patch = reviewed.marks
    assert (event.body["reason"], event.body["type"]) == ("TaintManagerEviction", "Normal")
    assert event.body["note"] == "Marking for deletion Pod default/p"
    assert event.body["reportingController"] == "taint-eviction-controller"
    assert patch.body["status"]["conditions"] == [
        {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "DeletionByTaintManager",
            "message": "Taint manager: deleting due to NoExecute taint",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
    ]
    assert [request.target for request in reviewed.deletes] == ["pods/default/p"]
    assert (reviewed.due, reviewed.next_look) == ({}, None)


@pytest.mark.parametrize("effect", ["NoSchedule", "PreferNoSchedule"])
def test_other_effects_end_nothing(effect):
    reviewed = review(pod("p", on="n"), taints=[DRAIN | {"effect": effect}])
    assert (list(reviewed.marks), list(reviewed.deletes)) == ([], [])


@pytest.mark.parametrize(
    ("tolerations", "seconds"),
    [
        ([], None),
        ([tolerating()], float("inf")),
        ([tolerating(30)], 30),
        ([tolerating(0)], 0),
        ([tolerating(-5)], 0),
        ([tolerating(30), tolerating()], 30),  # the first counts
        ([tolerating(), tolerating(30)], float("inf")),
        ([tolerating(effect="NoSchedule")], None),
        ([{"key": "drain", "value": "yes"}], float("inf")),
        ([{"key": "drain", "value": "no"}], None),
        ([{"operator": "Exists", "tolerationSeconds": 7}], 7),
    ],
)
def test_how_long_a_taint_is_tolerated(tolerations, seconds):
    assert taint_evictions.toleration_time([DRAIN], tolerations) == seconds


def test_of_several_taints_the_shortest_time_counts_and_each_has_to_be_tolerated():
    other = {"key": "other", "effect": "NoExecute"}
    both = [tolerating(30), {"key": "other", "operator": "Exists", "tolerationSeconds": 10}]
    assert taint_evictions.toleration_time([DRAIN, other], both) == 10
    assert taint_evictions.toleration_time([DRAIN, other], both[:1]) is None


def test_a_time_runs_from_when_it_was_seen_and_is_not_made_anew():
    staying = pod("p", on="n", tolerations=[tolerating(30)])
    reviewed = review(staying)
    assert (reviewed.due, reviewed.next_look) == ({"uid-p": NOW + 30}, 30)
    assert list(reviewed.deletes) == []

    # A second taint with a shorter time changes nothing any more.
    staying["spec"]["tolerations"].append(
        {"key": "b", "operator": "Exists", "tolerationSeconds": 1}
    )
    both = [DRAIN, {"key": "b", "effect": "NoExecute"}]
    reviewed = review(staying, taints=both, due=reviewed.due, now=NOW + 29)
    assert (reviewed.due, reviewed.next_look) == ({"uid-p": NOW + 30}, 1)

    reviewed = review(staying, taints=both, due=reviewed.due, now=NOW + 30)
    assert notes(reviewed) == ["Marking for deletion Pod default/p"]
    assert len(reviewed.deletes) == 1


def test_a_taint_that_goes_in_time_is_forgiven():
    staying = pod("p", on="n", tolerations=[tolerating(30)])
    reviewed = review(staying, taints=[], due={"uid-p": NOW + 30})
    assert notes(reviewed) == ["Cancelling deletion of Pod default/p"]
    assert (reviewed.due, list(reviewed.deletes)) == ({}, [])
    assert notes(review(staying, taints=[], due=reviewed.due)) == []


def test_a_second_taint_that_is_not_tolerated_ends_it_at_once():
    staying = pod("p", on="n", tolerations=[tolerating(30)])
    taints = [DRAIN, {"key": "other", "effect": "NoExecute"}]
    reviewed = review(staying, taints=taints, due={"uid-p": NOW + 30})
    assert notes(reviewed) == [
        "Cancelling deletion of Pod default/p",
        "Marking for deletion Pod default/p",
    ]
    assert len(reviewed.deletes) == 1


def test_a_pod_that_is_going_is_left_alone():
    going = pod("p", on="n")
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    reviewed = review(going)
    assert (list(reviewed.marks), list(reviewed.deletes)) == ([], [])


def test_a_pod_that_has_ended_goes_as_well():
    ended = pod("p", on="n")
    ended["status"]["phase"] = "Succeeded"
    assert len(review(ended).deletes) == 1
