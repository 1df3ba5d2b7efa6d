"""Functions of lists, sets and optionals, and the insertion into maps that some macros use."""

from __future__ import annotations

import itertools
from functools import cmp_to_key

from .. import meter
from ..declarations import Implementation
from ..errors import EvalError
from ..values import (
    MISSING,
    NONE,
    Duration,
    Map,
    Optional,
    Timestamp,
    UInt,
    Value,
    contains,
    key_of,
    no_overload,
    order,
    same,
    type_name,
)
from .operators import add

_SORTABLE = frozenset(
    (
        *("int", "uint", "double", "bool", "string", "bytes"),
        *("google.protobuf.Timestamp", "google.protobuf.Duration"),
    )
)
_COMPARABLE = ("int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes")
# Go's zero of timestamps, in nanoseconds since 1970.
_YEAR_ONE = -62135596800 * 10**9
_ZERO: dict[str, Value] = {"int": 0, "uint": UInt(0), "double": 0.0, "duration": Duration(0)}


# Lists. Two elements count as equal if neither is greater than the other.


def is_sorted(values: list[Value]) -> bool:
    return all(_order(a, b) != 1 for a, b in itertools.pairwise(values))


def _order(left: Value, right: Value) -> int | None:
    try:
        return order(left, right)
    except EvalError:
        return None


def _extreme(name: str, prefer: int) -> Implementation:
    def find_extreme(values: list[Value]) -> Value:
        if not values:
            raise EvalError(f"{name}() of an empty list")
        best = values[0]
        for value in values[1:]:
            if _order(best, value) == prefer:
                best = value
        return best

    return find_extreme


def _sum(zero: Value) -> Implementation:
    def add_up(values: list[Value]) -> Value:
        total = zero
        for value in values:
            total = add(total, value)
        return total

    return add_up


def index_of(values: list[Value], wanted: Value) -> int:
    for index, value in enumerate(values):
        if _equals(value, wanted):
            return index
    return -1


def last_index_of(values: list[Value], wanted: Value) -> int:
    for index in range(len(values) - 1, -1, -1):
        if _equals(values[index], wanted):
            return index
    return -1


def _equals(value: Value, wanted: Value) -> bool:
    return same(value, wanted) is True


def includes(target: Value, wanted: Value) -> bool:
    if isinstance(target, list):
        return any(_equals(value, wanted) for value in target)
    return _equals(target, wanted)


def slice_(values: list[Value], start: int, end: int) -> list[Value]:
    if not 0 <= start <= end <= len(values):
        raise EvalError(f"slice({start}, {end}) of a list with {len(values)} elements")
    return values[start:end]


def flatten(values: list[Value], depth: int = 1) -> list[Value]:
    if not isinstance(values, list):
        raise EvalError("flatten() takes a list")
    if type(depth) is not int:
        raise no_overload("flatten", values, depth)
    if depth < 0:
        raise EvalError("flatten() takes a depth of 0 or more")

    meter.spend(len(values))
    flat: list[Value] = []
    for value in values:
        if isinstance(value, list) and depth:
            flat += flatten(value, depth - 1)
        else:
            flat.append(value)

    return flat


def sort(values: list[Value]) -> list[Value]:
    return sort_by(values, values)


def sort_by(values: list[Value], keys: list[Value]) -> list[Value]:
    if len(values) != len(keys):
        raise EvalError("sortBy() needs one key for each element")
    if not values:
        return values
    # The first key determines the type that all keys must have.
    if type_name(keys[0]) not in _SORTABLE:
        raise EvalError(f"{type_name(keys[0])} has no order to sort by")
    if len({type_name(key) for key in keys}) > 1:
        raise EvalError("the keys to sort by must have one type")

    def compare(left: int, right: int) -> int:
        return _order(keys[left], keys[right]) or 0

    indexes = sorted(range(len(keys)), key=cmp_to_key(compare))
    return [values[index] for index in indexes]


def range_(count: int) -> list[int]:
    if count < 0:
        raise EvalError(f"lists.range() takes 0 or more, got {count}")
    # A list of this length exceeds every cost limit, and would take much memory before its cost is
    # known.
    if count > 10**7:
        raise EvalError(f"lists.range({count}) is beyond any cost limit")
    return list(range(count))


def distinct(values: list[Value]) -> list[Value]:
    kept: list[Value] = []
    for value in values:
        if not any(_equals(value, other) for other in kept):
            kept.append(value)
    return kept


# Sets, which are lists whose order and repetitions do not count


