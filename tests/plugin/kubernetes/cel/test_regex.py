"""Patterns with the rules of Go, also where RE2 has others, and the steps that they may take."""

import random

import pytest

from claimd.kubernetes import cel
from claimd.kubernetes.cel import regex
from claimd.kubernetes.cel.library.formatting import format_literal
from claimd.kubernetes.cel.library.regex import find_all
from tests.support import cel_asking, oracle, patterns

DEVICE = cel.Device("d.org", {}, {})


def free(_steps):
    pass


def texts_of(pattern, text):
    return list(regex.compile_pattern(pattern).find_all(text, free))


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("(a", r"missing \): \(a"),
        ("a)", r"unexpected \): a\)"),
        ("*a", r"no argument for repetition operator: \*"),
        ("a**", r"bad repetition operator: \*\*"),
        ("a{2}{3}", r"bad repetition operator: \{2\}\{3\}"),
        ("a{1001}", "invalid repetition size"),
        ("a{3,2}", "invalid repetition size"),
        ("(a{500}){3}", "invalid repetition size"),
        ("(?=a)", "invalid perl operator"),
        (r"(a)\1", "invalid escape sequence"),
        (r"\C", r"\\C is not supported"),
        (r"a\\\C", r"\\C is not supported"),
        ("a\\", "trailing"),
        ("[a", r"missing \]"),
        ("[z-a]", "invalid character class range: z-a"),
        ("[[:foo:]]", "invalid character class range"),
        (r"\p{Foo}", r"invalid character class range: \\p\{Foo\}"),
        (r"\p{Lu", "invalid"),
    ],
)
def test_refused(pattern, message):
    with pytest.raises(regex.InvalidPatternError, match="(?s)is invalid.*" + message):
        regex.compile_pattern(pattern)


def test_what_is_refused_is_not_written_to_the_standard_error(capfd):
    with pytest.raises(regex.InvalidPatternError):
        regex.compile_pattern("(unclosed")
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    "pattern",
    ["", "a|", "()", "a{,3}", "a{3", "[]a]", "[^]a]", r"\z(?i)*", "(?P<n>a)", "(?<n>a)", r"\_"],
)
def test_taken(pattern):
    regex.compile_pattern(pattern)


@pytest.mark.parametrize(
    ("pattern", "text", "texts"),
    [
        ("(a|ab)(c|bcd)", "abcd", ["abcd"]),
        ("a*?", "aa", ["", "", ""]),
        ("(?:a*)+?b", "aab", ["aab"]),
        ("b{2,3}", "abbbb", ["bbb"]),
        (r"\Bb", "ab", ["b"]),
        ("(?m)^b$", "a\nb", ["b"]),
        ("^b$", "a\nb", []),
        ("x", "ab", []),
        # An empty match that follows another match does not count.
        ("a*", "baac", ["", "aa", ""]),
        ("", "ab", ["", "", ""]),
    ],
)
def test_the_first_match_by_the_order_of_the_pattern(pattern, text, texts):
    assert texts_of(pattern, text) == texts


@pytest.mark.parametrize(
    ("pattern", "text", "texts"),
    [
        (".", "aé漢\U0001f600", ["a", "é", "漢", "\U0001f600"]),
        ("", "é漢", ["", "", ""]),
        ("[^a]", "aé", ["é"]),
        (r"\pL+", "é漢1a", ["é漢", "a"]),
        ("(?i)É", "é", ["é"]),
        # Go has no empty string between the bytes of a character.
        (r"\B", "aéa", []),
        (r"\B", "é", ["", ""]),
        (r"\B|é", "aéa", ["é"]),
        (r"\B|x", "漢x漢", ["", "x", ""]),
    ],
)
def test_characters_rather_than_bytes(pattern, text, texts):
    assert texts_of(pattern, text) == texts


@pytest.mark.parametrize("surrogate", ["\ud83d", "\ude00"])
def test_half_a_surrogate_pair_is_one_character(surrogate):
    assert texts_of(".", f"a{surrogate}b") == ["a", "\ufffd", "b"]
    assert texts_of(surrogate, f"a{surrogate}b") == ["\ufffd"]
    assert texts_of("b", f"a{surrogate}b") == ["b"]


