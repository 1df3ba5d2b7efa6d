"""Tests of causes in the words of old and new releases."""

import pytest

from claimd.sim.apiserver.rules import field_errors
from claimd.sim.apiserver.rules.field_errors import FieldErrors
from claimd.sim.apiserver.rules.profile import Profile


def read_causes(release, say):
    errors = FieldErrors(Profile(release))
    say(errors)
    return [(cause.reason, cause.field, cause.message) for cause in errors.causes]


@pytest.mark.parametrize(
    ("say", "reason", "message"),
    [
        (lambda e: e.required("a.b"), "Required", "Required value"),
        (lambda e: e.required("a.b", "why"), "Required", "Required value: why"),
        (lambda e: e.invalid("a.b", "x", "why"), "Invalid", 'Invalid value: "x": why'),
        (lambda e: e.invalid("a.b", None, "why"), "Invalid", "Invalid value: null: why"),
        (lambda e: e.invalid("a.b", {"a": "<&>"}, "why"), "Invalid", 'Invalid value: {"a":"\\u003c\\u0026\\u003e"}: why'),
        (lambda e: e.invalid_literal("a.b", "x", "why"), "Invalid", "Invalid value: x: why"),
        (lambda e: e.not_supported("a.b", "x", ("y", "z")), "NotSupported", 'Unsupported value: "x": supported values: "y", "z"'),
        (lambda e: e.forbidden("a.b", "why"), "Forbidden", "Forbidden: why"),
        (lambda e: e.duplicate("a.b", 1), "Duplicate", "Duplicate value: 1"),
        (lambda e: e.not_found("a.b", "é", "why"), "NotFound", 'Not found: "é": why'),
        (lambda e: e.too_long("a.b", 8), "TooLong", "Too long: may not be more than 8 bytes"),
        (lambda e: e.too_many("a.b", 9, 8), "TooMany", "Too many: 9: must have at most 8 items"),
        (lambda e: e.too_many("a.b", 2, 1), "TooMany", "Too many: 2: must have at most 1 item"),
    ],
)  # fmt: skip
def test_a_cause(say, reason, message):
    assert read_causes("1.34", say) == [(f"FieldValue{reason}", "a.b", message)]


def test_one_cause_for_each_problem():
    assert [
        cause[2] for cause in read_causes("1.34", lambda e: e.each_invalid("a", "x", ["b", "c"]))
    ] == [
        'Invalid value: "x": b',
        'Invalid value: "x": c',
    ]
    assert read_causes("1.34", lambda e: e.each_invalid("a", "x", [])) == []


@pytest.mark.parametrize(("release", "early"), [("1.30", True), ("1.31", True), ("1.34", False)])
def test_early_releases_have_other_words(release, early):
    long = "longer than 8" if early else "more than 8 bytes"
    [(_, _, message)] = read_causes(release, lambda e: e.too_long("a", 8))
    assert message == f"Too long: may not be {long}"
    [(reason, _, _)] = read_causes(release, lambda e: e.too_many("a", 9, 8))
    assert reason == ("FieldValueTooLong" if early else "FieldValueTooMany")


def test_as_many_as_may_be_is_not_too_many():
    errors = FieldErrors(Profile("1.34"))
    assert not errors.too_many("a", 8, 8)
    assert errors.causes == []
    assert errors.too_many("a", 9, 8)
    assert FieldErrors(Profile("1.30")).too_many("a", 9, 8)


@pytest.mark.parametrize(("release", "silent"), [("1.31", False), ("1.34", False), ("1.37", True)])
def test_where_rules_are_declared_the_code_is_silent(release, silent):
    def say(errors):
        errors.required("a", declared=True)
        errors.invalid("b", "x", "why", declared=True)
        errors.each_invalid("c", "x", ["why"], declared=True)
        errors.not_supported("d", "x", ("y",), declared=True)
        errors.forbidden("e", "why", declared=True)
        errors.duplicate("f", "x", declared=True)
        errors.too_long("g", 8, declared=True)
        errors.too_many("h", 9, 8, declared=True)
        errors.required("own")

    fields = [field for _, field, _ in read_causes(release, say)]
    assert fields == (["own"] if silent else [*"abcdefgh", "own"])


def test_effects_of_taints():
    assert FieldErrors(Profile("1.34")).taint_effects == ("NoExecute", "NoSchedule")
    assert FieldErrors(Profile("1.37")).taint_effects == ("NoExecute", "NoSchedule", "None")


def test_values_as_go_writes_them():
    assert field_errors.value_text("a<b") == '"a<b"'
    assert field_errors.to_json({"a": ["<", 1]}) == '{"a":["\\u003c",1]}'
