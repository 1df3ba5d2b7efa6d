"""Recorded answers of Kubernetes' own CEL: the estimate, each value and each cost of expressions.

They are in tests/cases/cel/recorded.txt, so that these tests need no Go. All must agree exactly.
"""

import pytest

from claimd.kubernetes import cel
from claimd.kubernetes.cel import bound, estimate, meter
from claimd.kubernetes.cel.meter import Meter
from tests.support import cel_records

LINES = [line.split("\t") for line in cel_records.RECORDED.read_text().splitlines()]


def compile_recorded(expression, estimated):
    """Compiles an expression as new if the API server would take it, and otherwise as stored."""
    if estimated not in ("refused", "dear"):
        program = cel.compile(expression, new=True)
        assert f"{estimate.estimate_cost(program.root):.0f}" == estimated, expression
        return program

    with pytest.raises(cel.CompileError):
        cel.compile(expression, new=True)
    program = cel.compile(expression)
    assert estimated == "refused" or estimate.estimate_cost(program.root) > meter.LIMIT, expression
    return program


def format_answer(program, device):
    """Returns value and cost in the form of the file. The quick way must have the same value."""
    counted = Meter()
    try:
        value = str(program.evaluate(device, counted)).lower()
    except cel.EvalError:
        value = "error"
    if counted.cost > meter.LIMIT:
        return "dear"
    assert counted.cost <= bound.upper_bound(program.root)

    try:
        assert str(program.matches(device)).lower() == value
    except cel.EvalError:
        assert value == "error"
    return f"{value} {counted.cost}"


@pytest.mark.parametrize("part", range(10))
def test_recorded(part):
    for estimated, *expected, expression in LINES[part::10]:
        program = compile_recorded(expression, estimated)
        assert [format_answer(program, device) for device in cel_records.DEVICES] == expected, (
            expression
        )
