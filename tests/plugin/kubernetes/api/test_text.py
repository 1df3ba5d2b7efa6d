"""Parsing of JSON and YAML, and writing of YAML."""

import json
import re
import subprocess
import sys

import pytest
import yaml

from claimd.kubernetes.api import text
from claimd.kubernetes.api.meta import ObjectMeta


def test_json_and_yaml_are_told_apart() -> None:
    assert text.load('{"a": [1, "x", null]}') == {"a": [1, "x", None]}
    assert text.load(b"a:\n- 1\n- x\n-\n") == {"a": [1, "x", None]}
    assert text.load("") is None


def test_a_file_has_several_documents() -> None:
    assert text.load_all("---\na: 1\n---\n---\n- b\n") == [{"a": 1}, ["b"]]
    assert text.load_all('{"a": 1}') == [{"a": 1}]
    assert text.load_all("") == []
    with pytest.raises(ValueError, match="expected one document, got 2"):
        text.load("a: 1\n---\nb: 2")


def test_a_time_stays_text() -> None:
    assert text.load("at: 2026-11-21T09:31:37Z") == {"at": "2026-11-21T09:31:37Z"}


@pytest.mark.parametrize(
    "bad",
    [
        "a: [1",
        "a: !!python/object/apply:os.getcwd []",
        b"\xff\xff",
        'a: ["\\ud80a"]',
        '{"a": "\\ud80a"}',
    ],
)
def test_what_is_neither_is_refused(bad: str | bytes) -> None:
    with pytest.raises(ValueError, match="."):
        text.load(bad)


@pytest.mark.parametrize(
    ("bad", "place"),
    [
        ("a:\n  - !!python/name:os.getcwd x", "line 2, column 5: could not determine"),
        ("a: 'x\n", "line 2, column 1: found unexpected end"),
        ("a: [1\nb: }", "line 2, column 2: expected ',' or ']'"),
        ("a: \x01", "character 4: special characters are not allowed"),
        ("a: *b", "line 1, column 4: found undefined alias"),
        ("a: !!bool x", "line 1, column 4: expected a value of type bool"),
        ("a: !!int ''", "line 1, column 4: expected a value of type int"),
        ("a: !!float x", "line 1, column 4: expected a value of type float"),
        ("a: !!timestamp x", "line 1, column 4: expected a value of type timestamp"),
        pytest.param(
            "a: 1" + ":59" * 200 + ".5",
            "line 1, column 4: expected a value of type float",
            id="larger than floats",
        ),
        pytest.param(
            "a: 0x" + "f" * 4000,
            "line 1, column 4: a number of more than 1,000 characters",
            id="more digits than Python writes",
        ),
    ],
)
def test_an_error_says_where(bad: str, place: str) -> None:
    with pytest.raises(ValueError, match="^" + re.escape(place)):
        text.load(bad)


def test_yaml_has_the_fields_in_order_and_reads_back() -> None:
    data = {
        "kind": "X",
        "metadata": ObjectMeta(name="n", resource_version="1"),
        "apiVersion": "v1",
        "t": "2026-01-01",
    }
    shown = text.dump_yaml(data)
    assert shown.splitlines()[:3] == ["kind: X", "metadata:", "  name: n"]
    assert "resourceVersion: '1'" in shown
    assert text.load(shown) == {
        "kind": "X",
        "metadata": {"name": "n", "resourceVersion": "1"},
        "apiVersion": "v1",
        "t": "2026-01-01",
    }


def test_json_does_not_load_the_yaml_library() -> None:
    code = "import sys, json; from claimd.kubernetes.api import text; text.load('{}'); print(json.dumps('yaml' in sys.modules))"
    assert json.loads(subprocess.check_output([sys.executable, "-c", code])) is False


def nested_text(levels: int, form: str) -> str:
    if form == "json":
        return "[" * levels + "]" * levels
    if form == "flow":
        return "a: " + "[" * (levels - 1) + "]" * (levels - 1)
    return "".join(f"{' ' * level}a:\n" for level in range(levels))


