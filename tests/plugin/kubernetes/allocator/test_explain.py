"""Tests of a node's verdict: its outcome and its words, and that it never raises."""

import pytest

from claimd.kubernetes.allocator import explain, selectors
from tests.support import alloc_hard, remedies
from tests.support.alloc_hard import ROOT, rooted, taken, world


def with_claims(hard, *claims):
    """Returns the world with these claims. Each claim is (name, requests, constraints)."""
    hard["claims"] = [
        {
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"devices": {"requests": requests, "constraints": constraints}},
        }
        for name, requests, constraints in claims
    ]
    return hard


def exactly(name, **asked):
    mode = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
    return {"name": name, "exactly": mode | asked}


def contest_device():
    """Returns a world with two claims for one GPU, and a third with a constrained list."""
    every = {"name": "every", "deviceClassName": "gpu", "allocationMode": "All"}
    return with_claims(
        world(rooted(1, 1), {"count": 1}),
        ("x", [exactly("r")], []),
        ("y", [exactly("r")], []),
        ("z", [{"name": "r", "firstAvailable": [every]}], [{"matchAttribute": ROOT}]),
    )


def held_and_huge():
    policy = {"default": "1", "validRange": {"min": "1", "step": "1"}}
    capacity = {"memory": {"value": "4", "requestPolicy": policy}}
    devices = [device | {"capacity": capacity} for device in rooted(2, 1)]
    hard = world(devices, {"count": 1, "capacity": {"requests": {"memory": "1e30"}}})
    hard["taken"] = [taken("other", "gpu-0", driver="gpu.example.com")]
    return hard


def world_with_derived(expression):
    attribute = {"name": ROOT, "expression": expression}
    hard = world(
        rooted(2, 1),
        {"count": 2, "derivedAttributes": [attribute]},
        constraints=[{"matchAttribute": ROOT}],
    )
    return hard | {"features": ["DRADerivedAttributes"]}


def world_with_selector(expression):
    return world(rooted(1, 1), {"count": 1, "selectors": [{"cel": {"expression": expression}}]})


@pytest.mark.parametrize(
    ("hard", "outcome", "words"),
    [
        (contest_device(), "no", "2 GPUs for x/r and y/r are needed, only 1 exists"),
        (held_and_huge(), "error", 'capacity "memory": '),
        (world_with_derived("device.nothing"), "error", "derived attribute"),
        (world_with_derived('{"a": 1}'), "error", "derived attribute"),
        (world_with_derived("[1, 2].map(x, x / 0)"), "error", "derived attribute"),
        (world_with_selector("[].flatten(dyn('1')) == []"), "error", "flatten"),
        (world_with_selector("'x'.matches('(') == true"), "error", "selector 1"),
        (world_with_selector("device"), "error", "selector 1"),
        (
            world([], {"count": 1}),
            "no",
            "no driver has devices here: the ResourceSlices for this node are empty",
        ),
        (world(rooted(1, 1), {"count": 33}), "error", "exceeds the claim limit of 32"),
    ],
)
def test_outcome(hard, outcome, words):
    verdict = remedies.verdict_of(hard)
    assert verdict.outcome == outcome
    assert words in verdict.summary
    assert list(remedies.wrong(hard, verdict)) == []


def test_a_verdict_without_an_answer_names_the_part_that_explodes():
    """The counters have different units, so that their sum has no meaning."""
    steps = iter(range(10**9))
    verdict = remedies.verdict_of(alloc_hard.opposing(unit=3), expired=lambda: next(steps) > 3000)
    assert verdict.outcome == "unknown"
    assert verdict.summary == (
        "not decided: too many combinations of devices for default/train/gpus, "
        "as 24 devices draw on counters all/left, all/right"
    )
    assert not verdict.shortage.finished


def test_the_time_limit_is_checked_between_devices(monkeypatch):
    """Selectors may be slow, and without a match the search has no step that could cancel it."""
    evaluated = []

    def match(_expressions, _device, device_id, _owner):
        evaluated.append(device_id)
        return False

    monkeypatch.setattr(selectors, "match", match)
    monkeypatch.setattr(explain, "_MORE_TIME", -1.0)
    slow = world(rooted(64, 1), {"count": 2, "selectors": [{"cel": {"expression": "true"}}]})
    verdict = remedies.verdict_of(slow, expired=lambda: len(evaluated) >= 5)
    assert (verdict.outcome, len(evaluated)) == ("unknown", 5)
    assert verdict.summary == "not decided: the time was over before all devices were looked at"


@pytest.mark.parametrize("mode", ["ExactCount", "All"])
def test_without_time_no_selector_is_evaluated(monkeypatch, mode):
    monkeypatch.setattr(selectors, "match", None)
    monkeypatch.setattr(explain, "_MORE_TIME", -1.0)
    exactly = {"allocationMode": mode, "selectors": [{"cel": {"expression": "true"}}]}
    verdict = remedies.verdict_of(world(rooted(2, 1), exactly), expired=lambda: True)
    assert verdict.outcome == "unknown"


def test_a_yes_has_its_devices_and_no_remedy():
    verdict = remedies.verdict_of(world(rooted(3, 1), {"count": 2}))
    assert verdict.outcome == "yes"
    assert [device.device for device in verdict.allocation] == ["gpu-0", "gpu-1"]
    assert not verdict.shortage.counts and not verdict.shortage.remedies


def test_a_pool_that_lacks_slices_says_how_many():
    hard = world(rooted(2, 1), {"count": 1})
    hard["slices"][0]["spec"]["pool"] |= {"resourceSliceCount": 3}
    verdict = remedies.verdict_of(hard)
    assert verdict.pools == (
        "pool gpu.example.com/node-1 is incomplete: 1 of its 3 slices are there",
    )


def test_a_remedy_is_the_summary_if_no_count_explains_the_answer():
    """Each constraint alone could be satisfied."""
    devices = rooted(4, 2)
    for index, device in enumerate(devices):
        device["attributes"]["model"] = {"string": f"m{index % 2}"}
    both = [{"matchAttribute": ROOT}, {"matchAttribute": "gpu.example.com/model"}]
    verdict = remedies.verdict_of(world(devices, {"count": 2}, constraints=both))
    assert verdict.shortage.counts == ()
    assert verdict.summary.endswith("; it would fit after: ask for 1 in request gpus")


def test_an_error_that_a_misspelt_driver_caused_names_it():
    expression = 'device.attributes["gpu.example.co"].productName == "x"'
    verdict = remedies.verdict_of(world_with_selector(expression))
    assert verdict.outcome == "error"
    assert "selector 1 asks for gpu.example.co, which is no driver" in verdict.summary
