import copy

import pytest

from claimd.sim.controllers import claims
from tests.support.planes import claim, copies, pod, template

FINALIZER = "resource.kubernetes.io/delete-protection"


def sync(gone=(), **objects):
    return claims.sync(copies(**objects), frozenset(gone))


def with_owner(claim_, name):
    reference = {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": name,
        "uid": f"uid-{name}",
        "controller": True,
    }
    claim_["metadata"]["ownerReferences"] = [reference]
    return claim_


def test_a_claim_is_made_from_its_template_and_the_pod_is_told_when_it_is_there():
    template_ = template("large", metadata={"labels": {"a": "b"}, "annotations": {"c": "d"}})
    new = pod("p", templates=["large"])
    (call,) = sync(pods=[new], resourceclaimtemplates=[template_])
    metadata = call.body["metadata"]
    assert (call.method, call.resource, call.namespace) == ("POST", "resourceclaims", "default")
    assert metadata["name"].startswith("p-large-") and len(metadata["name"]) == len("p-large-") + 5
    assert metadata["labels"] == {"a": "b"}
    assert metadata["annotations"] == {"c": "d", "resource.kubernetes.io/pod-claim-name": "large"}
    assert metadata["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "uid-p", "controller": True}
    ]
    assert call.body["spec"] == template_["spec"]["spec"]
    (again,) = sync(pods=[new], resourceclaimtemplates=[template_])
    assert again.body["metadata"]["name"] == metadata["name"]  # a second try makes no second claim

    there = with_owner(claim(metadata["name"]), "p")
    (call,) = sync(pods=[new], resourceclaimtemplates=[template_], resourceclaims=[there])
    assert (call.method, call.subresource, call.body["metadata"]["uid"]) == (
        "PATCH",
        "status",
        "uid-p",
    )
    statuses = [{"name": "large", "resourceClaimName": metadata["name"]}]
    assert call.body["status"] == {"resourceClaimStatuses": statuses}

    new["status"]["resourceClaimStatuses"] = statuses
    assert sync(pods=[new], resourceclaimtemplates=[template_], resourceclaims=[there]) == []
    (call,) = sync(pods=[new], resourceclaimtemplates=[template_])  # somebody has deleted it
    assert call.method == "POST"


def test_another_pods_claim_of_that_name_is_not_taken():
    new = pod("p", templates=["large"])
    foreign = with_owner(claim(claims.claim_name(new, "large")), "other")
    (call,) = sync(pods=[new], resourceclaims=[foreign], resourceclaimtemplates=[template("large")])
    assert call.method == "POST"  # which the API server refuses


def test_long_names_keep_something_of_both():
    long = pod("p" * 80, templates=["c" * 40])
    name = claims.claim_name(long, "c" * 40)
    assert len(name) <= 63 and name.startswith("p" * 30) and "-" + "c" * 15 in name


def test_a_template_that_is_missing_is_told():
    (call,) = sync(pods=[pod("p", templates=["none"])])
    assert (call.resource, call.body["reason"]) == ("events", "FailedResourceClaimCreation")
    assert call.body["note"] == 'PodResourceClaim none: resource claim template "none": not found'
    assert call.body["regarding"]["name"] == "p"


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_nothing_is_made_for_a_pod_that_has_ended(phase):
    ended = pod("p", templates=["large"])
    ended["status"]["phase"] = phase
    assert sync(pods=[ended], resourceclaimtemplates=[template("large")]) == []


def test_a_pod_that_came_to_its_node_by_itself_gets_its_reservation():
    bound = pod("p", claims=["mine"], on="node-1")
    (call,) = sync(pods=[bound], resourceclaims=[claim("mine", devices=["gpu-0"])])
    assert call.body["status"]["reservedFor"] == [{"resource": "pods", "name": "p", "uid": "uid-p"}]
    assert sync(pods=[bound], resourceclaims=[claim("mine", devices=["gpu-0"], pods=["p"])]) == []
    assert sync(pods=[bound], resourceclaims=[claim("mine")]) == []


def test_a_reservation_ends_with_its_pod():
    running, ended = pod("running", on="node-1"), pod("ended", on="node-1")
    ended["status"]["phase"] = "Succeeded"
    held = claim("mine", devices=["gpu-0"], pods=["running", "ended", "gone", "unseen"])
    (call,) = sync(gone=["uid-gone"], pods=[running, ended], resourceclaims=[held])
    assert [reference["name"] for reference in call.body["status"]["reservedFor"]] == [
        "running",
        "unseen",
    ]
    assert "allocation" in call.body["status"]
    assert call.body["metadata"]["resourceVersion"] == held["metadata"]["resourceVersion"]
    unseen_consumers = claims.unseen_consumers(copies(pods=[running, ended], resourceclaims=[held]))
    assert {uid for *_, uid in unseen_consumers} == {"uid-gone", "uid-unseen"}


def test_a_pod_of_the_same_name_is_another_pod():
    held = claim("mine", devices=["gpu-0"], pods=["p"])
    held["status"]["reservedFor"][0]["uid"] = "the-one-before"
    (call,) = sync(pods=[pod("p", on="node-1")], resourceclaims=[held])
    assert "reservedFor" not in call.body["status"]


def test_what_nobody_uses_is_freed_step_by_step():
    held = claim("mine", devices=["gpu-0"], pods=["gone"])
    held["status"]["devices"] = [{"driver": "d", "pool": "p", "device": "x"}]
    (call,) = sync(gone=["uid-gone"], resourceclaims=[held])
    assert (call.subresource, call.body["status"]) == ("status", {})
    (call,) = sync(resourceclaims=[call.body])
    assert (call.subresource, call.body["metadata"]["finalizers"]) == ("", [])
    assert sync(resourceclaims=[call.body]) == []


