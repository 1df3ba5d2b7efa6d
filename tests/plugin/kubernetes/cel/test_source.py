"""The text of nodes and values is as short as people write them."""

import pytest

from claimd.kubernetes.cel import parser, source
from claimd.kubernetes.cel.values import NONE, Duration, Map, Optional, UInt


@pytest.mark.parametrize(
    "text",
    [
        "a.b.c",
        "has(a.b)",
        "a[1]",
        "a[?1]",
        "a.?b",
        "-a",
        "!(a && b)",
        "(a + b) * c",
        "a ? b : c",
        "(a ? b : c) == d",
        '{"a": 1, "b": [true, null, 2u]}',
        '"a" in b',
        "f(a, b)",
        "a.f()",
        "(a + b).f(c)",
        "a.all(x, x > 1)",
        "a.exists(k, v, k == v)",
        'a == "\\"quoted\\""',
        "1.5 <= a",
    ],
)
def test_what_is_written_reads_the_same(text):
    assert source.format_node(parser.parse(text)) == text


@pytest.mark.parametrize(
    ("text", "shorter"),
    [
        ("a&&b||c", "(a && b) || c"),
        ("(((a)))", "a"),
        ("a.map(x, x * 2)", "a.map(x, …)"),
        ("a.filter(x, x > 2)", "a.filter(x, …)"),
        ("a.exists_one(x, x > 2)", "a.exists_one(x, …)"),
        ("cel.bind(x, a, x + 1)", "x + 1"),
    ],
)
def test_what_is_written_shorter(text, shorter):
    assert source.format_node(parser.parse(text)) == shorter


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (False, "false"),
        ("a\n", '"a\\n"'),
        (1, "1"),
        (1.5, "1.5"),
        (UInt(3), "3u"),
        ([], "[]"),
        ([1, "a"], '[1, "a"]'),
        (Map({}), "{}"),
        (Map({"a": 1, "b": [2]}), '{"a": 1, "b": [2]}'),
        (Optional(1), "1"),
        (NONE, "missing"),
        (Duration(1), "google.protobuf.Duration"),
    ],
)
def test_values(value, text):
    assert source.format_value(value) == text


@pytest.mark.parametrize(
    ("lengths", "shown"),
    [
        # Parts that fit are shown whole, and the first part is always shown.
        ([100, 10], 2),
        ([200], 1),
        ([200, 1], 1),
        ([50, 50, 50, 50], 2),
    ],
)
def test_of_a_long_list_the_rest_is_counted(lengths, shown):
    text = source.format_value(["x" * length for length in lengths])
    assert text.count('"') == 2 * shown
    rest = len(lengths) - shown
    assert text.endswith(f'", and {rest} more]' if rest else '"]')
