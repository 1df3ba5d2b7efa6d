"""Tests of the validation of conditions."""

import pytest

from claimd.sim.apiserver.rules import conditions
from claimd.sim.apiserver.rules.field_errors import FieldErrors
from claimd.sim.apiserver.rules.profile import Profile

TIME = "2026-01-01T00:00:00Z"


def condition(**changed):
    return {
        "type": "Ready",
        "status": "True",
        "reason": "AllGood",
        "message": "",
        "lastTransitionTime": TIME,
    } | changed


def validate(*conditions_):
    errors = FieldErrors(Profile("1.37"))
    conditions.validate_conditions(errors, list(conditions_), "c")
    return [f"{cause.field}: {cause.message}" for cause in errors.causes]


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"status": "False"},
        {"status": "Unknown"},
        {"type": "example.com/Ready"},
        {"observedGeneration": 0},
        {"observedGeneration": 7},
        {"reason": "A,B:c_1"},
        {"reason": "R" * conditions.MAX_REASON},
        {"message": "m" * conditions.MAX_MESSAGE},
    ],
)
def test_allowed(changed):
    assert validate(condition(**changed), condition(type="Other")) == []


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"type": ""}, "c[0].type: Required value: is required"),
        ({"status": "true"}, 'c[0].status: Unsupported value: "true"'),
        (
            {"observedGeneration": -1},
            "c[0].observedGeneration: Invalid value: -1: must be greater than or equal to zero",
        ),
        ({"lastTransitionTime": None}, "c[0].lastTransitionTime: Required value"),
        ({"reason": ""}, "c[0].reason: Required value"),
        ({"reason": "1st"}, 'c[0].reason: Invalid value: "1st": a condition reason must start'),
        ({"reason": "R" * 1025}, "c[0].reason: Too long: may not be more than 1024 bytes"),
        ({"message": "m" * 32769}, "c[0].message: Too long: may not be more than 32768 bytes"),
    ],
)
def test_refused(changed, why):
    (cause,) = validate(condition(**changed))
    assert cause.startswith(why)


def test_a_type_stands_once():
    assert validate(condition(), condition(type="Other"), condition()) == [
        'c[2].type: Duplicate value: "Ready"'
    ]


def test_a_condition_of_which_nothing_is_said():
    assert [cause.partition(":")[0] for cause in validate({})] == [
        "c[0].type",
        "c[0].status",
        "c[0].lastTransitionTime",
        "c[0].reason",
    ]