@pytest.mark.parametrize(
    "name", ["{Lu}", "{lu}", "{L-u}", "{ L_U }", "{^Ll}", "{^ll}", "{Any}", "{any}"]
)
def test_names_of_categories_in_any_case(name):
    assert texts_of(rf"\p{name}", "Aa") == (["A", "a"] if "ny" in name else ["A"])


def test_quoted_text_is_left_as_it_is():
    assert texts_of(r"\Q\p{lu}\C\E.", r"\p{lu}\C!") == [r"\p{lu}\C!"]
    assert texts_of(r"\Q\p{lu}", r"\p{lu}") == [r"\p{lu}"]
    assert texts_of(r"\\C", r"\C") == [r"\C"]
    assert texts_of(r"\\p{2}", r"\pp") == [r"\pp"]


@pytest.mark.parametrize(
    ("pattern", "small"),
    [
        ("^NVIDIA (H100|H200)", True),
        (".*H100.*", True),
        ("^(a+)+$", True),
        ("(.*)(.*)(.*)(.*)(.*)[x]", True),
        (r"\pL+", True),
        (r"\pL{63}", False),
        ("a{1000}" * 30, False),
    ],
)
def test_patterns_of_people_are_small(pattern, small):
    assert regex.compile_pattern(pattern).is_small is small


def test_a_pattern_that_repeats_too_much():
    pattern = regex.compile_pattern(r"\pL{1000}")
    with pytest.raises(regex.TooLargeError):
        pattern.matches("a", free)


def test_its_steps_grow_with_the_text_alone():
    counted = []
    for length in (100_000, 200_000):
        steps = []
        regex.compile_pattern("(x+x+)+y").matches("x" * length, steps.append)
        counted.append(sum(steps))
    assert 1.9 * counted[0] < counted[1] < 2.1 * counted[0]


def test_each_search_counts_its_steps():
    def steps_for(text):
        steps = []
        list(regex.compile_pattern("a").find_all(text, steps.append))
        return sum(steps)

    assert steps_for("a" * 1000) > 100 * steps_for("b" * 1000)


def test_large_patterns_count_more():
    def steps_for(pattern):
        steps = []
        regex.compile_pattern(pattern).matches("", steps.append)
        return sum(steps)

    assert steps_for("a{1000}" * 30) > 1000 * steps_for("a")


def test_groups_cost_nothing():
    """No function of CEL asks for the texts of groups."""

    def steps_for(pattern):
        steps = []
        regex.compile_pattern(pattern).matches("a" * 300, steps.append)
        return sum(steps)

    assert steps_for("(a)" * 300) == steps_for("a" * 300)


def test_the_steps_are_told_before_they_are_taken():
    class Enough(Exception):
        pass

    def spend(steps):
        raise Enough

    with pytest.raises(Enough):
        regex.compile_pattern("a").matches("b", spend)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif(bool(oracle.missing("cel")), reason=str(oracle.missing("cel")))
def test_kubernetes_finds_the_same():
    source = random.Random(7)
    with oracle.Oracle("cel") as kubernetes:
        for number in range(400):
            pattern = patterns.pattern(source)
            if number % 3 == 0:
                pattern = patterns.damaged(source, pattern)
            expression = f"''.matches({format_literal(pattern)})"
            try:
                matches = [find_all(text, pattern) for text in patterns.TEXTS]
            except cel.EvalError:
                matches = []
            for text, texts in zip(patterns.TEXTS, matches, strict=False):
                listed = ", ".join(map(format_literal, texts))
                expression += (
                    f" || {format_literal(text)}.findAll({format_literal(pattern)}) != [{listed}]"
                )
            expression = (
                f"(false && {expression}) || !({expression.partition(' || ')[2] or 'false'})"
            )
            kind, difference = cel_asking.differ(kubernetes, expression, [DEVICE])
            assert difference is None, pattern
            if kind == "compiled":
                assert cel.compile(expression).matches(DEVICE), pattern
