import pytest

from claimd.sim.controllers import deployments, workloads
from tests.support.played_workloads import Played, workload


def rolling(surge, unavailable):
    amounts = {"maxSurge": surge, "maxUnavailable": unavailable}
    return {"type": "RollingUpdate", "rollingUpdate": amounts}


def running(**spec):
    played = Played(deployments=[workload("Deployment", **spec)])
    played.settle()
    played.ready()
    played.settle()
    return played


def test_a_deployment_has_as_many_pods_as_it_wants():
    played = Played(deployments=[workload("Deployment", replicas=3)])
    played.settle()
    assert len(played.pods) == 3
    pod = played.pods[0]
    assert pod["metadata"]["labels"]["app"] == "demo"
    assert pod["metadata"]["ownerReferences"][0]["kind"] == "ReplicaSet"
    status = played.deployment["status"]
    assert (status["replicas"], status["readyReplicas"], status["observedGeneration"]) == (3, 0, 1)
    assert played.condition("Available") == ("False", "MinimumReplicasUnavailable")
    played.ready()
    played.settle()
    assert played.deployment["status"]["availableReplicas"] == 3
    assert played.condition("Available") == ("True", "MinimumReplicasAvailable")
    assert played.condition("Progressing") == ("True", "NewReplicaSetAvailable")
    played.change(replicas=1)
    played.settle()
    assert len(played.pods) == 1


