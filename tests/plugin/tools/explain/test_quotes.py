"""The scheduler's own messages about a pod, and how they differ from our answer."""

import pytest

from claimd.kubernetes.scheduling.filters import Refusal
from claimd.tools.explain import objects, pending
from claimd.tools.explain.answer import Answer, NodeAnswer
from claimd.tools.explain.quotes import quotes_for_pod
from tests.support.cluster_objects import build, claim, class_, gpu, name, node, pod, slice_

HELD = "0/1 nodes are available: 1 cannot allocate all claims. preemption: 0/1 nodes are available."


def waiting(said="", **spec):
    pod_ = pod(resourceClaims=[{"name": "gpu", "resourceClaimName": "train"}], **spec)
    if said:
        condition = {"type": "PodScheduled", "status": "False", "message": said}
        pod_["status"] = {"conditions": [condition]}
    return pod_


def event(message, when="2026-11-22T10:00:00Z", **more):
    about = {"kind": "Pod", "namespace": "default", "name": "job"}
    event_ = build("Event", f"job.{when}", {}, api="v1")
    return event_ | {
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
    return pending.report(known, pending.find_subject(known, "pod/job", "default")).quotes


def test_a_condition_that_agrees():
    [quote] = quotes(waiting(HELD), claim(), claim("other", held=[name(0)]))
    assert (quote.text, quote.source, quote.differences) == (HELD, "condition", ())


def test_a_volume_that_does_not_exist_is_named():
    missing = 'persistentvolumeclaim "data" not found'
    [quote] = quotes(waiting(f"0/1 nodes are available: {missing}. not found"), claim())
    assert quote.unseen == missing


def test_volumes_that_are_not_bound_are_named():
    unbound = "pod has unbound immediate PersistentVolumeClaims"
    sources = [{"claimName": "data"}, {"claimName": "cache"}]
    volumes = [{"name": "v", "persistentVolumeClaim": source} for source in sources]
    waits = waiting(f"0/1 nodes are available: {unbound}. not found", volumes=volumes)
    [quote] = quotes(waits, claim())
    assert quote.unseen == f"{unbound} (volume claims data, cache)"
    missing = 'persistentvolumeclaim "data" not found'
    waits = waiting(f"0/1 nodes are available: {missing}. not found", volumes=volumes)
    [quote] = quotes(waits, claim())
    assert quote.unseen == missing


def test_the_newest_event_is_quoted_where_it_says_something_else():
    older = event("0/9 nodes are available.", "2026-11-22T09:00:00Z")
    quotes_ = quotes(waiting(HELD), event(HELD.replace("1 c", "2 c")), older, claim())
    assert [quote.source for quote in quotes_] == ["condition", "event"]
    assert quotes_[1].when == "2026-11-22T10:00:00Z"
    assert [quote.source for quote in quotes(waiting(HELD), event(HELD), claim())] == ["condition"]


def test_events_of_the_newer_kind_and_of_others():
    about = {"kind": "Pod", "namespace": "default", "name": "job"}
    newer = build("Event", "job.1", {}, api="events.k8s.io/v1") | {
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
        (HELD, "the scheduler found no node, explain finds node-1"),
        (HELD.replace("0/1", "0/3"), "the scheduler saw 3 nodes, here are 1"),
        (
            "0/1 nodes are available: 1 node(s) had volume node affinity conflict.",
            "1 node by a rule that explain does not check: node(s) had volume node affinity",
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
        'the scheduler counts 1 with "Insufficient cpu", explain finds 0',
        'the scheduler counts 1 with "node(s) were unschedulable", explain finds 0',
    )


def test_words_that_are_not_a_count_are_only_quoted():
    [quote] = quotes(waiting("something else"), claim())
    assert quote.differences == ()


def refusal(message, rule="NodeUnschedulable"):
    return Refusal(rule=rule, message=message, detail="")


CORDONED = refusal("node(s) were unschedulable")
CPU = refusal("Insufficient cpu", "NodeResourcesFit")
MEMORY = refusal("Insufficient memory", "NodeResourcesFit")
ELSEWHERE = refusal("resourceclaim not available on the node", "DynamicResources")
TAINT = refusal("node(s) had untolerated taint {a: b}", "TaintToleration")


def judged_node(*refused_by, outcome="no", devices="yes", name="n"):
    return NodeAnswer(
        node=name, outcome=outcome, summary="", devices=devices, refused_by=refused_by
    )


def differences(said, *nodes, verdict="pending"):
    known = objects.Objects()
    known.add(waiting(said))
    subject = pending.find_subject(known, "pod/job", "default")
    answer = Answer(subject="it", verdict=verdict, nodes=nodes)
    quotes_ = list(quotes_for_pod(subject, known, answer))
    return quotes_[0].differences if quotes_ else None


NO_DEVICES = "cannot allocate all claims"


@pytest.mark.parametrize(
    ("said", "nodes"),
    [
        (f"0/1 nodes are available: 1 {NO_DEVICES}.", [judged_node(devices="no")]),
        # The first rule that refuses counts, with all its reasons.
        ("0/1 nodes are available: 1 node(s) were unschedulable.", [judged_node(CORDONED, CPU)]),
        (
            "0/2 nodes are available: 1 Insufficient memory, 2 Insufficient cpu.",
            [judged_node(CPU, MEMORY), judged_node(CPU)],
        ),
        # Devices that cannot be allocated come before a claim that is allocated elsewhere.
        (f"0/1 nodes are available: 1 {NO_DEVICES}.", [judged_node(ELSEWHERE, devices="no")]),
        (
            "0/1 nodes are available: 1 resourceclaim not available on the node.",
            [judged_node(ELSEWHERE)],
        ),
        (
            "0/1 nodes are available: 1 node(s) were unschedulable.",
            [judged_node(CORDONED, devices="no")],
        ),
        # Releases word a taint differently, and some append the claim.
        ("0/1 nodes are available: 1 node(s) had taint {a: c}.", [judged_node(TAINT)]),
        (
            "0/1 nodes are available: 1 cannot allocate all claims (a/b).",
            [judged_node(devices="no")],
        ),
        # The simulated scheduler appends what each node lacks, with numbers and commas.
        (
            f"0/3 nodes are available: 1 {NO_DEVICES} (claim a/b: 1 GPU is needed, 0 of 2 suit), "
            f"2 {NO_DEVICES} (claim a/b: 1 GPU is needed, none exists).",
            [judged_node(devices="no")] * 3,
        ),
        ("0/1 nodes are available: something else.", [judged_node(CPU)]),
        ("0/1 nodes are available.", [judged_node(CPU)]),
        ("0/9 nodes are available: 1 Insufficient cpu.", []),
    ],
)
def test_the_scheduler_counts_as_we_do(said, nodes):
    assert differences(said, *nodes) == ()


def test_what_it_counts_otherwise():
    said = (
        "0/3 nodes are available: 2 Insufficient cpu, 3 node(s) had volume node affinity conflict."
    )
    assert differences(said, judged_node(CPU), judged_node(CORDONED), judged_node(CORDONED)) == (
        'the scheduler counts 2 with "Insufficient cpu", explain finds 1',
        "3 nodes by a rule that explain does not check: node(s) had volume node affinity conflict",
    )
    # If the pod fits on a node here, all counts differ, and they are not compared.
    good = judged_node(outcome="yes", name="a"), judged_node(outcome="yes", name="b")
    why = "either something has changed since, or a rule that explain does not check refuses it"
    assert differences("0/2 nodes are available: 2 Insufficient cpu.", *good) == (
        f"the scheduler found no node, explain finds a and 1 more: {why}",
    )
    mixed = (*good[:1], judged_node(CPU))
    assert differences("0/2 nodes are available: 2 Insufficient cpu.", *mixed) == (
        f"the scheduler found no node, explain finds a: {why}",
    )


def test_nothing_is_quoted_of_what_is_settled():
    assert differences(HELD, judged_node(CPU), verdict="settled") is None


def test_a_condition_without_words_has_a_reason():
    pod_ = waiting()
    pod_["status"] = {
        "conditions": [
            {"type": "Ready", "status": "False", "message": "x"},
            {"type": "PodScheduled", "status": "True", "message": "y"},
            {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"},
        ]
    }
    assert [quote.text for quote in quotes(pod_, event(""), claim())] == ["SchedulingGated"]
