"""The pages themselves: generated tables between markers, commands, and links.

Three kinds of code blocks matter here. What stands after `$ ` in a block of the language `console`
is run, in a folder of the page's own, and what follows it is its output (`…` stands for anything).
In every other block, and in `code`, commands of claimd are only parsed: their verbs and flags have
to exist. The blocks of Python of one page are run, too, one after the other, and a block of the
language `text` after them has what they print.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from claimd.tools.cli import parser

from . import common, tables

ROOT = common.ROOT
FILES = Path(__file__).with_name("files")  # what the commands of the pages read

LONGEST_LINE = 120

GENERATED = re.compile(r"^<!-- generated: (?P<name>[a-z]+) -->\n.*?^<!-- end -->$", re.M | re.S)
FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w*)\n(?P<body>.*?)^ *```$", re.M | re.S)
LINK = re.compile(r"\[[^\]]*\]\((?!https?://|mailto:)(?P<target>[^)\s]*)\)")
HEADING = re.compile(r"^#+ +(.*?) *$", re.M)


def pages() -> list[Path]:
    """Lists all pages that people read, and the one page that is a test case."""
    return [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / "ARCHITECTURE.md",
        *sorted((ROOT / "docs").rglob("*.md")),
        ROOT / "tests" / "README.md",
        ROOT / "tests" / "cases" / "explain-beside-kubectl.md",
        *sorted((ROOT / "deploy").rglob("*.md")),
    ]


# ---------------------------------------------------------------- generated tables


def _with_short_lines(content: str) -> str:
    """Wraps the prose of a generated block. Rows of tables and blocks of code keep their lines."""
    if "```" in content:
        return content
    lines = []
    for line in content.splitlines():
        if line.startswith(("|", "<", "#", "    ")):
            lines.append(line)
        else:
            lines += textwrap.wrap(
                line, LONGEST_LINE, break_long_words=False, break_on_hyphens=False
            ) or [""]
    return "\n".join(lines)


def long_lines(text: str) -> list[str]:
    """Lists the lines of prose that are too long. Rows of tables and blocks of code may be longer."""
    prose = FENCE.sub("", text)
    return [
        line
        for line in prose.splitlines()
        if len(line) > LONGEST_LINE and not line.startswith(("|", "    "))
    ]


def regenerated(text: str) -> str:
    """The page with its tables made anew."""

    def fill(block: re.Match[str]) -> str:
        name = block["name"]
        if name not in tables.TABLES:
            raise common.Incomplete(f"no table is called {name!r}, see tests/docs/tables.py")
        content = _with_short_lines(tables.TABLES[name]())
        return f"<!-- generated: {name} -->\n\n{content}\n\n<!-- end -->"

    return GENERATED.sub(fill, text)


# ---------------------------------------------------------------- commands that are parsed


def claimd_commands(text: str) -> Iterator[str]:
    """Commands in code blocks and in `code`, as far as one line goes; without what follows a pipe."""
    spans = [block["body"] for block in FENCE.finditer(text)]
    without_fences = FENCE.sub("", text)
    spans += re.findall(r"(?m)^ {4}(\S.*)$", without_fences)
    spans += [
        span for span in re.findall(r"`([^`\n]+)`", without_fences) if span.startswith("claimd ")
    ]
    for span in spans:
        for line in span.replace("\\\n", " ").splitlines():
            typed = re.sub(r"^\s*(\$ |run: )?", "", line)
            match = re.match(r"(?:kubectl [^\n]*-- )?(?:\.venv/bin/)?claimd (.*)", typed)
            if match:
                yield re.split(r"\s+(?:#|\||>|&|2>)|;", match[1])[0].strip(" `")


def refusal(command: str) -> str:
    """Why claimd's own parser does not take these words; empty if it does."""
    if "…" in command or command.startswith("COMMAND"):
        return ""  # a sentence that begins with claimd, or any command
    given = shlex.split(command)
    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
            parser.parse(given)
    except SystemExit as left:
        # A sentence may name a command without what it needs.
        is_named = all(word.isalpha() for word in given) and "required" in errors.getvalue()
        if left.code and not is_named:
            return errors.getvalue().strip().splitlines()[-1]
    return ""


# ---------------------------------------------------------------- commands that are run


@dataclass(frozen=True)
class Step:
    """A command and what the page says that it prints."""

    command: str
    output: str


def console_blocks(text: str) -> Iterator[tuple[re.Match[str], list[Step]]]:
    for block in FENCE.finditer(text):
        if block["language"] == "console":
            yield block, _steps(block["body"])


def _steps(body: str) -> list[Step]:
    steps: list[Step] = []
    for part in re.split(r"^\$ ", body, flags=re.M)[1:]:
        command, _, output = part.partition("\n")
        steps.append(Step(command, output))
    return steps


