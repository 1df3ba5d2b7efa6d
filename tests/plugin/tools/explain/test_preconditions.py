"""The blockers and notes about a pod or a claim, before any node is asked."""

import pytest

from claimd.tools.explain import objects, preconditions
from tests.support import cluster_objects
from tests.support.cluster_objects import claim, class_, name, pod, template

CLAIM = [{"name": "gpu", "resourceClaimName": "train"}]
FROM_TEMPLATE = [{"name": "gpu", "resourceClaimTemplateName": "two"}]


def of_pod(waiting, *others):
    known = objects.Objects()
    for document in (class_(), waiting, *others):
        known.add(document)
    return preconditions.check_pod(known.pods[0], known)


def of_claim(document, *others):
    known = objects.Objects()
    for item in (document, *others):
        known.add(item)
    return preconditions.check_claim(known.claims[0], known)


def with_status(waiting, **status):
    return waiting | {"status": status}


def test_nothing():
    check = of_pod(pod(resourceClaims=CLAIM), claim())
    assert check.blockers == check.notes == []
    assert [waiting_claim.key for waiting_claim in check.waiting] == ["default/train"]


@pytest.mark.parametrize(
    ("waiting", "blocker"),
    [
        (pod(schedulingGates=[{"name": "g"}]), "it has the scheduling gate g, which must be removed first"),
        (pod(nodeName="n"), "it is on node n already, and the kubelet there has not started it yet"),
        (with_status(pod(nodeName="n"), phase="Succeeded"), "it has ended on node n (Succeeded)"),
        (pod(resourceClaims=CLAIM), "claim default/train does not exist"),
        (pod(resourceClaims=FROM_TEMPLATE), "claim template default/two does not exist"),
    ],
)  # fmt: skip
def test_the_state_of_the_pod(waiting, blocker):
    assert of_pod(waiting).blockers == [blocker]


def test_a_pod_that_is_being_deleted():
    waiting = pod()
    waiting["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert of_pod(waiting).blockers == ["it has been in deletion since 2026-01-01T00:00:00Z"]


@pytest.mark.parametrize(
    ("spec", "unseen"),
    [
        ({"volumes": [{"persistentVolumeClaim": {"claimName": "x"}}]}, "where its volumes are"),
        ({"volumes": [{"emptyDir": {}}]}, None),
    ],
)  # fmt: skip
def test_what_is_not_looked_at_is_named(spec, unseen):
    assert of_pod(pod(**spec)).notes == ([f"not looked at: {unseen}"] if unseen else [])


def test_the_scheduler_is_quoted():
    condition = {"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available."}
    check = of_pod(with_status(pod(schedulerName="mine"), conditions=[condition]))
    assert check.notes == [
        "scheduler mine has not placed it; the answer is by the rules of the default scheduler",
        "the scheduler says: 0/3 nodes are available.",
    ]


def test_a_claim_of_a_template():
    waiting = pod(resourceClaims=FROM_TEMPLATE)
    check = of_pod(waiting, template("two", claim(count=2)))
    assert check.notes == ["claim default/job-gpu-… does not exist yet; template two is looked at"]
    own_claim = claim("job-gpu-abc")
    status = {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "job-gpu-abc"}]}
    waiting = with_status(waiting, **status)
    assert of_pod(waiting).blockers == ["claim default/job-gpu-abc does not exist"]
    assert of_pod(waiting, own_claim).blockers == [
        "claim default/job-gpu-abc was made for another pod"
    ]
    former = {"controller": True, "kind": "Pod", "name": "job", "uid": "former"}
    own_claim["metadata"]["ownerReferences"] = [former]
    assert of_pod(waiting, own_claim).blockers == [
        "claim default/job-gpu-abc was made for an earlier pod with this name"
    ]
    assert of_pod(waiting, own_claim).remedies == [
        "delete claim default/job-gpu-abc: the controller manager creates another for this pod"
    ]
    own_claim["metadata"]["ownerReferences"] = [{"controller": True, "uid": "pod-uid"}]
    waiting["metadata"]["uid"] = "pod-uid"
    assert of_pod(waiting, own_claim).blockers == []
    none_needed = with_status(waiting, resourceClaimStatuses=[{"name": "gpu"}])
    assert of_pod(none_needed).waiting == []


@pytest.mark.parametrize(("known", "meant"), [("gpu.claimd.dev", ": is gpu.claimd.dev meant?"), ("x", "")])  # fmt: skip
def test_a_class_that_is_not_there(known, meant):
    check = of_claim(claim(deviceClassName="gpus.claimd.dev"), class_(known))
    assert check.undecidable
    assert check.blockers == [
        f"request gpus asks for device class 'gpus.claimd.dev', which does not exist{meant}"
    ]


