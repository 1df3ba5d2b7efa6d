"""What the makers of tables share: Markdown, our manifests, and words that no code can say."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
WORDS = Path(__file__).with_name("words.toml")
NONE = "–"  # noqa: RUF001  a cell with nothing in it


class Incomplete(Exception):
    """The words and the code do not fit together; the message names what to add or to remove."""


@functools.cache
def words() -> dict[str, Any]:
    return tomllib.loads(WORDS.read_text())


def described(topic: str, names: Iterable[str]) -> dict[str, Any]:
    """The words for exactly these names, in the order of the names."""
    names, rows = list(names), words()[topic]
    missing = [name for name in names if name not in rows]
    stale = [name for name in rows if name not in names]
    if missing or stale:
        raise Incomplete(
            f"{WORDS.relative_to(ROOT)}, table [{topic}]: add {missing or 'nothing'}, "
            f"remove {stale or 'nothing'}; then run `make docs`"
        )
    return {name: rows[name] for name in names}


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|") or " "


def code(text: object) -> str:
    return f"`{text}`"


def maybe_code(text: str) -> str:
    return text if text == NONE else code(text)


def manifests(name: str) -> list[Any]:
    """The documents of a file of deploy/base."""
    return [d for d in yaml.safe_load_all((ROOT / "deploy/base" / name).read_text()) if d]
