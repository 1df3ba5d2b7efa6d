"""Counts phrases and names that make the sources hard to read, and refuses more of them.

`python -m tests.prose` compares each count with the limit in prose.toml. `--list MEASURE` shows the
places. `--lower` writes lower limits after an improvement; limits are never raised.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import sys
import tokenize
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIMITS = Path(__file__).with_name("prose.toml")
FOLDERS = ("plugin", "devices")
# Folders of tests. Their docstrings and comments are measured, their names are not.
TEST_FOLDERS = ("tests/cluster",)
GENERATED = "kubelet_api"

# First words of docstrings. A docstring starts with a verb or with the name of the thing.
PREPOSITIONS = frozenset(
    [
        "after",
        "as",
        "at",
        "before",
        "beside",
        "by",
        "down",
        "else",
        "for",
        "from",
        "if",
        "in",
        "likewise",
        "of",
        "on",
        "ours",
        "so",
        "than",
        "then",
        "to",
        "unless",
        "until",
        "where",
        "whose",
        "with",
        "without",
    ]
)
NOMINALS = frozenset(
    [
        "how",
        "nobody",
        "none",
        "nothing",
        "one",
        "that",
        "what",
        "whatever",
        "when",
        "where",
        "whether",
        "which",
        "who",
        "whoever",
        "why",
    ]
)

# Names of functions that say neither what a function does nor what it returns.
PARTICIPLE = re.compile(
    r"_?(asked|bound|changed|counted|cut|found|given|held|kept|left|made|put|read|said|seen|sent|"
    r"shown|split|taken|told|told_by|written|[a-z]+ed)"
)
BARE_PREPOSITIONS = frozenset(
    [
        "after",
        "as",
        "at",
        "before",
        "beside",
        "by",
        "for",
        "from",
        "in",
        "like",
        "of",
        "on",
        "over",
        "since",
        "than",
        "to",
        "under",
        "until",
        "with",
        "without",
    ]
)

IDIOMS = {
    "of which": r"\bof (which|whom|what|whose)\b",
    "who as a subject": r"(?:^|[.:;] )(Who|Whoever) [a-z]+",
    "is none": r"\b(is|are) none\b",
    "has to be": r"\b(has|have) to be\b",
    "anew": r"\b(anew|likewise|at a stroke|by itself|besides|thereby|whereby|whereupon)\b",
    "beside": r"\bbeside\b",
    "is told here": r"\bis (decided|said|told|known|asked|seen) (here|there|by|in|of)\b",
    "nobody or nothing": r"\b(Nobody|Nothing)\b",
}

Place = tuple[str, str]  # the measure, and where


def sources() -> Iterator[Path]:
    for folder in (*FOLDERS, *TEST_FOLDERS):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if GENERATED not in path.parts:
                yield path


def places(path: Path) -> Iterator[Place]:
    """Finds what a file has of each measure."""
    name = str(path.relative_to(ROOT))
    content = path.read_text()
    tree = ast.parse(content)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if not name.startswith(TEST_FOLDERS):
                yield from _check_name(node, name)
            yield from _check_docstring(node, name)

    for line, text in _prose(content, tree):
        for measure, pattern in IDIOMS.items():
            for match in re.finditer(pattern, text, re.M):
                yield measure, f"{name}:{line}: {match[0]}"


def _check_name(node: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> Iterator[Place]:
    where = f"{name}:{node.lineno}: {node.name}"
    if PARTICIPLE.fullmatch(node.name):
        yield "name is a participle", where
    if node.name.strip("_") in BARE_PREPOSITIONS:
        yield "name is a preposition", where


def _check_docstring(node: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> Iterator[Place]:
    where = f"{name}:{node.lineno}: {node.name}"
    words = re.findall(r"[A-Za-z']+", ast.get_docstring(node) or "")
    if not words:
        return
    if words[0].lower() in PREPOSITIONS:
        yield "docstring starts with a preposition", f"{where}: {' '.join(words[:6])}"
    if words[0].lower() in NOMINALS:
        yield "docstring starts with what or who", f"{where}: {' '.join(words[:6])}"


def _prose(content: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yields each comment and each docstring with its line."""
    for token in tokenize.generate_tokens(io.StringIO(content).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node)
            if docstring:
                yield getattr(node, "lineno", 1), docstring


def measure() -> dict[str, list[str]]:
    """Returns the places of each measure."""
    by_measure: dict[str, list[str]] = {}
    for path in sources():
        for name, place in places(path):
            by_measure.setdefault(name, []).append(place)
    return by_measure


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.prose", description=__doc__)
    parser.add_argument("--list", metavar="MEASURE", help="show the places of one measure")
    parser.add_argument("--lower", action="store_true", help="write lower limits")
    arguments = parser.parse_args()

    counts = measure()
    if arguments.list:
        print("\n".join(counts.get(arguments.list, [])))
        return 0

    limits = tomllib.loads(LIMITS.read_text()) if LIMITS.exists() else {}
    names = sorted({*counts, *limits})
    grown = 0
    for name in names:
        count = len(counts.get(name, []))
        limit = limits.setdefault(name, count)
        if count > limit:
            grown += 1
            print(
                f"{name}: {count}, at most {limit} allowed: `python -m tests.prose --list '{name}'`"
            )
        limits[name] = min(count, limit)
    if arguments.lower:
        lines = [f'"{name}" = {limits[name]}\n' for name in names]
        LIMITS.write_text("# Written by `python -m tests.prose --lower`.\n" + "".join(lines))
    return 1 if grown else 0


if __name__ == "__main__":
    sys.exit(main())
