"""Tests of the image's bytecode: compiled without the docstrings of functions and modules, and nothing else
of it missing.
"""

import importlib.util
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TOOL = ROOT / "deploy/bytecode.py"

SOURCE = '''"""A module."""

from __future__ import annotations


class Kind:
    """A class."""

    def method(self) -> str:
        """A method."""
        return "method"

    async def empty(self) -> None:
        """No more than this."""


def outer(value: int) -> int:
    """A function."""

    def inner() -> int:
        """Within it."""
        assert value, "asserted"
        return 1 // value

    return inner()


TEXT = (lambda: """no docstring""")()
'''


def compiled(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, TOOL, folder], capture_output=True, text=True, check=False
    )


def bytecode(source: Path) -> Path:
    return Path(importlib.util.cache_from_source(source, optimization=""))


def told(folder: Path, code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-B", "-c", code], capture_output=True, text=True, check=False, cwd=folder
    )


def test_functions_and_modules_lose_their_docstrings_and_nothing_else(tmp_path):
    (tmp_path / "sample.py").write_text(SOURCE)
    assert compiled(tmp_path).stdout == "1 files compiled\n"

    done = told(
        tmp_path,
        "import sample as s, asyncio\n"
        "print(s.__doc__, s.outer.__doc__, s.Kind.method.__doc__, s.Kind.empty.__doc__)\n"
        "print(s.Kind.__doc__, s.TEXT, s.Kind().method(), asyncio.run(s.Kind().empty()))",
    )

    assert done.stdout == "None None None None\nA class. no docstring method None\n", done.stderr


def test_assertions_and_the_numbers_of_lines_stay(tmp_path):
    (tmp_path / "sample.py").write_text(SOURCE)
    compiled(tmp_path)

    done = told(tmp_path, "import sample; sample.outer(0)")

    line = SOURCE.splitlines().index('        assert value, "asserted"') + 1
    assert "AssertionError: asserted" in done.stderr
    assert f'sample.py", line {line}, in inner' in done.stderr


def test_the_source_is_not_looked_at(tmp_path):
    source = tmp_path / "sample.py"
    source.write_text(SOURCE)
    compiled(tmp_path)
    source.write_text("raise SystemExit('the source was loaded')")

    assert told(tmp_path, "import sample; print(sample.TEXT)").stdout == "no docstring\n"


def test_files_are_compiled_by_name(tmp_path):
    (tmp_path / "sample.py").write_text(SOURCE)
    (tmp_path / "other.py").write_text(SOURCE)
    assert compiled(tmp_path / "sample.py").stdout == "1 files compiled\n"
    assert [file.name.split(".")[0] for file in (tmp_path / "__pycache__").iterdir()] == ["sample"]


def test_compiled_again_what_has_changed_is_new_and_the_rest_stands(tmp_path):
    changed, kept = tmp_path / "changed.py", tmp_path / "kept.py"
    for source in (changed, kept):
        source.write_text("VALUE = 1")
    compiled(tmp_path)
    before = bytecode(kept).stat().st_ino

    changed.write_text("VALUE = 2")
    compiled(tmp_path)

    assert told(tmp_path, "import changed; print(changed.VALUE)").stdout == "2\n"
    assert bytecode(kept).stat().st_ino == before
    assert len(list((tmp_path / "__pycache__").iterdir())) == 2, "something is left beside them"


def test_bytecode_that_python_has_written_itself_is_replaced(tmp_path):
    source = tmp_path / "sample.py"
    source.write_text(SOURCE)
    subprocess.run([sys.executable, "-m", "compileall", "-q", tmp_path], check=True)
    compiled(tmp_path)
    assert told(tmp_path, "import sample; print(sample.__doc__)").stdout == "None\n"


def test_what_is_no_python_is_named_and_costs_nothing_else(tmp_path):
    (tmp_path / "sample.py").write_text(SOURCE)
    (tmp_path / "bad.py").write_text("def (")

    done = compiled(tmp_path)

    assert (done.returncode, done.stdout) == (0, "1 files compiled\n")
    assert f"{tmp_path}/bad.py: not compiled: " in done.stderr
    assert compiled(tmp_path / "nothing").returncode == 1


def test_the_image_is_compiled_by_it():
    text = (ROOT / "deploy/Containerfile").read_text()
    assert "python /tmp/bytecode.py /opt/claimd/lib " in text
    assert "compileall" not in text
