"""The quick bound for the cost of an expression is never below the cost, and low for usual ones."""

import math
from pathlib import Path

import pytest

from claimd.kubernetes import cel
from claimd.kubernetes.cel import bound
from claimd.kubernetes.cel import meter as meters

FOLDER = Path(__file__).parents[3] / "cases/cel"
HERE = 'device.attributes["gpu.example.com"]'

# A device of the greatest size that the API allows.
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
    assert program.cost(LARGEST) <= bound.upper_bound(program.root) <= meters.LIMIT


@pytest.mark.parametrize("answer", ["true", "false", "error"])
def test_nothing_costs_more_than_its_bound(answer):
    for expression in (FOLDER / f"{answer}.txt").read_text().splitlines():
        program = cel.compile(expression)
        assert program.cost(LARGEST) <= bound.upper_bound(program.root), expression


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
    assert bound.upper_bound(cel.compile(expression).root) > meters.LIMIT


DEVICE_SIZE = 64.0


@pytest.mark.parametrize(
    ("expression", "most"),
    [
        # A constant costs 0. A small result has a size of at most 16.
        ("true", 0),
        ("1 + 1 == 2", (32 + 3 * 2**2) + 8 + 16),
        # A variable, a field and an index cost 2 each.
        ("device.allowMultipleAllocations", 4),
        (f"{HERE}.healthy", 8),
        (f"has({HERE}.healthy)", 8),
        (f"{HERE}.healthy && {HERE}.healthy", 18),
        # A call that looks at its arguments once costs 8 and the size of the largest argument.
        (f'{HERE}.model == "a"', 8 + 8 + DEVICE_SIZE),
        (f'{HERE}.model == "{"a" * 70}"', 8 + 8 + 70),
        (f"has({HERE}.a) == has({HERE}.b)", 16 + 8 + 1),
        (f'{HERE}.model in ["a"]', 8 + 8 + DEVICE_SIZE),
        # Any other call may look at each pair of elements three times.
        (f"{HERE}.features.isSorted()", 8 + 32 + 3 * (1 + DEVICE_SIZE) ** 2),
        (f"{HERE}.features.distinct() == {HERE}.features", 16 + (32 + 3 * 65**2) + 8 + DEVICE_SIZE),
        # A literal list or map costs 10 or 30. Its size includes that of its elements.
        (f"[{HERE}.cores] == [1]", 8 + 10 + 8 + DEVICE_SIZE + 1),
        (f"[{HERE}.cores, {HERE}.cores] == [1]", 16 + 10 + 8 + DEVICE_SIZE + 2),
        (f'{{"a": {HERE}.cores}} == {{"a": 1}}', 8 + 30 + 8 + DEVICE_SIZE + 2),
        # A sum has the size of both operands. trim() and similar functions keep the size.
        (f'{HERE}.model + "ab" == "a"', 8 + (32 + 3 * 65**2) + 8 + 66),
        (f'{HERE}.model.trim() == "a"', 8 + (32 + 3 * 65**2) + 8 + 64),
        # Numbers, versions and similar values are small.
        (f"{HERE}.cores + 1 == 2", 8 + (32 + 3 * 65**2) + 8 + 16),
        (f"size({HERE}.features) == 2", 8 + 8 + 64 + 8 + 16),
        # A macro has one turn for each element.
        (f'{HERE}.features.all(f, f == "a")', 8 + 64 * (20 + 2 + 8 + 64) + 50),
        (f'{HERE}.features.exists(f, f == "a")', 8 + 64 * (20 + 2 + 8 + 64) + 50),
        (f"[1, 2].all(x, x == {HERE}.cores)", 2 * (20 + 10 + 8 + DEVICE_SIZE) + 50),
        (f"[].all(x, x == {HERE}.cores)", 1 * (20 + 10 + 8 + DEVICE_SIZE) + 50),
        # A name has the size of the value that it stands for.
        (f"cel.bind(g, {HERE}, g.cores == 1)", 6 + 4 + 8 + DEVICE_SIZE),
    ],
)
def test_the_bound(expression, most):
    assert bound.upper_bound(cel.compile(expression).root) == most, expression


def lets(number):
    inner = "x.cores == 1"
    for _ in range(number):
        inner = f"cel.bind(x, {HERE}, {inner})"
    return inner


def test_many_names_are_counted():
    assert bound.upper_bound(cel.compile(lets(4)).root) < meters.LIMIT
    assert bound.upper_bound(cel.compile(lets(5)).root) == math.inf


def test_where_too_many_nodes_are_looked_at_nothing_is_known():
    """Each + looks once more at everything on its left."""

    def add_up(number):
        return " + ".join(["device.driver"] * number) + ' == "a"'

    assert bound.upper_bound(cel.compile(add_up(10)).root) < math.inf
    assert bound.upper_bound(cel.compile(add_up(80)).root) == math.inf


@pytest.mark.parametrize(
    ("value", "size"),
    [
        ('"aaa"', 3),
        ('["aaa"]', 3),
        ('[["a", "b"]]', 2),
        ('{1: "aaa"}', 3),
        ('{"aaa": 1}', 3),
        ('{"a": 1, "b": 2}', 2),
        ("[true, true, true]", 3),
    ],
)
def test_a_constant_is_as_large_as_the_largest_in_it(value, size):
    assert bound.upper_bound(cel.compile(f"dyn({value}) == 1").root) == 8 + size
