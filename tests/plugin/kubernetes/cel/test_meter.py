"""No expression takes much longer than a tenth of a second. One that would is an error."""

import itertools
import time
from string import ascii_lowercase as ALPHABET

import pytest

from claimd.kubernetes import cel
from claimd.kubernetes.cel import closures, meter
from claimd.kubernetes.cel.documents import BUDGET, LIMIT, Budget, Expression

DEVICE = cel.Device(
    "d.org",
    {"text": "a" * 44 + "b", "numbers": list(range(64)), "number": 3},
    {"memory": "80Gi"},
)
TEXT = 'device.attributes["d.org"].text'
# Ten times the time that an expression may take, since the machine may be busy with other tests.
A_SECOND = 1.0

TOO_LONG = [
    "lists.range(2000).all(x, lists.range(2000).all(y, y >= 0))",
    "lists.range(70000).all(x, x >= 0)",
    "lists.range(300).all(x, lists.range(300).exists(y, y == x))",
    "lists.range(100000).distinct().size() > 0",
    "sets.equivalent(lists.range(100000), lists.range(100000))",
    "lists.range(400000).sum() > 0",
    "lists.range(3000).map(x, lists.range(3000)).size() > 0",
    f"{TEXT}.matches('\\\\pL{{1000}}')",
    f"lists.range(1000).all(x, {TEXT}.matches('(a?){{1000}}' + string(x)) || x >= 0)",
    "[1, 2].flatten(1000000000).size() > 0",
    "lists.range(9000000000000000000).size() > 0",
    # Each list of two holds the list before it twice.
    "cel.bind(a, [1, 1], "
    + "".join(f"cel.bind({new}, [{old}, {old}], " for old, new in itertools.pairwise(ALPHABET))
    + "z == z"
    + ")" * 26,
]
QUICK = [
    (f"{TEXT}.matches('^(a+)+$')", False),
    (f"{TEXT}.matches('^(a|aa)+$')", False),
    (f"{TEXT}.matches('(.*)(.*)(.*)(.*)(.*)[x]')", False),
    (f"{TEXT}.matches('^(a+)+b$')", True),
    (f"lists.range(5000).all(x, {TEXT}.matches('^(a+)+$') || x >= 0)", True),
    ('quantity("1e2000000000").isGreaterThan(quantity("1"))', True),
    ('quantity("1e-2000000000").add(quantity("1")).isGreaterThan(quantity("1"))', True),
    ("lists.range(200).all(x, lists.range(200).all(y, x + y >= 0))", True),
]


def within_a_second(run):
    began = time.process_time()
    try:
        return run()
    finally:
        assert time.process_time() - began < A_SECOND


@pytest.mark.slow
@pytest.mark.parametrize("expression", TOO_LONG, ids=lambda text: text[:50])
def test_what_takes_too_long_is_an_error(expression):
    def run():
        program = cel.compile(expression)
        with pytest.raises(cel.EvalError):
            program.matches(DEVICE)
        # The explanation takes no longer, either.
        return program.explain(DEVICE).text

    assert within_a_second(run)


@pytest.mark.parametrize(("expression", "expected"), QUICK)
def test_what_looks_dear_and_is_not(expression, expected):
    assert within_a_second(lambda: cel.compile(expression).matches(DEVICE)) is expected


@pytest.mark.parametrize("start", ["optional.of(1)", 'device.attributes["d.org"].?text'])
def test_a_chain_that_doubles_is_refused(start):
    def run():
        with pytest.raises(cel.CompileError, match="too large"):
            cel.compile(start + ".optMap(x, x)" * 40 + ".hasValue()")

    within_a_second(run)


def test_the_last_step_may_be_taken():
    counted = meter.Meter()
    counted.spend(meter.MOST_STEPS)
    with pytest.raises(cel.EvalError, match="takes too long"):
        counted.spend(1)


def test_who_catches_it_cannot_go_on():
    counted = meter.Meter()
    counted.charge(0)
    with pytest.raises(cel.EvalError):
        counted.spend(meter.MOST_STEPS + 1)
    with pytest.raises(cel.EvalError):
        counted.charge(0)


def test_steps_count_from_where_it_is_no_longer_cheap():
    counted = meter.Meter()
    counted.charge(meter.CHEAP)
    counted.spend(meter.MOST_STEPS)
    with pytest.raises(cel.EvalError, match="takes too long"):
        counted.charge(1)


@pytest.mark.parametrize("limit", [7, meter.CHEAP + 7])
def test_the_last_unit_may_be_spent(limit):
    counted = meter.Meter(limit)
    counted.charge(limit)
    with pytest.raises(cel.EvalError, match=f"costs more than {limit}"):
        counted.charge(1)


def test_what_runs_outside_of_an_evaluation_is_not_counted():
    with meter.Meter():
        meter.spend(meter.MOST_STEPS)
    meter.spend(1)


def test_a_policy_takes_no_longer():
    expression = Expression("lists.range(150000).all(x, x >= 0)", frozenset(("object",)))

    def run():
        with pytest.raises(cel.EvalError, match="takes too long"):
            expression.evaluate({"object": {}}, Budget())

    within_a_second(run)


def cost_of_a_policy(length, budget):
    """Searches a text of this length for itself, which costs a hundredth of the length's square."""
    expression = Expression("object.contains(object)", frozenset(("object",)))
    expression.evaluate({"object": "y" * length}, budget)
    return BUDGET - budget.left


def test_what_an_expression_of_a_policy_may_cost():
    assert cost_of_a_policy(9_000, Budget()) == pytest.approx(810_000, rel=0.01)
    with pytest.raises(cel.EvalError, match=f"costs more than {LIMIT}"):
        cost_of_a_policy(11_000, Budget())


def test_what_all_expressions_of_a_policy_may_cost():
    budget = Budget()
    for _ in range(12):
        cost_of_a_policy(9_000, budget)
    with pytest.raises(cel.EvalError, match="together"):
        cost_of_a_policy(9_000, budget)


def test_constants_are_worked_out_within_the_limit_too():
    """Constants are evaluated when an expression is compiled."""
    pattern = r"\\pL{99}"
    calls = " || ".join(f"'{'a' * 60}{index}'.matches('{pattern}b')" for index in range(70))
    program = within_a_second(lambda: cel.compile(calls))
    with pytest.raises(cel.EvalError):
        within_a_second(lambda: program.matches(DEVICE))


def test_a_mistake_of_ours_is_raised_without_a_charge():
    """Only an error of the expression costs what its evaluation would."""

    def fail(_):
        raise RecursionError

    counted = meter.Meter()
    with pytest.raises(RecursionError):
        closures.Closures(metered=True).with_charge(fail, 5)([DEVICE.view, counted])
    assert counted.cost == 0
