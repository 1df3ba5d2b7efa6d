"""Exact amounts as whole billionths, the finest that a quantity can say: integers are fast.

How Kubernetes rounds to steps is in `capacity`, not here.
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
    """A quantity that can be computed with.

    `text` is as it was written, or canonical where it was computed. What is computed from an amount
    in powers of 1024 (`binary`) is written so too.
    """

    billionths: int
    text: str
    binary: bool


@functools.lru_cache(maxsize=4096)
def parse(text: str) -> Amount:
    exact = quantity.parse(text)
    billionths = exact.numerator * (WHOLE // exact.denominator)
    binary = text.endswith("i")
    # The API server limits these, and only these, to the largest 64-bit number.
    if binary:
        billionths = max(-LARGEST * WHOLE, min(billionths, LARGEST * WHOLE))
    return Amount(billionths, text, binary)


def ceiling(billionths: int, unit: int) -> int:
    """How many whole units it takes."""
    return -(-billionths // unit)


def of(billionths: int, binary: bool) -> Amount:
    """A computed amount, with its canonical text."""
    return Amount(billionths, canonical(billionths, binary), binary)


def text_of(billionths: int) -> str:
    """The amount as people write it: in powers of 1024 where it is whole in them."""
    return canonical(billionths, billionths % (1024 * WHOLE) == 0)


def canonical(billionths: int, binary: bool) -> str:
    """The shortest text with a whole number, in powers of 1024 where that is asked and possible."""
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
