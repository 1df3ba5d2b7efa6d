"""Pods on nodes that no longer exist."""

from claimd.sim.controllers import pod_gc
from tests.support.planes import copies, node, pod

NOW = 1767225600.0


def test_nodes_that_pods_are_on_and_that_are_not_there():
    pods = [pod("a", on="gone"), pod("b", on="n"), pod("c"), pod("d", on="gone")]
    assert pod_gc.missing_nodes(copies(nodes=[node("n")], pods=pods)) == {"gone"}


def test_their_pods_are_marked_as_failed_and_then_deleted():
    ended = pod("e", on="gone")
    ended["status"]["phase"] = "Succeeded"
    world = copies(pods=[pod("a", on="gone"), pod("b", on="n"), pod("c"), ended])
    marks, deletes = pod_gc.sync(world, frozenset(["gone"]), NOW)
    (mark,) = marks
    assert (mark.name, mark.subresource) == ("a", "status")
    status = mark.body["status"]
    assert status["phase"] == "Failed"
    (condition,) = status["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == (
        "DisruptionTarget",
        "True",
        "DeletionByPodGC",
    )
    assert condition["lastTransitionTime"] == "2026-01-01T00:00:00Z"
    assert [(each.method, each.name) for each in deletes] == [("DELETE", "a"), ("DELETE", "e")]
    assert [each.body["gracePeriodSeconds"] for each in deletes] == [0, 0]


def test_where_all_nodes_are_there_nothing_is_done():
    world = copies(nodes=[node("n")], pods=[pod("b", on="n"), pod("c")])
    assert pod_gc.sync(world, frozenset(), NOW) == ([], [])
