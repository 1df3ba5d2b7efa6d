"""The values of expressions, with CEL's equality, order and size.

Values of the types bool, int, str, float, bytes, None and list are Python's own. The classes of the
other types are here. CEL's rules differ from Python's: True is not 1, and 1, 1u and 1.0 are equal.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from . import meter
from .errors import EvalError
from .quantity import Quantity
from .semver import Semver

Value = Any  # of one of the types in NAMES
LARGEST_INT: Final = 2**63 - 1
LARGEST_UINT: Final = 2**64 - 1


@dataclass(frozen=True, slots=True)
class UInt:
    value: int


@dataclass(frozen=True, slots=True)
class Duration:
    nanoseconds: int


@dataclass(frozen=True, slots=True)
class Timestamp:
    """Nanoseconds since 1970.

    `offset` is the offset from UTC in seconds, as it was written. Comparisons ignore it.
    """

    nanoseconds: int
    offset: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class TypeValue:
    """A type as a value: the result of type(x), or the meaning of the name `int`."""

    name: str


@dataclass(frozen=True, slots=True, eq=False)
class Optional:
    """A value that may be missing. NONE stands for a missing one."""

    value: Value = None

    @property
    def present(self) -> bool:
        return self is not NONE


NONE: Final = Optional()


class Missing:
    """The mark for a key that is not there. It is never the value of an expression."""


MISSING: Final = Missing()


class Growing(list[Any]):
    """A list that began empty, as an accumulator or by cel.bind(). `+` changes it in place.

    Kubernetes does the same, so that everything that holds the list sees the change.
    """


class Map:
    """A map. Its keys are of the types bool, int, uint, double and string.

    An entry keeps the type of its key: find() treats equal numbers of different types as one key.
    `default` is the value of keys that are not there.
    """

    __slots__ = ("default", "entries")

    def __init__(self, entries: dict[Any, Value], default: Value = MISSING) -> None:
        self.entries = entries
        self.default = default

    @classmethod
    def from_pairs(cls, pairs: Iterable[tuple[Value, Value]]) -> Map:
        return cls({key_of(key): value for key, value in pairs})

    def find(self, key: Value) -> Value:
        """Returns the value of the key, or the map's `default` if it has none.

        Equal numbers of different types find the same key.
        """
        entries = self.entries
        # Nearly all keys are texts, which have a single form.
        if type(key) is str:
            return entries.get(key, self.default)
        for form in _forms(key):
            if form in entries:
                return entries[form]
        return self.default

    def contains(self, key: Value) -> bool:
        return any(form in self.entries for form in _forms(key))

    def keys(self) -> Iterator[Value]:
        return map(_key_itself, self.entries)

    def items(self) -> Iterator[tuple[Value, Value]]:
        return ((_key_itself(key), value) for key, value in self.entries.items())

    def __len__(self) -> int:
        return len(self.entries)


def key_of(key: Value) -> object:
    """Returns the key under which Map.entries has a value. It includes the type."""
    kind = type(key)
    if kind is str:
        return key
    return (kind, key) if kind in _HASHABLE else (kind, _ById(key))


class _ById:
    """A key that cannot be hashed. It finds its value only by identity."""

    __slots__ = ("key",)

    def __init__(self, key: Value) -> None:
        self.key = key

    def __hash__(self) -> int:
        return id(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ById) and self.key is other.key


def _key_itself(form: Any) -> Value:
    """Returns the key that key_of() was called with."""
    if type(form) is str:
        return form
    key = form[1]
    return key.key if type(key) is _ById else key


_HASHABLE = (bool, int, float, UInt, Duration, Timestamp, type(None), TypeValue, str)


def _forms(key: Value) -> Iterator[object]:
    """Yields the key in the form of each type under which it may be found."""
    yield key_of(key)
    kind = type(key)
    if kind is float and math.isfinite(key) and key == int(key):
        yield (int, int(key))
        yield (UInt, UInt(int(key)))
    elif kind is int:
        yield (UInt, UInt(key))
    elif kind is UInt:
        yield (int, key.value)


NAMES: Final[dict[type, str]] = {
    bool: "bool",
    int: "int",
    UInt: "uint",
    float: "double",
    str: "string",
    bytes: "bytes",
    type(None): "null_type",
    list: "list",
    Growing: "list",
    Map: "map",
    Duration: "google.protobuf.Duration",
    Timestamp: "google.protobuf.Timestamp",
    TypeValue: "type",
    Optional: "optional_type",
    Quantity: "kubernetes.Quantity",
    Semver: "kubernetes.Semver",
}


def type_name(value: Value) -> str:
    return NAMES[type(value)]


def no_overload(function: str, *arguments: Value) -> EvalError:
    names = ", ".join(map(type_name, arguments))
    return EvalError(f"{function} does not take ({names})")


def _number(value: Value) -> int | float:
    return value.value if type(value) is UInt else value


_NUMBERS = (int, float, UInt)


def order(left: Value, right: Value) -> int:
    """Returns -1, 0 or 1. Raises EvalError if CEL has no order between these types."""
    kind, other = type(left), type(right)
    if kind in _NUMBERS and other in _NUMBERS:
        return _numeric(left, right)
    if kind is other:
        if kind is str:
            # Go compares the bytes of UTF-8, which has the same order as code points.
            return -1 if left < right else int(left > right)
        if kind in (bytes, bool):
            return int(left > right) - int(left < right)
        if kind is Duration or kind is Timestamp:
            later, sooner = left.nanoseconds, right.nanoseconds
            return int(later > sooner) - int(later < sooner)

    raise no_overload("a comparison", left, right)


def _numeric(left: Value, right: Value) -> int:
    a, b = _number(left), _number(right)
    if type(a) is float or type(b) is float:
        if math.isnan(a) or math.isnan(b):
            raise EvalError("NaN has no order")
        if type(a) is not type(b):
            with_int = int in (type(left), type(right))
            limits = (-(2**63), LARGEST_INT) if with_int else (0, LARGEST_UINT)
            a, b = _to_common_type(a, b, limits)

    return (a > b) - (a < b)


def _to_common_type(a: float, b: float, limits: tuple[int, int]) -> tuple[float, float]:
    """Makes doubles of an integer and a double, unless the double is out of the integer's range."""
    low, high = limits
    double = a if type(a) is float else b
    # Kubernetes compares an integer on the right exactly if the double is out of range. So does
    # Python if the integer stays an integer.
    if type(a) is float and (double < low or double > float(high)):
        return a, b
    return float(a), float(b)


