"""What the scheduler says of a pod beside our verdict, and where the two differ."""

import pytest

from plugin.explain import objects, pending
from tests.support.cluster_objects import claim, class_, gpu, made, name, node, pod, slice_

HELD = "0/1 nodes are available: 1 cannot allocate all claims. preemption: 0/1 nodes are available."


def waiting(said="", **spec):
    found = pod(resourceClaims=[{"name": "gpu", "resourceClaimName": "train"}], **spec)
    if said:
        condition = {"type": "PodScheduled", "status": "False", "message": said}
        found["status"] = {"conditions": [condition]}
    return found


def event(message, when="2026-11-22T10:00:00Z", **more):
    about = {"kind": "Pod", "namespace": "default", "name": "job"}
    found = made("Event", f"job.{when}", {}, api="v1")
    return found | {
        "involvedObject": about,
        "reason": "FailedScheduling",
        "message": message,
        "lastTimestamp": when,
        **more,
    }


def quotes(*documents):
    known = objects.Objects()
    for document in (class_(), node("node-1"), slice_([gpu(0)]), *documents):
        known.add(document)
    return pending.report(known, pending.find(known, "pod/job", "default")).quotes


def test_a_condition_that_agrees():
    [quote] = quotes(waiting(HELD), claim(), claim("other", held=[name(0)]))
    assert (quote.text, quote.source, quote.differences) == (HELD, "condition", ())


def test_the_newest_event_is_quoted_where_it_says_something_else():
    older = event("0/9 nodes are available.", "2026-11-22T09:00:00Z")
    found = quotes(waiting(HELD), event(HELD.replace("1 c", "2 c")), older, claim())
    assert [quote.source for quote in found] == ["condition", "event"]
    assert found[1].when == "2026-11-22T10:00:00Z"
    assert [quote.source for quote in quotes(waiting(HELD), event(HELD), claim())] == ["condition"]


def test_events_of_the_newer_kind_and_of_others():
    about = {"kind": "Pod", "namespace": "default", "name": "job"}
    newer = made("Event", "job.1", {}, api="events.k8s.io/v1") | {
        "regarding": about,
        "reason": "FailedScheduling",
        "note": HELD,
        "eventTime": "2026-11-22T10:00:00.000000Z",
    }
    other = event("x", involvedObject={"kind": "Pod", "namespace": "default", "name": "other"})
    [quote] = quotes(waiting(), newer, other, event("x", reason="Scheduled"), claim())
    assert quote.text == HELD


@pytest.mark.parametrize(
    ("said", "difference"),
    [
        (HELD, "it found no node, we find node-1"),
        (HELD.replace("0/1", "0/3"), "it saw 3 nodes, here are 1"),
        (
            "0/1 nodes are available: 1 node(s) didn't match pod topology spread constraints.",
            "1 node by a rule that is not looked at here: node(s) didn't match pod topology",
        ),
    ],
)
def test_where_it_disagrees_it_says_so(said, difference):
    [quote] = quotes(waiting(said), claim())
    assert any(told.startswith(difference) for told in quote.differences), quote.differences


def test_another_reason_is_a_difference():
    said = "0/1 nodes are available: 1 Insufficient cpu, 1 node(s) were unschedulable."
    [quote] = quotes(waiting(said), claim(), claim("other", held=[name(0)]))
    assert quote.differences == (
        'it counts 1 with "Insufficient cpu", we find 0',
        'it counts 1 with "node(s) were unschedulable", we find 0',
    )


def test_words_that_are_not_a_count_are_only_quoted():
    [quote] = quotes(waiting("something else"), claim())
    assert quote.differences == ()
