"""The machine beside Python's engine, which finds the same where it has an answer in time."""

import random

import pytest

from claimd.kubernetes.cel.regex import (
    InvalidPatternError,
    TooLargeError,
    backtracking,
    machine,
    parser,
)
from tests.support import patterns


def nothing(_steps):
    pass


def test_both_engines_find_the_same():
    source = random.Random(1)
    compared = 0
    for _ in range(2000):
        try:
            node = parser.parse(patterns.pattern(source))
        except InvalidPatternError:
            continue
        other = backtracking.compiled(node)
        if other is None:
            continue
        ours = machine.Machine(node)
        for text in patterns.TEXTS:
            match = other.search(text)
            assert ours.search(text, 0, nothing) == (match.span() if match else None)
            compared += 1
    assert compared > 5000


@pytest.mark.parametrize(
    ("pattern", "text", "span"),
    [
        ("(a|ab)(c|bcd)", "abcd", (0, 4)),
        ("a*?", "aa", (0, 0)),
        ("(?:a*)+?b", "aab", (0, 3)),
        ("b{2,3}", "abbbb", (1, 4)),
        (r"\Bb", "ab", (1, 2)),
        ("(?m)^b$", "a\nb", (2, 3)),
        ("x", "ab", None),
    ],
)
def test_the_first_match_by_the_order_of_the_pattern(pattern, text, span):
    assert machine.Machine(parser.parse(pattern)).search(text, 0, nothing) == span


def test_its_steps_grow_with_the_text_alone():
    counted = []
    for length in (1000, 2000):
        steps = []
        machine.Machine(parser.parse("(x+x+)+y")).search("x" * length, 0, steps.append)
        counted.append(sum(steps))
    assert counted[1] < 2.1 * counted[0]


def test_the_steps_are_told_before_they_are_taken():
    class Enough(Exception):
        pass

    def spend(steps):
        raise Enough

    with pytest.raises(Enough):
        machine.Machine(parser.parse("a")).search("b", 0, spend)


def test_a_pattern_that_repeats_too_much():
    with pytest.raises(TooLargeError):
        machine.Machine(parser.parse("(?:a{1000})" * 30))
