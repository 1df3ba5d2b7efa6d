"""The exchange of a mutant's code in a process that has imported the module already."""

from __future__ import annotations

import importlib.util
import types
from pathlib import Path

import pytest

from tests import collected

SOURCE = """
import functools

class Counter:
    def __init__(self):
        self.count = 0

    def add(self):
        self.count += 1
        self.count += 1

@functools.lru_cache
def doubled(value):
    value *= 2
    return value

def adder(step):
    def add(value):
        value += step
        return value
    return add

add_three = adder(3)
LIMIT = 1
"""


def imported(folder: Path) -> types.ModuleType:
    path = folder / "m.py"
    path.write_text(SOURCE)
    spec = importlib.util.spec_from_file_location("m", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def exchange(module: types.ModuleType, before: str, after: str) -> bool:
    line = SOURCE[: SOURCE.index(before)].count("\n") + 1
    functions = collected.imported_functions()
    text = SOURCE.replace(before, after, 1)
    return collected.exchange(functions, str(module.__file__), text, line)


@pytest.mark.parametrize(
    ("before", "after", "call", "expected"),
    [
        ("self.count += 1\n        self.count += 1", "pass", "count(m.Counter())", 0),
        ("value *= 2", "pass", "m.doubled(4)", 4),
        ("value += step", "value -= step", "m.add_three(4)", 1),
        ("return add\n", "return lambda value: 0\n", "m.adder(3)(4)", 0),
    ],
)
def test_imported_functions_get_the_code(
    tmp_path: Path, before: str, after: str, call: str, expected: int
) -> None:
    module = imported(tmp_path)
    assert exchange(module, before, after)

    def count(counter: types.SimpleNamespace) -> int:
        counter.add()
        return int(counter.count)

    assert eval(call, {"m": module, "count": count}) == expected


def test_code_that_cannot_be_exchanged_is_told(tmp_path: Path) -> None:
    module = imported(tmp_path)
    assert not exchange(module, "LIMIT = 1", "LIMIT = 2")
    assert not exchange(module, "value += step", "value += 1")
    assert module.add_three(4) == 7
