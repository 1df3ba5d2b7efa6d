"""Exact amounts as whole billionths, the finest that a quantity can say: integers add and compare
fast.

How Kubernetes rounds to steps is in capacity.py, not here.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

from ..api import quantity

WHOLE = 10**9
MILLI = 10**6
LARGEST = 2**63 - 1

_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DECIMAL = ("n", "u", "m", "", "k", "M", "G", "T", "P", "E")


class Amount(NamedTuple):
    billionths: int
    text: str  # as it was written, or its canonical form where it was computed
    binary: bool = False  # written in powers of 1024: what is computed from it is written so too


@functools.lru_cache(maxsize=4096)
def parse(text: str) -> Amount:
    exact = quantity.parse(text)
    billionths = exact.numerator * (WHOLE // exact.denominator)
    binary = text.endswith("i")
    if binary:  # the API server cuts these, and only these, at the largest 64-bit number
        billionths = max(-LARGEST * WHOLE, min(billionths, LARGEST * WHOLE))
    return Amount(billionths, text, binary)


def ceiling(billionths: int, unit: int) -> int:
    """How many whole units it takes."""
    return -(-billionths // unit)


def of(billionths: int, binary: bool) -> Amount:
    """A computed amount, with its canonical text."""
    return Amount(billionths, canonical(billionths, binary), binary)


def canonical(billionths: int, binary: bool) -> str:
    if billionths == 0:
        return "0"
    if binary and abs(billionths) >= 1024 * WHOLE and billionths % WHOLE == 0:
        number, power = billionths // WHOLE, 0
        while number % 1024 == 0 and power + 1 < len(_BINARY):
            number, power = number // 1024, power + 1
        return f"{number}{_BINARY[power]}"
    number, power = billionths, 0
    while number % 1000 == 0 and power + 1 < len(_DECIMAL):
        number, power = number // 1000, power + 1
    return f"{number}{_DECIMAL[power]}"
