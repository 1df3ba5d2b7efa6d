"""What is said of devices that a pod waits for, and of those that it was sent away from."""

import pytest

from claimd.tools.explain import objects, pending, preconditions, readiness
from tests.support import cluster_objects
from tests.support.cluster_objects import claim, class_, name, pod

CLAIM = [{"name": "gpu", "resourceClaimName": "train"}]
DEVICE = f"device {name(0)} of claim default/train"
UNREADY = f"{DEVICE} is not ready yet: its driver has not reported Ready"
GIVEN_BACK = "it will be given back, and the scheduler looks for others"
WAITS = "the scheduler waits for driver gpu.claimd.dev to report Ready"
TIMES = " since 2026-01-01T10:00:00Z, and until 2026-01-01T10:10:00Z at most"
START = 1767261600.0  # 2026-01-01T10:00:00Z


def unready(*conditions, reserved=("job",), devices=1):
    """A claim whose first device has these conditions: their types, or whole ones."""
    waiting = claim(held=[name(index) for index in range(devices)], reserved=reserved)
    for result in waiting["status"]["allocation"]["devices"]["results"]:
        result |= {"bindingConditions": ["Ready"], "bindingFailureConditions": ["Broken"]}
    waiting["status"]["allocation"]["allocationTimestamp"] = "2026-01-01T10:00:00Z"
    reported = [
        condition if isinstance(condition, dict) else {"type": condition, "status": "True"}
        for condition in conditions
    ]
    device = {"driver": cluster_objects.DRIVER, "pool": "node-1", "device": name(0)}
    waiting["status"]["devices"] = [device | {"conditions": reported}]
    return waiting


def job(called="job", **more):
    waiting = pod(resourceClaims=CLAIM, **more)
    waiting["metadata"]["uid"] = called
    return waiting


def load(*documents, read_at=None):
    known = objects.Objects(read_at=read_at)
    for document in (class_(), *documents):
        known.add(document)
    return known


def of_pod(*documents, read_at=None):
    known = load(*documents, read_at=read_at)
    return preconditions.check_pod(known.pods[0], known)


@pytest.mark.parametrize(
    ("conditions", "blocker"),
    [
        ((), UNREADY),
        (("Ready",), None),
        (("Broken",), f"{DEVICE} has failed: Broken; {GIVEN_BACK}"),
        (("Ready", "Broken"), f"{DEVICE} has failed: Broken; {GIVEN_BACK}"),
        (
            [
                {
                    "type": "Broken",
                    "status": "True",
                    "reason": "NoGroup",
                    "message": "no IOMMU group",
                }
            ],
            f"{DEVICE} has failed: no IOMMU group; {GIVEN_BACK}",
        ),
        (
            [{"type": "Broken", "status": "True", "reason": "NoGroup"}],
            f"{DEVICE} has failed: NoGroup; {GIVEN_BACK}",
        ),
        (
            [{"type": "Ready", "status": "False", "reason": "Binds", "message": "is being bound"}],
            f"{DEVICE} is not ready yet: is being bound",
        ),
        ([{"type": "Ready", "status": "False"}], UNREADY),
    ],
)
def test_a_pod_that_the_claim_is_reserved_for(conditions, blocker):
    found = of_pod(job(), unready(*conditions))
    assert found.blockers == ([blocker] if blocker else [])
    is_waiting = blocker is not None and "has failed" not in blocker
    assert found.details == ([f"{WAITS}{TIMES}"] if is_waiting else [])


def test_the_node_is_named_if_it_is_known():
    waiting = unready()
    pinned = claim(held=[name(0)], pinned="node-1")["status"]["allocation"]["nodeSelector"]
    waiting["status"]["allocation"]["nodeSelector"] = pinned
    [blocker] = of_pod(job(), waiting).blockers
    assert blocker == UNREADY.replace(" is not ready", " on node-1 is not ready")


@pytest.mark.parametrize(
    ("passed", "told"),
    [
        (0, ": 0 s have passed, 10 min 0 s are left"),
        (59.6, ": 59 s have passed, 9 min 0 s are left"),
        (130, ": 2 min 10 s have passed, 7 min 50 s are left"),
        (700, ": that is over"),
        # The clocks differ.
        (-1, ""),
    ],
)
def test_how_long_it_has_waited_and_will_wait(passed, told):
    found = of_pod(job(), unready(), read_at=START + passed)
    assert found.details == [f"{WAITS}{TIMES}{told}"]


