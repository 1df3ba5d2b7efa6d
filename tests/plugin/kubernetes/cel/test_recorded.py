"""What Kubernetes' own CEL said of expressions, kept in tests/cases/cel/recorded.txt: the estimate,
each value, each cost. It needs no Go, and no cost or estimate may be off by one.
"""

import pytest

from claimd.kubernetes import cel
from claimd.kubernetes.cel import bound, estimate, meter
from claimd.kubernetes.cel.meter import Meter
from tests.support import cel_records

LINES = [line.split("\t") for line in cel_records.RECORDED.read_text().splitlines()]


def compiled(expression, estimated):
    """As one that is created, where an API server would take it; else as one that is stored."""
    if estimated not in ("refused", "dear"):
        program = cel.compile(expression, new=True)
        assert f"{estimate.estimate_cost(program.root):.0f}" == estimated, expression
        return program

    with pytest.raises(cel.CompileError):
        cel.compile(expression, new=True)
    program = cel.compile(expression)
    assert estimated == "refused" or estimate.estimate_cost(program.root) > meter.LIMIT, expression
    return program


def answered(program, device):
    """Value and cost as a line has them; the quick way has to find the same value."""
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
        program = compiled(expression, estimated)
        assert [answered(program, device) for device in cel_records.DEVICES] == expected, expression
