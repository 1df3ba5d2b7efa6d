"""Expressions and their answers. The files in tests/cases/cel are named after the answers for one
device. Random expressions are also evaluated by Kubernetes' own CEL.
"""

import random
from pathlib import Path

import pytest

from claimd.kubernetes import cel
from claimd.kubernetes.cel import meter as meters
from tests.oracle.cel.expressions import Expressions
from tests.support import cel_asking, oracle

FOLDER = Path(__file__).parents[3] / "cases/cel"
DEVICE = cel.Device(
    "gpu.example.com",
    {
        "model": "h100",
        "cores": 3,
        "numbers": [1, 2, 3],
        "features": ["a", "b"],
        "healthy": True,
        "claimd.dev/driver": cel.Version("1.2.3"),
        "claimd.dev/cores": 4,
    },
    {"memory": "80Gi", "claimd.dev/slots": "3"},
)
ANSWERS = ("true", "false", "error", "refused")
HERE = 'device.attributes["gpu.example.com"]'
needs_oracle = pytest.mark.skipif(bool(oracle.missing("cel")), reason=str(oracle.missing("cel")))


def expressions(answer):
    return (FOLDER / f"{answer}.txt").read_text().splitlines()


def answer_of(expression):
    try:
        return str(cel.compile(expression).matches(DEVICE)).lower()
    except cel.CompileError:
        return "refused"
    except cel.EvalError:
        return "error"


@pytest.mark.parametrize("answer", ANSWERS)
def test_answers(answer):
    cases = expressions(answer)
    assert len(cases) >= 50
    assert [expression for expression in cases if answer_of(expression) != answer] == []


@pytest.fixture(scope="module")
def kubernetes():
    with oracle.Oracle("cel") as running:
        yield running


@needs_oracle
@pytest.mark.parametrize("answer", ANSWERS)
def test_kubernetes_answers_the_same(kubernetes, answer):
    """Kubernetes has the same answer at the same cost."""
    for expression in expressions(answer):
        _, difference = cel_asking.differ(kubernetes, expression, [DEVICE])
        assert difference is None, expression


@pytest.mark.slow
@needs_oracle
def test_random_expressions(kubernetes):
    for seed in range(1500):
        generator = Expressions(random.Random(seed))
        expression = generator.generate()
        _, difference = cel_asking.differ(
            kubernetes, expression, [generator.device() for _ in range(3)]
        )
        assert difference is None, expression


@pytest.mark.slow
@needs_oracle
def test_what_a_cluster_with_default_features_refuses(kubernetes):
    """Such a cluster has no lists among the attributes, and it limits the estimated cost."""
    several = [expression for answer in ANSWERS for expression in expressions(answer)]
    several += [Expressions(random.Random(seed)).generate() for seed in range(1000)]
    for expression in several:
        assert cel_asking.differ_as_new(kubernetes, expression) is None, expression


def test_a_dear_expression_is_stopped():
    program = cel.compile("lists.range(50000).map(x, [x]).size() > 0")
    with pytest.raises(cel.EvalError, match="costs more than 1000000"):
        program.matches(DEVICE)
    assert program.cost(DEVICE) > meters.LIMIT


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        (f'{HERE}.model == "a100"', 'model is "h100", needs "a100"'),
        (
            'device.capacity["gpu.example.com"].memory.compareTo(quantity("141Gi")) >= 0',
            "memory is 80Gi, needs ≥141Gi",
        ),
        (
            'device.capacity["gpu.example.com"].memory.isGreaterThan(quantity("80Gi"))',
            "memory is 80Gi, needs >80Gi",
        ),
        (
            f'{HERE}.model == "a" || {HERE}.cores > 7',
            'model is "h100", needs "a" or cores is 3, needs >7',
        ),
        (f'{HERE}.model == "h100" && {HERE}.cores > 7', "cores is 3, needs >7"),
        (f"!{HERE}.healthy", "healthy is true, needs false"),
        (f'"z" in {HERE}.features', None),
        (f"has({HERE}.absent)", "absent is missing, needs a value"),
        (f'{HERE}.features.exists(f, f == "z")', None),
        (
            f'cel.bind(g, {HERE}, g.model.startsWith("mi"))',
            'model is "h100", needs to start with "mi"',
        ),
    ],
)
def test_why_an_expression_is_false(expression, why):
    text = cel.compile(expression).explain(DEVICE).text
    assert text == why if why else text


def test_a_missing_attribute_is_an_error_and_named():
    program = cel.compile(f"{HERE}.absent == 1")
    with pytest.raises(cel.EvalError):
        program.matches(DEVICE)
    assert "absent" in program.explain(DEVICE).text
    assert not cel.compile(f"{HERE}.?absent.orValue(0) == 1").matches(DEVICE)


def test_the_place_of_a_mistake_is_answer_of():
    with pytest.raises(cel.CompileError, match="line 1, column"):
        cel.compile("device.driver == 1")
