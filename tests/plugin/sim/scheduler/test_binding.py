"""The requests for a decision of the scheduler, and their order."""

import pytest

from claimd.kubernetes.kube import errors
from claimd.kubernetes.scheduling import preemption
from claimd.sim.scheduler.binding import FINALIZER, Binder
from claimd.sim.scheduler.prebind import GiveUp
from claimd.sim.scheduler.scheduling_cycle import (
    EXTENDED_CLAIM,
    Bind,
    Deallocate,
    Unschedulable,
    schedule_pod,
)
from tests.support.planes import claim, class_, node, parsed, pod, slice_, snapshot

NOW = 1767225600.0
NOW_TEXT = "2026-01-01T00:00:00Z"
RESOURCE = "example.com/gpu"


class Loop:
    """Records the requests, and answers as an API server that accepts all of them."""

    def __init__(self):
        self.sent = []

    async def send(self, request):
        self.sent.append(request)
        if request.method == "POST" and request.resource == "resourceclaims":
            metadata = {"uid": "uid-new", "resourceVersion": "1"} | request.body["metadata"]
            return request.body | {"metadata": metadata}
        return request.body

    async def try_send(self, request):
        await self.send(request)
        return True

    @property
    def targets(self):
        return [f"{request.method} {request.target}" for request in self.sent]


@pytest.fixture
def loop():
    return Loop()


@pytest.fixture
def binder(loop):
    return Binder(loop, "default-scheduler", lambda: NOW)


def decide(document, claims=(), classes=None):
    (pod_,) = parsed(document)
    world = snapshot(
        nodes=[node("node-1")],
        slices=[slice_("node-1")],
        pods=[document],
        claims=claims,
        classes=classes,
    )
    return pod_, schedule_pod(world, pod_)


async def bind(binder, document, claims=(), classes=None):
    pod_, decision = decide(document, claims, classes)
    documents = {f"default/{each['metadata']['name']}": each for each in claims}
    await binder.bind(document, pod_, decision, documents)
    return decision


async def test_a_pod_without_claims_is_bound_and_an_event_tells(binder, loop):
    await bind(binder, pod("p"))
    assert loop.targets == ["POST pods/default/p/binding", "POST events/default"]
    binding, event = (request.body for request in loop.sent)
    assert binding["metadata"] == {"namespace": "default", "name": "p", "uid": "uid-p"}
    assert binding["target"]["name"] == "node-1"
    assert (event["reason"], event["note"], event["action"], event["type"]) == (
        "Scheduled",
        "Successfully assigned default/p to node-1",
        "Binding",
        "Normal",
    )


async def test_a_claim_has_its_finalizer_before_its_allocation(binder, loop):
    own = claim("c", finalizers=["example.com/wait"])
    decision = await bind(binder, pod("p", claims=["c"]), [own])
    assert loop.targets == [
        "PUT resourceclaims/default/c",
        "PUT resourceclaims/default/c/status",
        "POST pods/default/p/binding",
        "POST events/default",
    ]
    protected, allocated = (request.body for request in loop.sent[:2])
    assert protected["metadata"]["finalizers"] == ["example.com/wait", FINALIZER]
    assert "status" not in protected
    status = allocated["status"]
    (result,) = status["allocation"]["devices"]["results"]
    assert result["device"] == decision.claims[0].status.allocation.devices.results[0].device
    assert status["allocation"]["allocationTimestamp"] == NOW_TEXT
    assert [consumer["uid"] for consumer in status["reservedFor"]] == ["uid-p"]


async def test_a_claim_that_is_allocated_is_only_reserved(binder, loop):
    held = claim("c", devices=["gpu-0"], pods=["other"])
    await bind(binder, pod("p", claims=["c"]), [held])
    assert loop.targets[0] == "PUT resourceclaims/default/c/status"
    status = loop.sent[0].body["status"]
    assert status["allocation"] == held["status"]["allocation"]
    assert [consumer["uid"] for consumer in status["reservedFor"]] == ["uid-other", "uid-p"]


async def test_devices_that_have_to_get_ready_come_before_the_binding(binder, loop):
    document, own = pod("p", claims=["c"]), claim("c")
    pod_, decision = decide(document, [own])
    waits = Bind(node=decision.node, claims=decision.claims, waits=True)
    await binder.bind(document, pod_, waits, {"default/c": own})
    assert loop.targets == [
        "PATCH pods/default/p/status",
        "PUT resourceclaims/default/c",
        "PUT resourceclaims/default/c/status",
        "POST events/default",
    ]
    assert loop.sent[0].body["status"] == {"nominatedNodeName": "node-1"}
    event = loop.sent[-1].body
    assert (event["type"], event["reason"], event["action"], event["note"]) == (
        *("Normal", "BindingConditionsPending", "Scheduling"),
        "waiting for binding conditions for device on node node-1",
    )


