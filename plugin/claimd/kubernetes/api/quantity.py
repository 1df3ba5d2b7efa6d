"""Kubernetes quantities: amounts as text in the API server's canonical form, and back.

What we send must already be canonical, or the stored object would differ from ours for ever. No
arithmetic here.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fractions import Fraction

LARGEST = 2**63 - 1
# Characters of a text that is read, and what is less than the amounts that are refused: any of them
# can be written, and read again, within what Python does with digits.
LONGEST = 2000
_TOO_LARGE = 10**1200

_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_FORM = re.compile(
    r"(?P<sign>[+-]?)(?P<number>[0-9]+(?:\.[0-9]*)?|\.[0-9]+)"
    r"(?:(?P<binary>[KMGTPE]i)|[eE](?P<exponent>[+-]?[0-9]{1,3})|(?P<decimal>[numkMGTPE]?))"
)


def format_amount(amount: int) -> str:
    """The canonical text of a whole amount: 85899345920 is 80Gi, 1536 is 1536, 2000 is 2k."""
    if not 0 <= amount <= LARGEST:
        raise ValueError(f"a quantity must be between 0 and {LARGEST}, got {amount}")

    number, power = amount, 0
    while number and number % 1024 == 0:
        number, power = number // 1024, power + 1
    if power:
        return f"{number}{_BINARY[power]}"

    # Digits alone are decimal to the API server, so that 2000 would come back as 2k.
    decimal = iter(("", "k", "M", "G", "T", "P", "E"))
    suffix = next(decimal)
    while number and number % 1000 == 0:
        number, suffix = number // 1000, next(decimal)
    return f"{number}{suffix}"


def parse_whole(text: str) -> int:
    """The amount, rounded up to a whole one. ValueError as `parse`."""
    # Nearly all are digits with a binary suffix, or none.
    number = text.rstrip("KMGTPEi")
    suffix = text[len(number) :]
    is_plain = suffix in _BINARY and number.isascii() and number.isdecimal()
    if is_plain and len(text) <= LONGEST:
        return int(number) << (10 * _BINARY.index(suffix))
    return -int(-parse(text) // 1)


def parse(text: str) -> Fraction:
    """The exact amount.

    What is finer than a billionth is rounded away from zero, as the API server does.
    """
    from fractions import Fraction  # a running plugin only writes quantities: spare it the module

    parts = _FORM.fullmatch(text) if len(text) <= LONGEST else None
    if not parts:
        raise ValueError(f"expected a quantity such as 80Gi, 500m or 1e3, got {text[:LONGEST]!r}")

    number = Fraction(parts["number"])
    if parts["binary"]:
        number *= 1024 ** _BINARY.index(parts["binary"])
    elif parts["exponent"]:
        number *= Fraction(10) ** int(parts["exponent"])
    else:
        number *= Fraction(10) ** _DECIMAL[parts["decimal"]]

    if number >= _TOO_LARGE:
        raise ValueError(f"expected a quantity below 1e1200, got {text!r}")
    billionths = -(-number * 10**9 // 1)
    amount = Fraction(billionths, 10**9)
    return -amount if parts["sign"] == "-" else amount
