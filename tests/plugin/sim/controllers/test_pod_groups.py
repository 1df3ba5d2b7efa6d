"""PodGroups that are being deleted."""

from claimd.sim.controllers import pod_groups
from tests.support.planes import copies, pod

GONE = "2026-01-01T00:00:00Z"


def group(name="training", **metadata):
    finalizers = ["example.com/mine", pod_groups.FINALIZER]
    return {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "default", "uid": "g", "finalizers": finalizers}
        | metadata,
        "spec": {},
    }


def sync(pods, group_):
    return list(pod_groups.sync(copies(pods=pods, podgroups=[group_])))


def worker(phase="Running", of="training"):
    document = pod("p", schedulingGroup={"podGroupName": of})
    return document | {"status": {"phase": phase}}


def test_a_group_goes_when_no_pod_of_it_runs():
    going = group(deletionTimestamp=GONE)
    for pods in ([], [worker("Succeeded")], [worker(of="other")]):
        (request,) = sync(pods, going)
        assert request.body["metadata"]["finalizers"] == ["example.com/mine"]
    assert sync([worker()], going) == []


def test_a_group_that_nobody_has_deleted_stays():
    assert sync([], group()) == []
    assert sync([], group(deletionTimestamp=GONE, finalizers=["example.com/mine"])) == []
