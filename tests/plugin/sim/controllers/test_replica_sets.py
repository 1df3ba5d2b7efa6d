from tests.support.played_workloads import Played, workload


def test_a_replica_set_of_nobody_has_its_pods():
    played = Played(replicasets=[workload("ReplicaSet", replicas=2)])
    played.settle()
    assert len(played.pods) == 2
    status = played.objects["replicasets"]["default/demo"]["status"]
    assert (status["replicas"], status["fullyLabeledReplicas"], status["readyReplicas"]) == (
        2,
        2,
        0,
    )


def test_a_pod_that_fails_or_leaves_is_replaced():
    played = Played(replicasets=[workload("ReplicaSet", replicas=2)])
    played.settle()
    first, second = played.pods
    first["status"] = {"phase": "Failed"}
    second["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    played.settle()
    names = [pod_["metadata"]["name"] for pod_ in played.pods]
    assert len(names) == 4
    assert {first["metadata"]["name"], second["metadata"]["name"]} < set(names)


def test_what_is_least_of_a_loss_goes_first():
    played = Played(replicasets=[workload("ReplicaSet", replicas=4)])
    played.settle()
    costly, waiting, cheap, ready = (pod_["metadata"]["name"] for pod_ in played.pods)
    played.ready(costly, cheap, ready)
    annotated = played.objects["pods"][f"default/{cheap}"]["metadata"]
    annotated["annotations"] = {"controller.kubernetes.io/pod-deletion-cost": "-5"}
    annotated = played.objects["pods"][f"default/{costly}"]["metadata"]
    annotated["annotations"] = {"controller.kubernetes.io/pod-deletion-cost": "x"}

    gone = []
    for replicas in (3, 2, 1):
        before = {pod_["metadata"]["name"] for pod_ in played.pods}
        played.objects["replicasets"]["default/demo"]["spec"]["replicas"] = replicas
        played.settle()
        gone += before - {pod_["metadata"]["name"] for pod_ in played.pods}
    assert gone == [waiting, cheap, ready], "of two alike the younger"
