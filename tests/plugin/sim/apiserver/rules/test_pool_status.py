"""Tests of DeviceTaintRules and ResourcePoolStatusRequests."""

import pytest

from claimd.kubernetes.api import limits
from claimd.sim.apiserver.rules import pool_status
from claimd.sim.apiserver.rules.field_errors import FieldErrors
from claimd.sim.apiserver.rules.profile import Profile

NOW = "2026-01-02T03:04:05Z"
BEFORE = "2025-01-01T00:00:00Z"


def rule(effect="NoSchedule", time=BEFORE, **selector):
    taint = {"key": "k", "effect": effect, "timeAdded": time}
    return {"spec": {"taint": taint, "deviceSelector": selector}}


def time_of(new, old):
    return pool_status.with_new_time(new, old, NOW)["spec"]["taint"]["timeAdded"]


def test_another_effect_begins_anew():
    assert time_of(rule("NoExecute"), rule("NoSchedule")) == NOW


def test_the_same_effect_does_not():
    assert time_of(rule(), rule()) == BEFORE


def test_a_writer_may_say_since_when_it_is():
    said = "2024-01-01T00:00:00Z"
    assert time_of(rule("NoExecute", said), rule("NoSchedule")) == said


def test_a_rule_without_a_taint_is_left_to_others_to_refuse():
    for new in ({}, {"spec": None}, {"spec": {}}, {"spec": {"taint": None}}):
        assert pool_status.with_new_time(new, new, NOW) is new


def test_how_many_pools_a_status_has_if_nobody_says():
    assert pool_status.with_defaults({"driver": "d"}) == {"driver": "d", "limit": 100}
    assert pool_status.with_defaults({"limit": 5}) == {"limit": 5}


def refused_fields(validate, *arguments):
    errors = FieldErrors(Profile("1.35"))
    validate(errors, *arguments)
    return [cause.field for cause in errors.causes]


def refused_answer(new, old):
    new, old = {"status": new}, {"status": old}
    return refused_fields(pool_status.validate_request_status, new, old)


def refused_conditions(status):
    return refused_fields(pool_status.validate_rule_status, {"status": status})


@pytest.mark.parametrize(
    ("selector", "fields"),
    [
        ({}, []),
        ({"driver": "d.org", "pool": "node-1", "device": "gpu-0"}, []),
        ({"driver": "D!"}, ["spec.deviceSelector.driver"]),
        ({"pool": "N!"}, ["spec.deviceSelector.pool"]),
        ({"device": "G!"}, ["spec.deviceSelector.device"]),
    ],
)
def test_names_in_the_selector_of_a_taint_rule(selector, fields):
    spec = rule(**selector)["spec"]
    refused = refused_fields(pool_status.validate_rule, spec, None)
    assert list(dict.fromkeys(refused)) == fields


def conditions(number):
    return {
        "conditions": [
            {
                "type": f"T{index}",
                "status": "True",
                "reason": "R",
                "message": "",
                "lastTransitionTime": NOW,
            }
            for index in range(number)
        ]
    }


def test_a_request_is_answered_once():
    assert refused_answer(conditions(1), None) == []
    assert refused_answer(conditions(1), conditions(1)) == []
    assert refused_answer(conditions(2), conditions(1)) == ["status"]
    assert refused_answer({"conditions": [{}]}, None) != []


def test_how_many_conditions_a_taint_rule_has():
    assert refused_conditions(conditions(limits.CONDITIONS)) == []
    assert refused_conditions(conditions(limits.CONDITIONS + 1)) == ["status.conditions"]
    assert refused_conditions({"conditions": [{}]}) != []
