"""Tests of counts: one world for each kind of sentence."""

import pytest

from claimd.kubernetes.allocator import relax
from tests.support import alloc_hard, remedies
from tests.support.alloc_hard import ROOT, rooted, taken, world

MATCH_ROOT = {"matchAttribute": ROOT}
ROOT_RULE = f'device.attributes["{ROOT.partition("/")[0]}"].pcieRoot == "pci0000"'


def counts(world):
    return [str(count) for count in remedies.verdict_of(world).shortage.counts]


def requests_of(world, *requests, constraints=()):
    """Returns the world with these requests in its claim."""
    requests = [
        {
            "name": name,
            "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount"} | exactly,
        }
        for name, exactly in requests
    ]
    world["claims"][0]["spec"]["devices"] = {"requests": requests, "constraints": list(constraints)}
    return world


def hold(world, *devices, by="other"):
    world["taken"] = [taken(by, *devices, driver="gpu.example.com")]
    return world


def test_pairs_with_one_held_nic():
    """A search without counting would try the pairs in every order."""
    assert counts(alloc_hard.pairs(8)) == [
        "8 NICs under the roots of the GPUs are needed, 7 are free: nic-0 is held by claim h0"
    ]


def test_pairs_where_each_kind_lacks_one_device():
    assert counts(alloc_hard.pairs(8, ("nic-0", "gpu-3"))) == [
        "8 GPUs under the roots of the NICs are needed, 7 are free: gpu-3 is held by claim h1",
        "8 NICs under the roots of the GPUs are needed, 7 are free: nic-0 is held by claim h0",
    ]


def test_pairs_with_one_missing_device():
    assert counts(alloc_hard.pairs(8, (), range(7))) == [
        "8 NICs under the roots of the GPUs are needed, only 7 exist"
    ]


def test_a_mixed_root_names_it():
    assert counts(alloc_hard.pairs(2, (), each_its_root=False)) == [
        "2 GPUs under the same pcieRoot as 2 NICs are needed, only 1 exists under pci0000:00",
        "2 NICs under the same pcieRoot as 2 GPUs are needed, only 1 exists under pci0000:00",
    ]


@pytest.mark.parametrize(
    ("gpus", "nics", "sentence"),
    [
        (1, 1, "1 NIC under the same pcieRoot as 1 GPU is needed, no pcieRoot has both"),
        (
            2,
            1,
            "1 NIC under the same pcieRoot as 2 GPUs is needed, no pcieRoot with 2 GPUs has any",
        ),
        (
            1,
            2,
            "2 NICs under the same pcieRoot as 1 GPU are needed, no pcieRoot with 1 GPU has any",
        ),
    ],
)
def test_no_root_has_both(gpus, nics, sentence):
    hard = alloc_hard.pairs(4, (), [8, 9], each_its_root=False)
    for index, device in enumerate(hard["slices"][0]["spec"]["devices"]):
        device["attributes"][ROOT] = {"string": f"pci0000:{index // 2:02x}"}
    names = [f"gpu-{index}" for index in range(gpus)] + [f"nic-{index}" for index in range(nics)]
    devices = hard["claims"][0]["spec"]["devices"]
    devices["requests"] = [each for each in devices["requests"] if each["name"] in names]
    assert counts(hard) == [sentence]


def test_the_nearest_root():
    hard = hold(
        world(rooted(8, 4), {"count": 4}, constraints=[MATCH_ROOT]), "gpu-0", "gpu-1", "gpu-6"
    )
    assert counts(hard) == [
        "4 GPUs under one pcieRoot are needed, 3 are free under pci0001: gpu-6 is held by claim other"
    ]


def test_groups_of_two_under_a_root_each():
    hard = world(rooted(6, 3), {})
    pairs = [{"requests": [f"r{index}"], "matchAttribute": ROOT} for index in range(3)]
    requests_of(hard, *[(f"r{index}", {"count": 2}) for index in range(3)], constraints=pairs)
    assert counts(hard) == ["6 GPUs (2 under one pcieRoot each) are needed, only 4 exist"]


def test_requests_that_are_alike_are_counted_together():
    hard = requests_of(
        hold(world(rooted(3, 4), {}), "gpu-1"), ("a", {"count": 2}), ("b", {"count": 1})
    )
    assert counts(hard) == ["3 GPUs are needed, 2 are free: gpu-1 is held by claim other"]


def test_requests_that_differ_and_want_the_same():
    selectors = [{"cel": {"expression": ROOT_RULE}}]
    hard = requests_of(
        world(rooted(3, 2), {}),
        ("near", {"count": 2, "selectors": selectors}),
        ("any", {"count": 2}),
    )
    assert counts(hard) == [
        '4 GPUs for requests "any" and "near" together are needed, only 3 exist'
    ]


def test_two_claims():
    hard = world(rooted(1, 1), {"count": 1})
    second = hard["claims"][0] | {"metadata": {"name": "second", "namespace": "default"}}
    hard["claims"].append(second)
    assert counts(hard) == ["2 GPUs are needed, only 1 exists"]


