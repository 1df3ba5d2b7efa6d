"""The omissions that can be put into a module: what a person forgets, as one mutant each.

A statement, a reset or a guard is left out, a `finally` or a lock is forgotten, two awaits change
their places, an `except` catches too much. `mutations` has the mistakes within an expression.

An `except` that catches too much names the next wider class of errors. `Exception` takes its place
only where the handler raises again: elsewhere `make lint` refuses it (BLE001), before any test runs.

Five kinds of omissions are left out, because no test could notice them:

- A call that only informs people: a log line, a metric, the text that an exception passes to its
  base class.
- A `return` or `continue` at the end of its function or loop, which goes on in the same way without
  it.
- The jump of a guard that does nothing else, because the guard itself is left out already.
- An `except OSError` around plain calls of the operating system, which raise nothing else for
  arguments of the right types. The same holds for the other rows of `_RAISING_ONLY`, such as
  msgspec's own errors around `msgspec.json.decode`.
- A wider `except` that logs the error as before and raises it again.
"""

from __future__ import annotations

import ast
import builtins
import functools
import itertools
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from tests import mirrors, mutations
from tests.mutations import Mutant

# A call on one of these, or of these functions, changes no result: it informs people or a checker.
_TELLING = (*mutations.LOGGERS, "metrics")
_WIDEST = ("Exception", "BaseException")
_JUMPS = (ast.Return, ast.Raise, ast.Continue, ast.Break)


# What a block that calls only these functions and methods raises, for arguments of the right types.
_RAISING_ONLY = {
    "OSError": (
        *("os.close", "os.dup", "os.fchmod", "os.fstat", "os.fsync", "os.kill", "os.link"),
        *("os.listdir", "os.lstat", "os.major", "os.makedev", "os.minor", "os.mkdir", "os.mkfifo"),
        *("os.open", "os.path.join", "os.pipe", "os.pread", "os.read", "os.readlink", "os.rename"),
        *("os.replace", "os.rmdir", "os.scandir", "os.stat", "os.statvfs", "os.strerror"),
        *("os.symlink", "os.unlink", "os.utime", "os.write", "os.fsencode", "fcntl.flock", "len"),
        *("fcntl.lockf", "sorted", "socket.socket", "stat.S_ISCHR", "stat.S_ISDIR", "stat.S_ISREG"),
        *(".accept", ".bind", ".connect", ".encode", ".exists", ".iterdir", ".listen", ".lstat"),
        *(
            ".mkdir",
            ".read_bytes",
            ".read_text(errors=)",
            ".readlink",
            ".rename",
            ".rmdir",
            ".send",
            ".setsockopt",
        ),
        *(
            ".sendall",
            ".stat",
            "str",
            "stack.enter_context",
            ".symlink_to",
            ".touch",
            ".unlink",
            ".write_bytes",
        ),
    ),
    "ValueError": (
        *("int", "float", "str", ".encode", ".decode", ".strip", ".partition"),
        *("base64.b64decode", "msgspec.convert", "urlsplit"),
    ),
    "msgspec.ValidationError": ("msgspec.convert",),
    "(msgspec.DecodeError, UnicodeDecodeError, RecursionError)": ("msgspec.json.decode",),
    "(msgspec.MsgspecError, UnicodeDecodeError, RecursionError)": ("msgspec.json.decode",),
    "UnicodeDecodeError": (".decode", ".rstrip", ".strip", ".read"),
    "TimeoutError": ("asyncio.timeout", ".wait"),
    "subprocess.TimeoutExpired": (".wait",),
    "AttributeError": ("getattr",),
    "(RuntimeError, MemoryError)": ("threading.Thread", ".start"),
}


def of_source(module: str, source: str) -> list[Mutant]:
    """Returns every omission of a module, in the order of its text."""
    text = _Text(module, source)
    functions: list[ast.FunctionDef | ast.AsyncFunctionDef] = []
    idle: set[ast.stmt] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            functions.append(node)
            idle |= set(_idle_jumps(node.body, ast.Return))
        elif isinstance(node, ast.ClassDef) and mutations.is_error(node):
            idle |= set(_texts_of_error(node))

    mutants: list[Mutant] = []
    for function in functions:
        for body in _bodies(function):
            mutants += _of_body(text, body, idle)
    return sorted(
        {mutant.text: mutant for mutant in mutants}.values(), key=lambda omission: omission.line
    )


def _bodies(function: ast.AST) -> Iterator[list[ast.stmt]]:
    """Yields the blocks of a function, without those that only jump."""
    for node in ast.walk(function):
        for name in ("body", "orelse", "finalbody"):
            body = getattr(node, name, None)
            if isinstance(body, list) and body and isinstance(body[0], ast.stmt):
                is_jump = len(body) == 1 and isinstance(body[0], _JUMPS)
                if not (is_jump and isinstance(node, ast.If) and not node.orelse):
                    yield body