def test_an_allocated_claim_by_itself():
    check = of_claim(claim(held=[name(0)], pinned="node-1", reserved=["a", "b", "c", "d"]))
    assert check.blockers == [
        "it is allocated already on node-1, reserved for pod a, pod b, pod c and 1 more"
    ]


def test_a_claim_that_is_reserved_for_as_many_as_it_may():
    full = claim(held=[name(0)], reserved=[f"pod-{index}" for index in range(256)])
    check = of_pod(pod(resourceClaims=CLAIM), full)
    assert check.blockers == [
        "claim default/train is reserved for 256 pods, which is the most it may be"
    ]
    own = pod(resourceClaims=CLAIM)
    own["metadata"]["uid"] = "pod-7"
    assert of_pod(own, full).blockers == []


def test_a_deleted_claim():
    check = of_claim(claim(deleted="2026-01-01T00:00:00Z"), class_())
    assert check.blockers == ["it has been in deletion since 2026-01-01T00:00:00Z"]


def test_a_claim_that_the_controller_has_not_made_yet_keeps_the_pod_waiting():
    waiting = pod(resourceClaims=FROM_TEMPLATE)
    waiting["metadata"]["uid"] = "u"
    check = of_pod(waiting, template("two", claim()))
    assert check.blockers == [
        "claim default/job-gpu-… does not exist yet: the controller manager creates it from template two"
    ]
    assert not check.notes and len(check.waiting) == 1


def test_a_claim_that_the_controller_cannot_make_comes_with_the_reason():
    waiting = pod(resourceClaims=FROM_TEMPLATE)
    waiting["metadata"]["uid"] = "u"
    refusal = "exceeded quota: gpus, requested: count/resourceclaims=1, limited: 0"
    wrapped = f'PodResourceClaim gpu: create ResourceClaim : "job-gpu-x" is forbidden: {refusal}'
    refused = cluster_objects.event(waiting, "FailedResourceClaimCreation", wrapped)
    check = of_pod(waiting, template("two", claim()), refused)
    assert check.blockers == [f"claim default/job-gpu-… cannot be created: {refusal}"]


@pytest.mark.parametrize(("limit", "figures"), [("0", "0 used, limit 0"), ("2", "0 used, limit 2")])
def test_a_claim_that_a_quota_keeps_away_comes_with_the_figures(limit, figures):
    waiting = pod(resourceClaims=FROM_TEMPLATE)
    waiting["metadata"]["uid"] = "u"
    resource = "count/resourceclaims"
    refusal = (
        f"exceeded quota: gpus, requested: {resource}=1, used: {resource}=0, limited: {resource}"
    )
    wrapped = (
        f'PodResourceClaim gpu: create ResourceClaim : "job-gpu-x" is forbidden: {refusal}={limit}'
    )
    refused = cluster_objects.event(waiting, "FailedResourceClaimCreation", wrapped)
    check = of_pod(waiting, template("two", claim()), refused)
    told = f"exceeded quota: gpus ({resource}: 1 requested, {figures})"
    assert check.blockers == [f"claim default/job-gpu-… cannot be created: {told}"]
    assert check.details == [
        "claim default/job-gpu-… is for gpu in the pod's resourceClaims, from template two"
    ]
    # A limit that is high enough is not what refuses the claim.
    raised = f"raise the limit of {resource} in quota gpus to at least 1"
    assert check.remedies == ([raised] if limit == "0" else [])


def test_claims_on_different_nodes():
    claims = [{"name": called, "resourceClaimName": called} for called in ("train", "store")]
    here, there = (
        claim(called, held=[name(0)], pinned=node)
        for called, node in [("train", "node-1"), ("store", "node-2")]
    )
    assert of_pod(pod(resourceClaims=claims), here, there).blockers == [
        "its claims are allocated on different nodes: default/train on node-1, default/store on node-2"
    ]
    assert of_pod(pod(resourceClaims=claims), here, there).remedies == []
    here["status"]["reservedFor"] = [{"resource": "pods", "name": "a", "uid": "a"}]
    there["status"]["reservedFor"] = [
        {"resource": "pods", "name": called, "uid": called} for called in ("b", "c")
    ]
    assert of_pod(pod(resourceClaims=claims), here, there).remedies == [
        "delete pod a, the user of claim default/train, so that it is allocated again; or "
        "delete pod b, pod c, the users of claim default/store, so that it is allocated again"
    ]
    same = there | {"status": there["status"] | {"reservedFor": here["status"]["reservedFor"]}}
    assert of_pod(pod(resourceClaims=claims), here, same).remedies == [
        "delete pod a, the user of claims default/train and default/store, "
        "so that they are allocated again"
    ]
    there["status"]["reservedFor"] = [{"resource": "jobs", "name": "b", "uid": "b"}]
    assert of_pod(pod(resourceClaims=claims), here, there).remedies == []
    together = claim("store", held=[name(1)], pinned="node-1")
    assert of_pod(pod(resourceClaims=claims), here, together).blockers == []


