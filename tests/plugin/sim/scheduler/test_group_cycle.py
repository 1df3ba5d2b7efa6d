"""The decisions for the pods of a PodGroup.

test_pod_groups_as_recorded.py compares them with those of Kubernetes' own scheduler.
"""

from claimd.kubernetes.scheduling.objects import Claim, Class, Node, Pod, Slice
from claimd.kubernetes.scheduling.pod_groups import PodGroup
from claimd.sim.scheduler import group_cycle
from claimd.sim.scheduler.scheduling_cycle import Bind, Pending, Unschedulable, schedule_pod
from claimd.sim.scheduler.snapshot import PublishedDevices, Snapshot
from tests.support.allocating import read
from tests.support.cluster_objects import claim, class_, gpu, gpus, slice_
from tests.support.planes import node
from tests.support.pod_group_situations import group, member


def decide(group_, pods, claims=(), devices=None, **allocatable):
    slices = [read(slice_(devices or gpus(2)), Slice)]
    published = PublishedDevices(slices, (), [read(class_(), Class)])
    for pod in pods:
        pod["metadata"]["uid"] = pod["metadata"]["name"]
    typed = read(pods, list[Pod])
    machine = read(node("node-1", **allocatable), Node)
    snapshot = Snapshot.from_objects([machine], typed, claims, published)
    if group_:
        snapshot = snapshot.with_groups([read(group_, PodGroup)])
    pending = snapshot.pending_pods()
    return group_cycle.schedule_group(
        snapshot, snapshot.group_of(pending[0]), pending, schedule_pod
    )


def kinds(decided):
    return {uid: type(decision) for uid, decision in decided.decisions.items()}


def test_pods_wait_silently_for_their_group_and_for_each_other():
    for group_ in (None, group(gang=2)):
        decided = decide(group_, [member("a")])
        assert kinds(decided) == {"a": Pending} and not decided.status


def test_a_gang_is_placed_as_a_whole():
    decided = decide(group(gang=2), [member("a"), member("b")])
    assert kinds(decided) == {"a": Bind, "b": Bind}
    assert (decided.status, decided.reason) == ("True", "Scheduled")
    placed = [pod.spec.node_name for pod in decided.snapshot.pods.values()]
    assert placed == ["node-1", "node-1"]


def test_or_not_at_all():
    workers = [member(name, requests={"cpu": "3"}) for name in "ab"]
    decided = decide(group(gang=2), workers, cpu="4")
    assert kinds(decided) == {"a": Unschedulable, "b": Unschedulable}
    assert decided.decisions["a"].message == (
        "pod group is unschedulable, minCount (2) cannot be satisfied: 1 scheduled, 0 remaining, "
        "pod group preemption: No preemption victims found for incoming preemptor"
    )
    assert "Insufficient cpu" in decided.decisions["b"].message
    assert decided.status == "False"
    assert all(not pod.spec.node_name for pod in decided.snapshot.pods.values())


def test_a_group_without_a_gang_takes_what_there_is():
    workers = [member(name, requests={"cpu": "3"}) for name in "ab"]
    assert kinds(decide(group(), workers, cpu="4")) == {"a": Bind, "b": Unschedulable}


def test_the_priority_has_to_be_that_of_the_group():
    high = group()
    high["spec"]["priority"] = 1000
    decided = decide(high, [member("a")])
    assert decided.decisions["a"].reason == decided.reason == "SchedulerError"
    assert "got 0 and 1000" in decided.message


def test_devices_of_a_gang_that_are_not_ready_yet():
    """All pods wait on their node; the first one writes the allocation."""
    gang = group(gang=2, gpu="train")
    workers = [member(name, gpu="train") for name in "ab"]
    devices = [gpu(0, bindingConditions=["Ready"], bindingFailureConditions=["Failed"])]
    decided = decide(gang, workers, [read(claim(), Claim)], devices)
    assert kinds(decided) == {"a": Bind, "b": Bind} and decided.status == "True"
    assert [decision.waits for decision in decided.decisions.values()] == [True, True]
    (allocated,) = decided.decisions["a"].claims
    assert decided.decisions["b"].claims == ()
    assert [consumer.is_group for consumer in allocated.status.reserved_for] == [True]
