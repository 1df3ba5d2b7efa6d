"""What is nested too deeply is replaced, and all else stays."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimd.kubernetes.kube import nesting

TEXTS = st.text() | st.sampled_from(["[", "}", '"', "\\", '\\"]'])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner),
)


@given(VALUES, st.booleans())
def test_what_is_flat_stays(value, ascii_only):
    text = json.dumps(value, ensure_ascii=ascii_only).encode(errors="surrogatepass")
    assert nesting.without_deep_values(text) == text


def nested(levels, inner="1"):
    return "[" * levels + inner + "]" * levels


def innermost(value):
    while isinstance(value, list):
        [value] = value
    return value


@pytest.mark.parametrize("levels", [nesting.DEEPEST, nesting.DEEPEST + 1, 5000, 100_000])
def test_what_is_too_deep_becomes_a_text(levels):
    document = '{"a": "[{", "deep": %s, "b": [{}, "]"], "deep2": {"x": %s}, "c": 1}'
    text = document % (nested(levels), nested(levels, '{"y": [2]}'))
    read = json.loads(nesting.without_deep_values(text.encode()))
    assert (read["a"], read["b"], read["c"]) == ("[{", [{}, "]"], 1)
    assert innermost(read["deep"]) == innermost(read["deep2"]["x"]) == nesting.REPLACEMENT


@pytest.mark.parametrize("text", ["]" * 500, "[" * 500, '"' + "[" * 500, '{"a": "\\', ""])
def test_what_is_no_json_stays_none(text):
    with pytest.raises(json.JSONDecodeError):
        json.loads(nesting.without_deep_values(text.encode()))


@pytest.mark.parametrize(
    ("levels", "is_deep"), [(1, False), (99, False), (101, True), (5000, True)]
)
def test_decoded_values_are_measured(levels, is_deep):
    value = {}
    for number in range(levels - 1):
        value = [value, 1] if number % 2 else {"a": value, "b": "text"}
    assert nesting.is_too_deep(value) is is_deep
