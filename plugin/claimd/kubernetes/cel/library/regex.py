"""matches(), find() and findAll(). How patterns are read and matched is in the package `regex`."""

from __future__ import annotations

from .. import meter, regex
from ..errors import EvalError, StepsExceededError


def compiled(pattern: str) -> regex.Pattern:
    """EvalError where Kubernetes refuses the pattern."""
    try:
        return regex.compiled(pattern)
    except regex.InvalidPatternError as error:
        raise EvalError(str(error)) from None


def matches(text: str, pattern: str) -> bool:
    try:
        return compiled(pattern).matches(text, meter.spend)
    except regex.TooLargeError as error:
        raise StepsExceededError(str(error)) from None


def find(text: str, pattern: str) -> str:
    found = find_all(text, pattern, 1)
    return found[0] if found else ""


def find_all(text: str, pattern: str, limit: int = -1) -> list[str]:
    texts: list[str] = []
    try:
        for start, end in compiled(pattern).find_all(text, meter.spend):
            if len(texts) == limit:
                break
            texts.append(text[start:end])
    except regex.TooLargeError as error:
        raise StepsExceededError(str(error)) from None
    return texts
