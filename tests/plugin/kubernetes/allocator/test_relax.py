"""Tests of remedies: each one is tried, also with one of its changes left out."""

import itertools
import time

import pytest

from claimd.kubernetes.allocator import changes, explain, relax
from tests.support import alloc_hard, alloc_worlds, remedies, samples
from tests.support.alloc_hard import ROOT, rooted, taken, world


def ways_out(world, **options):
    return [str(remedy) for remedy in remedies.verdict_of(world, **options).shortage.remedies]


@pytest.mark.timeout(300)
@pytest.mark.sampled
def test_random_worlds():
    """Plays a sample of the campaign in tests.support.remedies."""
    helped = 0
    for seed in range(samples.share(60)):
        world = alloc_worlds.numbered(seed)
        if seed % 2:
            world = remedies.as_scheduled(world)
        verdict = remedies.verdict_of(world)
        assert list(remedies.wrong(world, verdict)) == []
        helped += bool(verdict.shortage.remedies)
    assert helped > samples.share(20)


def test_one_of_several_devices():
    hard = world(rooted(3, 3), {"count": 1})
    hard["taken"] = [taken("a", "gpu-0", "gpu-1", driver="gpu.example.com")]
    hard["taken"].append(taken("b", "gpu-2", driver="gpu.example.com"))
    assert ways_out(hard) == ["free 1 of gpu-0, gpu-1 and gpu-2 (claims a and b)"]


@pytest.mark.parametrize("mode", ["ExactCount", "All"])
def test_a_request_for_a_huge_number(mode):
    """A claim gets at most 32 devices, so no more of them are tried or prepared."""
    hard = world(rooted(1, 1), {})
    [request] = hard["claims"][0]["spec"]["devices"]["requests"]
    exactly = request.pop("exactly")
    request["firstAvailable"] = [
        exactly | {"name": "most", "count": 2**63 - 1},
        exactly | {"name": "two", "allocationMode": mode, "count": 2},
    ]
    hard["taken"] = [taken("a", "gpu-0", driver="gpu.example.com")]
    assert ways_out(hard)


def test_the_fewest_devices():
    """One device is missing under the second root, and three under the first."""
    hard = world(rooted(8, 4), {"count": 4}, constraints=[{"matchAttribute": ROOT}])
    devices = ("gpu-0", "gpu-1", "gpu-2", "gpu-6", "gpu-7")
    hard["taken"] = [taken("other", *devices, driver="gpu.example.com")]
    assert ways_out(hard)[0] == "free gpu-6 and gpu-7 (claim other)"


def test_each_kind_of_change():
    hard = world(
        rooted(4, 2), {"count": 3}, constraints=[{"matchAttribute": ROOT}], selectors=["true"]
    )
    assert ways_out(hard) == [
        "ask for 2 in request gpus",
        "leave out matchAttribute pcieRoot",
    ]


def test_a_taint_is_tolerated():
    devices = [
        device | {"taints": [{"key": "hot", "value": "v", "effect": "NoSchedule"}]}
        for device in rooted(2, 2)
    ]
    assert ways_out(world(devices, {"count": 1})) == ["tolerate hot=v:NoSchedule in request gpus"]


def test_each_taint_is_tolerated_once_and_only_if_it_keeps_devices_away():
    """The work grows with the number of changes, and a node may have hundreds of devices."""
    hot, cold = ({"key": key, "value": "v", "effect": "NoSchedule"} for key in ("hot", "cold"))
    harmless = {"key": "noted", "effect": "None"}
    devices = [device | {"taints": [hot, cold, harmless]} for device in rooted(3, 3)]
    exactly = {"count": 1, "tolerations": [{"key": "cold", "operator": "Exists"}]}
    allocator_, node, claims = remedies.parts(world(devices, exactly))
    degrees = changes.tolerations(allocator_.search_input(node, claims))
    assert [edit.taint for (edit,) in degrees] == [("hot", "v", "NoSchedule")]


def test_claims_that_no_check_lets_pass_have_no_remedy():
    hard = world(rooted(1, 1), {"count": 1, "deviceClassName": "no-such-class"})
    allocator_, node, claims = remedies.parts(hard)
    nothing_held = explain.gather_holdings([])
    assert relax.Relaxation(allocator_, node, claims, nothing_held, None).remedies() == []


def test_less_of_a_capacity():
    devices = [
        device | {"capacity": {"memory": {"value": size}}, "allowMultipleAllocations": True}
        for device, size in zip(rooted(2, 2), ("40Gi", "24Gi"), strict=True)
    ]
    hard = world(devices, {"count": 1, "capacity": {"requests": {"memory": "80Gi"}}})
    assert ways_out(hard) == ["ask for memory=40Gi in request gpus"]