def _idle_jumps(body: list[ast.stmt], jump: type[ast.stmt] | None) -> Iterator[ast.stmt]:
    """Yields the jumps at the end of a block that lead where the end of the block leads.

    `jump` is the kind of these jumps: a return in the body of a function, a continue in a loop.
    """
    for statement in body:
        kind = jump if statement is body[-1] else None
        has_value = getattr(statement, "value", None) is not None
        if kind is not None and isinstance(statement, kind) and not has_value:
            yield statement

        inner = kind
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                continue
            case ast.For() | ast.AsyncFor() | ast.While():
                inner = ast.Continue
            case ast.Try(orelse=[_, *_]):
                inner = None  # the jump leaves the else block out
        yield from _idle_jumps(getattr(statement, "body", []), inner)
        yield from _idle_jumps(getattr(statement, "orelse", []), kind)
        for part in (*getattr(statement, "handlers", []), *getattr(statement, "cases", [])):
            yield from _idle_jumps(part.body, kind)


def _texts_of_error(error: ast.ClassDef) -> Iterator[ast.stmt]:
    """Yields the statements by which an exception passes its text to its base class."""
    for node in ast.walk(error):
        if isinstance(node, ast.Expr) and ast.unparse(node).startswith("super().__init__("):
            yield node


def _of_body(text: _Text, body: list[ast.stmt], idle: Collection[ast.stmt]) -> Iterator[Mutant]:
    for statement in body:
        if _is_step(statement) and statement not in idle:
            yield text.with_replaced([statement], "pass")
        match statement:
            case ast.If(orelse=[]) if isinstance(statement.body[-1], _JUMPS):
                if len(statement.body) > 1 or statement.body[0] not in idle:
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
                    if handler.type is not None and _may_widen(statement, handler):
                        wider = _wider_type(handler, text.names)
                        if wider:
                            yield text.with_replaced([handler.type], wider)

    for first, second in itertools.pairwise(body):
        if _awaits(first) and _awaits(second):
            yield text.with_swapped(first, second)


def _may_widen(block: ast.Try, handler: ast.ExceptHandler) -> bool:
    """Returns True if the handler would get errors that it does not get now, and treat them."""
    caught = ast.unparse(handler.type) if handler.type is not None else ""
    if caught in _WIDEST or _raises_only(block.body, _RAISING_ONLY.get(caught, ())):
        return False
    return not (handler is block.handlers[-1] and _only_raises_again(handler))


def _wider_type(handler: ast.ExceptHandler, names: Collection[str]) -> str:
    """Returns the type that catches more than the handler's, or "" without one that passes `make lint`.

    `names` are the names that the module uses.
    """
    if _hands_on(handler):
        return "Exception"
    given = handler.type
    types = given.elts if isinstance(given, ast.Tuple) else [given]
    now = [ast.unparse(each) for each in types if each is not None]
    wider = [_parent_of(each, names) or each for each in now]
    if wider == now:
        return ""
    return wider[0] if len(wider) == 1 else f"({', '.join(dict.fromkeys(wider))},)"


def _hands_on(handler: ast.ExceptHandler) -> bool:
    """Returns True if the handler raises its error again, or another one from it."""
    for node in ast.walk(handler):
        if isinstance(node, ast.Raise):
            if node.exc is None:
                return True
            named = [part.id for part in (node.exc, node.cause) if isinstance(part, ast.Name)]
            if handler.name in named:
                return True
    return False


def _parent_of(type_: str, names: Collection[str]) -> str:
    """Returns OSError, or the class of ours that a class of errors derives from; "" for others.

    The other classes above the built-in ones, such as LookupError, are hardly ever raised.
    """
    known = getattr(builtins, type_, None)
    if isinstance(known, type):
        return "OSError" if issubclass(known, OSError) and known is not OSError else ""

    module, dot, name = type_.rpartition(".")
    for (stem, derived), base in _bases().items():
        is_there = module in (stem, f"kube_{stem}") if dot else base in names
        if derived == name and is_there:
            return f"{module}{dot}{base}"
    return ""


@functools.cache
def _bases() -> dict[tuple[str, str], str]:
    """Returns the base of each class of errors, by its module's last name, if it stands there too."""
    bases: dict[tuple[str, str], str] = {}
    for module in mirrors.modules():
        tree = ast.parse((mirrors.ROOT / module).read_text())
        classes = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.bases]
        here = {node.name for node in classes}
        for node in classes:
            base = ast.unparse(node.bases[0])
            if base in here:
                bases[Path(module).stem, node.name] = base
    return bases


def _only_raises_again(handler: ast.ExceptHandler) -> bool:
    *others, last = handler.body
    only_tell = all(isinstance(other, ast.Expr) and not _is_step(other) for other in others)
    return only_tell and isinstance(last, ast.Raise) and last.exc is None


def _raises_only(body: Sequence[ast.stmt], harmless: Sequence[str]) -> bool:
    """Returns True if every call in the block is of a function, or a method, in a list."""
    for statement in body:
        for node in ast.walk(statement):
            if isinstance(node, ast.Call) and not _is_one_of(node, harmless):
                return False
            if isinstance(node, ast.Raise | ast.Subscript | ast.Import | ast.ImportFrom):
                return False
    return bool(harmless)


def _is_one_of(call: ast.Call, names: Sequence[str]) -> bool:
    called = ast.unparse(call.func)
    method = f".{called.rpartition('.')[2]}"
    # A text that is decoded strictly may raise UnicodeDecodeError.
    if any(keyword.arg == "errors" for keyword in call.keywords):
        method += "(errors=)"
    return called in names or ("." in called and method in names)


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
        self.names = {node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)}
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
