"""Patterns in expressions. One that is too large is an error that ends the whole evaluation."""

import pytest

from claimd.kubernetes.cel.errors import EvalError, FatalError, StepsExceededError
from claimd.kubernetes.cel.library import regex

TOO_LARGE = r"\pL{1000}"


def test_what_is_found():
    assert regex.matches("abc", "b.")
    assert not regex.matches("abc", "^b")
    assert regex.find("abc", "b.") == "bc"
    assert regex.find("abc", "x") == ""


def test_what_is_no_pattern_and_what_is_too_large():
    for search in (regex.matches, regex.find, regex.find_all):
        with pytest.raises(EvalError) as no_pattern:
            search("a", "(")
        assert not isinstance(no_pattern.value, FatalError), "an error that && may absorb"
        with pytest.raises(StepsExceededError, match="repeats too much"):
            search("a" * 50, TOO_LARGE)
