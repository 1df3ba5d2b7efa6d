"""Kubernetes quantities: formats amounts in the API server's canonical form, and parses them.

The API server stores a quantity in its canonical form. If claimd sent another form, the stored
object would differ from its own on every comparison.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fractions import Fraction

LARGEST = 2**63 - 1
# Limits for a text and for its amount. Python refuses to convert integers of more than 4,300
# digits, and every amount below these limits stays within that.
LONGEST = 2000
_TOO_LARGE = 10**1200

# No usual quantity has more characters, and none with fewer is too large.
_USUAL = 100

_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_FORM = re.compile(
    r"(?P<sign>[+-]?)(?P<number>[0-9]+(?:\.[0-9]*)?|\.[0-9]+)"
    r"(?:(?P<binary>[KMGTPE]i)|[eE](?P<exponent>[+-]?[0-9]{1,3})|(?P<decimal>[numkMGTPE]?))"
)


def format_amount(amount: int) -> str:
    """Returns the canonical text of a whole amount: 85899345920 is 80Gi, 1536 is 1536, 2000 is 2k.

    Raises ValueError for an amount below 0 or above LARGEST.
    """
    if not 0 <= amount <= LARGEST:
        raise ValueError(f"a quantity must be between 0 and {LARGEST}, got {amount}")

    # A multiple of 1024 gets a binary suffix.
    number, power = amount, 0
    while number and number % 1024 == 0:
        number, power = number // 1024, power + 1
    if power:
        return f"{number}{_BINARY[power]}"

    # The API server takes digits without a suffix for decimal and would change 2000 to 2k.
    decimal = iter(("", "k", "M", "G", "T", "P", "E"))
    suffix = next(decimal)
    while number and number % 1000 == 0:
        number, suffix = number // 1000, next(decimal)
    return f"{number}{suffix}"


def parse_whole(text: str) -> int:
    """Returns the amount, rounded up to a whole number. Raises ValueError as `parse` does."""
    # A fast path for nearly all quantities: digits, perhaps with a binary suffix.
    number = text.rstrip("KMGTPEi")
    suffix = text[len(number) :]
    is_plain = suffix in _BINARY and number.isascii() and number.isdecimal()
    if is_plain and len(text) <= _USUAL:
        return int(number) << (10 * _BINARY.index(suffix))
    return -int(-parse(text) // 1)


def parse(text: str) -> Fraction:
    """Returns the exact amount. Raises ValueError if the text is not a quantity.

    Like the API server, rounds fractions of a billionth away from zero.
    """
    # The plugin seldom parses a quantity that the fast path cannot, so it does without this module.
    from fractions import Fraction

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
