"""The small mistakes that can be put into a module: which there are, and which are drawn by a seed.

A mistake that no test could notice, or that another check notices, is not one of them. What is
left out is told from the syntax alone, and each rule says why. Nothing here runs anything.
"""

from __future__ import annotations

import ast
import random
from collections.abc import Callable
from dataclasses import dataclass

from tests import mirrors

ROOT = mirrors.ROOT

SWAPPED: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
}
ORDERINGS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)

# Calls on these say something to people and decide nothing.
LOGGERS = ("log", "_log", "logger", "logging", "warnings")

# The type checker notices when a frozen or ordered value is not one any more, and when a field is
# given by position; slots and what the collector sees cost memory, not results.
CLASS_FLAGS = ("frozen", "order", "kw_only", "slots", "weakref", "gc", "repr")

# Two readings of a clock are never equal, so that < and <= are the same between them.
CLOCKS = ("time", "monotonic", "perf_counter", "time_ns", "monotonic_ns", "perf_counter_ns")

# Raised where the author believes that nothing leads, to tell the type checker or a reader.
NEVER_RAISED = ("AssertionError", "NotImplementedError")


@dataclass(frozen=True)
class Mutant:
    module: str
    line: int
    what: str
    text: str  # of the whole module
    lines: tuple[int, ...]  # that run, some of them, whenever the mutated code does


