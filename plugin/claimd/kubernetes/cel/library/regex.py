"""The functions matches(), find() and findAll() of strings."""

from __future__ import annotations

from .. import meter, regex
from ..errors import EvalError, StepsExceededError


def compile_pattern(pattern: str) -> regex.Pattern:
    """Returns the compiled pattern. Raises EvalError if Kubernetes refuses it."""
    try:
        return regex.compile_pattern(pattern)
    except regex.InvalidPatternError as error:
        raise EvalError(str(error)) from None


def matches(text: str, pattern: str) -> bool:
    try:
        return compile_pattern(pattern).matches(text, meter.spend)
    except regex.TooLargeError as error:
        raise StepsExceededError(str(error)) from None


def find(text: str, pattern: str) -> str:
    found = find_all(text, pattern, 1)
    return found[0] if found else ""


def find_all(text: str, pattern: str, limit: int = -1) -> list[str]:
    """Returns the texts of the first `limit` matches, or of all of them if `limit` is negative."""
    texts: list[str] = []
    try:
        for match in compile_pattern(pattern).find_all(text, meter.spend):
            if len(texts) == limit:
                break
            texts.append(match)
    except regex.TooLargeError as error:
        raise StepsExceededError(str(error)) from None

    return texts
