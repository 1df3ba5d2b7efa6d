"""The clauses of a compiled expression."""

import pytest

from claimd.kubernetes import cel


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
