"""The note on preemption, in the situations that kube-scheduler was asked about."""

import pytest

from claimd.tools.explain import objects, pending
from tests.support import preemption_situations as situations
from tests.support.cluster_objects import node, pod

WOULD_GO = "would go for it from"


def notes(*documents):
    known = objects.Objects()
    for document in documents:
        known.add(document)
    subject = pending.find_subject(known, "pod/job", "default")
    return pending.report(known, subject, time_limit=1.0).notes


@pytest.mark.parametrize(
    ("situation", "words"),
    [
        ("as_few_as_will_do", f"pod default/c (priority 10) {WOULD_GO} node-1"),
        ("the_node_where_it_costs_least", f"pod default/d (priority 10) {WOULD_GO} node-3"),
        (
            "it_would_not_help",
            "no pod of lower priority goes for it: without them it could not go to any node either",
        ),
        (
            "it_never_preempts",
            "no pod of lower priority goes for it, as its preemptionPolicy is Never",
        ),
        (
            "devices_are_not_freed",
            "no pod of lower priority goes for it: the scheduler ends none for the devices of "
            "claims",
        ),
        (
            "cpus_are_freed_and_devices_are_not",
            "no pod of lower priority goes for it: the scheduler ends none for the devices of "
            "claims",
        ),
        (
            "cpus_are_freed_for_a_device_that_is_free",
            f"pod default/a (priority 10) {WOULD_GO} node-1",
        ),
    ],
)
def test_what_preemption_does_for_a_pod(situation, words):
    recorded = situations.load(situation)
    assert notes(*recorded["objects"], recorded["pod"]) == (f"preemption: {words}",)


def small(called, priority, cpu="30", **spec):
    main = {"name": "main", "resources": {"requests": {"cpu": cpu}}}
    return pod(called, containers=[main], priority=priority, **spec)


def test_nothing_is_said_where_nobody_is_of_lower_priority():
    there = small("a", 5, nodeName="node-1", cpu="60")
    assert notes(node("node-1"), there, small("job", 5)) == ()
    assert notes(node("node-1"), there, small("job", 6))
    # If another node has room, the pod needs no preemption.
    assert notes(node("node-1"), node("node-2"), there, small("job", 6)) == ()


def test_few_of_many_are_named():
    there = [small(called, 5, cpu="16", nodeName="node-1") for called in "abcd"]
    assert notes(node("node-1"), *there, small("job", 6, cpu="60")) == (
        "preemption: pods default/a (priority 5), default/b (priority 5) and 2 more would go for "
        "it from node-1",
    )


def test_it_waits_for_those_that_go():
    there = small("a", 5, nodeName="node-1", cpu="60")
    there["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    gone = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    there["status"] = {"conditions": [gone]}
    waiting = small("job", 6)
    waiting["status"] = {"nominatedNodeName": "node-1"}
    assert notes(node("node-1"), there, waiting) == (
        "preemption: pods of lower priority go for it on node-1, and are not gone yet",
    )