def test_less_of_a_capacity_that_two_requests_share():
    policy = {"default": "80Gi", "validRange": {"min": "1Gi", "step": "1Gi"}}
    memory = {"memory": {"value": "80Gi", "requestPolicy": policy}}
    [device] = rooted(1, 1)
    shared = device | {"capacity": memory, "allowMultipleAllocations": True}
    hard = world([shared], {"count": 1, "capacity": {"requests": {"memory": "50Gi"}}})
    requests = hard["claims"][0]["spec"]["devices"]["requests"]
    second = requests[0]["exactly"] | {"capacity": {"requests": {"memory": "40Gi"}}}
    requests.append({"name": "more", "exactly": second})
    assert "ask for memory=40Gi in request gpus" in ways_out(hard)


def test_changes_of_several_kinds():
    hard = world(rooted(2, 1), {"count": 2}, constraints=[{"matchAttribute": ROOT}])
    hard["taken"] = [taken("other", "gpu-0", "gpu-1", driver="gpu.example.com")]
    assert ways_out(hard) == ["free gpu-1 (claim other) and ask for 1 in request gpus"]


def test_a_selector_that_fails():
    hard = world(rooted(2, 1), {"count": 1})
    exactly = hard["claims"][0]["spec"]["devices"]["requests"][0]["exactly"]
    expression = 'device.attributes["gpu.example.com"].nothing == 1'
    exactly["selectors"] = [{"cel": {"expression": expression}}]
    assert ways_out(hard) == ["leave out selector 1 in request gpus"]
    assert remedies.verdict_of(hard).ends_search


def test_a_clause_of_a_selector():
    devices = [device | {"capacity": {"memory": {"value": "40Gi"}}} for device in rooted(2, 1)]
    hard = world(devices, {"count": 1})
    exactly = hard["claims"][0]["spec"]["devices"]["requests"][0]["exactly"]
    size = 'device.capacity["gpu.example.com"].memory.compareTo(quantity("80Gi")) >= 0'
    expression = f'device.driver == "gpu.example.com" && {size}'
    exactly["selectors"] = [{"cel": {"expression": expression}}]
    assert ways_out(hard) == [f"leave out {size} of selector 1 in request gpus"]


def test_of_several_claims_each_is_named():
    hard = world(rooted(2, 1), {"count": 2})
    second = hard["claims"][0] | {"metadata": {"name": "second", "namespace": "default"}}
    hard["claims"].append(second)
    assert ways_out(hard) == [
        "ask for 1 in request gpus of claim train and ask for 1 in request gpus of claim second",
        "leave out request gpus of claim train",
    ]


def test_the_only_request_is_not_left_out():
    assert ways_out(world([], {"count": 1})) == []


def test_whether_nothing_need_change_may_be_undecided(monkeypatch):
    """A single change that is enough is still a remedy."""
    monkeypatch.setattr(relax, "STEPS_OF_A_QUESTION", 150)
    assert ways_out(alloc_hard.pairs(8)) == ["free nic-0 (claim h0)", "leave out request nic-0"]


def test_two_changes_are_no_remedy_if_one_may_be_enough(monkeypatch):
    """Leaving out nic-0 would be enough, but the time ends before that is known."""
    monkeypatch.setattr(relax, "STEPS_OF_A_QUESTION", 60)
    assert ways_out(alloc_hard.pairs(8)) == []


def test_the_time_is_over():
    numbers = itertools.count()
    verdict = remedies.verdict_of(alloc_hard.pairs(8), expired=lambda: next(numbers) > 3)
    assert not verdict.shortage.finished
    assert verdict.shortage.counts


@pytest.mark.parametrize(
    "hard",
    [
        alloc_hard.pairs(8),
        alloc_hard.pairs(8, ("nic-0", "gpu-3")),
        alloc_hard.opposing(),
        alloc_hard.divided_among(("1g.20gb", 16), ("2g.20gb", 12), ("3g.40gb", 4)),
    ],
    ids=["a pair", "two pairs", "opposing counters", "parts"],
)
def test_worlds_that_a_search_does_not_decide(hard, monkeypatch):
    """Counting answers most questions. The others end at their limit of steps."""
    monkeypatch.setattr(relax, "STEPS_OF_A_QUESTION", 400)
    limit = time.monotonic() + 10
    verdict = remedies.verdict_of(hard, expired=lambda: time.monotonic() > limit)
    assert verdict.outcome == "no"
    assert verdict.shortage.counts
