"""JSON and YAML in, YAML out."""

import json
import subprocess
import sys

import pytest

from plugin.api import text
from plugin.api.meta import ObjectMeta


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


@pytest.mark.parametrize("bad", ["a: [1", "a: !!python/object/apply:os.getcwd []", b"\xff\xff"])
def test_what_is_neither_is_refused(bad: str | bytes) -> None:
    with pytest.raises(ValueError, match="."):
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
    code = "import sys, json; from plugin.api import text; text.load('{}'); print(json.dumps('yaml' in sys.modules))"
    assert json.loads(subprocess.check_output([sys.executable, "-c", code])) is False
