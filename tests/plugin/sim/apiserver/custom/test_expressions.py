"""Tests of CEL rules: the values that they see, and the causes of their failures."""

import pytest

from claimd.sim.apiserver.custom import expressions, values
from claimd.sim.apiserver.types import structure


def validate(rule, value, properties=None, old=values.ABSENT, **of_rule):
    schema = {
        "type": "object",
        "properties": properties or {},
        "x-kubernetes-validations": [{"rule": rule} | of_rule],
    }
    problems = expressions.validate(structure.parse_structure(schema, True), value, old, [])
    return [(each.field, each.message) for each in problems]


INT, TEXT = {"type": "integer"}, {"type": "string"}


@pytest.mark.parametrize(
    ("rule", "schema", "value"),
    [
        ("self.x == 1.0", {"type": "number"}, 1),
        ("self.x.getFullYear() == 2026", TEXT | {"format": "date-time"}, "2026-01-02T03:04:05Z"),
        ("self.x == duration('90m')", TEXT | {"format": "duration"}, "1h30m"),
        ("self.x == b'hi'", TEXT | {"format": "byte"}, "aGk="),
        ("self.x == 5 || self.x == '5'", {"x-kubernetes-int-or-string": True}, "5"),
        ("self.x['a-b'] == 1", {"type": "object", "additionalProperties": INT}, {"a-b": 1}),
        ("self.x.all(y, y > 0)", {"type": "array", "items": INT}, [1, 2]),
    ],
)
def test_values_have_the_types_of_their_schema(rule, schema, value):
    assert validate(rule, {"x": value}, {"x": schema}) == []


def test_names_that_expressions_cannot_write_are_escaped():
    rule = "self.namespace == self.__namespace__ && self.__namespace__ == self.a__dash__b && self.c__dot__d == self.e__underscores__f"
    names = ("namespace", "a-b", "c.d", "e__f")
    assert validate(rule, dict.fromkeys(names, "x"), dict.fromkeys(names, TEXT)) == []


def test_a_change_is_judged_by_what_was_there():
    rule, properties = "self.x >= oldSelf.x", {"x": INT}
    assert validate(rule, {"x": 1}, properties) == []
    assert validate(rule, {"x": 1}, properties, {"x": 2}) == [
        ("<nil>", f"Invalid value: failed rule: {rule}")
    ]


def test_an_old_value_may_be_optional():
    rule, properties = "!oldSelf.hasValue() || oldSelf.value().x <= self.x", {"x": INT}
    assert validate(rule, {"x": 1}, properties, optionalOldSelf=True) == []
    assert validate(rule, {"x": 1}, properties, {"x": 2}, optionalOldSelf=True, message="less") == [
        ("<nil>", "Invalid value: less")
    ]


def test_what_does_not_change_is_not_told_of_again():
    assert validate("self.x > 5", {"x": 1}, {"x": INT}, {"x": 1}) == []


def test_an_error_is_told_with_its_rule():
    (problem,) = validate("self.x / self.y > 0", {"x": 1, "y": 0}, {"x": INT, "y": INT})
    assert problem[1].endswith("evaluating rule: self.x / self.y > 0")


def test_what_costs_too_much_ends_it():
    many = {"type": "array", "items": INT}
    rule = "self.x.all(a, self.x.all(b, self.x.all(c, a + b + c >= 0)))"
    (problem,) = validate(rule, {"x": list(range(60))}, {"x": many})
    assert "no further validation rules will be run" in problem[1]


def test_the_path_of_a_failure_is_that_of_a_field():
    problems = validate(
        "false",
        {"x": {}},
        {"x": {"type": "object", "additionalProperties": TEXT}},
        fieldPath=".x['a.b']",
        reason="FieldValueRequired",
        message="set it",
    )
    assert problems == [("x[a.b]", "Required value: set it")]


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ("self.y > 0", "undefined field 'y'"),
        ("self.x", "must evaluate to a bool"),
        ("self.x == 'a'", "compilation failed"),
        ("other", "undeclared reference"),
    ],
)
def test_what_does_not_go_with_the_schema_is_refused(rule, why):
    with pytest.raises(expressions.RuleError, match=why):
        validate(rule, {"x": 1}, {"x": INT})
