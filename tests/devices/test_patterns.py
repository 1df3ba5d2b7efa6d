"""Tests of regular expressions that are compiled late."""

import re

import pytest

from claimd_devices import log_lines
from claimd_devices.patterns import Pattern

EXPRESSIONS = {name: value for name, value in vars(log_lines).items() if isinstance(value, Pattern)}


def test_it_matches_as_the_expression_does():
    pattern = Pattern("x([0-9])", re.I)
    match = pattern.match("X7y")
    assert match is not None and match.group(1) == "7"
    assert pattern.match("yX7") is None
    assert pattern.search("yX7") is not None
    assert pattern.fullmatch("X7y") is None
    assert pattern.fullmatch("X7") is not None


def test_it_is_compiled_at_its_first_use():
    pattern = Pattern("(")
    with pytest.raises(re.error):
        pattern.match("")


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_every_expression_of_the_log_compiles(name):
    EXPRESSIONS[name].match("")
