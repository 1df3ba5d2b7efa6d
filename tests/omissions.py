"""The omissions that can be put into a module: what a person forgets, as one mutant each.

A statement, a reset or a guard is left out, a `finally` or a lock is forgotten, two awaits change
their places, an `except` catches too much. `mutations` has the mistakes within an expression.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator, Sequence

from tests import mutations
from tests.mutations import Mutant

# A call on one of these, or of these functions, changes no result: it informs people or a checker.
_TELLING = (*mutations.LOGGERS, "metrics")
_WIDEST = ("Exception", "BaseException")


def of_source(module: str, source: str) -> list[Mutant]:
    """Returns every omission of a module, in the order of its text."""
    text = _Text(module, source)
    mutants: list[Mutant] = []
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for body in _bodies(function):
                mutants += _of_body(text, body)
    return sorted(
        {mutant.text: mutant for mutant in mutants}.values(), key=lambda omission: omission.line
    )


def _bodies(function: ast.AST) -> Iterator[list[ast.stmt]]:
    for node in ast.walk(function):
        for name in ("body", "orelse", "finalbody"):
            body = getattr(node, name, None)
            if isinstance(body, list) and body and isinstance(body[0], ast.stmt):
                yield body


def _of_body(text: _Text, body: list[ast.stmt]) -> Iterator[Mutant]:
    for statement in body:
        if _is_step(statement):
            yield text.with_replaced([statement], "pass")
        match statement:
            case ast.If(orelse=[]) if isinstance(
                statement.body[-1], ast.Return | ast.Raise | ast.Continue | ast.Break
            ):
                yield text.with_replaced([statement], "pass")
            case (
                ast.With(items=[ast.withitem(optional_vars=None)])
                | ast.AsyncWith(items=[ast.withitem(optional_vars=None)])
            ):
                yield text.with_head(statement)
            case ast.Try():
                if statement.finalbody:
                    yield text.with_replaced(statement.finalbody, "pass")
                for handler in statement.handlers:
                    if handler.type is not None and ast.unparse(handler.type) not in _WIDEST:
                        yield text.with_replaced([handler.type], "Exception")

    for first, second in itertools.pairwise(body):
        if _awaits(first) and _awaits(second):
            yield text.with_swapped(first, second)


def _is_step(statement: ast.stmt) -> bool:
    """Returns True for a statement that does something and whose absence breaks no name."""
    match statement:
        case ast.Expr(value=ast.Constant()):
            return False
        case ast.Expr(value=value):
            called = value.value if isinstance(value, ast.Await) else value
            return not (isinstance(called, ast.Call) and _only_tells(called))
        case ast.Assign(targets=targets):
            return all(isinstance(target, ast.Attribute | ast.Subscript) for target in targets)
        case ast.AugAssign() | ast.Delete() | ast.Continue() | ast.Break() | ast.Return(value=None):
            return True
    return False


def _only_tells(call: ast.Call) -> bool:
    name = call.func
    while isinstance(name, ast.Attribute):
        name = name.value
    return isinstance(name, ast.Name) and name.id in _TELLING


def _awaits(statement: ast.stmt) -> bool:
    value = statement.value if isinstance(statement, ast.Expr | ast.Assign) else None
    return isinstance(value, ast.Await)


class _Text:
    """The text of a module, from which mutants are made."""

    def __init__(self, module: str, source: str) -> None:
        self._module = module
        self._whole = source.encode()
        self._starts = [0]
        for line in source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line.encode()))

    def with_replaced(self, nodes: Sequence[ast.stmt | ast.expr], after: str) -> Mutant:
        """Returns the mutant with other text in the place of adjacent nodes."""
        begin, end = self._begin(nodes[0]), self._end(nodes[-1])
        return self._mutant(nodes[0], begin, end, after)

    def with_head(self, statement: ast.With | ast.AsyncWith) -> Mutant:
        """Returns the mutant in which a `with` block does nothing but run its body."""
        begin, end = self._begin(statement), self._end(statement.items[-1].context_expr)
        return self._mutant(statement, begin, end, "if True")

    def with_swapped(self, first: ast.stmt, second: ast.stmt) -> Mutant:
        """Returns the mutant in which two statements have changed places."""
        begin, end = self._begin(first), self._end(second)
        between = self._whole[self._end(first) : self._begin(second)]
        parts = (self._text(second), between.decode(), self._text(first))
        return self._mutant(first, begin, end, "".join(parts))

    def _mutant(self, node: ast.stmt | ast.expr, begin: int, end: int, after: str) -> Mutant:
        text = (self._whole[:begin] + after.encode() + self._whole[end:]).decode()
        before = " ".join(self._whole[begin:end].decode().split())[:70]
        shown = " ".join(after.split())[:70]
        lines = tuple(range(node.lineno, self._last_line(end) + 1))
        return Mutant(self._module, node.lineno, f"{before}  ->  {shown}", text, lines)

    def _last_line(self, end: int) -> int:
        return self._whole[:end].count(b"\n") + 1

    def _text(self, node: ast.stmt) -> str:
        return self._whole[self._begin(node) : self._end(node)].decode()

    def _begin(self, node: ast.stmt | ast.expr) -> int:
        return self._starts[node.lineno - 1] + node.col_offset

    def _end(self, node: ast.stmt | ast.expr) -> int:
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self._starts[node.end_lineno - 1] + node.end_col_offset
