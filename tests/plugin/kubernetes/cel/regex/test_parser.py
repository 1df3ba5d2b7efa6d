"""What Go refuses is refused, in words for who wrote it."""

import pytest

from claimd.kubernetes.cel.regex import InvalidPatternError, parser


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("(a", "a group is not closed"),
        ("a)", "a group is closed that was not opened"),
        ("*a", "nothing to repeat"),
        ("a**", "a repetition of a repetition"),
        ("a{2}{3}", "a repetition of a repetition"),
        ("a{1001}", "repeats more than 1000 times"),
        ("a{3,2}", "or backwards"),
        ("(a{500}){3}", "repeats a part more than 1000 times"),
        ("(?=a)", "no lookaround"),
        (r"(a)\1", "is not supported"),
        (r"\C", "is not supported"),
        ("a\\", "ends with a backslash"),
        ("[a", "a set is not closed"),
        ("[z-a]", "a range in a set is backwards"),
        ("[[:foo:]]", "unknown class"),
        (r"\p{Foo}", "unknown Unicode class 'Foo'"),
        (r"\p{Lu", "a Unicode class is not closed"),
        ("(" * 200 + ")" * 200, "nested more than 100 deep"),
    ],
)
def test_refused(pattern, message):
    with pytest.raises(InvalidPatternError, match="(?s)is invalid.*" + message):
        parser.parse(pattern)


@pytest.mark.parametrize(
    "pattern",
    ["", "a|", "()", "a{,3}", "a{3", "[]a]", "[^]a]", r"\z(?i)*", "(?P<n>a)", "(?<n>a)", r"\_"],
)
def test_taken(pattern):
    parser.parse(pattern)
