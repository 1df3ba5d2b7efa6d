"""The sizes that the estimate knows of nodes. `test_recorded` compares the estimates with Kubernetes."""

from claimd.kubernetes import cel
from claimd.kubernetes.cel import estimate


def estimate_cost(expression):
    return estimate.estimate_cost(cel.compile(expression).root)


def test_a_variable_of_an_inner_macro_does_not_hide_that_of_the_outer_one_for_longer():
    for outer in ("a", "a" * 500):
        with_inner = '["{}"].all(x, ["b" + "c"].all({}, {} == "d") && x + x == device.driver)'
        assert estimate_cost(with_inner.format(outer, "x", "x")) == (
            estimate_cost(with_inner.format(outer, "y", "y"))
        )
