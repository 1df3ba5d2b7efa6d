"""Tests of claims after changes: the change is made, and the rest stays the same."""

import pytest

from claimd.kubernetes.allocator import changes
from claimd.kubernetes.allocator.causes import Change
from claimd.kubernetes.api.scheduling import ResourceClaim
from tests.support import allocating


def claim(requests, constraints=(), name="train"):
    document = {
        "metadata": {"name": name, "namespace": "team", "uid": "1"},
        "spec": {"devices": {"requests": requests, "constraints": list(constraints)}},
    }
    return allocating.read(document, ResourceClaim)


def exactly(name, **spec):
    return {"name": name, "exactly": {"deviceClassName": "gpu", **spec}}


def edit(kind, *, claim=0, request=0, alternative=0, **more):
    of_change = {key: more.pop(key) for key in ("count", "number", "clause") if key in more}
    change = Change(kind=kind, claim="team/train", **of_change)
    return changes.Edit(
        change=change, claim=claim, request=request, alternative=alternative, **more
    )


def apply(claim, *edits):
    [changed] = changes.apply_edits([claim], edits)
    assert changed.metadata == claim.metadata
    return allocating.plain(changed.spec.devices)


PAIR = claim(
    [exactly("a", count=4), exactly("b", count=2)],
    [
        {"requests": ["a", "b"], "matchAttribute": "x/root"},
        {"requests": ["b"], "distinctAttribute": "x/uuid"},
        {"matchAttribute": "x/numa"},
    ],
)


def test_a_claim_that_no_change_is_about_is_the_same_object():
    other = claim([exactly("a")], name="other")
    changed = changes.apply_edits([other, PAIR], [edit("count", claim=1, count=1)])
    assert changed[0] is other
    assert changed[1].spec.devices.requests[0].exactly.count == 1


def test_fewer_devices_of_one_request():
    everything = claim([exactly("a", allocationMode="All"), exactly("b", count=2)])
    [changed] = changes.apply_edits([everything], [edit("count", count=3)])
    first, second = changed.spec.devices.requests
    assert (first.exactly.allocation_mode, first.exactly.count) == ("ExactCount", 3)
    assert second is everything.spec.devices.requests[1]


def test_a_constraint_is_left_out_by_its_number_from_1():
    left = apply(PAIR, edit("constraint", request=-1, number=1))["constraints"]
    assert left == allocating.plain(PAIR.spec.devices.constraints)[1:]
    left = apply(PAIR, edit("constraint", request=-1, number=2))["constraints"]
    assert [constraint["matchAttribute"] for constraint in left] == ["x/root", "x/numa"]


def test_a_request_that_is_left_out_takes_its_own_constraints_with_it():
    """A constraint without requests would apply to all other requests of the claim."""
    left = apply(PAIR, edit("request", request=1))
    assert [request["name"] for request in left["requests"]] == ["a"]
    assert left["constraints"] == [
        {"requests": ["a"], "matchAttribute": "x/root"},
        {"matchAttribute": "x/numa"},
    ]


def test_a_constraint_on_a_subrequest_goes_with_its_request():
    listed = claim(
        [
            {"name": "a", "firstAvailable": [{"name": "large", "deviceClassName": "gpu"}]},
            exactly("b"),
        ],
        [{"requests": ["a/large", "b"], "matchAttribute": "x/root"}],
    )
    left = apply(listed, edit("request", request=0))["constraints"]
    assert left == [{"requests": ["b"], "matchAttribute": "x/root"}]


def test_a_toleration_has_all_fields_of_the_taint():
    old = {"key": "old", "operator": "Exists"}
    tainted = claim([exactly("a", tolerations=[old])])
    changed = apply(tainted, edit("tolerate", taint=("hot", "v", "NoSchedule")))
    [request] = changed["requests"]
    assert [toleration["key"] for toleration in request["exactly"]["tolerations"]] == ["old", "hot"]
    assert request["exactly"]["tolerations"][1] == {
        "key": "hot",
        "operator": "Equal",
        "value": "v",
        "effect": "NoSchedule",
    }


def test_less_of_one_capacity_or_none_of_it():
    sized = claim([exactly("a", capacity={"requests": {"memory": "80Gi", "cores": "8"}})])
    [request] = apply(sized, edit("capacity", name="memory", amount="40Gi"))["requests"]
    assert request["exactly"]["capacity"]["requests"] == {"memory": "40Gi", "cores": "8"}
    [request] = apply(sized, edit("capacity", name="memory"))["requests"]
    assert request["exactly"]["capacity"]["requests"] == {"cores": "8"}


A, B, C, D = (f'device.driver == "{name}.org"' for name in "abcd")


@pytest.mark.parametrize(
    ("number", "clause", "left"),
    [
        (1, B, [f"{A} && {C}", D]),
        (1, A, [f"{B} && {C}", D]),
        (2, D, [f"{A} && {B} && {C}"]),
        (3, A, [f"{A} && {B} && {C}", D]),
    ],
)
def test_a_clause_is_left_out_and_its_selector_with_the_last(number, clause, left):
    """Selectors are counted from 1. The other selectors stay in their order."""
    selectors = [{"cel": {"expression": text}} for text in (f"{A} && {B} && {C}", D)]
    selected = claim([exactly("a", selectors=selectors)])
    [request] = apply(selected, edit("selector", number=number, clause=clause))["requests"]
    kept = request["exactly"].get("selectors", [])
    assert [selector["cel"]["expression"] for selector in kept] == left


def test_a_selector_that_no_change_is_about_keeps_its_text():
    text = f"{A}  &&  {B}"
    selected = claim([exactly("a", selectors=[{"cel": {"expression": text}}], count=2)])
    [request] = apply(selected, edit("count", count=1))["requests"]
    assert request["exactly"]["selectors"] == [{"cel": {"expression": text}}]


def test_only_the_alternative_that_a_change_is_about():
    alternatives = [
        {"name": "large", "deviceClassName": "gpu", "count": 4},
        {"name": "small", "deviceClassName": "gpu", "count": 8},
    ]
    listed = claim([{"name": "a", "firstAvailable": alternatives}])
    [request] = apply(listed, edit("count", alternative=1, count=2))["requests"]
    assert [subrequest["count"] for subrequest in request["firstAvailable"]] == [4, 2]


def test_several_changes_of_one_claim():
    edits = [edit("count", count=1), edit("request", request=1), edit("constraint", number=3)]
    assert apply(PAIR, *edits) == {
        "requests": allocating.plain(claim([exactly("a", count=1)]).spec.devices.requests),
        "constraints": [{"requests": ["a"], "matchAttribute": "x/root"}],
    }
