"""Integers written by strangers, who may write thousands of digits: Python's own `int` raises then."""

from __future__ import annotations

_MOST = 400  # digits; every number with more is too large for all that is asked of it
_TOO_LARGE: int = 10**_MOST


def parse_int(text: str) -> int:
    """The number that ASCII digits say, perhaps after a sign; of very many, one that is as much too large."""
    if len(text) <= _MOST:
        return int(text)
    digits = text.lstrip("+-").lstrip("0") or "0"
    amount = int(digits) if len(digits) <= _MOST else _TOO_LARGE
    return -amount if text.startswith("-") else amount