def furnish(folder: Path) -> None:
    """Puts what the commands of the pages read into their folder."""
    shutil.copytree(FILES, folder, dirs_exist_ok=True)
    shutil.copy(ROOT / "deploy/base/deviceclasses.yaml", folder)


def run(step: Step, folder: Path) -> str:
    """What the command really prints, its complaints included. It runs as in a clean terminal."""
    environment = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(folder),
        "COLUMNS": "100",
        "LC_ALL": "C.UTF-8",
    }
    done = subprocess.run(
        ["bash", "-c", step.command],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )
    return done.stdout


def agrees(said: str, seen: str) -> bool:
    """`…` stands for anything, also for several lines; times and host names differ by nature."""
    pattern = ".*".join(re.escape(part) for part in said.strip("\n").split("…"))
    return re.fullmatch(pattern, seen.strip("\n"), re.S) is not None


def replayed(text: str, folder: Path) -> str:
    """The page with the output of each command that prints something else than it says."""
    page = text
    for block, steps in console_blocks(text):
        body = block["body"]
        for step in steps:
            seen = run(step, folder)
            if not agrees(step.output, seen):
                body = body.replace(f"$ {step.command}\n{step.output}", f"$ {step.command}\n{seen}")
        page = page.replace(block["body"], body)
    return page


# ---------------------------------------------------------------- Python that is run

PYTHON_PAGE = ROOT / "docs/python.md"


@dataclass(frozen=True)
class PythonBlock:
    """Code, what the page says that it prints, and where the page says it."""

    code: str
    output: str = ""
    place: slice | None = None

    @property
    def needs_client(self) -> bool:
        """True for code that uses the official client, which is not among our requirements."""
        return "from kubernetes import" in self.code


def python_blocks(text: str) -> list[PythonBlock]:
    blocks = []
    fences = list(FENCE.finditer(text))
    for fence, following in zip(fences, [*fences[1:], None], strict=True):
        if fence["language"] != "python":
            continue
        output, place = "", None
        # Nothing but blank lines is between the code and its output.
        is_next = following and not text[fence.end() : following.start()].strip()
        if following and is_next and following["language"] == "text":
            output = following["body"]
            place = slice(following.start("body"), following.end("body"))
        blocks.append(PythonBlock(fence["body"], output, place))
    return blocks


def run_python(blocks: list[PythonBlock]) -> list[str]:
    """What each block prints. Later blocks know the names of earlier ones."""
    names: dict[str, object] = {"__name__": "page"}
    printed = []
    for block in blocks:
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            exec(compile(block.code, str(PYTHON_PAGE), "exec"), names)
        printed.append("\n".join(line.rstrip() for line in output.getvalue().splitlines()))
    return printed


def with_output_of_python(text: str) -> str:
    """The page with the output that its blocks of Python have now."""
    blocks = [block for block in python_blocks(text) if not block.needs_client]
    printed = run_python(blocks)
    for block, output in reversed(list(zip(blocks, printed, strict=True))):
        if block.place and not agrees(block.output, output):
            text = f"{text[: block.place.start]}{output}\n{text[block.place.stop :]}"
    return text


# ---------------------------------------------------------------- messages that are quoted


@functools.cache
def strings_of_the_program() -> tuple[str, ...]:
    """Every text in the sources and the manifests; of one with values in it, each piece."""
    texts = [(ROOT / "deploy/base/admission.yaml").read_text()]
    for package in ("devices", "plugin"):
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    texts.append(node.value)
    return tuple(texts)


def is_said(quote: str, strings: tuple[str, ...]) -> bool:
    """Whether each piece of a quotation, `…` left out, is in a text of the program."""
    for part in quote.split("…"):
        piece = part.strip(" :,")
        if len(piece) > 2 and not any(piece in string for string in strings):
            return False
    return True


# ---------------------------------------------------------------- links


def dead_links(page: Path) -> list[str]:
    """Relative links that lead nowhere, and anchors that no heading has."""
    dead = []
    text = FENCE.sub("", page.read_text())
    for link in LINK.finditer(text):
        place, _, anchor = link["target"].partition("#")
        target = (page.parent / place).resolve() if place else page
        is_dead = not target.exists()
        if anchor and target.suffix == ".md":
            is_dead = is_dead or anchor not in anchors(target)
        if is_dead:
            dead.append(link["target"])
    return dead


def anchors(page: Path) -> set[str]:
    """As GitHub makes them of headings."""
    anchors_ = set()
    for title in HEADING.findall(FENCE.sub("", page.read_text())):
        plain = re.sub(r"[^\w\- ]", "", title.lower())
        anchors_.add(plain.replace(" ", "-"))
    return anchors_
