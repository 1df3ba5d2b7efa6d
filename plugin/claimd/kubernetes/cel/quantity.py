"""Kubernetes quantities as CEL sees them: exact amounts that remember how they were written.

An amount is digits times 10^scale. Whether it counts as an integer depends on how it was written,
as it does for the type of the API server: 1k is an integer, 1000m is not.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from .errors import EvalError

_FORM = re.compile(r"([+-]?)0*([0-9]*)(\.([0-9]*))?([eEinumkKMGTP]*[+-]?[0-9]*)")
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_LARGEST = 2**63 - 1
# Characters. Python refuses to read numbers of some thousand digits.
_LONGEST = 1000
# Amounts that are more decimal places apart than this are compared by their magnitude alone.
_MANY = 400


@dataclass(frozen=True, slots=True, eq=False)
class Quantity:
    """An amount: digits times 10^scale.

    `decimal` is set if Kubernetes keeps the amount in arbitrary precision. Such an amount is never
    an integer. `computed` is set for results of add() and sub(), which are an error in Kubernetes
    on the right of ==.
    """

    digits: int
    scale: int
    decimal: bool = False
    computed: bool = False
    text: str = ""

    @property
    def sign(self) -> int:
        return (self.digits > 0) - (self.digits < 0)

    def compare(self, other: Quantity) -> int:
        """Returns -1, 0 or 1, as compareTo() does."""
        if self.scale == other.scale:
            return (self.digits > other.digits) - (self.digits < other.digits)
        # The signs decide without any arithmetic.
        if self.sign != other.sign or not self.sign:
            return (self.sign > other.sign) - (self.sign < other.sign)
        if abs(self.scale - other.scale) > _MANY:
            longer = self._magnitude > other._magnitude
            return self.sign if longer else -self.sign

        low = min(self.scale, other.scale)
        left = self.digits * _power(self.scale - low)
        right = other.digits * _power(other.scale - low)
        return (left > right) - (left < right)

    @property
    def _magnitude(self) -> int:
        return len(str(abs(self.digits))) + self.scale

    def integer(self) -> int | None:
        """Returns the amount, if Kubernetes takes it for an integer of 64 bits. Otherwise None."""
        if self.decimal or self.scale < 0 or self.scale > 18:
            return None
        amount = self.digits * _power(self.scale)
        return amount if -_LARGEST - 1 <= amount <= _LARGEST else None

    def approximate(self) -> float:
        try:
            return float(self.digits) * 10.0**self.scale if self.scale else float(self.digits)
        except OverflowError:
            return self.sign * float("inf")

    def plus(self, other: Quantity, sign: int = 1) -> Quantity:
        """Returns the sum or, with the sign -1, the difference.

        Raises EvalError if the exact result would have too many digits.
        """
        term = other.digits * sign
        # Kubernetes adds integers of 64 bits as such, with rules of its own for 0 and overflow.
        whole = not self.decimal and not other.decimal
        if whole:
            if not term:
                return Quantity(self.digits, self.scale, computed=True)
            wrapped = self._subtract_least(term, other.scale)
            if wrapped is not None:
                return wrapped
            if not self.digits:
                return Quantity(term, other.scale, computed=True)
        if abs(self.scale - other.scale) > _MANY:
            raise EvalError("these quantities are too far apart to be added")

        low = min(self.scale, other.scale)
        total = self.digits * _power(self.scale - low) + term * _power(other.scale - low)
        fits = whole and -_LARGEST - 1 <= total <= _LARGEST
        return Quantity(total, low, decimal=not fits, computed=True)

    def _subtract_least(self, term: int, scale: int) -> Quantity | None:
        """Returns the result of subtracting the least integer of 64 bits, if Kubernetes wraps it.

        The negation of that integer overflows in Kubernetes, so the term stays negative.
        """
        apart = self.scale - scale
        if term != _LARGEST + 1 or (self.digits and not 0 <= apart <= _MANY):
            return None
        total = (self.digits * _power(apart) if self.digits else 0) - term
        return Quantity(total, scale, computed=True) if total >= -_LARGEST - 1 else None

    def __str__(self) -> str:
        if self.text:
            return self.text
        if self.scale > _MANY:
            return f"{self.digits}e{self.scale}"
        return canonical(self.digits, self.scale)


def _power(exponent: int) -> int:
    return int(10**exponent)


def canonical(digits: int, scale: int) -> str:
    """Returns a short text for a computed amount: such as 3Gi if that is exact, or a decimal one."""
    if not digits:
        return "0"
    if scale >= 0:
        # Binary suffixes divide the amount exactly if its lowest bits are 0.
        amount = digits * 10**scale
        power = min((amount & -amount).bit_length() - 1, 60) // 10
        if power:
            return f"{amount >> (10 * power)}{list(_BINARY)[power - 1]}"
        return str(amount)

    text = f"{abs(digits):0{1 - scale}d}"
    minus = "-" if digits < 0 else ""
    whole, part = text[:scale], text[scale:].rstrip("0")
    return f"{minus}{whole}.{part}" if part else f"{minus}{whole}"


@lru_cache(maxsize=4096)
def parse(text: str) -> Quantity:
    """Returns the amount. Raises EvalError if Kubernetes does not take the text."""
    match = _FORM.fullmatch(text) if len(text) <= _LONGEST else None
    if not match or not text:
        raise EvalError(f"expected a quantity such as 80Gi or 500m, got {text[:_LONGEST]!r}")

    sign = -1 if match[1] == "-" else 1
    whole, part, suffix = match[2] or "0", match[4] or "", match[5]

    if suffix in _DECIMAL:
        return _decimal(text, sign, whole, part, _DECIMAL[suffix])
    if suffix in _BINARY:
        return _binary(text, sign, whole, part, _BINARY[suffix])
    if len(suffix) > 1 and suffix[0] in "eE" and re.fullmatch("[+-]?[0-9]{1,18}", suffix[1:]):
        # Kubernetes keeps the exponent in 32 bits.
        exponent = (int(suffix[1:]) + 2**31) % 2**32 - 2**31
        return _decimal(text, sign, whole, part, exponent)

    raise EvalError(f"unknown suffix {suffix!r} of the quantity {text!r}")


def _decimal(text: str, sign: int, whole: str, part: str, exponent: int) -> Quantity:
    digits, scale = int(whole + part), exponent - len(part)
    if len(whole) + len(part) <= 18 and scale >= -9:
        return Quantity(sign * digits, scale, text=text)
    return _round_up(text, sign, digits, scale)


def _binary(text: str, sign: int, whole: str, part: str, exponent: int) -> Quantity:
    amount = int(whole) << exponent
    # Kubernetes estimates whether the digits fit into 64 bits.
    room = 15 - len(whole) - int(exponent * 3 / 10) - 1
    if not part and room >= 0 and amount <= _LARGEST:
        return Quantity(sign * amount, 0, text=text)

    digits, scale = int(whole + part) << exponent, -len(part)
    largest = _LARGEST * 10 ** len(part)
    if digits > largest:
        digits, scale = _LARGEST, 0
    return _round_up(text, sign, digits, scale)


def _round_up(text: str, sign: int, digits: int, scale: int) -> Quantity:
    """Rounds an amount to billionths, away from zero."""
    if scale < -9:
        digits = -(-digits // 10 ** min(-9 - scale, len(str(digits)) + 1))
        scale = -9
    return Quantity(sign * digits, scale, decimal=True, text=text)