async def test_what_is_given_up_is_reserved_for_the_others_alone(binder, loop):
    document = pod("p", claims=["c", "d"])
    document["status"]["nominatedNodeName"] = "node-1"
    (pod_,) = parsed(document)
    held = claim("c", devices=["gpu-0"], pods=["p", "other"])
    others = claim("d", devices=["gpu-1"], pods=["other"])
    decision = GiveUp(message="failed", claims=())
    await binder.give_up(document, pod_, decision, [held, others])
    assert loop.targets == [
        "PATCH resourceclaims/default/c/status",
        "PATCH pods/default/p/status",
        "POST events/default",
    ]
    reserved, status, event = (request.body for request in loop.sent)
    assert reserved["metadata"] == {"uid": "uid-c"}
    assert reserved["status"] == {"reservedFor": [{"$patch": "delete", "uid": "uid-p"}]}
    assert status["status"]["nominatedNodeName"] is None
    [condition] = status["status"]["conditions"]
    assert (condition["reason"], condition["message"]) == ("SchedulerError", "failed")
    assert (event["type"], event["reason"]) == ("Warning", "FailedScheduling")


async def test_a_claim_of_extended_resources_that_is_given_up_is_deleted(binder, loop):
    document = asking()
    (pod_,) = parsed(document)
    finalizers = [FINALIZER, "example.com/wait"]
    made = claim("c", pods=["p"], annotations={EXTENDED_CLAIM: "true"}, finalizers=finalizers)
    await binder.give_up(document, pod_, GiveUp(message="failed", claims=()), [made])
    assert loop.targets[:2] == [
        "PUT resourceclaims/default/c",
        "DELETE resourceclaims/default/c",
    ]
    assert loop.sent[0].body["metadata"]["finalizers"] == ["example.com/wait"]


# ---------------------------------------------------------------- extended resources


def classes():
    extended = class_()
    extended["spec"]["extendedResourceName"] = RESOURCE
    return [extended]


def asking(**status):
    pod_ = pod("p", requests={RESOURCE: "1", "cpu": "1"})
    pod_["status"] |= status
    return pod_


async def test_the_claim_of_extended_resources_is_made_and_named_in_the_pods_status(binder, loop):
    await bind(binder, asking(), classes=classes())
    assert loop.targets[0] == "POST resourceclaims/default"
    claim_ = loop.sent[0].body
    name = claim_["metadata"]["name"]
    assert name.startswith("p-extended-resources-")
    assert claim_["metadata"]["annotations"] == {EXTENDED_CLAIM: "true"}
    (owner,) = claim_["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"], owner["controller"]) == (
        "Pod",
        "p",
        "uid-p",
        True,
    )
    assert loop.targets[1:] == [
        f"PUT resourceclaims/default/{name}",
        f"PUT resourceclaims/default/{name}/status",
        "PATCH pods/default/p/status",
        "POST pods/default/p/binding",
        "POST events/default",
    ]
    assert loop.sent[3].body["status"]["extendedResourceClaimStatus"] == {
        "resourceClaimName": name,
        "requestMappings": [
            {
                "containerName": "main",
                "resourceName": RESOURCE,
                "requestName": "container-0-request-1",
            }
        ],
    }


async def test_a_second_try_makes_no_second_claim(binder, loop):
    for _ in range(2):
        await bind(binder, asking(), classes=classes())
    names = [
        request.body["metadata"]["name"]
        for request in loop.sent
        if request.method == "POST" and request.resource == "resourceclaims"
    ]
    assert len(names) == 2
    assert names[0] == names[1]


# ---------------------------------------------------------------- no


def waiting(**condition):
    pod_ = pod("p")
    pod_["status"]["conditions"] = [{"type": "PodScheduled", "status": "False"} | condition]
    return pod_