@pytest.mark.parametrize(
    ("resource", "component"),
    [
        ("nvidia.com/gpu", "nvidia-resources"),
        ("amd.com/gpu", "amd-resources"),
        ("gpu.intel.com/xe", "intel-resources"),
    ],
)
def test_a_resource_without_a_class_names_the_component(resource, component):
    waiting = pod(containers=[cluster_objects.container(**{resource: "1"})])
    [note] = of_pod(waiting, cluster_objects.node("node-1")).notes
    assert note == (
        f"no device class and no device plugin offers {resource}: "
        f"claimd offers it with the component {component}"
    )

    offered = class_("gpus")
    offered["spec"]["extendedResourceName"] = resource
    assert of_pod(waiting, cluster_objects.node("node-1"), offered).notes == []
    plugged = cluster_objects.node("node-1")
    plugged["status"]["allocatable"][resource] = "8"
    assert of_pod(waiting, plugged).notes == []


@pytest.mark.parametrize(
    ("labels", "blocker"),
    [
        ({}, True),
        ({"resource.kubernetes.io/admin-access": "false"}, True),
        ({"resource.kubernetes.io/admin-access": "true"}, False),
    ],
)
def test_admin_access_is_for_namespaces_with_a_label(labels, blocker):
    namespace = cluster_objects.build("Namespace", "default", {}, api="v1", namespace="")
    namespace["metadata"]["labels"] = labels
    check = of_claim(claim(adminAccess=True), class_(), namespace)
    said = [
        "it asks for admin access, which is not allowed in namespace default: "
        "the namespace lacks the label resource.kubernetes.io/admin-access=true"
    ]
    assert check.blockers == (said if blocker else [])
    assert check.notes == []


def test_a_template_asks_for_admin_access_too():
    namespace = cluster_objects.build("Namespace", "default", {}, api="v1", namespace="")
    waiting = pod(resourceClaims=FROM_TEMPLATE)
    waiting["metadata"]["uid"] = "u"
    first, second = of_pod(waiting, template("two", claim(adminAccess=True)), namespace).blockers
    assert first == (
        "claim default/job-gpu-… asks for admin access, which is not allowed in namespace default: "
        "the namespace lacks the label resource.kubernetes.io/admin-access=true"
    )
    assert second.startswith("claim default/job-gpu-… does not exist yet")


def test_nodes_that_do_not_exist_any_more():
    held = claim(held=[name(0)], pinned="node-9")
    place = {"key": "metadata.name", "operator": "In", "values": ["node-9"]}
    terms = {"nodeSelectorTerms": [{"matchFields": [place]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    waiting = pod(resourceClaims=CLAIM, affinity={"nodeAffinity": required})
    blockers = [
        "the pod's node affinity names node-9, which does not exist",
        "claim default/train has its devices on node-9, which does not exist",
    ]
    assert of_pod(waiting, held, cluster_objects.node("node-1")).blockers == blockers
    assert of_pod(waiting, held, cluster_objects.node("node-9")).blockers == []
    # Without any node, the nodes are only not known.
    assert of_pod(waiting, held).blockers == []


def test_whether_a_namespace_is_for_admin_access_may_not_be_known():
    check = of_claim(claim(adminAccess=True), class_())
    assert check.blockers == []
    assert check.notes == [
        "it asks for admin access: whether namespace default has the label "
        "resource.kubernetes.io/admin-access=true, which that needs, is not known"
    ]
    assert of_claim(claim(), class_()).notes == []


@pytest.mark.parametrize(
    ("spec", "resource", "what"),
    [
        (CLAIM, "resourceclaims", "claim default/train cannot be seen"),
        (FROM_TEMPLATE, "resourceclaimtemplates", "claim template default/two cannot be seen"),
    ],
)
def test_what_is_not_seen_may_be_there(spec, resource, what):
    known = objects.Objects(unseen=[resource])
    known.add(pod(resourceClaims=spec))
    check = preconditions.check_pod(known.pods[0], known)
    assert check.blockers == []
    assert check.unseen == [f"{what}: not allowed to see {resource}"]


def test_neither_classes_nor_slices_are_seen():
    known = objects.Objects(unseen=["deviceclasses", "resourceslices"])
    known.add(claim())
    check = preconditions.check_claim(known.claims[0], known)
    assert check.blockers == []
    assert check.unseen == [
        "request gpus asks for device class 'gpu.claimd.dev', "
        "which cannot be seen: not allowed to see deviceclasses",
        "no device can be seen: not allowed to see resourceslices",
    ]
