"""Mutation testing: small mistakes, one at a time, put into a copy of the sources; the module's own tests have to notice.

`python -m tests.mutants` draws a sample by a seed, runs for each mutant the test files that mirror its module
(tests/mirrors.py), and prints the survivors and the score. The same seed on the same sources draws the same mutants.
"""

from __future__ import annotations

import argparse
import ast
import concurrent.futures
import os
import queue
import random
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tests import mirrors

ROOT = mirrors.ROOT
COPIED = (
    "plugin",
    "devices",
    "tests",
    "proto",
    "deploy",
    "docs",
    "pyproject.toml",
    "Makefile",
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
)
DEADLINE = 240.0  # seconds for the tests of one mutant; one that runs for ever is noticed, too

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
WORDS = ("log", "logger", "logging", "warnings")  # whose calls say something and decide nothing


@dataclass(frozen=True)
class Mutant:
    module: str
    line: int
    what: str
    text: str  # of the whole module


@dataclass(frozen=True)
class Verdict:
    mutant: Mutant
    outcome: str  # killed, survived, untested
    seconds: float


class _Sites(ast.NodeVisitor):
    """The nodes at which a module can be mutated: code that decides, not words for people."""

    def __init__(self) -> None:
        self.nodes: list[ast.AST] = []

    def visit_Call(self, node: ast.Call) -> None:
        if not _only_says(node):
            self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        """What an error says is not mutated, that it is raised is."""
        self.nodes.append(node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        pass

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_arg(self, node: ast.arg) -> None:
        pass

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        for default in (*node.args.defaults, *(one for one in node.args.kw_defaults if one)):
            self.visit(default)
        for statement in node.body:
            self.visit(statement)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_If(self, node: ast.If) -> None:
        if not (isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"):
            self.nodes.append(node)
            self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        if type(node.ops[0]) in SWAPPED:
            self.nodes.append(node)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        self.nodes.append(node)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if type(node.op) in SWAPPED:
            self.nodes.append(node)
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if type(node.value) is bool or node.value in (0, 1, 2):
            self.nodes.append(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        """A constant of the module is a choice, not a step: one more or less is no mistake."""
        names = [target.id for target in node.targets if isinstance(target, ast.Name)]
        if not (names and all(name.isupper() for name in names)):
            self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is not None and not isinstance(node.value, ast.Constant):
            self.nodes.append(node)
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        """A call for its effect can be left out; a docstring cannot be wrong."""
        if isinstance(node.value, ast.Call | ast.Await):
            before = len(self.nodes)
            self.generic_visit(node)
            called = node.value.value if isinstance(node.value, ast.Await) else node.value
            if len(self.nodes) > before or not _only_says(called):
                self.nodes.append(node)


def _only_says(node: ast.AST) -> bool:
    target = node.func if isinstance(node, ast.Call) else None
    return (
        isinstance(target, ast.Attribute)
        and isinstance(target.value, ast.Name)
        and target.value.id in WORDS
    )


def mutants_of(module: str) -> list[Mutant]:
    """Every mutant of a module, in the order of its text."""
    source = (ROOT / module).read_text()
    sites = _Sites()
    sites.visit(ast.parse(source))
    found = [_mutant(module, source, node) for node in sites.nodes]
    return [mutant for mutant in found if mutant is not None]


def _mutant(module: str, source: str, node: ast.AST) -> Mutant | None:
    assert isinstance(node, ast.stmt | ast.expr)
    before = ast.get_source_segment(source, node)
    if before is None:
        return None

    after = _changed(source, node)
    if after is None or after == before:
        return None

    lines = source.splitlines(keepends=True)
    starts = [0]
    for text in lines:
        starts.append(starts[-1] + len(text.encode()))
    assert node.end_lineno is not None and node.end_col_offset is not None
    begin = starts[node.lineno - 1] + node.col_offset
    end = starts[node.end_lineno - 1] + node.end_col_offset
    whole = source.encode()
    text = (whole[:begin] + after.encode() + whole[end:]).decode()
    try:
        compile(text, module, "exec")
    except SyntaxError:
        return None
    shown = " ".join(before.split())[:70]
    return Mutant(module, node.lineno, f"{shown}  ->  {' '.join(after.split())[:70]}", text)


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


def sample(seed: int, count: int, only: list[str]) -> list[Mutant]:
    """`count` mutants, at most two of a module, spread over the modules that `only` selects."""
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
        mutants = mutants_of(module)
        drawn += chance.sample(mutants, min(each, len(mutants)))
        if len(drawn) >= count:
            break
    return drawn[:count]


def verdict(mutant: Mutant, copy: Path) -> Verdict:
    """Runs the mirrored tests on a copy that has the mutant, and puts the module right again."""
    began = time.monotonic()
    files = mirrors.tests_of(mutant.module)
    if not files:
        return Verdict(mutant, "untested", 0.0)

    place = copy / mutant.module
    original = place.read_text()
    place.write_text(mutant.text)
    try:
        done = run_tests(copy, files, timeout=DEADLINE)
        outcome = "survived" if done.returncode == 0 else "killed"
    except subprocess.TimeoutExpired:
        outcome = "killed"
    finally:
        place.write_text(original)
    return Verdict(mutant, outcome, time.monotonic() - began)


def run_tests(
    copy: Path, arguments: list[str], timeout: float | None = None
) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(
        command,
        cwd=copy,
        env=environment,
        check=False,
        capture_output=True,
        text=True,
        timeout=timeout,
    )


def check_without_mutant(mutants: list[Mutant], copy: Path, workers: int) -> None:
    """The same tests pass on a copy that nothing was done to: else every mutant would seem noticed."""
    files: dict[str, None] = {}
    for mutant in mutants:
        files |= dict.fromkeys(mirrors.tests_of(mutant.module))
    if not files:
        return
    done = run_tests(copy, ["-n", str(workers), *files])
    if done.returncode:
        sys.exit(f"{done.stdout[-3000:]}\nthe tests fail without any mutant: mend that first")


def run(mutants: list[Mutant], workers: int) -> list[Verdict]:
    """Each worker has a copy of its own; the order of the verdicts is that of the mutants."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copies: queue.Queue[Path] = queue.Queue()
        for number in range(workers):
            copy = Path(folder) / str(number)
            copy.mkdir()
            for name in COPIED:
                if (ROOT / name).is_dir():
                    ignored = shutil.ignore_patterns("__pycache__")
                    shutil.copytree(ROOT / name, copy / name, ignore=ignored)
                else:
                    shutil.copy(ROOT / name, copy / name)
            copies.put(copy)
        check_without_mutant(mutants, copy, workers)

        def one(mutant: Mutant) -> Verdict:
            copy = copies.get()
            try:
                answer = verdict(mutant, copy)
            finally:
                copies.put(copy)
            print(
                f"{answer.outcome:9} {mutant.module}:{mutant.line}: {mutant.what} "
                f"({answer.seconds:.0f} s)",
                flush=True,
            )
            return answer

        with concurrent.futures.ThreadPoolExecutor(workers) as pool:
            return list(pool.map(one, mutants))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("only", nargs="*", help="modules or folders; everything if left out")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=80)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--least", type=float, default=0.0, help="exit 1 below this score, in %%")
    given = parser.parse_args()

    mutants = sample(given.seed, given.count, given.only)
    verdicts = run(mutants, given.workers)

    alive = [one for one in verdicts if one.outcome != "killed"]
    print(f"\n{len(verdicts) - len(alive)} of {len(verdicts)} mutants were noticed", end="")
    score = 100.0 * (1 - len(alive) / max(1, len(verdicts)))
    print(f": {score:.0f} %")
    for one in alive:
        print(f"  {one.outcome}: {one.mutant.module}:{one.mutant.line}: {one.mutant.what}")
    return 1 if score < given.least else 0


if __name__ == "__main__":
    sys.exit(main())
