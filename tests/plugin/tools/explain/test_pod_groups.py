"""The blockers and notes about a pod that belongs to a PodGroup."""

import pytest

from claimd.tools.explain import objects, preconditions
from tests.support.cluster_objects import claim, class_, name, pod, template
from tests.support.pod_group_situations import for_group, group, member

TEMPLATE = template("one-gpu", claim())


def check(waiting, *others, unseen=(), serves_groups=True):
    known = objects.Objects(unseen=list(unseen), serves_groups=serves_groups)
    for document in (class_(), TEMPLATE, waiting, *others):
        known.add(document)
    return preconditions.check_pod(known.pods[0], known)


def test_a_group_that_is_missing():
    found = check(member("worker-1"))
    assert found.blockers == ["pod group default/training does not exist"]
    assert found.remedies == [
        "create PodGroup training in namespace default: "
        "the scheduler does not look at the pod before"
    ]
    assert check(member("worker-1"), group()).blockers == []


def test_groups_that_nobody_shows():
    hidden = check(member("worker-1"), unseen=["podgroups"])
    assert hidden.unseen == [
        "pod group default/training cannot be seen: not allowed to see podgroups"
    ]
    assert hidden.blockers == []


def test_an_api_server_without_groups():
    """The scheduler takes no notice of the field there."""
    found = check(member("worker-1"), serves_groups=False)
    assert found.blockers == found.notes == found.unseen == []


@pytest.mark.parametrize("number", [1, 3])
def test_a_gang_that_is_short_of_pods(number):
    pods = [member(f"worker-{index}") for index in range(number)]
    found = check(*pods, group(gang=4))
    count = "1 pod" if number == 1 else f"{number} pods"
    assert found.blockers == [f"gang default/training has {count} of the 4 that it needs"]
    more = "3 more pods" if number == 1 else "1 more pod"
    assert found.remedies == [f"create {more} of group training, or lower its minCount to {number}"]


@pytest.mark.parametrize("size", [0, 2])
def test_another_pod_of_the_group_cannot_be_placed_yet(size):
    gated = member("worker-2")
    gated["spec"]["schedulingGates"] = [{"name": "g"}]
    waits = "the scheduler waits for all pods of a group"
    assert check(member("worker-1"), gated, group(gang=size)).blockers == [
        f"pod worker-2 of its group has scheduling gates: {waits}"
    ]
    for source in ("nothing", "=one-gpu"):
        claimless = member("worker-2", gpu=source)
        assert check(member("worker-1"), claimless, group(gang=size)).blockers == [
            f"pod worker-2 of its group has no claim for gpu yet: {waits}"
        ]
    served = member("worker-2", gpu="train")
    assert check(member("worker-1"), served, group(gang=size), claim()).blockers == []


def test_a_group_of_another_priority():
    high = group()
    high["spec"]["priority"] = 1000
    assert check(member("worker-1"), high).blockers == [
        "its priority is 0 and that of pod group default/training is 1000: "
        "the scheduler places only pods with the priority of their group"
    ]


def with_status(waiting, claim_name):
    waiting["metadata"]["uid"] = "u"
    statuses = [{"name": "gpu", "resourceClaimName": claim_name}]
    return waiting | {"status": {"resourceClaimStatuses": statuses}}


def owned(document, owner):
    reference = {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "name": owner,
        "uid": "g",
        "controller": True,
    }
    document["metadata"]["ownerReferences"] = [reference]
    return document


def test_a_claim_of_the_group():
    waiting = with_status(member("worker-1", gpu="=one-gpu"), "shared")
    found = check(waiting, group(gpu="=one-gpu"), owned(claim("shared"), "training"))
    assert found.blockers == []
    assert found.notes == [
        "claim default/shared belongs to pod group training, whose pods share it"
    ]


def test_a_claim_of_another_group():
    waiting = with_status(member("worker-1", gpu="=one-gpu"), "shared")
    found = check(waiting, group(gpu="=one-gpu"), owned(claim("shared"), "other"))
    assert found.blockers == ["claim default/shared was made for pod group other"]


def test_a_claim_that_is_still_to_be_created_for_the_group():
    waiting = member("worker-1", gpu="=one-gpu")
    waiting["metadata"]["uid"] = "u"
    assert check(waiting, group(gpu="=one-gpu")).blockers == [
        "claim default/training-gpu-… does not exist yet: "
        "the controller manager creates it from template one-gpu"
    ]


def test_nobody_frees_the_groups_own_claim():
    """The claim is on a node that is gone, and only the group uses it."""
    held = for_group(claim(held=[name(0)], pinned="node-9"))
    found = check(member("worker-1", gpu="train"), group(gpu="train"), held)
    assert found.remedies == []
    assert (
        "claim default/train is allocated already on node-9, reserved for pod group training"
        in found.notes
    )


def test_a_pod_without_a_group_waits_for_none():
    assert check(pod()).blockers == []
