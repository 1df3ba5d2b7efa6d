"""The rule that && and ||, all() and exists() share."""

import pytest

from claimd.kubernetes.cel import logic
from claimd.kubernetes.cel.errors import EvalError, FatalError


def value(result):
    return lambda _frame: result


def failure(error):
    def fail(_frame):
        raise error

    return fail


FIRST, SECOND = failure(EvalError("first")), failure(EvalError("second"))


@pytest.mark.parametrize("decisive", [False, True])
def test_one_value_decides(decisive):
    other = not decisive
    assert logic.join([], [value(other), value(decisive), value(other)], decisive, "&&") is decisive
    assert logic.join([], [value(other), value(other)], decisive, "&&") is other
    assert logic.join([], [], decisive, "&&") is other


def test_a_deciding_value_absorbs_errors_and_ends_the_evaluation():
    unread = failure(AssertionError("evaluated"))
    assert logic.join([], [FIRST, value(3), value(False), unread], False, "&&") is False


@pytest.mark.parametrize(
    ("operands", "message"),
    [
        ([FIRST, SECOND], "first"),
        ([value(True), SECOND, FIRST], "second"),
        ([value(3), FIRST], r"&& does not take \(int\)"),
        ([FIRST, value(3)], "first"),
    ],
)
def test_the_first_error_is_raised_if_no_value_decides(operands, message):
    with pytest.raises(EvalError, match=message):
        logic.join([], operands, False, "&&")


def test_no_value_absorbs_a_fatal_error():
    with pytest.raises(FatalError):
        logic.join([], [failure(FatalError("limit")), value(False)], False, "&&")