@pytest.mark.parametrize(
    "condition",
    [
        {},
        {"reason": "Unschedulable", "message": "other"},
        {"reason": "SchedulingGated", "message": "no node"},
        {"type": "Ready", "reason": "Unschedulable", "message": "no node"},
    ],
)
async def test_why_a_pod_waits(binder, loop, condition):
    document = waiting(**condition)
    (pod_,) = parsed(document)
    await binder.report(document, pod_, Unschedulable(message="no node"))
    assert loop.targets == ["PATCH pods/default/p/status", "POST events/default"]
    patch, event = (request.body for request in loop.sent)
    assert patch["status"]["conditions"] == [
        {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "no node",
            "lastTransitionTime": NOW_TEXT,
        }
    ]
    assert (event["type"], event["reason"], event["note"], event["action"]) == (
        "Warning",
        "FailedScheduling",
        "no node",
        "Scheduling",
    )


async def test_why_a_pod_waits_is_told_once(binder, loop):
    document = waiting(reason="Unschedulable", message="no node")
    (pod_,) = parsed(document)
    await binder.report(document, pod_, Unschedulable(message="no node"))
    assert loop.sent == []


async def test_what_a_claim_holds_is_given_back_whole(binder, loop):
    held = claim("c", devices=["gpu-0"], pods=["p"])
    held["status"] |= {"devices": [{"device": "gpu-0"}], "other": 1}
    document = pod("p", claims=["c"])
    (pod_,) = parsed(document)
    decision = Deallocate(claim=None, report=Unschedulable(message="not here"))
    await binder.deallocate(document, pod_, decision, held)
    assert loop.targets[1:] == ["PATCH pods/default/p/status", "POST events/default"]
    assert loop.sent[2].body["note"] == "not here"
    request = loop.sent[0]
    assert request.target == "resourceclaims/default/c/status"
    assert request.body["status"] == {"other": 1}
    assert request.body["metadata"] == held["metadata"]


# ---------------------------------------------------------------- preemption


def bodies(loop, target):
    return [request.body for request in loop.sent if f"{request.method} {request.target}" == target]


async def test_victims_go_after_it_is_said_why(binder, loop):
    new = pod("p", schedulerName="default-scheduler")
    going = pod("going", on="node-1")
    going["metadata"]["deletionTimestamp"] = NOW_TEXT
    await binder.preempt(new, "node-1", [pod("v", on="node-1"), going], [pod("before")])
    # Who goes already is let go.
    assert loop.targets == [
        "PATCH pods/default/before/status",
        "PATCH pods/default/v/status",
        "DELETE pods/default/v",
        "POST events/default",
    ]
    (before,) = bodies(loop, "PATCH pods/default/before/status")
    assert before["status"] == {"nominatedNodeName": None}
    (victim,) = bodies(loop, "PATCH pods/default/v/status")
    (condition,) = victim["status"]["conditions"]
    assert condition == {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "PreemptionByScheduler",
        "message": "default-scheduler: preempting to accommodate a higher priority pod",
        "lastTransitionTime": NOW_TEXT,
    }
    (deletion,) = bodies(loop, "DELETE pods/default/v")
    assert deletion["preconditions"] == {"uid": "uid-v"}
    assert "gracePeriodSeconds" not in deletion


async def test_a_victim_that_is_gone_is_what_was_wanted(binder, loop, monkeypatch):
    sent = loop.send

    async def send(request):
        await sent(request)
        if request.name == "v":
            raise errors.NotFound("gone", status=404)
        return {}

    monkeypatch.setattr(loop, "send", send)
    await binder.preempt(pod("p"), "node-1", [pod("v", on="node-1"), pod("w", on="node-1")], [])
    assert "DELETE pods/default/w" in loop.targets


async def test_a_promise_is_written_and_taken_back(binder, loop):
    new = pod("p")
    (pod_,) = parsed(new)
    candidate = preemption.Candidate(node="node-1", victims=())
    await binder.report(new, pod_, Unschedulable(message="m", preemption=candidate))
    assert loop.sent[0].body["status"]["nominatedNodeName"] == "node-1"

    loop.sent.clear()
    new["status"]["nominatedNodeName"] = "node-1"
    (pod_,) = parsed(new)
    await binder.report(new, pod_, Unschedulable(message="waits", keeps_nomination=True))
    assert "nominatedNodeName" not in loop.sent[0].body["status"]
    # Also where the rest was said before.
    said = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "m"}
    new["status"]["conditions"] = [said]
    (pod_,) = parsed(new)
    await binder.report(new, pod_, Unschedulable(message="m"))
    assert loop.sent[-2].body["status"]["nominatedNodeName"] is None