def test_a_deployment_without_a_template_or_on_its_way_out_gets_no_pods():
    for part in ({"template": {}}, {"replicas": 2}):
        deployment = workload("Deployment", **part)
        if "replicas" in part:
            deployment["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        assert Played(deployments=[deployment]).step() == []


@pytest.mark.parametrize(
    ("replicas", "surge", "unavailable", "most", "least"),
    [
        (4, "25%", "25%", 5, 3),
        (10, "25%", "25%", 13, 8),  # a surge is rounded up, what may be missing down
        (3, "25%", "25%", 4, 3),
        (1, "25%", "25%", 2, 1),
        (4, 0, 1, 4, 3),
        (4, 2, 0, 6, 4),
        (4, "100%", 0, 8, 4),
        (4, 0, "100%", 4, 0),
        (3, 0, 0, 3, 2),  # nothing could go on: one may be missing
        (3, 0, "10%", 3, 2),
    ],
)
def test_a_rollout_has_neither_more_nor_fewer_pods_than_its_strategy_says(
    replicas, surge, unavailable, most, least
):
    played = running(replicas=replicas, strategy=rolling(surge, unavailable))
    assert played.roll("b") == (most, least)
    assert played.images == ["b"] * replicas
    assert played.revisions == {"a": ("1", 0), "b": ("2", replicas)}


def test_with_all_devices_taken_a_rollout_that_surges_hangs():
    played = running(replicas=2, strategy=rolling(1, 0))
    played.capacity = 2
    played.roll("b")
    assert played.images == ["a", "a", "b"]
    assert played.condition("Progressing") == ("True", "ReplicaSetUpdated")
    assert played.condition("Available") == ("True", "MinimumReplicasAvailable")

    # ten minutes later it counts as failed, and goes on hanging
    wait = workloads.next_look(played.objects, played.now)
    assert 590 < wait < 610
    played.now += wait
    played.settle()
    assert played.condition("Progressing") == ("False", "ProgressDeadlineExceeded")
    assert played.images == ["a", "a", "b"]
    assert workloads.next_look(played.objects, played.now) is None


def test_with_all_devices_taken_a_rollout_that_may_miss_one_comes_to_its_end():
    played = running(replicas=2, strategy=rolling(0, 1))
    played.capacity = 2
    played.roll("b")
    assert played.images == ["b", "b"]


def test_to_recreate_is_to_wait_until_all_old_pods_are_gone():
    played = running(replicas=2, strategy={"type": "Recreate"})
    leaving = played.pods[0]
    assert played.roll("b") == (2, 0)
    assert played.images == ["b", "b"]

    played = running(replicas=2, strategy={"type": "Recreate"})
    leaving = played.pods[0]
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    key = f"default/{leaving['metadata']['name']}"
    played.roll("b")
    assert played.images == ["a"], "the one that goes, and nothing else"
    del played.objects["pods"][key]
    played.settle()
    assert played.images == ["b", "b"]


def test_a_template_of_before_gets_a_new_revision_and_its_old_pods_replica_set():
    played = running(replicas=1)
    first = next(iter(played.objects["replicasets"]))
    played.roll("b")
    played.roll("a")
    assert played.revisions == {"a": ("3", 1), "b": ("2", 0)}
    again = played.objects["replicasets"][first]["metadata"]["annotations"]
    assert again[deployments.HISTORY] == "1"
    assert played.deployment["metadata"]["annotations"] == {deployments.REVISION: "3"}


def test_what_a_typed_client_writes_otherwise_is_no_new_template():
    played = running(replicas=1)
    template = played.deployment["spec"]["template"]
    metadata = template["metadata"] | {"creationTimestamp": None}
    (container,) = template["spec"]["containers"]
    containers = [container | {"resources": {"limits": {}}, "args": []}]
    played.change(template={"metadata": metadata, "spec": {"containers": containers}})
    played.settle()
    assert played.revisions == {"a": ("1", 1)}


def test_only_so_many_old_revisions_are_kept():
    played = running(replicas=1, revisionHistoryLimit=2)
    for image in "bcdef":
        played.roll(image)
    assert played.revisions == {"d": ("4", 0), "e": ("5", 0), "f": ("6", 1)}


def test_a_paused_deployment_is_scaled_and_not_rolled_out():
    played = running(replicas=2)
    played.change(paused=True, replicas=3)
    played.roll("b")
    assert played.images == ["a", "a", "a"]
    assert played.condition("Progressing") == ("Unknown", "DeploymentPaused")
    played.change(paused=False)
    played.roll("b")
    assert played.images == ["b", "b", "b"]


def test_a_deployment_that_is_scaled_while_it_rolls_keeps_the_proportion():
    played = running(replicas=10, strategy=rolling(3, 2))
    played.capacity = 0
    played.roll("b")
    assert [size for _, size in sorted(played.revisions.values())] == [8, 5]
    played.change(replicas=30)
    played.settle()
    assert [size for _, size in sorted(played.revisions.values())] == [20, 13]


def test_annotations_of_the_deployment_are_its_replica_sets():
    played = running(replicas=1)
    cause = {"kubernetes.io/change-cause": "better", deployments.LAST_APPLIED: "{}"}
    played.deployment["metadata"].setdefault("annotations", {}).update(cause)
    played.settle()
    (replica_set,) = played.objects["replicasets"].values()
    assert replica_set["metadata"]["annotations"]["kubernetes.io/change-cause"] == "better"
    assert deployments.LAST_APPLIED not in replica_set["metadata"]["annotations"]


def test_a_pod_counts_as_available_after_its_time():
    played = Played(deployments=[workload("Deployment", replicas=1, minReadySeconds=10)])
    played.settle()
    played.ready()
    played.settle()
    status = played.deployment["status"]
    assert (status["readyReplicas"], status["availableReplicas"]) == (1, 0)
    assert workloads.next_look(played.objects, played.now) == 10
    played.now += 10
    played.settle()
    assert played.deployment["status"]["availableReplicas"] == 1


def test_without_a_deadline_nobody_says_how_far_it_is():
    played = running(replicas=1, progressDeadlineSeconds=2**31 - 1)
    assert played.condition("Progressing") is None


def test_percentages_are_rounded():
    assert [deployments.resolve_amount("25%", total, up=True) for total in (1, 4, 5)] == [1, 1, 2]
    assert [deployments.resolve_amount("25%", total, up=False) for total in (1, 4, 7)] == [0, 1, 1]
    assert deployments.resolve_amount(3, 1, up=True) == 3
