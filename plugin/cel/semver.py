"""Semantic versions: strict text to a value that compares by precedence, and the lenient reading of
short texts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from .errors import EvalError

_NUMBER = "(?:0|[1-9][0-9]*)"
_FORM = re.compile(
    rf"({_NUMBER})\.({_NUMBER})\.({_NUMBER})(?:-([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?(?:\+([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?"
)
_LARGEST = 2**64 - 1


@dataclass(frozen=True, slots=True, eq=False)
class Semver:
    major: int
    minor: int
    patch: int
    key: tuple[Any, ...]  # orders as precedence does; what follows a + does not count
    text: str

    def compare(self, other: Semver) -> int:
        return (self.key > other.key) - (self.key < other.key)

    def __str__(self) -> str:
        return self.text


@lru_cache(maxsize=4096)
def parse(text: str) -> Semver:
    found = _FORM.fullmatch(text)
    if not found:
        raise EvalError(f"expected a version such as 1.2.3, got {text!r}")
    numbers = tuple(int(found[i]) for i in (1, 2, 3))
    if max(numbers) > _LARGEST:
        raise EvalError(f"a number in the version {text!r} is too large")
    return Semver(
        numbers[0], numbers[1], numbers[2], (*numbers, *_precedence(text, found[4])), text
    )


def _precedence(text: str, pre: str | None) -> tuple[object, ...]:
    """No pre-release is above any; a number is below a word; a longer list is above its own
    beginning.
    """
    if pre is None:
        return (1,)
    parts: list[tuple[int, int, str]] = []
    for part in pre.split("."):
        if not part.isdigit():
            parts.append((1, 0, part))
        elif (len(part) > 1 and part[0] == "0") or int(part) > _LARGEST:
            raise EvalError(
                f"a number in the pre-release of {text!r} starts with 0 or is too large"
            )
        else:
            parts.append((0, int(part), ""))
    return (0, tuple(parts))


def parse_normalized(text: str) -> Semver:
    """v1.2 is 1.2.0 and 01.02.03 is 1.2.3."""
    parts = text.removeprefix("v").split(".", 2)
    for at, part in enumerate(parts):
        if len(part) > 1:
            rest = part.lstrip("0")
            parts[at] = rest if rest and rest[0] in "0123456789" else "0" + rest
    if len(parts) < 3:
        if "+" in parts[-1] or "-" in parts[-1]:
            raise EvalError(f"the short version {text!r} cannot have a pre-release or build")
        parts += ["0"] * (3 - len(parts))
    return parse(".".join(parts))
