"""Functions of quantities and versions, which are types of Kubernetes."""

from __future__ import annotations

from ..declarations import Implementation
from ..errors import EvalError
from ..quantity import Quantity
from ..quantity import parse as parse_quantity
from ..semver import Semver, parse_normalized
from ..semver import parse as parse_semver


def parses(read: Implementation, text: str) -> bool:
    try:
        read(text)
    except EvalError:
        return False
    return True


def integer(value: Quantity) -> int:
    amount = value.integer()
    if amount is None:
        raise EvalError(f"the quantity {value} is not written as an integer of 64 bits")
    return amount


def _whole(amount: int) -> Quantity:
    return Quantity(amount, 0)


def semver(text: str, normalize: bool) -> Semver:
    return parse_normalized(text) if normalize else parse_semver(text)


TABLE: dict[str, Implementation] = {
    "quantity: (string) -> quantity": parse_quantity,
    "isQuantity: (string) -> bool": lambda text: parses(parse_quantity, text),
    "sign: (quantity) -> int": lambda value: value.sign,
    "isGreaterThan: quantity.(quantity) -> bool": lambda left, right: left.compare(right) > 0,
    "isLessThan: quantity.(quantity) -> bool": lambda left, right: left.compare(right) < 0,
    "compareTo: quantity.(quantity) -> int": Quantity.compare,
    "asApproximateFloat: quantity.() -> double": Quantity.approximate,
    "asInteger: quantity.() -> int": integer,
    "isInteger: quantity.() -> bool": lambda value: value.integer() is not None,
    "add: quantity.(quantity) -> quantity": Quantity.plus,
    "add: quantity.(int) -> quantity": lambda value, amount: value.plus(_whole(amount)),
    "sub: quantity.(quantity) -> quantity": lambda value, other: value.plus(other, -1),
    "sub: quantity.(int) -> quantity": lambda value, amount: value.plus(_whole(amount), -1),
    "semver: (string) -> semver": parse_semver,
    "semver: (string, bool) -> semver": semver,
    "isSemver: (string) -> bool": lambda text: parses(parse_semver, text),
    "isSemver: (string, bool) -> bool": lambda text, normalize: parses(
        lambda t: semver(t, normalize), text
    ),
    "isGreaterThan: semver.(semver) -> bool": lambda left, right: left.compare(right) > 0,
    "isLessThan: semver.(semver) -> bool": lambda left, right: left.compare(right) < 0,
    "compareTo: semver.(semver) -> int": Semver.compare,
    "major: semver.() -> int": lambda value: _to_int(value.major),
    "minor: semver.() -> int": lambda value: _to_int(value.minor),
    "patch: semver.() -> int": lambda value: _to_int(value.patch),
}


def _to_int(number: int) -> int:
    """Returns an unsigned number of 64 bits as a signed one, which may wrap as in Kubernetes."""
    return number - 2**64 if number >= 2**63 else number
