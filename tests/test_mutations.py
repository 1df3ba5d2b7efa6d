"""Tests of the small mistakes that `make mutants` puts into a module."""

import pytest

from tests import mutations


def changes(source):
    return [mutant.what for mutant in mutations.of_source("m.py", source)]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x = a < b", ["a < b  ->  (a <= b)"]),
        ("x = a == b", ["a == b  ->  (a != b)"]),
        ("x = a in b", ["a in b  ->  (a not in b)"]),
        ("x = a is None", ["a is None  ->  (a is not None)"]),
        ("x = a and b", ["a and b  ->  (a or b)"]),
        ("x = a + b", ["a + b  ->  (a - b)"]),
        ("x = True", ["True  ->  False"]),
        ("x = [0, 7]", ["0  ->  1"]),
        ("f(a)", ["f(a)  ->  pass"]),
        ("async def f():\n    await g()", ["await g()  ->  pass"]),
        ("def f():\n    return a", ["return a  ->  return None"]),
        ("def f():\n    raise E(1 + 1)", ["raise E(1 + 1)  ->  pass"]),
        ("if a:\n    b()", ["if a: b()  ->  if not (a): b()", "b()  ->  pass"]),
        ("def f(a=1):\n    b = a", ["1  ->  2"]),
        ("class C(S, omit_defaults=True):\n    pass", ["True  ->  False"]),
    ],
)
def test_mistakes(source, expected):
    assert changes(source) == expected


@pytest.mark.parametrize(
    "source",
    [
        # Words for people.
        '"""A docstring."""',
        'log.info("read %d", a + 1)',
        'x = f"{a + 1}"',
        "class E(Exception):\n    def __init__(self, m):\n        super().__init__(m)",
        "class C:\n    def __repr__(self):\n        return a + b",
        # What the type checker notices, or what costs memory alone.
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import a",
        "@dataclass(frozen=True, order=True, slots=True)\nclass C:\n    pass",
        "class C(S, frozen=True, kw_only=True, gc=False):\n    pass",
        # Choices, assertions, and what is never reached.
        "LIMIT = 1 + 1",
        "x = zip(a, b, strict=True)",
        "raise AssertionError(a)",
        # Two readings of a clock are never the same.
        "def f():\n    if_due = loop.time() >= deadline",
        "def f():\n    now = time.monotonic()\n    x = now < deadline",
    ],
)
def test_what_no_test_could_notice_is_none(source):
    assert changes(source) == []


def test_the_same_seed_draws_the_same():
    drawn = mutations.sample(7, 10, ["plugin/claimd/node/kubelet/"])
    assert drawn == mutations.sample(7, 10, ["plugin/claimd/node/kubelet/"])
    assert drawn != mutations.sample(8, 10, ["plugin/claimd/node/kubelet/"])
    assert len(drawn) == 10
    assert len({mutant.module for mutant in drawn}) > 3
    assert {mutant.module.rpartition("/")[0] for mutant in drawn} == {"plugin/claimd/node/kubelet"}


def test_a_mutant_knows_which_lines_run_with_it():
    source = "def f(a):\n    if (\n        a\n        and b\n    ):\n        return 7\n    return a"
    lines = {mutant.what: mutant.lines for mutant in mutations.of_source("m.py", source)}
    assert lines["a and b  ->  (a or b)"] == (2, 3, 4)
    assert lines["return a  ->  return None"] == (7,)