@pytest.mark.parametrize("time", ["yesterday", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00+14:00"])
def test_a_time_that_is_none_is_shown_as_it_is(time):
    waiting = unready()
    waiting["status"]["allocation"]["allocationTimestamp"] = time
    assert of_pod(job(), waiting).details == [f"{WAITS}, allocated at {time}"]
    waiting["status"]["allocation"]["allocationTimestamp"] = None
    assert of_pod(job(), waiting).details == [WAITS]


def test_each_device_is_told_of():
    """The scheduler looks only at the first that is not ready."""
    found = of_pod(job(), unready("Broken", devices=3))
    first, second, third = found.blockers
    assert "has failed" in first
    assert (second, third) == tuple(UNREADY.replace(name(0), name(index)) for index in (1, 2))
    assert found.details == [f"{WAITS}{TIMES}"]


def test_another_pod_waits_only_when_the_claim_is_reserved_for_it():
    found = of_pod(job("another"), unready())
    assert found.blockers == found.details == []
    [blocker] = of_pod(job("another"), unready("Broken")).blockers
    given_back = "the claim is given back when it is not reserved for pod job any more"
    assert blocker == f"{DEVICE} has failed: Broken; {given_back}"
    [blocker] = of_pod(job("another"), unready("Broken", reserved=())).blockers
    assert blocker == f"{DEVICE} has failed: Broken; {GIVEN_BACK}"


def test_a_pod_with_a_node_waits_for_no_device():
    found = of_pod(job(nodeName="node-1"), unready("Broken"))
    assert found.blockers == [
        "it is on node node-1 already, and the kubelet there has not started it yet"
    ]


def test_a_claim_by_itself():
    known = load(unready())
    found = preconditions.check_claim(known.claims[0], known)
    assert found.blockers[1:] == [UNREADY.replace(" of claim default/train", "")]
    assert found.details == [f"{WAITS}{TIMES}"]


# ---------------------------------------------------------------- devices that were given up

BEGINNING = 'running PreBind plugin "DynamicResources": device binding '
FAILED = f'{BEGINNING}failed: claim=train, reason=NoGroup, message="no \\"group\\" here"'
TIMED_OUT = f"{BEGINNING}timeout: context deadline exceeded"
RELEASED = (
    "0/2 nodes are available: 2 resourceclaim not available on the node. "
    "deallocation of ResourceClaim completed"
)
WERE_GIVEN_UP = "devices that it had before were given up"


def failed_scheduling(message, when="2026-01-01T10:05:00Z"):
    return cluster_objects.event(job(), "FailedScheduling", message, when)


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (FAILED, 'because one failed: no "group" here'),
        (FAILED.replace('no \\"group\\" here', ""), "because one failed: NoGroup"),
        (TIMED_OUT, "because they were not ready in time"),
        (f"{BEGINNING}timeout: claim=train", "because they were not ready in time"),
    ],
)
def test_why_it_was_sent_elsewhere(message, why):
    later = failed_scheduling(RELEASED, "2026-01-01T10:06:00Z")
    known = load(job(), unready(), failed_scheduling(message), later)
    at = " at 2026-01-01T10:05:00Z"
    assert readiness.earlier_failure(known.pods[0], known) == f"{WERE_GIVEN_UP}{at}, {why}"

    # Events are not always to be seen.
    waiting = job()
    condition = {"type": "PodScheduled", "status": "False", "message": message}
    waiting["status"] = {"conditions": [condition]}
    assert f"{WERE_GIVEN_UP}, {why}" in of_pod(waiting, claim()).notes


def test_other_messages_say_nothing_of_that():
    known = load(job(), claim(), failed_scheduling(RELEASED))
    assert readiness.earlier_failure(known.pods[0], known) == ""


def test_the_scheduler_is_quoted_without_a_count_that_is_over():
    waiting = job()
    condition = {"type": "PodScheduled", "status": "False", "message": RELEASED}
    waiting["status"] = {"conditions": [condition]}
    known = load(waiting, unready(), cluster_objects.node("node-1"))
    [quote] = pending.report(known, known.pods[0]).quotes
    assert (quote.text, quote.differences) == (RELEASED, ())
