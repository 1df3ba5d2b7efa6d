"""Which chains are read in one step. `test_recorded` and others say what they give."""

import types

import pytest

from claimd.kubernetes import cel
from claimd.kubernetes.cel import shortcuts

DOMAIN = "gpu.example.com"
DEVICE = types.SimpleNamespace(
    driver=DOMAIN, attributes={DOMAIN: {"model": "x"}}, capacity={DOMAIN: {"memory": "m"}}
)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ('device.driver == "d"', "gpu.example.com"),
        ('device.attributes["gpu.example.com"].model == "x"', "x"),
        ('device.attributes["gpu.example.com"]["model"] == "x"', "x"),
        ('device.capacity["gpu.example.com"].memory == quantity("1")', "m"),
    ],
)
def test_the_usual_chains(expression, value):
    chain = next(iter(cel.compile(expression).root.children()))
    shortcut = shortcuts.find_shortcut(chain)
    assert shortcut is not None
    assert shortcut([DEVICE]) == value


@pytest.mark.parametrize(
    "expression",
    [
        "device.attributes == {}",
        'device.attributes["gpu.example.com"] == {}',
        "device.allowMultipleAllocations == true",
        'device.attributes[device.driver].model == "x"',
        'device.attributes[?"gpu.example.com"].model == optional.of("x")',
    ],
)
def test_other_chains(expression):
    chain = next(iter(cel.compile(expression).root.children()))
    assert shortcuts.find_shortcut(chain) is None
