"""Compiles what an image has, for good: `bytecode.py PATH …`, folders with all below them, and files.

Docstrings of functions and modules stay in the sources and are left out of the bytecode: nobody asks
a running process for them, and they take up a megabyte of its memory. Those of classes stay, as some
are shown (the OpenAPI of `claimd sim`). Assertions stay as well, which `python -OO` would take.

No date and no hash is compared when a module is loaded, since nothing in an image changes. Where
something does, compiling again renews what has changed and leaves the rest as it stands.
"""

from __future__ import annotations

import ast
import importlib.util
import marshal
import os
import sys
from collections.abc import Iterator
from pathlib import Path

# The source is not looked at: PEP 552, hash-based and unchecked.
_FLAGS = (0b01).to_bytes(4, "little")
_DOCUMENTED = (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef)


def main(paths: list[str]) -> int:
    """0, also where a file is none of this Python's: there are some in the tests of libraries."""
    compiled = 0
    for source in _sources(paths):
        try:
            _write(source)
        except (SyntaxError, ValueError) as error:
            print(f"{source}: not compiled: {error}", file=sys.stderr)
        else:
            compiled += 1
    print(f"{compiled} files compiled")
    return 0 if compiled else 1


def _sources(paths: list[str]) -> Iterator[Path]:
    for path in map(Path, paths):
        if path.is_file():
            yield path
        else:
            yield from sorted(path.rglob("*.py"))


def _write(source: Path) -> None:
    """Leaves bytecode that stands as it is; whoever loads meanwhile has all of the old or the new."""
    content = source.read_bytes()
    head = importlib.util.MAGIC_NUMBER + _FLAGS + importlib.util.source_hash(content)
    target = Path(importlib.util.cache_from_source(str(source), optimization=""))
    if target.exists() and target.read_bytes()[: len(head)] == head:
        return

    code = compile(without_docstrings(content), source, "exec", dont_inherit=True, optimize=0)
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = target.with_name(f"{target.name}.{os.getpid()}")
    beside.write_bytes(head + marshal.dumps(code))
    beside.replace(target)


def without_docstrings(content: bytes) -> ast.Module:
    """The module with every line where it was, without docstrings of functions and of itself."""
    module = ast.parse(content)
    for node in ast.walk(module):
        if not isinstance(node, _DOCUMENTED) or ast.get_docstring(node, clean=False) is None:
            continue
        # What is left empty has to have a statement.
        docstring = node.body.pop(0)
        if not node.body:
            node.body.append(ast.copy_location(ast.Pass(), docstring))
    return module


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1:]))
