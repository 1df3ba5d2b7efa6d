"""Semantic versions: values that compare by precedence, read from strict or from short texts."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from . import digits
from .errors import EvalError

_NUMBER = "(?:0|[1-9][0-9]*)"
_FORM = re.compile(
    rf"({_NUMBER})\.({_NUMBER})\.({_NUMBER})"
    r"(?:-([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?(?:\+([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?"
)
_LARGEST = 2**64 - 1


@dataclass(frozen=True, slots=True, eq=False)
class Semver:
    """A semantic version. `key` orders by precedence: build metadata behind a + does not count."""

    major: int
    minor: int
    patch: int
    key: tuple[Any, ...]
    text: str

    def compare(self, other: Semver) -> int:
        return (self.key > other.key) - (self.key < other.key)

    def __str__(self) -> str:
        return self.text


@lru_cache(maxsize=4096)
def parse(text: str) -> Semver:
    """Reads a strict version. Raises EvalError if Kubernetes does not take the text."""
    match = _FORM.fullmatch(text)
    if not match:
        raise EvalError(f"expected a version such as 1.2.3, got {text!r}")
    major, minor, patch = (digits.parse_int(match[part]) for part in (1, 2, 3))
    if max(major, minor, patch) > _LARGEST:
        raise EvalError(f"a number in the version {text!r} is too large")
    return Semver(major, minor, patch, (major, minor, patch, *_precedence(text, match[4])), text)


def _precedence(text: str, pre_release: str | None) -> tuple[object, ...]:
    """Returns a key that orders versions with the same three numbers.

    A version without a pre-release is above one that has a pre-release. A number is below a word.
    A longer list is above a shorter list that it begins with.
    """
    if pre_release is None:
        return (1,)

    parts: list[tuple[int, int, str]] = []
    for part in pre_release.split("."):
        if not (part.isascii() and part.isdigit()):
            parts.append((1, 0, part))
        elif (len(part) > 1 and part[0] == "0") or digits.parse_int(part) > _LARGEST:
            raise EvalError(
                f"a number in the pre-release of {text!r} starts with 0 or is too large"
            )
        else:
            parts.append((0, digits.parse_int(part), ""))

    return (0, tuple(parts))


def parse_normalized(text: str) -> Semver:
    """Reads a version that need not be strict: v1.2 is 1.2.0, and 01.02.03 is 1.2.3."""
    parts = text.removeprefix("v").split(".", 2)
    # Leading zeros go, but one digit stays.
    for index, part in enumerate(parts):
        if len(part) > 1:
            rest = part.lstrip("0")
            parts[index] = rest if rest and rest[0] in "0123456789" else "0" + rest

    if len(parts) < 3:
        if "+" in parts[-1] or "-" in parts[-1]:
            raise EvalError(f"the short version {text!r} cannot have a pre-release or build")
        parts += ["0"] * (3 - len(parts))

    return parse(".".join(parts))
