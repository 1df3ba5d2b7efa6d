"""The clauses of a compiled expression."""

import operator

import pytest

from claimd.kubernetes import cel
from claimd.kubernetes.cel import calls
from claimd.kubernetes.cel.values import MISSING


@pytest.mark.parametrize(
    ("expression", "clauses"),
    [
        ("true", ("true",)),
        ("device.driver == 'a'  &&  true", ('device.driver == "a"', "true")),
        ("true && (false && true)", ("true", "false", "true")),
        ("true && (false || true)", ("true", "(false || true)")),
        ("true && (false ? true : false)", ("true", "(false ? true : false)")),
        ("true || false && true", ("true || false && true",)),
        (
            "device.attributes['a'].?x.orValue('') == 'y' && device.allowMultipleAllocations",
            (
                'device.attributes["a"].?x.orValue("") == "y"',
                "device.allowMultipleAllocations",
            ),
        ),
        # An expression whose text does not read back as the same has a single clause.
        ("cel.bind(x, 1, x == 1) && true", ("cel.bind(x, 1, x == 1) && true",)),
    ],
)
def test_clauses(expression, clauses):
    assert cel.compile(expression).clauses == clauses


def test_a_constant_is_not_evaluated_with_each_device():
    node = cel.compile("device.driver != 'a'").root
    closure = calls.plain(node, operator.ne, [lambda frame: frame[0], None], [MISSING, "a"])
    assert closure(["b"]) is True
    assert closure(["a"]) is False
