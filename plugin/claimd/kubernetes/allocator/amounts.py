"""Exact amounts of counters and capacities, as integers that count billionths.

A Kubernetes quantity cannot be finer than a billionth, and integers are fast. The rounding of
capacity requests to steps is in `capacity`.
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
    """A quantity as a number and as text.

    `text` is the original text, or the canonical text of a computed amount. `binary` is True if the
    text uses suffixes for powers of 1024, such as Gi. Amounts that are computed from it use them
    too.
    """

    billionths: int
    text: str
    binary: bool


@functools.lru_cache(maxsize=4096)
def parse(text: str) -> Amount:
    """Parses a quantity. ValueError if the text is not one."""
    exact = quantity.parse(text)
    billionths = exact.numerator * (WHOLE // exact.denominator)
    binary = text.endswith("i")
    # The API server limits binary quantities, and only those, to 64-bit integers.
    if binary:
        billionths = max(-LARGEST * WHOLE, min(billionths, LARGEST * WHOLE))
    return Amount(billionths, text, binary)


def ceiling(billionths: int, unit: int) -> int:
    """Returns the amount in units, rounded up."""
    return -(-billionths // unit)


def from_billionths(billionths: int, binary: bool) -> Amount:
    """Returns a computed amount with its canonical text."""
    return Amount(billionths, canonical(billionths, binary), binary)


def format_billionths(billionths: int) -> str:
    """Returns the text of an amount, in powers of 1024 if it is a multiple of 1024."""
    return canonical(billionths, billionths % (1024 * WHOLE) == 0)


def canonical(billionths: int, binary: bool) -> str:
    """Returns the shortest text with an integer, in powers of 1024 if `binary` and possible."""
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
