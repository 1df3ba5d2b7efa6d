"""The quick bound of an expression's cost: never below what it costs, and low for what is usual."""

from pathlib import Path

import pytest

from plugin import cel
from plugin.cel import bound
from plugin.cel import meter as meters

FOLDER = Path(__file__).parents[2] / "cases/cel"
HERE = 'device.attributes["gpu.example.com"]'

# As large as the API lets a device be.
WORDS = [f"{number:02}" + "x" * 62 for number in range(64)]
LARGEST = cel.Device(
    "gpu.example.com",
    {"model": WORDS[0], "cores": 3, "features": WORDS, "numbers": list(range(64))}
    | {f"example.com/a{number}": WORDS[1] for number in range(28)},
    {"memory": "80Gi"},
)
USUAL = [
    'device.driver == "a"',
    f'{HERE}.model == "a"',
    f'{HERE}.model.startsWith("a") && {HERE}.cores > 2',
    f'{HERE}.model.matches("a*b")',
    f'{HERE}.model + {HERE}.model == "a"',
    f'{HERE}.model.lowerAscii().substring(2) == "a"',
    f'{HERE}[?"model"].orValue("b") == "a"',
    f'{HERE}.?model.orValue("b") != "a"',
    f'"a" in {HERE}.features',
    f'{HERE}.features.exists(f, f == "a")',
    f'{HERE}.features.all(f, f.matches("^a"))',
    f"{HERE}.features.all(f, {HERE}.features.all(g, f != g || f == g))",
    f"[1, 2, 3].exists(x, x == {HERE}.cores)",
    f'cel.bind(g, {HERE}, g.model == "a" && g.cores == 1)',
    f'{HERE}.numbers.sort() == {HERE}.numbers || {{"a": {HERE}.cores}} == {{"a": 1}}',
    'device.capacity["gpu.example.com"].memory.compareTo(quantity("1Gi")) >= 0',
]


@pytest.mark.parametrize("expression", USUAL)
def test_what_is_usual_needs_no_counting(expression):
    program = cel.compile(expression)
    assert program.cost(LARGEST) <= bound.of(program.root) <= meters.LIMIT


@pytest.mark.parametrize("answer", ["true", "false", "error"])
def test_nothing_costs_more_than_its_bound(answer):
    for expression in (FOLDER / f"{answer}.txt").read_text().splitlines():
        program = cel.compile(expression)
        assert program.cost(LARGEST) <= bound.of(program.root), expression


@pytest.mark.parametrize(
    "expression",
    [
        f'{HERE}.features.map(f, f + "a").size() > 0',
        f'{HERE}.model.split("-").size() > 1',
        f'{HERE}.features.all(f, f.matches("(a*)*b" + f))',
        "cel.bind(a, [1, 1], cel.bind(b, [a, a], cel.bind(c, [b, b], cel.bind(d, [c, c], "
        "cel.bind(e, [d, d], e == e)))))",
        " || ".join(['device.driver == device.driver + "a"'] * 100),
    ],
)
def test_what_is_not_seen_at_once_is_counted(expression):
    assert bound.of(cel.compile(expression).root) > meters.LIMIT
