"""Tests of request policies, with cases of Kubernetes' own tests and of real servers."""

import pytest

from claimd.sim.apiserver.rules import capacity
from claimd.sim.apiserver.rules.field_errors import FieldErrors
from claimd.sim.apiserver.rules.profile import Profile


def validate(value, policy, fractions=True):
    errors = FieldErrors(Profile("1.37"))
    capacity.validate_policy(errors, value, policy, fractions, "p")
    return [f"{cause.field}: {cause.message}" for cause in errors.causes]


@pytest.mark.parametrize(
    "policy",
    [
        {},
        {"default": "1"},
        {"default": "2", "validValues": ["1", "2", "8"]},
        {"default": "1Gi", "validRange": {"min": "1Gi"}},
        {"default": "2", "validRange": {"min": "1", "max": "8", "step": "1"}},
        {"default": "2", "validRange": {"min": "2", "max": "2"}},
        {"default": "16Gi", "validRange": {"min": "16Gi", "max": "16Gi"}},
        {"default": "500m", "validRange": {"min": "100m", "max": "1", "step": "100m"}},
    ],
)
def test_allowed(policy):
    assert validate("16Gi", policy) == []


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        (
            {"validValues": ["1"]},
            ["p.default: Required value: required when validValues is defined"],
        ),
        (
            {"validRange": {"min": "1"}},
            ["p.default: Required value: required when validRange is defined"],
        ),
        (
            {"default": "1", "validRange": {}},
            ["p.validRange.min: Required value: required when validRange is defined"],
        ),
        (
            {"default": "1", "validRange": {"min": "1"}, "validValues": ["1"]},
            [f"p: Forbidden: {capacity.NOT_BOTH}"],
        ),
        (
            {"default": "1", "validValues": ["1", "1"]},
            ['p.validValues[1]: Duplicate value: "1"'],
        ),
        (
            {"default": "9", "validRange": {"min": "1", "max": "8"}},
            ['p.validRange.default: Invalid value: "9": default is more than max: 8'],
        ),
        (
            {"default": "1", "validRange": {"min": "2"}},
            ['p.validRange.default: Invalid value: "1": default is less than min: 2'],
        ),
        (
            {"default": "20", "validRange": {"min": "20"}},
            ['p.validRange.min: Invalid value: "20": min is larger than capacity value: 10'],
        ),
        (
            {"default": "5", "validRange": {"min": "1", "max": "11"}},
            ['p.validRange.max: Invalid value: "11": max is larger than capacity value: 10'],
        ),
        (
            {"default": "5", "validRange": {"min": "5", "max": "4"}},
            [
                'p.validRange.max: Invalid value: "5": min is larger than max: 4',
                'p.validRange.default: Invalid value: "5": default is more than max: 4',
            ],
        ),
        (
            {"default": "1", "validRange": {"min": "-1", "step": "1"}},
            ['p.validRange.min: Invalid value: "-1": must be greater than or equal to 0'],
        ),
        (
            {"default": "1", "validRange": {"min": "1", "max": "10", "step": "2"}},
            [
                'p.validRange.step: Invalid value: "10": value is not a multiple of a given step (2) from (1)'
            ],
        ),
        (
            {"default": "4", "validRange": {"min": "1", "step": "2"}},
            [
                'p.validRange.step: Invalid value: "4": value is not a multiple of a given step (2) from (1)'
            ],
        ),
        (
            {"default": "1", "validRange": {"min": "1", "step": "0"}},
            ['p.validRange.step: Invalid value: "0": must be greater than zero'],
        ),
        (
            {"default": "1", "validRange": {"min": "1", "step": "10"}},
            [
                'p.validRange.step: Invalid value: "10": one step 11 is larger than capacity value: 10'
            ],
        ),
        (
            {"default": "100u", "validRange": {"min": "100u"}},
            [
                'p.validRange.default: Invalid value: "100u": value cannot be represented as a milli value',
                'p.validRange.min: Invalid value: "100u": value cannot be represented as a milli value',
            ],
        ),
    ],
)
def test_refused(policy, said):
    assert validate("10", policy) == said


def test_too_many_values():
    values = [str(number) for number in range(1, 12)]
    assert validate("16", {"default": "1", "validValues": values})[0] == (
        "p.validValues: Too many: 11: must have at most 10 items"
    )


def test_steps_are_counted_in_numbers_of_64_bits():
    policy = {"default": "1", "validRange": {"min": "1", "max": "10Ei", "step": "1"}}
    assert validate("20Ei", policy) == [
        'p.validRange.max: Invalid value: "10Ei": must not be larger than 9223372036854775807'
    ]
    assert validate("20Ei", {"default": "1", "validRange": {"min": "1", "max": "10Ei"}}) == []
