"""Tests of the fuzzer: it follows inputs that reach new code, and keeps those that do harm."""

from __future__ import annotations

import importlib.util

import pytest

from tests.fuzz import __main__ as fuzz
from tests.fuzz import reach, target, targets

# Each condition is met by one of thousands of inputs, if the one before was met.
DEEP = """
def read(data):
    if data.startswith(b"q"):
        if len(data) > 3 and data[1:2] == b"z":
            if data[2:3] == b"k":
                raise KeyError(data)
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setattr(fuzz, "KEPT", tmp_path / "kept")
    monkeypatch.setattr(fuzz, "PRODUCT", (str(tmp_path),))
    monkeypatch.setattr(targets, "CORPUS", tmp_path / "cases")
    monkeypatch.setattr(target, "ROOT", tmp_path)

    def make_run(read):
        toy = target.Target(read=read, examples=lambda: [b"abc"], parts=(read,))
        monkeypatch.setitem(targets.TARGETS, "toy", toy)
        return fuzz.Run("toy", 1)

    return make_run


def loaded(tmp_path, source):
    path = tmp_path / "product.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location("product", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.skipif(not reach.SEES, reason="needs Python 3.12, which tells which lines are reached")
def test_it_goes_on_from_what_reached_something_new(run, tmp_path, capsys):
    module = loaded(tmp_path, DEEP)
    fuzz_run = run(module.read)
    fuzz_run.feed(20, 5_000)
    fuzz_run.report(unreached=True)

    said = capsys.readouterr().out
    assert "4 of 4 lines" in said
    (case,) = (tmp_path / "cases/toy").iterdir()
    assert case.read_bytes().startswith(b"qzk")
    assert len(case.read_bytes()) == 4, "no byte more than the harm needs"
    assert list((tmp_path / "kept/toy").iterdir()), "where the next run begins"


@pytest.mark.skipif(not reach.SEES, reason="needs Python 3.12, which tells which lines are reached")
def test_a_loop_of_many_turns_is_not_watched_for_ever(tmp_path):
    source = "def read(data):\n    for turn in range(10_000):\n        if not data:\n            return\n"
    module = loaded(tmp_path, source)
    watch = reach.Reach(str(tmp_path))
    watch.begin()
    try:
        module.read(b"a")
        turns = [times for _, times in watch._ways.values()]
        assert max(turns) == reach.TIMES + 1
        assert len(watch.lines) == 2
        module.read(b"")
        assert len(watch.lines) == 3, "lines are told all the same"
    finally:
        watch.end()


def test_harm_of_one_place_is_told_once(run, tmp_path, capsys):
    def read(data):
        if b"b" not in data:
            raise ValueError(data)

    fuzz_run = run(read)
    fuzz_run.feed(0.2, 500)
    assert len(fuzz_run.harm) == 1
    assert [path.read_bytes() for path in (tmp_path / "cases/toy").iterdir()] == [b""]
    assert "ValueError" in capsys.readouterr().out


def test_what_hangs_is_harm(run, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(fuzz, "SLOW", 0.1)

    def read(data):
        while data != b"abc":
            pass

    fuzz_run = run(read)
    fuzz_run.feed(0.3, 2)
    assert fuzz_run.harm == {"it takes too long"}
