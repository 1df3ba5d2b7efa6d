"""The drivers and domains that an expression names."""

import pytest

from claimd.kubernetes import cel


@pytest.mark.parametrize(
    ("expression", "drivers", "domains"),
    [
        ('device.driver == "a.b"', {"a.b"}, {"a.b"}),
        ('"a.b" == device.driver && true', {"a.b"}, {"a.b"}),
        ('device.driver == "a.b" || device.driver == "c"', set(), {"a.b", "c"}),
        ('device.driver.startsWith("a")', set(), set()),
        ('device.attributes["a.b"].?root.orValue("") == "x"', set(), {"a.b"}),
        ('device.capacity[?"a.b"].hasValue()', set(), {"a.b"}),
        ('"x" in device.attributes["a.b"]', set(), {"a.b"}),
        ("[1, 2][0] == 1", set(), set()),
    ],
)
def test_names(expression, drivers, domains):
    program = cel.compile(expression)
    assert program.drivers == drivers
    assert program.domains == domains