def equal(left: Value, right: Value) -> bool:
    """Compares by CEL's ==. Raises EvalError as Kubernetes does, as for a quantity and a number."""
    kind, other = type(left), type(right)
    # null equals only null. A comparison with it is never an error.
    if left is None or right is None:
        return left is right
    if kind is other:
        if kind in (str, int, bool, bytes, UInt, Duration, TypeValue, float):
            return bool(left == right)
        return _same_kind(left, right)
    if kind in _NUMBERS and other in _NUMBERS:
        if (kind is float and math.isnan(left)) or (other is float and math.isnan(right)):
            return False
        return _numeric(left, right) == 0
    # A quantity, version or address cannot be compared with a value of another type.
    if kind in STRICT:
        raise no_overload("==", left, right)
    return False


def _same_kind(left: Value, right: Value) -> bool:
    if isinstance(left, list):
        return _same_list(left, right)
    if isinstance(left, Map):
        return _same_map(left, right)
    if isinstance(left, Quantity):
        if right.computed:
            raise EvalError("== does not take a computed quantity on its right: use compareTo()")
        return left.compare(right) == 0
    if isinstance(left, Semver):
        return left.compare(right) == 0
    if isinstance(left, Timestamp):
        return bool(left.nanoseconds == right.nanoseconds)
    if isinstance(left, Optional):
        if left.present and right.present:
            return equal(left.value, right.value)
        return left.present is right.present

    return bool(left == right)


def same(left: Value, right: Value) -> bool | None:
    """Compares as equal() does, but returns None for an error.

    In lists and maps, elements whose comparison is an error do not count as different.
    """
    try:
        return equal(left, right)
    except EvalError:
        return None


def _same_list(left: list[Value], right: list[Value]) -> bool:
    if len(left) != len(right):
        return False
    # A list may hold another one many times, so that few elements take many comparisons.
    meter.spend(4 + len(left))
    return all(same(a, b) is not False for a, b in zip(left, right, strict=True))


def _same_map(left: Map, right: Map) -> bool:
    if len(left) != len(right):
        return False

    meter.spend(4 + len(left))
    for key, value in left.items():
        other = right.find(key)
        if other is MISSING or same(value, other) is False:
            return False

    return True


def contains(values: list[Value], wanted: Value) -> bool:
    """Returns True if the value is in the list. An element that cannot be compared does not match.

    The wanted value stands on the left of the comparison, as in Kubernetes, since the left side
    determines which comparisons are errors.
    """
    return any(same(wanted, value) for value in values)


# The types for which == with a value of another type is an error. The library adds its own.
STRICT: set[type] = {Quantity, Semver}


def size(value: Value) -> int:
    """Returns the size by which costs are computed. It is 1 for a value without a size."""
    if isinstance(value, str | bytes | list | Map):
        return len(value)
    if isinstance(value, Optional) and value.present:
        return size(value.value)
    sizer = getattr(value, "cost_size", None)
    return 1 if sizer is None else int(sizer)
