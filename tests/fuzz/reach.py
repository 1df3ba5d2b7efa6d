"""Records the lines and branches that inputs reach. An input that reaches a new one is kept.

Python 3.12 says it for nearly nothing, since a line that was reached once is never told again. An
older Python sees nothing here.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

SEES = sys.version_info >= (3, 12)

# Of one way out of a branch, after which the other one is not waited for any more.
TIMES = 2000

Line = tuple[str, int]  # the file, and the number in it


class Reach:
    """Watches everything below some folders, from `begin` to `end`. There may be one at a time."""

    def __init__(self, *folders: str) -> None:
        self.lines: set[Line] = set()
        self.news = 0  # lines and ways out of a branch that were reached for the first time
        self._folders = folders
        # The first way out of a branch, and how often it was taken.
        self._ways: dict[tuple[CodeType, int], tuple[int | None, int]] = {}

    def begin(self) -> None:
        if not SEES:
            return
        watching = sys.monitoring
        watching.use_tool_id(watching.COVERAGE_ID, "fuzz")
        watching.register_callback(watching.COVERAGE_ID, watching.events.LINE, self._line)
        events = watching.events.LINE
        for name, count in (("BRANCH", 2), ("BRANCH_LEFT", 1), ("BRANCH_RIGHT", 1)):
            # Python 3.14 has them one by one; before, both ways are one event.
            event = getattr(watching.events, name, 0)
            if not event or (name == "BRANCH" and hasattr(watching.events, "BRANCH_LEFT")):
                continue
            callback = self._both if count == 2 else self._one
            watching.register_callback(watching.COVERAGE_ID, event, callback)
            events |= event
        watching.set_events(watching.COVERAGE_ID, events)
        # What an earlier one has switched off.
        watching.restart_events()

    def end(self) -> None:
        if SEES:
            sys.monitoring.set_events(sys.monitoring.COVERAGE_ID, 0)
            sys.monitoring.free_tool_id(sys.monitoring.COVERAGE_ID)

    def _line(self, code: CodeType, line: int) -> Any:
        if code.co_filename.startswith(self._folders):
            self.lines.add((code.co_filename, line))
            self.news += 1
        return sys.monitoring.DISABLE

    def _both(self, code: CodeType, offset: int, destination: int) -> Any:
        if not code.co_filename.startswith(self._folders):
            return sys.monitoring.DISABLE
        place = (code, offset)
        first, times = self._ways.get(place, (None, 0))
        if first == destination:
            # A loop of millions of turns would be watched for nothing.
            self._ways[place] = (first, times + 1)
            return None if times < TIMES else sys.monitoring.DISABLE
        self.news += 1
        if first is None:
            self._ways[place] = (destination, 1)
            return None
        # The other way: there are no more than two.
        return sys.monitoring.DISABLE

    def _one(self, code: CodeType, offset: int, destination: int) -> Any:
        if code.co_filename.startswith(self._folders):
            self.news += 1
        return sys.monitoring.DISABLE


def lines(parts: tuple[Any, ...]) -> set[Line]:
    """The lines of functions, classes and modules that a call may reach."""
    lines_: set[Line] = set()
    for code in codes(parts):
        for _, _, line in code.co_lines():
            # The first one is `def`, which is reached when the module is loaded.
            if line and line != code.co_firstlineno:
                lines_.add((code.co_filename, line))
    return lines_


def codes(parts: tuple[Any, ...]) -> Iterator[CodeType]:
    """The code of all functions in `parts`, with those inside of them."""
    for part in parts:
        if isinstance(part, ModuleType):
            for module in _modules(part):
                own = [each for each in vars(module).values() if _belongs(each, module.__name__)]
                yield from codes(tuple(own))
        elif isinstance(part, type):
            yield from codes(tuple(vars(part).values()))
        elif isinstance(part, property):
            yield from codes((part.fget,))
        elif isinstance(part, (staticmethod, classmethod)):
            yield from codes((part.__func__,))
        elif isinstance(part, FunctionType):
            yield from _within(inspect.unwrap(part).__code__)
        elif hasattr(part, "__wrapped__"):  # of functools.cache
            yield from codes((part.__wrapped__,))


def _modules(module: ModuleType) -> list[ModuleType]:
    """The module and, of a package, what has been imported of it."""
    inside = f"{module.__name__}."
    return [module, *(each for name, each in sys.modules.items() if name.startswith(inside))]


def _belongs(value: Any, module: str) -> bool:
    return getattr(value, "__module__", None) == module


def _within(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _within(constant)


def words(parts: tuple[Any, ...]) -> set[bytes]:
    """Short texts that the code compares with and looks for, and the fields of its structs."""
    words_: set[str] = set()
    for code in codes(parts):
        words_.update(_texts(code.co_consts))
    for part in parts:
        for module in _modules(part) if isinstance(part, ModuleType) else ():
            for each in vars(module).values():
                words_.update(getattr(each, "__struct_encode_fields__", ()))
                if isinstance(each, (tuple, frozenset, set, dict)):
                    words_.update(_texts(each))
    return {text.encode() for text in words_ if 0 < len(text) <= 40}


def _texts(values: Iterable[Any]) -> Iterator[str]:
    for value in values:
        if isinstance(value, bytes):
            yield value.decode(errors="replace")
        elif isinstance(value, str):
            yield value
        elif isinstance(value, (tuple, frozenset)):
            yield from _texts(value)
