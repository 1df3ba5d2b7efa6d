"""Text from strangers on its way into lines, files and terminals."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claimd.common import plain_text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "plain",
        "tabs\tand\nlines",
        "größe",
        "日本",
        "🙂",
        "\u00a0\uffee",
        " \t~",
        "\u202e \ue000",
    ],
)
def test_what_people_write_is_not_strange(text):
    assert plain_text.strange(text) is None


@pytest.mark.parametrize(
    "character", list("\0\x01\r\x1b\x7f\x80\x85\x9f\u2028\u2029\ufeff\ufffe\uffff\ud800")
)
def test_what_does_harm_is(character):
    assert plain_text.strange(f"a{character}b") == character
    assert plain_text.strange(f"a b\tc\nd {character}") == character, "after what does none"


@pytest.mark.sampled
@given(st.text())
def test_one_line_is_one_line_for_everybody(text):
    line = plain_text.one_line(text)
    assert len(line.splitlines()) <= 1
    assert "\x1b" not in line
    assert "\x9b" not in line


@pytest.mark.parametrize(
    ("text", "shown"),
    [("a\nb", "a\\nb"), ("\x1b[2J", "\\x1b[2J"), ("\u202egnp", "\\u202egnp"), ("é", "é")],
)
def test_escapes_show_what_was_there(text, shown):
    assert plain_text.one_line(text) == shown


@pytest.mark.sampled
@given(st.text(st.characters(exclude_categories=("Cs",))))
def test_json_means_the_same_and_steers_no_terminal(text):
    document = plain_text.json_escaped(json.dumps({"m": text}, ensure_ascii=False))
    assert json.loads(document) == {"m": text}
    assert not any(character in document for character in "\x1b\x7f\x85\x9b\u2028\u202e")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("x" * 200, "x" * 200),
        ("x" * 201, "x" * 200 + "…"),
        ("x" * 3_000_000, "x" * 200 + "…"),
        ("\n" * 101, "\\n" * 100 + "…"),
        ("a\nb", "a\\nb"),
    ],
)
def test_a_sentence_has_as_much_as_helps(text, shown):
    assert plain_text.brief(text) == shown


def test_a_line_is_cut_where_nobody_reads_on():
    longest = "x" * plain_text.LONGEST_LINE
    assert plain_text.plain_line(longest) == longest
    assert plain_text.plain_line(f"{longest}x") == f"{longest}…"
    assert plain_text.plain_line("a\nb") == "a\\nb"


def test_plain_data_keeps_its_form():
    value = {"a\n": ["b\x1b", ("c",), 1, None, True]}
    assert plain_text.plain_value(value) == {"a\\n": ["b\\x1b", ["c"], 1, None, True]}