def test_reservations_of_other_things_than_pods_are_left_alone():
    held = claim("mine", devices=["gpu-0"])
    held["status"]["reservedFor"] = [
        {"apiGroup": "example.com", "resource": "pods", "name": "x", "uid": "u"}
    ]
    assert sync(resourceclaims=[held]) == []


def test_an_allocation_that_was_never_reserved_stays_until_the_claim_is_deleted():
    held = claim("mine", devices=["gpu-0"])
    assert sync(resourceclaims=[held]) == []
    held["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    (call,) = sync(resourceclaims=[held])
    assert call.body["status"] == {}
    (call,) = sync(resourceclaims=[call.body])
    assert call.body["metadata"]["finalizers"] == []


def test_the_finalizer_of_a_claim_that_is_just_being_allocated_stays():
    fresh = claim("mine")
    fresh["metadata"]["finalizers"] = ["other/finalizer", FINALIZER]
    waiting = pod("p", claims=["mine"])
    assert sync(pods=[waiting], resourceclaims=[fresh]) == []
    bound = pod("p", claims=["mine"], on="node-1")
    (call,) = sync(pods=[bound], resourceclaims=[copy.deepcopy(fresh)])
    assert call.body["metadata"]["finalizers"] == ["other/finalizer"]


def test_the_claim_of_a_pod_that_has_ended_is_deleted():
    ended = pod("p", on="node-1")
    owned_claim = with_owner(claim("p-gpu-x"), "p")
    assert sync(pods=[ended], resourceclaims=[owned_claim]) == []  # it runs, or may start again
    ended["status"]["phase"] = "Succeeded"
    (call,) = sync(pods=[ended], resourceclaims=[owned_claim])
    assert (call.method, call.name) == ("DELETE", "p-gpu-x")
    assert call.body["preconditions"] == {"uid": "uid-p-gpu-x"}
    owned_claim["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert sync(pods=[ended], resourceclaims=[owned_claim]) == []
    assert sync(resourceclaims=[with_owner(claim("p-gpu-x"), "p")]) == []  # the garbage collector's


# Claims of PodGroups


def pod_group(*entries, **metadata):
    return {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "training", "namespace": "default", "uid": "uid-training"} | metadata,
        "spec": {"resourceClaims": [dict(entry) for entry in entries]},
        "status": {},
    }


SHARED = {"name": "large", "resourceClaimTemplateName": "large"}
IN_GROUP = {"podGroupName": "training"}
OF_GROUP = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "training"}


def test_a_claim_of_a_group_is_made_once_and_the_group_and_its_pods_are_told():
    template_, group = template("large"), pod_group(SHARED)
    pods = [pod(name, templates=["large"], schedulingGroup=IN_GROUP) for name in "ab"]
    (call,) = sync(pods=pods, podgroups=[group], resourceclaimtemplates=[template_])
    (owner,) = call.body["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("PodGroup", "uid-training")
    assert owner["apiVersion"] == "scheduling.k8s.io/v1beta1"

    there = claim(call.body["metadata"]["name"])
    there["metadata"]["ownerReferences"] = [owner]
    calls = sync(pods=pods, podgroups=[group], resourceclaims=[there])
    assert [(call.resource, call.name) for call in calls] == [
        ("podgroups", "training"),
        ("pods", "a"),
        ("pods", "b"),
    ]
    names = {call.body["status"]["resourceClaimStatuses"][0]["resourceClaimName"] for call in calls}
    assert names == {there["metadata"]["name"]}


def test_claims_of_a_pod_wait_for_its_group():
    new = pod("p", templates=["large"], schedulingGroup=IN_GROUP)
    assert sync(pods=[new], resourceclaimtemplates=[template("large")]) == []
    (call,) = sync(pods=[new], podgroups=[pod_group()], resourceclaimtemplates=[template("large")])
    assert call.body["metadata"]["ownerReferences"][0]["kind"] == "Pod"


def test_a_group_without_its_template_hears_of_it():
    (call,) = sync(podgroups=[pod_group(SHARED)])
    assert call.body["note"] == (
        'PodGroupResourceClaim large: resource claim template "large": not found'
    )
    assert sync(podgroups=[pod_group(SHARED, deletionTimestamp="T")]) == []


def test_a_claim_is_reserved_for_the_group():
    entry = {"name": "shared", "resourceClaimName": "shared"}
    running = pod("p", claims=["shared"], on="node-1", schedulingGroup=IN_GROUP)
    held = claim("shared", devices=["gpu-0"])
    (call,) = sync(pods=[running], podgroups=[pod_group(entry)], resourceclaims=[held])
    assert call.body["status"]["reservedFor"] == [OF_GROUP | {"uid": "uid-training"}]


def test_a_claim_is_freed_when_its_group_is_gone():
    held = claim("shared", devices=["gpu-0"])
    held["status"]["reservedFor"] = [OF_GROUP | {"uid": "uid-training"}]
    objects = copies(resourceclaims=[held])
    assert list(claims.unseen_consumers(objects)) == [
        ("podgroups", "default", "training", "uid-training")
    ]
    assert sync(resourceclaims=[held]) == []
    assert sync(resourceclaims=[held], podgroups=[pod_group()]) == []
    (call,) = sync(gone=["uid-training"], resourceclaims=[held])
    assert "reservedFor" not in call.body["status"] and "allocation" not in call.body["status"]
    (call,) = sync(resourceclaims=[held], podgroups=[pod_group(uid="another")])
    assert "reservedFor" not in call.body["status"]
