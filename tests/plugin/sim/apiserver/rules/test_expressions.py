"""Tests of the messages about wrong CEL expressions, with the position of the error."""

import pytest

from claimd.kubernetes.api import limits
from claimd.sim.apiserver.rules import expressions
from claimd.sim.apiserver.rules.field_errors import FieldErrors
from claimd.sim.apiserver.rules.profile import Profile


def validate(expression):
    errors = FieldErrors(Profile("1.35"))
    expressions.validate(errors, expression, "spec.x")
    return [cause.message for cause in errors.causes]


def test_an_expression_that_compiles():
    assert validate('device.driver == "d.org"') == []


@pytest.mark.parametrize(
    ("expression", "place", "line", "pointer"),
    [
        ("nope", "1:1", "nope", "^"),
        ("true && nope", "1:9", "true && nope", "........^"),
        ("true &&\n  nope", "2:3", "  nope", "..^"),
        ("nope &&\n  true", "1:1", "nope &&", "^"),
    ],
)
def test_the_line_of_the_mistake_is_shown_and_its_column(expression, place, line, pointer):
    [message] = validate(expression)
    assert f"compilation failed: ERROR: <input>:{place}: " in message
    assert message.endswith(f"\n | {line}\n | {pointer}")


def test_what_is_no_boolean():
    assert validate("1")[0].endswith("must evaluate to bool or the unknown type, not int")


def test_how_long_an_expression_may_be():
    longest = "true" + " " * (limits.EXPRESSION - 4)
    assert validate(longest) == []
    assert validate(longest + " ") == [f"Too long: may not be more than {limits.EXPRESSION} bytes"]