class _Sites(ast.NodeVisitor):
    """The nodes at which a module can be mutated: code that decides, not words for people."""

    def __init__(self) -> None:
        self.nodes: list[tuple[ast.stmt | ast.expr, tuple[int, ...]]] = []
        self._lines: tuple[int, ...] = ()
        self._clocks: set[str] = set()
        self._in_error = False  # the class that is visited is an exception

    def _add(self, node: ast.stmt | ast.expr) -> None:
        self.nodes.append((node, tuple(sorted({*self._lines, *_lines_of(node)}))))

    def visit(self, node: ast.AST) -> None:
        if not isinstance(node, ast.stmt):
            super().visit(node)
            return

        outer, self._lines = self._lines, _lines_of(node)
        super().visit(node)
        self._lines = outer

    def visit_Call(self, node: ast.Call) -> None:
        if not _only_says(node):
            self.generic_visit(node)

    def visit_keyword(self, node: ast.keyword) -> None:
        """zip(strict=True) is an assertion: what it is given has the same length."""
        if node.arg != "strict":
            self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        """What an error says is not mutated, that it is raised is."""
        raised = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
        if not (isinstance(raised, ast.Name) and raised.id in NEVER_RAISED):
            self._add(node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        pass

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_arg(self, node: ast.arg) -> None:
        pass

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for decorator in node.decorator_list:
            self._visit_flags(decorator)
        for word in node.keywords:
            if word.arg not in CLASS_FLAGS:
                self.visit(word.value)
        outer, self._in_error = self._in_error, is_error(node)
        for statement in node.body:
            self.visit(statement)
        self._in_error = outer

    def _visit_flags(self, decorator: ast.expr) -> None:
        if isinstance(decorator, ast.Call):
            for word in decorator.keywords:
                if word.arg not in CLASS_FLAGS:
                    self.visit(word.value)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        for default in (*node.args.defaults, *(each for each in node.args.kw_defaults if each)):
            self.visit(default)

        # What a person reads who debugs is words, too.
        if node.name == "__repr__":
            return

        outer, self._clocks = self._clocks, self._clocks | _names_of_times(node)
        for statement in node.body:
            self.visit(statement)
        self._clocks = outer

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_If(self, node: ast.If) -> None:
        if not (isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"):
            self._add(node)
            self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        of_a_clock = isinstance(node.ops[0], ORDERINGS) and _reads_clock(node, self._clocks)
        if type(node.ops[0]) in SWAPPED and not of_a_clock:
            self._add(node)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        self._add(node)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if type(node.op) in SWAPPED:
            self._add(node)
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if type(node.value) is bool or node.value in (0, 1, 2):
            self._add(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        """A constant of the module is a choice, not a step: one more or less is no mistake."""
        names = [target.id for target in node.targets if isinstance(target, ast.Name)]
        if not (names and all(name.isupper() for name in names)):
            self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is not None and not isinstance(node.value, ast.Constant):
            self._add(node)
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        """A call for its effect can be left out; a docstring cannot be wrong.

        An exception that hands its text to its base class says something, too.
        """
        if self._in_error and ast.unparse(node).startswith("super().__init__("):
            return
        if isinstance(node.value, ast.Call | ast.Await):
            before = len(self.nodes)
            self.generic_visit(node)
            called = node.value.value if isinstance(node.value, ast.Await) else node.value
            if len(self.nodes) > before or not _only_says(called):
                self._add(node)


def _lines_of(node: ast.stmt | ast.expr) -> tuple[int, ...]:
    """The lines of an expression or a plain statement; of any other statement those of its head."""
    assert node.end_lineno is not None
    first: ast.AST = node
    match node:
        case ast.If(test=head) | ast.While(test=head):
            first = head
        case ast.For(iter=head) | ast.AsyncFor(iter=head):
            first = head
        case ast.Match(subject=head):
            first = head
        case ast.With(items=items) | ast.AsyncWith(items=items):
            first = items[-1].context_expr
        case ast.Try() | ast.TryStar():
            return (node.lineno,)
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return tuple(range(node.lineno, node.body[0].lineno))
    end = getattr(first, "end_lineno", None) or node.lineno
    return tuple(range(node.lineno, end + 1))


def _only_says(node: ast.AST) -> bool:
    target = node.func if isinstance(node, ast.Call) else None
    return (
        isinstance(target, ast.Attribute)
        and isinstance(target.value, ast.Name)
        and target.value.id in LOGGERS
    )


def is_error(node: ast.ClassDef) -> bool:
    names = [ast.unparse(base).rpartition(".")[2] for base in node.bases]
    return any(name.endswith(("Error", "Exception")) for name in names)


def _reads_clock(node: ast.AST, times: set[str]) -> bool:
    """Whether the code reads a clock, or one of the names that hold a reading of one."""
    for inner in ast.walk(node):
        match inner:
            case ast.Call(func=ast.Attribute(attr=called)) if called in CLOCKS:
                return True
            case ast.Name(id=name) if name in times:
                return True
    return False


def _names_of_times(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    names: set[str] = set()
    for inner in ast.walk(function):
        if isinstance(inner, ast.Assign) and _reads_clock(inner.value, set()):
            names |= {target.id for target in inner.targets if isinstance(target, ast.Name)}
    return names


def mutants_of(module: str) -> list[Mutant]:
    """Every mutant of a module, in the order of its text."""
    return of_source(module, (ROOT / module).read_text())


def of_source(module: str, source: str) -> list[Mutant]:
    sites = _Sites()
    sites.visit(ast.parse(source))
    mutants: list[Mutant] = []
    for node, lines in sites.nodes:
        mutant = _mutant(module, source, node, lines)
        if mutant is not None:
            mutants.append(mutant)
    return mutants


def _mutant(
    module: str, source: str, node: ast.stmt | ast.expr, lines: tuple[int, ...]
) -> Mutant | None:
    before = ast.get_source_segment(source, node)
    if before is None:
        return None

    after = _changed(source, node)
    if after is None or after == before:
        return None

    # The positions of the tree count bytes.
    starts = [0]
    for text in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(text.encode()))
    assert node.end_lineno is not None and node.end_col_offset is not None
    begin = starts[node.lineno - 1] + node.col_offset
    end = starts[node.end_lineno - 1] + node.end_col_offset
    whole = source.encode()
    text = (whole[:begin] + after.encode() + whole[end:]).decode()
    shown = " ".join(before.split())[:70]
    return Mutant(module, node.lineno, f"{shown}  ->  {' '.join(after.split())[:70]}", text, lines)


def _changed(source: str, node: ast.AST) -> str | None:
    """The text that stands in the node's place, in brackets where it is an expression."""
    match node:
        case ast.If(test=test):
            condition = ast.get_source_segment(source, test)
            whole = ast.get_source_segment(source, node)
            if condition is None or whole is None:
                return None
            return whole.replace(condition, f"not ({condition})", 1)
        case ast.Compare():
            swapped = ast.parse(ast.unparse(node), mode="eval").body
            assert isinstance(swapped, ast.Compare)
            swapped.ops[0] = SWAPPED[type(node.ops[0])]()  # type: ignore[assignment]
            return f"({ast.unparse(swapped)})"
        case ast.BoolOp():
            swapped_bool = ast.parse(ast.unparse(node), mode="eval").body
            assert isinstance(swapped_bool, ast.BoolOp)
            swapped_bool.op = SWAPPED[type(node.op)]()  # type: ignore[assignment]
            return f"({ast.unparse(swapped_bool)})"
        case ast.BinOp():
            swapped_op = ast.parse(ast.unparse(node), mode="eval").body
            assert isinstance(swapped_op, ast.BinOp)
            swapped_op.op = SWAPPED[type(node.op)]()  # type: ignore[assignment]
            return f"({ast.unparse(swapped_op)})"
        case ast.Constant(value=bool(value)):
            return str(not value)
        case ast.Constant(value=int(value)):
            return str(value + 1)
        case ast.Return():
            return "return None"
        case ast.Raise() | ast.Expr():
            return "pass"
    return None


def _compiles(mutant: Mutant) -> bool:
    try:
        compile(mutant.text, mutant.module, "exec")
    except SyntaxError:
        return False
    return True


Kind = Callable[[str, str], list[Mutant]]


def sample(seed: int, count: int, only: list[str], of: Kind = of_source) -> list[Mutant]:
    """Returns `count` mutants, spread evenly over the modules that `only` selects, or over all.

    `of` returns the mutants of a module, given its path and its source.
    """
    chance = random.Random(seed)
    chosen = [
        module
        for module in mirrors.modules()
        if not only or any(module.startswith(prefix) for prefix in only)
    ]
    chance.shuffle(chosen)
    drawn: list[Mutant] = []
    each = max(1, -(-count // max(1, len(chosen))))
    for module in chosen:
        mutants = of(module, (ROOT / module).read_text())
        chosen_here = chance.sample(mutants, min(each, len(mutants)))
        drawn += [mutant for mutant in chosen_here if _compiles(mutant)]
        if len(drawn) >= count:
            break
    return drawn[:count]
