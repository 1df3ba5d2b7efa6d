"""Numbers with more digits than Python's own `int` takes are too large, and no internal error."""

import pytest

from claimd.kubernetes import cel
from claimd.kubernetes.cel import digits

MANY = "9" * 5000


@pytest.mark.parametrize(
    ("text", "number"),
    [("7", 7), ("+7", 7), ("-07", -7), ("0" * 5000 + "3", 3), ("-" + "0" * 5000, 0)],
)
def test_numbers(text, number):
    assert digits.parse_int(text) == number


def test_too_large_stays_too_large():
    assert digits.parse_int(MANY) > 10**300
    assert digits.parse_int(f"-{MANY}") < -(10**300)


@pytest.mark.parametrize(
    "expression",
    [
        f"{MANY} > 1",
        f"{MANY}u > 1u",
        f"int('{MANY}') > 1",
        f"uint('{MANY}') > 1u",
        f"quantity('{MANY}').isGreaterThan(quantity('1'))",
        f"duration('{MANY}h') > duration('1h')",
        f"semver('{MANY}.1.1').isGreaterThan(semver('1.0.0'))",
        f"semver('1.1.1-{MANY}').isGreaterThan(semver('1.0.0'))",
        f"'%.{MANY}f'.format([1.0]) == ''",
        "'%.999999999e'.format([1.0]) == ''",
        f"timestamp('2024-01-01T00:00:00Z').getHours('{MANY}:0') == 0",
        f"timestamp('2024-01-01T00:00:00Z').getHours('-0:{MANY}') == 0",
        "timestamp('2024-01-01T00:00:00Z').getHours('9:9999999999990') == 0",
    ],
)
def test_it_is_refused(expression):
    device = cel.Device(driver="d.example.com", attributes={}, capacity={})
    with pytest.raises((cel.CompileError, cel.EvalError)):
        cel.compile(expression).matches(device)


@pytest.mark.parametrize("expression", [f"isSemver('{MANY}.1.1')", f"isQuantity('{MANY}')"])
def test_it_is_none(expression):
    device = cel.Device(driver="d.example.com", attributes={}, capacity={})
    assert not cel.compile(expression).matches(device)