def sets_contain(values: list[Value], part: list[Value]) -> bool:
    return all(contains(values, value) for value in part)


def sets_equivalent(left: list[Value], right: list[Value]) -> bool:
    return sets_contain(left, right) and sets_contain(right, left)


def sets_intersect(left: list[Value], right: list[Value]) -> bool:
    return any(contains(right, value) for value in left)


# Maps and optionals


def insert(target: Map, key: Value, value: Value) -> Map:
    if target.find(key) is not MISSING:
        raise EvalError(f"the key {key!r} is there already")
    return Map({**target.entries, key_of(key): value})


def insert_all(target: Map, more: Map) -> Map:
    for key, value in more.items():
        target = insert(target, key, value)
    return target


def optional_of_non_zero(value: Value) -> Optional:
    """Returns NONE for null, false and 0, and for empty texts, lists and maps."""
    return NONE if _is_zero(value) else Optional(value)


def _is_zero(value: Value) -> bool:
    match value:
        case None:
            return True
        case UInt():
            return value.value == 0
        case Duration():
            return value.nanoseconds == 0
        case Timestamp():
            return value.nanoseconds == _YEAR_ONE
        case bool() | int() | float() | str() | bytes() | list() | Map():
            return not value

    return False


def value_of(optional: Optional) -> Value:
    if not optional.present:
        raise EvalError("optional.none() has no value")
    return optional.value


def unwrap(values: list[Value]) -> list[Value]:
    for value in values:
        if not isinstance(value, Optional):
            raise EvalError("unwrapOpt() takes optionals alone")
    return [value.value for value in values if value.present]


def _unreachable(*_arguments: Value) -> Value:
    raise AssertionError("evaluated by the program itself")


TABLE: dict[str, Implementation] = {
    **{f"isSorted: list<{kind}>.() -> bool": is_sorted for kind in _COMPARABLE},
    **{f"max: list<{kind}>.() -> {kind}": _extreme("max", -1) for kind in _COMPARABLE},
    **{f"min: list<{kind}>.() -> {kind}": _extreme("min", 1) for kind in _COMPARABLE},
    **{f"sum: list<{kind}>.() -> {kind}": _sum(zero) for kind, zero in _ZERO.items()},
    "indexOf: list<A>.(A) -> int": index_of,
    "lastIndexOf: list<A>.(A) -> int": last_index_of,
    "includes: dyn.(dyn) -> bool": includes,
    "slice: list<T>.(int, int) -> list<T>": slice_,
    "reverse: list<T>.() -> list<T>": lambda values: values[::-1],
    "distinct: list<T>.() -> list<T>": distinct,
    "lists.range: (int) -> list<int>": range_,
    **{f"sort: list<{kind}>.() -> list<{kind}>": sort for kind in _COMPARABLE},
    **{
        f"@sortByAssociatedKeys: list<T>.(list<{kind}>) -> list<T>": sort_by for kind in _COMPARABLE
    },
    "first: list<V>.() -> optional<V>": lambda values: Optional(values[0]) if values else NONE,
    "last: list<V>.() -> optional<V>": lambda values: Optional(values[-1]) if values else NONE,
    "sets.contains: (list<T>, list<T>) -> bool": sets_contain,
    "sets.equivalent: (list<T>, list<T>) -> bool": sets_equivalent,
    "sets.intersects: (list<T>, list<T>) -> bool": sets_intersect,
    "cel.@mapInsert: (map<K, V>, K, V) -> map<K, V>": insert,
    "cel.@mapInsert: (map<K, V>, map<K, V>) -> map<K, V>": insert_all,
    "optional.of: (V) -> optional<V>": Optional,
    "optional.ofNonZeroValue: (V) -> optional<V>": optional_of_non_zero,
    "optional.none: () -> optional<V>": lambda: NONE,
    "optional.unwrap: (list<optional<V>>) -> list<V>": unwrap,
    "unwrapOpt: list<optional<V>>.() -> list<V>": unwrap,
    "value: optional<V>.() -> V": value_of,
    "hasValue: optional<V>.() -> bool": lambda optional: optional.present,
    "or: optional<V>.(optional<V>) -> optional<V>": _unreachable,
    "orValue: optional<V>.(V) -> V": _unreachable,
}
UNGUARDED: dict[str, Implementation] = {
    "flatten: list<list<T>>.() -> list<T>": flatten,
    "flatten: list<dyn>.(int) -> list<dyn>": flatten,
}