@pytest.mark.slow
@pytest.mark.parametrize("form", ["json", "flow", "block"])
def test_depth_has_an_end(form: str) -> None:
    # A scalar, also the empty one, is a level of YAML.
    most = text.DEEPEST if form != "block" else text.DEEPEST - 1
    assert text.load(nested_text(most, form)) is not None
    for levels in (most + 1, 1000, 50_000 if form != "block" else 2000):
        with pytest.raises(ValueError, match="nested deeper than 100 levels"):
            text.load(nested_text(levels, form))


def bomb(levels: int, width: int) -> str:
    lines = ["a0: &a0 [x]"]
    for level in range(1, levels):
        aliases = ", ".join([f"*a{level - 1}"] * width)
        lines.append(f"a{level}: &a{level} [{aliases}]")
    return "\n".join(lines)


@pytest.mark.parametrize(
    "bad",
    [
        bomb(9, 10),
        bomb(60, 2),
        bomb(9, 10).replace("[", "{<<: [").replace("]", "]}").replace("{<<: [x]}", "{x: 1}"),
    ],
    ids=["lists", "twos", "merged maps"],
)
def test_aliases_that_stand_for_too_much(bad: str) -> None:
    with pytest.raises(ValueError, match="aliases stand for more than 100,000 values"):
        text.load(bad)


def test_aliases_that_make_it_too_deep() -> None:
    part = "[" * 9 + "{}" + "]" * 9
    lines = ["a0: &a0 " + part.format("x")]
    lines += [f"a{n}: &a{n} " + part.format(f"*a{n - 1}") for n in range(1, 50)]
    assert text.load("\n".join(lines[:10]))
    with pytest.raises(ValueError, match="nested deeper than 100 levels"):
        text.load("\n".join(lines))


@pytest.mark.parametrize("endless", ["&a [*a]", "a: &a {b: *a}", "&a {*a : 1}"])
def test_what_has_itself_within_is_refused(endless: str) -> None:
    with pytest.raises(ValueError, match="nested deeper than 100 levels|unhashable"):
        text.load(endless)


def test_aliases_within_reason_are_honoured() -> None:
    shared = "a: &a {x: [1, 2]}\nb: *a\nc:\n  <<: *a\n  y: 3\n"
    assert text.load(shared) == {"a": {"x": [1, 2]}, "b": {"x": [1, 2]}, "c": {"x": [1, 2], "y": 3}}
    values = ", ".join(["x"] * 100)
    many = f"a: &a [{values}]\nb: [{', '.join(['*a'] * 900)}]"
    assert len(text.load(many)["b"]) == 900


def test_the_fast_loader_has_the_same_bounds(monkeypatch) -> None:
    loader = text.yaml_loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    monkeypatch.setattr(text, "MOST_VALUES", 500)
    for bad in (bomb(9, 10), "&a [*a]", nested_text(150, "flow"), "- a\n" * 501):
        with pytest.raises(yaml.YAMLError, match="aliases stand for|nested deeper|more than 500"):
            yaml.load(bad, Loader=loader)


@pytest.mark.parametrize("sign", ["\x85", "\u2028", "\u2029", "\u202e", "\u2066"])
def test_what_yaml_takes_for_the_end_of_a_line_is_kept(sign: str) -> None:
    document = {"a": [sign, f"one{sign}two é"]}
    assert text.load(text.dump_yaml(document)) == document
    assert sign not in text.dump_yaml(document)


@pytest.mark.parametrize(
    "unit",
    ["- a\n", "---\na\n", "k%d: 1\n", "- {a: b}\n", "- &a%d x\n"],
)
def test_many_values(unit, monkeypatch):
    """PyYAML needs 50 microseconds for each, however short it is."""
    monkeypatch.setattr(text, "MOST_VALUES", 500)
    few = "".join(unit.replace("%d", str(number)) for number in range(100))
    assert text.load_all(few)
    many = "".join(unit.replace("%d", str(number)) for number in range(501))
    with pytest.raises(ValueError, match="more than 500 values: write it as JSON"):
        text.load_all(many)


@pytest.mark.parametrize("unit", ["\n", "# a\n", "a\n", " "])
def test_many_bytes(unit):
    content = unit * (text.MOST_BYTES // len(unit) + 1)
    for given in (content, content.encode()):
        with pytest.raises(ValueError, match="more than 4 MiB: write it as JSON"):
            text.load_all(given)
    assert len(text.load_all(json.dumps(["x" * text.MOST_BYTES]))) == 1, "JSON has no such limit"
