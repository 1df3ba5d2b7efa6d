"""Integers in the text of users. Python's `int` refuses those with thousands of digits."""

from __future__ import annotations

# Digits. A number with more than these is beyond every limit in this package.
_MOST = 400
_TOO_LARGE: int = 10**_MOST


def parse_int(text: str) -> int:
    """Returns the number that ASCII digits, perhaps after a sign, stand for.

    A number with very many digits becomes another one that is beyond every limit, too.
    """
    # Leading zeros do not make a number large.
    digits = text.lstrip("+-").lstrip("0") or "0"
    amount = int(digits) if len(digits) <= _MOST else _TOO_LARGE
    return -amount if text.startswith("-") else amount
