"""Tests of deletions: grace periods, finalizers, and their end."""

from dataclasses import replace

import pytest

from claimd.sim.apiserver.storage import deletion
from claimd.sim.apiserver.types.kind import Kind
from claimd.sim.apiserver.types.options import DeleteOptions
from claimd.sim.apiserver.types.resource import GroupResource
from claimd.sim.apiserver.types.status_errors import StatusError

POD = Kind(GroupResource("pods", "", "Pod"), "v1", True, True, False)
CLAIM = Kind(GroupResource("claims", "g", "Claim"), "v1", True, True, True)
NAMESPACE = Kind(GroupResource("namespaces", "", "Namespace"), "v1", False, True, False)
NOW = "2026-01-01T00:00:00Z"


def options(**more):
    fields = {
        "uid": None,
        "resource_version": None,
        "propagation_policy": "Background",
        "dry_run": False,
        "grace_period_seconds": None,
        "validate_admission": None,
    }
    return DeleteOptions(**fields | more)


def pod(metadata=None, spec=None, **status):
    return {"kind": "Pod", "metadata": metadata or {}, "spec": spec or {}, "status": status}


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({}, None),
        ({"uid": "u", "resource_version": "7"}, None),
        ({"uid": "x"}, "the UID in the precondition (x) does not match the UID in record (u). "
                       "The object might have been deleted and then recreated"),
        ({"resource_version": "6"}, "the ResourceVersion in the precondition (6) does not match "
                                    "the ResourceVersion in record (7). The object might have been modified"),
    ],
)  # fmt: skip
def test_preconditions(asked, message):
    metadata = {"name": "n", "uid": "u", "resourceVersion": "7"}
    if message is None:
        deletion.check_preconditions(CLAIM, metadata, options(**asked))
        return
    with pytest.raises(StatusError) as refused:
        deletion.check_preconditions(CLAIM, metadata, options(**asked))
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("policy", "finalizers"),
    [
        ("Background", ["a/b"]),
        ("Orphan", ["a/b", "orphan"]),
        ("Foreground", ["a/b", "foregroundDeletion"]),
    ],
)
def test_the_policy_of_the_last_deletion_counts(policy, finalizers):
    before = {"finalizers": ["orphan", "a/b", "foregroundDeletion"]}
    assert deletion.finalizers(before, options(propagation_policy=policy)) == finalizers
    assert deletion.finalizers({}, options(propagation_policy=policy)) == finalizers[1:]


@pytest.mark.parametrize(
    ("kind", "obj", "asked", "seconds"),
    [
        (CLAIM, pod(spec={"nodeName": "n"}), 5, 0),
        (POD, pod(), 5, 0),
        (POD, pod(spec={"nodeName": "n"}), None, 30),
        (POD, pod(spec={"nodeName": "n"}), 5, 5),
        (POD, pod(spec={"nodeName": "n"}), 0, 0),
        (POD, pod(spec={"nodeName": "n"}), -1, 1),
        (POD, pod(spec={"nodeName": "n", "terminationGracePeriodSeconds": 7}), None, 7),
        (POD, pod(spec={"nodeName": "n"}, phase="Succeeded"), 5, 0),
        (POD, pod(spec={"nodeName": "n"}, phase="Failed"), 5, 0),
        (POD, pod(spec={"nodeName": "n"}, phase="Running"), 5, 5),
        # A later deletion can shorten the grace period, but not lengthen it.
        (POD, pod({"deletionGracePeriodSeconds": 9}, {"nodeName": "n"}), 5, 5),
        (POD, pod({"deletionGracePeriodSeconds": 3}, {"nodeName": "n"}), 5, 3),
    ],
)
def test_the_grace_of_a_pod(kind, obj, asked, seconds):
    assert deletion.grace_period(kind, obj, options(grace_period_seconds=asked)) == seconds


def test_what_is_deleted_and_still_there():
    old = {"metadata": {"name": "n", "generation": 3, "finalizers": ["a"]}}
    marked = deletion.mark(CLAIM, old, ["b"], 10, NOW)
    assert marked["metadata"] == {
        "name": "n",
        "generation": 4,
        "finalizers": ["b"],
        "deletionTimestamp": "2026-01-01T00:00:10Z",
        "deletionGracePeriodSeconds": 10,
    }
    assert old["metadata"]["generation"] == 3
    shorter = deletion.mark(CLAIM, marked, [], 4, "2026-01-01T00:00:02Z")["metadata"]
    assert (shorter["deletionTimestamp"], shorter["deletionGracePeriodSeconds"]) == (
        "2026-01-01T00:00:04Z",
        4,
    )
    assert "finalizers" not in shorter and shorter["generation"] == 4
    same = deletion.mark(CLAIM, marked, ["b"], 10, "2026-01-01T00:00:02Z")
    assert same == marked
    at_once = deletion.mark(CLAIM, {"metadata": {}}, [], 0, NOW)["metadata"]
    assert at_once == {"deletionTimestamp": NOW, "deletionGracePeriodSeconds": 0}


def test_a_namespace_is_terminating():
    marked = deletion.mark(NAMESPACE, {"metadata": {}, "status": {"phase": "Active"}}, [], 0, NOW)
    assert marked == {
        "metadata": {"deletionTimestamp": NOW},
        "status": {"phase": "Terminating"},
    }


@pytest.mark.parametrize(
    ("before", "after", "over"),
    [
        ({}, {}, False),
        ({"deletionTimestamp": NOW}, {}, True),
        ({"deletionTimestamp": NOW, "deletionGracePeriodSeconds": 0}, {}, True),
        ({"deletionTimestamp": NOW, "deletionGracePeriodSeconds": 1}, {}, False),
        ({"deletionTimestamp": NOW}, {"finalizers": ["a"]}, False),
    ],
)
def test_when_a_deletion_is_over(before, after, over):
    assert deletion.is_over({"metadata": before}, {"kind": "Claim", "metadata": after}) is over


def test_a_namespace_has_to_be_empty_first():
    gone = {"metadata": {"deletionTimestamp": NOW}}
    held = {"apiVersion": "v1", "kind": "Namespace", "metadata": {}}
    held["spec"] = {"finalizers": ["kubernetes"]}
    assert deletion.has_contents(held) and not deletion.is_over(gone, held)
    assert deletion.is_over(gone, held | {"spec": {}})
    assert not deletion.has_contents(held | {"kind": "Claim"})


def test_a_kind_of_a_definition_may_have_a_name_that_kubernetes_has():
    for kind, form in (("Pod", POD), ("Namespace", NAMESPACE)):
        resource = GroupResource("toys", "toys.example.com", kind)
        custom = replace(form, resource=resource)
        toy = {"apiVersion": "toys.example.com/v1", "kind": kind, "metadata": {}}
        toy |= {"spec": {"nodeName": "n"}, "status": 7}
        assert deletion.grace_period(custom, toy, options()) == 0
        assert not deletion.has_contents(toy | {"spec": 7})
        assert deletion.mark(custom, toy, [], 0, NOW)["status"] == 7
