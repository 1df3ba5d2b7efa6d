"""Which engine gets a text, and patterns put to Kubernetes' own engine as well."""

import random

import pytest

from claimd.kubernetes import cel
from claimd.kubernetes.cel import regex
from claimd.kubernetes.cel.library.formatting import quoted
from claimd.kubernetes.cel.library.regex import find_all
from tests.support import cel_asking, oracle, patterns

DEVICE = cel.Device("d.org", {}, {})


@pytest.mark.parametrize(
    ("pattern", "fast"),
    [
        ("^NVIDIA (H100|H200)", True),
        (".*H100.*", True),
        ("[a-z]+-[0-9]+", True),
        ("^(a+)+$", False),
        ("(a|aa)+$", False),
        ("(.*)(.*)(.*)(.*)(.*)[x]", False),
        (r"\pL+", False),
    ],
)
def test_patterns_of_people_are_fast(pattern, fast):
    assert regex.compiled(pattern).is_fast(64) is fast


def test_a_long_text_goes_to_the_machine():
    pattern = regex.compiled("a.*b")
    assert pattern.is_fast(64) and not pattern.is_fast(100_000)
    assert list(pattern.find_all("a" * 5000 + "b", lambda _steps: None)) == [(0, 5001)]


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
            expression = f"''.matches({quoted(pattern)})"
            try:
                found = [find_all(text, pattern) for text in patterns.TEXTS]
            except cel.EvalError:
                found = []
            for text, texts in zip(patterns.TEXTS, found, strict=False):
                listed = ", ".join(map(quoted, texts))
                expression += f" || {quoted(text)}.findAll({quoted(pattern)}) != [{listed}]"
            expression = (
                f"(false && {expression}) || !({expression.partition(' || ')[2] or 'false'})"
            )
            kind, difference = cel_asking.differ(kubernetes, expression, [DEVICE])
            assert difference is None, pattern
            if kind == "compiled":
                assert cel.compile(expression).matches(DEVICE), pattern
