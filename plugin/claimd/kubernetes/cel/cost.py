"""The cost of calls when they run, in Kubernetes' units. The limit for one device is 1,000,000."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from . import meter
from .library.formats import Format
from .library.network import Cidr, Ip, Url
from .quantity import Quantity
from .semver import Semver
from .values import Map, Value, size

CREATE_LIST, CREATE_MAP = 10, 30
# A function from the arguments and the result of a call to its cost.
Cost = Callable[[Sequence[Value], Value], int]


class Failed:
    """The mark in place of an argument or result that is an error. Its size counts as 1."""


FAILED = Failed()


def tenth(amount: float) -> int:
    return math.ceil(amount * 0.1)


def _text(arguments: Sequence[Value], _result: Value) -> int:
    return tenth(size(arguments[0]))


def _twice(arguments: Sequence[Value], _result: Value) -> int:
    return math.ceil(size(arguments[0]) * 2 * 0.1)


def _traversal(arguments: Sequence[Value], _result: Value) -> int:
    return _traverse(arguments[0])


def _traverse(value: Value) -> int:
    """Returns the cost of reading all of a value.

    A text costs a tenth of its size. A list or map costs as much as its elements, keys and values.
    Any other value costs 1.
    """
    if isinstance(value, str):
        return int(len(value.encode("utf-8", "surrogatepass")) * 0.1)
    if isinstance(value, bytes):
        return int(len(value) * 0.1)
    if isinstance(value, list | Map):
        # The traversal takes time before its cost is known, so it counts steps.
        meter.spend(len(value))
    if isinstance(value, list):
        return sum(map(_traverse, value))
    if isinstance(value, Map):
        return sum(_traverse(key) + _traverse(inner) for key, inner in value.items())
    return 1


def _regex(arguments: Sequence[Value], _result: Value) -> int:
    return tenth(1.0 + size(arguments[0])) * math.ceil(size(arguments[1]) * 0.25)


def _one(_arguments: Sequence[Value], _result: Value) -> int:
    return 1


def _smaller(arguments: Sequence[Value], _result: Value) -> int:
    return tenth(min(size(arguments[0]), size(arguments[1])))


_ATOMS = (Quantity, Semver, Ip, Cidr, Url, Format)


def _equal(arguments: Sequence[Value], result: Value) -> int:
    return 1 if isinstance(arguments[0], _ATOMS) else _smaller(arguments, result)


def _validate(arguments: Sequence[Value], _result: Value) -> int:
    if not isinstance(arguments[0], Format):
        return 1
    return tenth(1.0 + size(arguments[1])) * math.ceil(arguments[0].regex_size * 0.25)


def _contains_cidr(arguments: Sequence[Value], _result: Value) -> int:
    inner = size(arguments[0])
    return tenth(2 * inner) + tenth(inner) + 1


def _contains_ip(arguments: Sequence[Value], _result: Value) -> int:
    return tenth(2 * size(arguments[0]))


def _parsing(cost: Cost) -> Cost:
    """Returns the cost of a call that also parses its second argument."""
    return lambda arguments, result: cost(arguments, result) + tenth(size(arguments[1]))


def _sets(factor: int) -> Cost:
    return lambda arguments, _: 1 + size(arguments[0]) * size(arguments[1]) * factor


def _output(_arguments: Sequence[Value], result: Value) -> int:
    return size(result) + 1 + CREATE_LIST


def _flatten(arguments: Sequence[Value], _result: Value) -> int:
    depth = 1
    if len(arguments) == 2:
        # Kubernetes fails if the depth is no int, before it counts a cost.
        if type(arguments[1]) is not int:
            return 0
        if arguments[1] >= 0:
            depth = arguments[1]

    return size(arguments[0]) * depth + 1 + CREATE_LIST


def _self_compare(position: int) -> Cost:
    """Returns the cost of a call that compares each element of this argument with each."""

    def cost(arguments: Sequence[Value], _result: Value) -> int:
        values = arguments[position]
        count = size(values)
        factor = 2.0
        # Comparisons of texts cost a little more. The first element stands for all.
        if count and isinstance(values, list) and isinstance(values[0], str | bytes):
            factor = 2.1
        return int(count * count * factor) + 1 + CREATE_LIST

    return cost


# Costs by function, for all overloads. A function that is in neither table costs 1.
_FUNCTIONS: dict[str, Cost] = {
    **dict.fromkeys(
        ("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf", "includes"), _traversal
    ),
    **dict.fromkeys(("url", "lowerAscii", "upperAscii", "substring", "trim"), _text),
    **dict.fromkeys(
        ("quantity", "isQuantity", "semver", "isSemver", "cidr", "isIP", "isCIDR"), _text
    ),
    **dict.fromkeys(("replace", "split", "ip.isCanonical"), _twice),
    "join": lambda _, result: math.ceil(size(result) * 2 * 0.1),
    **dict.fromkeys(("find", "findAll"), _regex),
    "ip": lambda arguments, result: (
        1 if isinstance(arguments[0], Cidr) else _text(arguments, result)
    ),
    "containsIP": _contains_ip,
    "containsCIDR": _contains_cidr,
    "validate": _validate,
    "_==_": _equal,
    "_!=_": _smaller,
    "sets.contains": _sets(1),
    "sets.intersects": _sets(1),
    "sets.equivalent": _sets(2),
    "check": lambda _, __: 350_000,
}
# Costs by overload, if only one fits the types. If several fit, a call costs 1.
_OVERLOADS: dict[str, Cost] = {
    "startsWith: string.(string) -> bool": lambda arguments, _: tenth(size(arguments[1])),
    "endsWith: string.(string) -> bool": lambda arguments, _: tenth(size(arguments[1])),
    "bytes: (string) -> bytes": _text,
    "string: (bytes) -> string": _text,
    "strings.quote: (string) -> string": _text,
    "format: string.(list<dyn>) -> string": _text,
    "@in: (A, list<A>) -> bool": lambda arguments, _: size(arguments[1]),
    "containsIP: cidr.(string) -> bool": _parsing(_contains_ip),
    "containsCIDR: cidr.(string) -> bool": _parsing(_contains_cidr),
    "matches: (string, string) -> bool": _regex,
    "matches: string.(string) -> bool": _regex,
    "contains: string.(string) -> bool": lambda arguments, _: (
        tenth(size(arguments[0])) * tenth(size(arguments[1]))
    ),
    **{
        f"_{operator}_: ({kind}, {kind}) -> bool": _smaller
        for operator in ("<", "<=", ">", ">=")
        for kind in ("string", "bytes")
    },
    **{
        f"_+_: ({kind}, {kind}) -> {kind}": lambda arguments, _: tenth(
            size(arguments[0]) + size(arguments[1])
        )
        for kind in ("string", "bytes")
    },
    "slice: list<T>.(int, int) -> list<T>": _output,
    "reverse: list<T>.() -> list<T>": _output,
    "lists.range: (int) -> list<int>": _output,
    "flatten: list<list<T>>.() -> list<T>": _flatten,
    "flatten: list<dyn>.(int) -> list<dyn>": _flatten,
    "distinct: list<T>.() -> list<T>": _self_compare(0),
}


def cost_of_call(function: str, overloads: tuple[str, ...]) -> Cost:
    """Returns the cost of calls of the function for which these overloads fit the types."""
    if len(overloads) == 1:
        if function == "sort":
            return _self_compare(0)
        if function == "@sortByAssociatedKeys":
            return _self_compare(1)
        if overloads[0] in _OVERLOADS:
            return _OVERLOADS[overloads[0]]
    if function in ("sets.contains", "sets.intersects", "sets.equivalent") and len(overloads) != 1:
        return _one
    return _FUNCTIONS.get(function, _one)
