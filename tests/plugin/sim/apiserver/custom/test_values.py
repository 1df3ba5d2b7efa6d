"""Tests of validation against a schema, in addition to the recorded answers of real servers."""

import pytest

from claimd.sim.apiserver.custom import values
from claimd.sim.apiserver.rules.profile import Profile
from claimd.sim.apiserver.types import structure

PROFILE = Profile("1.37")


def causes(schema, value, old=values.ABSENT):
    return values.validate(structure.parse_structure(schema), value, PROFILE, old)


def test_what_was_wrong_before_may_stay():
    schema = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}}
    old, new = {"a": "wrong", "b": "x"}, {"a": "wrong", "b": "y"}
    assert [each.field for each in causes(schema, new)] == ["a"]
    assert causes(schema, new, old) == []
    assert [each.field for each in causes(schema, {"a": "other"}, old)] == ["a"]


@pytest.mark.parametrize(
    ("form", "right", "wrong"),
    [
        ("date-time", "2026-01-02T03:04:05Z", "2026-13-02T03:04:05Z"),
        ("date", "2026-01-02", "2026-1-2"),
        ("ipv4", "10.0.0.1", "10.0.0.256"),
        ("ipv6", "::1", "1"),
        ("cidr", "10.0.0.0/8", "10.0.0.0"),
        ("uuid", "5f7a1d2c-0000-4000-8000-000000000000", "5f7a"),
        ("byte", "aGk=", "a"),
        ("duration", "1h30m", "1 fortnight and a day"),
        ("hostname", "a.example.com", "-.-"),
        ("no-such-format", "anything", None),
    ],
)
def test_formats(form, right, wrong):
    schema = {"type": "string", "format": form}
    assert causes(schema, right) == []
    if wrong is not None:
        assert [each.reason for each in causes(schema, wrong)] == ["FieldValueTypeInvalid"]


def test_the_alternative_that_fits_best_is_told_of():
    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "anyOf": [{"required": ["c"]}, {"required": ["d"]}],
    }
    causes_ = causes(schema, {"a": 1})
    assert [each.field for each in causes_] == ["<nil>", "c"]
