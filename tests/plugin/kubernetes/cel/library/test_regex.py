"""Patterns in expressions. One that is too large is an error that ends the whole evaluation."""

import pytest

from claimd.kubernetes.cel.errors import EvalError, StepsExceededError
from claimd.kubernetes.cel.library import regex

TOO_LARGE = r"\pL{1000}"


def test_what_is_found():
    assert regex.matches("abc", "b.")
    assert not regex.matches("abc", "^b")
    assert regex.find("abc", "b.") == "bc"
    assert regex.find("abc", "x") == ""


def test_what_is_no_pattern_and_what_is_too_large():
    with pytest.raises(EvalError):
        regex.matches("a", "(")
    with pytest.raises(StepsExceededError):
        regex.matches("a" * 50, TOO_LARGE)