def test_distinct_values():
    hard = world(rooted(4, 2), {"count": 3}, constraints=[{"distinctAttribute": ROOT}])
    assert counts(hard) == [
        "3 different values of pcieRoot (distinctAttribute) are needed, only 2 exist"
    ]


def test_a_counter():
    devices, counters = alloc_hard.sharing(20, 7)
    assert counts(world(devices, {"count": 8}, counters=counters)) == [
        "8 GPUs at once are needed, only 7 fit; 8 need at least 8 of counter all/memory, 7 are left"
    ]


def test_a_counter_is_reported_with_its_users():
    """Other devices of the pool use another counter."""
    devices, counters = alloc_hard.sharing(4, 3)
    counters.append({"name": "other", "counters": {"memory": {"value": "9"}}})
    of_other = [{"counterSet": "other", "counters": {"memory": {"value": "1"}}}]
    devices.append({"name": "gpu-9", "consumesCounters": of_other})
    hard = world(devices, {"count": 3}, counters=counters, selectors=["true"])
    hard["claims"][0]["spec"]["devices"]["requests"][0]["exactly"]["selectors"] = [
        {"cel": {"expression": 'device.attributes["gpu.example.com"].?x.orValue(true)'}}
    ]
    hard["taken"] = [
        taken("neighbour", "gpu-0", driver="gpu.example.com"),
        taken("stranger", "gpu-9", driver="gpu.example.com"),
    ]
    assert counts(hard) == [
        "3 GPUs at once are needed, only 2 fit; 3 need at least 3 of counter all/memory, "
        "2 are left (claim default/neighbour uses the rest)"
    ]


@pytest.mark.slow
def test_counters_of_one_name():
    wanted = (("1g.20gb", 16), ("2g.20gb", 12), ("3g.40gb", 4))
    [sentence] = counts(alloc_hard.divided_among(*wanted))
    assert sentence.endswith(
        "32 need at least 72 of all memory-slice counters of gpu.example.com/node-1, 64 are left"
    )


def test_counters_that_are_opposed():
    assert counts(alloc_hard.opposing()) == [
        "12 GPUs at once are needed, only 11 fit; "
        "12 need at least 936 of the counters of all together, 935 are left"
    ]


def test_a_class_whose_driver_publishes_nothing():
    hard = world(rooted(2, 2), {"count": 1}, selectors=['device.driver == "fpga.example.org"'])
    assert counts(hard) == [
        "1 GPU is needed, none exists: "
        "class gpu is for driver fpga.example.org, which publishes nothing on any node"
    ]


@pytest.mark.parametrize(
    "expression", ['device.driver == "gpu.example.co"', '"gpu.example.co" == device.driver']
)
def test_a_class_whose_driver_is_misspelt(expression):
    hard = world(rooted(2, 2), {"count": 1}, selectors=[expression])
    assert counts(hard) == [
        "1 GPU is needed, none exists: class gpu asks for gpu.example.co, "
        "which is no driver and no attribute's domain here: is gpu.example.com meant?"
    ]


def test_claims_that_fit_have_no_count():
    assert counts(alloc_hard.pairs(8, ())) == []


def test_all_devices_under_a_constraint_may_be_an_error(monkeypatch):
    """The scheduler gives up after such an error, so a count must not hide it."""
    monkeypatch.setattr(relax, "STEPS_BEFORE_COUNTING", 1)
    hard = world(rooted(3, 2), {"allocationMode": "All"}, constraints=[MATCH_ROOT])
    verdict = remedies.verdict_of(hard)
    assert verdict.outcome == "error" and verdict.ends_search
    assert "a claim constraint would not be satisfied" in verdict.summary


def test_a_derived_attribute_may_be_a_list(monkeypatch):
    """The second of three devices shares a link with each of the others."""
    monkeypatch.setattr(relax, "STEPS_BEFORE_COUNTING", 1)
    devices = rooted(3, 3)
    for device, links in zip(devices, ("1", "1,2", "2"), strict=True):
        device["attributes"]["links"] = {"string": links}

    attribute = {
        "name": "example.com/link",
        "expression": 'device.attributes["gpu.example.com"].links.split(",")',
    }
    hard = requests_of(
        world(devices, {}),
        *[(name, {"count": 1, "derivedAttributes": [attribute]}) for name in "abc"],
        constraints=[
            {"requests": [*names], "matchAttribute": "example.com/link"} for names in ("ab", "bc")
        ],
    )
    features = ["DRADerivedAttributes", "DRAListTypeAttributes"]
    verdict = remedies.verdict_of(hard | {"features": features})
    assert verdict.outcome == "yes"


def test_what_keeps_all_of_the_devices_away_is_named():
    taints = [{"key": "k", "effect": "NoSchedule"}]
    devices = [device | {"taints": taints} for device in rooted(2, 1)]
    assert counts(world(devices, {"count": 1})) == [
        "1 GPU is needed, 0 of 2 are usable; both: taint k:NoSchedule is not tolerated by the claim"
    ]
