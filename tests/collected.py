"""A pytest session for `tests.mutants` that collects the tests once and runs them in forks, each with a mutant.

Importing and collecting takes much longer than most tests. So one process does it for all mutants.
For each mutant that process forks. The child exchanges the code of the functions that the mutant
changes, runs the given tests until one fails, and ends.

Code that runs on import cannot be exchanged, and a program that a test starts runs the unchanged
file. So a failure here is an answer, and a success is none: `tests.mutants` then repeats the tests
with the mutant in the file.
"""

from __future__ import annotations

import ast
import contextlib
import gc
import json
import multiprocessing.connection
import os
import select
import shutil
import signal
import sys
import tempfile
import types
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

from tests import forked

Connection = multiprocessing.connection.Connection

# A function, by its file, its first line and its name.
Key = tuple[str, int, str]
Functions = dict[Key, list[types.FunctionType]]


@dataclass(frozen=True, kw_only=True)
class Order:
    """The tests that a fork runs, and the mutant that they run with."""

    path: str  # of the mutated file
    text: str  # its new text; empty: no mutant
    line: int  # that the mutant changes, of the old text
    limits: dict[str, float]  # the tests in their order, each with its time limit in seconds
    seconds: float  # the limit of the whole run


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The result of an order."""

    fits: bool = True  # False if the mutant changes code that cannot be exchanged
    failed: str | None = None  # the test that failed; empty: the fork died or took too long


class Session:
    """A process that has collected the tests of some files in a copy of the sources."""

    def __init__(self, copy: Path, files: list[str]) -> None:
        self._connection, theirs = multiprocessing.Pipe()
        self._process = forked.start(_serve, (copy, files, theirs))
        theirs.close()
        try:
            self._connection.recv()
        except EOFError:
            output = (copy / "collected.txt").read_text(errors="replace")
            sys.exit(f"{output[-3000:]}\nthe tests cannot be collected")

    def run(self, order: Order) -> Outcome:
        """Runs the tests of an order in a fork, until one fails."""
        # The classes of the other process are those of the copy, so only their fields are sent.
        self._connection.send(asdict(order))
        return Outcome(**self._connection.recv())

    def close(self) -> None:
        self._connection.close()
        self._process.join()


def _serve(copy: Path, files: list[str], orders: Connection) -> None:
    forked.enter(copy, {}, copy / "collected.txt")
    status = pytest.main([*forked.OPTIONS, "-s", *files], plugins=[_Server(orders)])
    sys.exit(status)


class _Server:
    """A plugin of pytest that runs orders in the place of the tests."""

    def __init__(self, orders: Connection) -> None:
        self._orders = orders

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = {item.nodeid: item for item in session.items}
        functions = imported_functions()
        gc.freeze()
        self._orders.send("collected")
        while True:
            try:
                order = self._orders.recv()
            except EOFError:
                return True
            outcome = _run_in_fork(session, items, functions, Order(**order))
            self._orders.send(asdict(outcome))


def _run_in_fork(
    session: pytest.Session, items: dict[str, pytest.Item], functions: Functions, order: Order
) -> Outcome:
    place = tempfile.mkdtemp(prefix="m")
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        os.environ["TMPDIR"] = tempfile.tempdir = place
        outcome = Outcome(failed="")
        try:
            outcome = _run(session, items, functions, order)
        finally:
            os.write(writer, json.dumps(asdict(outcome)).encode())
            os._exit(0)

    os.close(writer)
    try:
        is_ready, _, _ = select.select([reader], [], [], order.seconds)
        answer = os.read(reader, 1 << 16) if is_ready else b""
    finally:
        os.close(reader)
        os.kill(child, signal.SIGKILL)
        _kill_group(child)
        os.waitpid(child, 0)
        shutil.rmtree(place, ignore_errors=True)
    if not answer:
        return Outcome(failed="")
    return Outcome(**json.loads(answer))


def _kill_group(leader: int) -> None:
    """Ends the programs that the tests have left behind."""
    with contextlib.suppress(ProcessLookupError):  # the child had not made its group yet
        os.killpg(leader, signal.SIGKILL)


def _run(
    session: pytest.Session, items: dict[str, pytest.Item], functions: Functions, order: Order
) -> Outcome:
    if order.text and not exchange(functions, order.path, order.text, order.line):
        return Outcome(fits=False)

    chosen = [items[name] for name in order.limits]
    for item, following in zip(chosen, [*chosen[1:], None], strict=True):
        item.add_marker(pytest.mark.timeout(order.limits[item.nodeid]), append=False)
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.testsfailed:
            return Outcome(failed=item.nodeid)
    return Outcome()


# The exchange of code.


def imported_functions() -> Functions:
    """Returns every function that exists in this process."""
    found: Functions = {}
    for value in gc.get_objects():
        if isinstance(value, types.FunctionType):
            found.setdefault(_key(value.__code__), []).append(value)
    return found


def _key(code: types.CodeType) -> Key:
    return code.co_filename, code.co_firstlineno, code.co_name


def exchange(functions: Functions, path: str, text: str, line: int) -> bool:
    """Gives the functions around a line of a file the code that they have in a changed text.

    The change must be behind the first lines of these functions. Returns False if no such function
    exists, or if its new code uses other variables of an outer function than before.
    """
    changed = {_key(code): code for code in _codes(compile(text, path, "exec"))}
    has_changed = False
    for key in _keys_around(path, line):
        for function in functions.get(key, ()):
            try:
                function.__code__ = changed[key]
            except (KeyError, ValueError):
                return False
            has_changed = True
    return has_changed


def _keys_around(path: str, line: int) -> Iterator[Key]:
    for node in ast.walk(ast.parse(Path(path).read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            is_around = node.body[0].lineno <= line <= (node.end_lineno or 0)
            if is_around:
                yield path, first, node.name


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)
