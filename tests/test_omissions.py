"""The omissions that are put into a module."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests import mirrors, mutations, omissions


def omitted(source: str) -> list[str]:
    return [mutant.what for mutant in omissions.of_source("m.py", textwrap.dedent(source))]


def test_a_statement_and_a_reset_are_left_out_and_what_only_tells_is_not() -> None:
    assert omitted(
        '''
        def work(self):
            """Does it."""
            log.info("it begins")
            metrics.WORK.add()
            value = look()
            self.store(value)
            self.due = False
            del self.old[value]
            return value
        '''
    ) == [
        "self.store(value)  ->  pass",
        "self.due = False  ->  pass",
        "del self.old[value]  ->  pass",
    ]


def test_a_guard_a_lock_and_a_finally_are_left_out() -> None:
    assert omitted(
        """
        def work(self):
            if self.closed:
                return None
            with self.lock:
                try:
                    return self.step()
                finally:
                    self.end()
        """
    ) == [
        "if self.closed: return None  ->  pass",
        "with self.lock  ->  if True",
        "self.end()  ->  pass",
    ]


def test_a_block_that_names_something_stays() -> None:
    assert omitted("def work():\n    with open('x') as file:\n        return file.read()\n") == []


def test_two_awaits_change_their_places() -> None:
    swapped = omissions.of_source("m.py", "async def f():\n    await a()\n    x = await b()\n")
    assert [mutant.text for mutant in swapped if mutant.lines == (2, 3)] == [
        "async def f():\n    x = await b()\n    await a()\n"
    ]


@pytest.mark.slow
def test_an_except_catches_too_much() -> None:
    source = """
        def work():
            try:
                return read()
            except (TimeoutError, ValueError):
                return None
            except errors.NotFound:
                return 2
            except E as error:
                raise ValueError from error
            except Exception:
                return 1
    """
    assert omitted(source) == [
        "(TimeoutError, ValueError)  ->  (OSError, ValueError,)",
        "errors.NotFound  ->  errors.ApiError",
        "E  ->  Exception",
    ]


def test_what_the_linter_refuses_is_left_out(tmp_path: Path) -> None:
    """A blind except is found before any test runs."""
    blind = "def f():\n    try:\n        g()\n    except {}:\n        x()\n"
    assert omitted(blind.format("ValueError")) == ["g()  ->  pass", "x()  ->  pass"]
    file = tmp_path / "blind.py"
    file.write_text(blind.format("Exception"))
    line = [sys.executable, "-m", "ruff", "check", "--config", str(mirrors.ROOT / "pyproject.toml")]
    printed = subprocess.run([*line, str(file)], check=False, capture_output=True, text=True).stdout
    assert "BLE001" in printed


@pytest.mark.parametrize(
    "source",
    [
        # An exception passes its text on.
        "class E(Exception):\n    def __init__(self, text):\n        super().__init__(text)",
        # The end of the function or of the loop is the next step in any case.
        "def f():\n    if a:\n        return",
        "def f():\n    for a in b:\n        match a:\n            case 1:\n                continue",
        # The calls raise nothing else.
        "def f():\n    try:\n        x = os.stat(path)\n    except OSError:\n        x = None",
        "def f():\n    try:\n        x = place.read_bytes()\n    except OSError:\n        x = None",
        'def f():\n    try:\n        x = a.read_text(errors="replace")\n    except OSError:\n        x = 1',
        "def f():\n    try:\n        return msgspec.convert(a, T)\n    except ValueError as e:\n        raise E from e",
        # The error is raised again.
        "def f():\n    try:\n        x = g()\n    except OSError:\n        log.info(1)\n        raise",
    ],
)
def test_omissions_without_an_effect_are_none(source: str) -> None:
    assert omitted(source) == []


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        # The guard and its jump are one omission.
        (
            "def f():\n    for a in b:\n        if a:\n            continue\n        x = a",
            ["if a: continue  ->  pass"],
        ),
        # The else block and the statements behind the jump would run.
        (
            "def f():\n    try:\n        return\n    except E:\n        x = 1\n    else:\n        x = 2",
            ["return  ->  pass"],
        ),
        (
            "def f():\n    for a in b:\n        if a:\n            return",
            ["if a: return  ->  pass"],
        ),
        # A part of the errors is treated, or a function of ours raises others.
        (
            "def f():\n    try:\n        x = os.stat(path)\n    except FileNotFoundError:\n        x = None",
            ["FileNotFoundError  ->  OSError"],
        ),
        (
            "def f():\n    try:\n        x = read(path)\n    except OSError as e:\n        raise E from e",
            ["OSError  ->  Exception"],
        ),
        (
            "def f():\n    try:\n        x = a.read_text()\n    except OSError as e:\n        raise E from e",
            ["OSError  ->  Exception"],
        ),
        # The later handler would not get its error any more.
        (
            "def f():\n    try:\n        x = g()\n    except A:\n        raise\n    except B:\n        x = 1",
            ["A  ->  Exception"],
        ),
    ],
)
def test_omissions_with_an_effect(source: str, expected: list[str]) -> None:
    assert omitted(source) == expected


def test_a_sample_of_them_is_drawn_by_the_seed_and_compiles() -> None:
    drawn = mutations.sample(7, 10, ["plugin/claimd/node/kubelet/"], omissions.of_source)
    assert drawn == mutations.sample(7, 10, ["plugin/claimd/node/kubelet/"], omissions.of_source)
    assert drawn != mutations.sample(7, 10, ["plugin/claimd/node/kubelet/"])
    assert len(drawn) == 10
    for mutant in drawn:
        compile(mutant.text, mutant.module, "exec")
