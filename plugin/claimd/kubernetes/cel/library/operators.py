"""Operators and size(): arithmetic in which an overflow is an error, order, and membership.

The module `closures` implements logic and indexes, since these do not evaluate all their operands.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ..declarations import Implementation
from ..errors import EvalError
from ..values import (
    LARGEST_INT,
    LARGEST_UINT,
    Duration,
    Growing,
    Map,
    Timestamp,
    UInt,
    Value,
    contains,
    equal,
    no_overload,
    order,
)
from . import times

_SMALLEST = -LARGEST_INT - 1


def check_int(amount: int) -> int:
    if _SMALLEST <= amount <= LARGEST_INT:
        return amount
    raise EvalError("integer overflow")


def check_uint(amount: int) -> UInt:
    if 0 <= amount <= LARGEST_UINT:
        return UInt(amount)
    raise EvalError("unsigned integer overflow")


def add(left: Value, right: Value) -> Value:
    kind = type(left)
    if kind is type(right):
        if kind is int:
            return check_int(left + right)
        if kind in (str, float, bytes, list):
            return left + right
        if kind is UInt:
            return check_uint(left.value + right.value)
    if kind in (Duration, Timestamp) and type(right) in (Duration, Timestamp):
        return times.add(left, right)
    if isinstance(left, list) and isinstance(right, list):
        if kind is Growing:
            # Kubernetes changes the list in place, which is visible through its other names.
            left.extend(right)
            return left
        return [*left, *right]

    raise no_overload("+", left, right)


def subtract(left: Value, right: Value) -> Value:
    kind = type(left)
    if kind is type(right):
        if kind is int:
            return check_int(left - right)
        if kind is float:
            return left - right
        if kind is UInt:
            return check_uint(left.value - right.value)
    if kind in (Duration, Timestamp) and type(right) in (Duration, Timestamp):
        return times.subtract(left, right)
    raise no_overload("-", left, right)


def multiply(left: Value, right: Value) -> Value:
    kind = type(left)
    if kind is type(right):
        if kind is int:
            return check_int(left * right)
        if kind is float:
            return left * right
        if kind is UInt:
            return check_uint(left.value * right.value)

    raise no_overload("*", left, right)


def divide(left: Value, right: Value) -> Value:
    kind = type(left)
    if kind is type(right):
        if kind is int:
            return check_int(_divide_integers(left, right))
        if kind is float:
            return _divide_doubles(left, right)
        if kind is UInt:
            return UInt(_divide_integers(left.value, right.value))

    raise no_overload("/", left, right)


def _divide_integers(left: int, right: int) -> int:
    """Divides and rounds towards zero."""
    if right == 0:
        raise EvalError("division by zero")
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def _divide_doubles(left: float, right: float) -> float:
    if right:
        return left / right
    # Python has an error for a division of doubles by 0. Go has NaN or an infinity.
    if not left or math.isnan(left):
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1, right)


def modulo(left: Value, right: Value) -> Value:
    kind = type(left)
    if kind is type(right) and kind in (int, UInt):
        if kind is int:
            return _remainder(left, right)
        return UInt(_remainder(left.value, right.value))
    raise no_overload("%", left, right)


def _remainder(left: int, right: int) -> int:
    """Returns the remainder of a division that rounds towards zero."""
    if right == 0:
        raise EvalError("modulus by zero")
    # Go checks the division for overflow, although the remainder would be 0.
    if left == _SMALLEST and right == -1:
        raise EvalError("integer overflow")
    return left - right * _divide_integers(left, right)


def negate(value: Value) -> Value:
    if type(value) is int:
        return check_int(-value)
    if type(value) is float:
        return -value
    if type(value) is Duration:
        return times.negate(value)
    raise no_overload("-", value)


def invert(value: Value) -> Value:
    if type(value) is bool:
        return not value
    raise no_overload("!", value)


def _comparison(test: Callable[[int], bool]) -> Implementation:
    return lambda left, right: test(order(left, right))


def is_member(value: Value, container: Value) -> bool:
    if isinstance(container, list):
        return contains(container, value)
    if isinstance(container, Map):
        return container.contains(value)
    raise no_overload("in", value, container)


def length(value: Value) -> int:
    if isinstance(value, str | bytes | list | Map):
        return len(value)
    sizer = getattr(value, "cost_size", None)
    if sizer is None:
        raise no_overload("size", value)
    return int(sizer)


def _unreachable(*_arguments: Value) -> Value:
    raise AssertionError("evaluated by the program itself")


_COMPARABLE = ("bool", "int", "uint", "double", "string", "bytes", "timestamp", "duration")
_NUMERIC = ("int", "uint", "double")
_ORDERS: dict[str, Callable[[int], bool]] = {
    "_<_": lambda sign: sign < 0,
    "_<=_": lambda sign: sign <= 0,
    "_>_": lambda sign: sign > 0,
    "_>=_": lambda sign: sign >= 0,
}
TABLE: dict[str, Implementation] = {
    "_&&_: (bool, bool) -> bool": _unreachable,
    "_||_: (bool, bool) -> bool": _unreachable,
    "_?_:_: (bool, A, A) -> A": _unreachable,
    "!_: (bool) -> bool": invert,
    "@not_strictly_false: (bool) -> bool": _unreachable,
    "_==_: (A, A) -> bool": equal,
    "_!=_: (A, A) -> bool": lambda left, right: not equal(left, right),
    "@in: (A, list<A>) -> bool": is_member,
    "@in: (A, map<A, B>) -> bool": is_member,
    "_[_]: (list<A>, int) -> A": _unreachable,
    "_[_]: (map<A, B>, A) -> B": _unreachable,
    "_[_]: (optional<list<V>>, int) -> optional<V>": _unreachable,
    "_[_]: (optional<map<K, V>>, K) -> optional<V>": _unreachable,
    "_[?_]: (list<V>, int) -> optional<V>": _unreachable,
    "_[?_]: (optional<list<V>>, int) -> optional<V>": _unreachable,
    "_[?_]: (map<K, V>, K) -> optional<V>": _unreachable,
    "_[?_]: (optional<map<K, V>>, K) -> optional<V>": _unreachable,
    "_+_: (bytes, bytes) -> bytes": add,
    "_+_: (double, double) -> double": add,
    "_+_: (duration, duration) -> duration": add,
    "_+_: (duration, timestamp) -> timestamp": add,
    "_+_: (timestamp, duration) -> timestamp": add,
    "_+_: (int, int) -> int": add,
    "_+_: (list<A>, list<A>) -> list<A>": add,
    "_+_: (string, string) -> string": add,
    "_+_: (uint, uint) -> uint": add,
    "_-_: (double, double) -> double": subtract,
    "_-_: (duration, duration) -> duration": subtract,
    "_-_: (int, int) -> int": subtract,
    "_-_: (timestamp, duration) -> timestamp": subtract,
    "_-_: (timestamp, timestamp) -> duration": subtract,
    "_-_: (uint, uint) -> uint": subtract,
    **{f"_*_: ({kind}, {kind}) -> {kind}": multiply for kind in ("double", "int", "uint")},
    **{f"_/_: ({kind}, {kind}) -> {kind}": divide for kind in ("double", "int", "uint")},
    **{f"_%_: ({kind}, {kind}) -> {kind}": modulo for kind in ("int", "uint")},
    "-_: (double) -> double": negate,
    "-_: (int) -> int": negate,
    **{
        f"{name}: ({left}, {right}) -> bool": _comparison(test)
        for name, test in _ORDERS.items()
        for left in _COMPARABLE
        for right in (_NUMERIC if left in _NUMERIC else (left,))
    },
    **{
        f"size: {form} -> int": length
        for kind in ("bytes", "list<A>", "map<A, B>", "string")
        for form in (f"({kind})", f"{kind}.()")
    },
}
