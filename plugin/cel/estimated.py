"""What calls could cost by the API server's estimate, and how large their results may be: a rule a
function.

A function without a rule costs 1 and says nothing of its result. The walk through an expression is
in estimate.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from .cost import CREATE_LIST
from .sizes import INF, UNKNOWN, Entry, Size, by_path, exactly, share, times
from .syntax import Call, Literal, Node

if TYPE_CHECKING:
    from .declarations import Overload
    from .estimate import Estimate

_UNIT_EQUALITY = frozenset(("kubernetes.Quantity", "kubernetes.Semver", "net.IP", "net.CIDR"))
LAZY = frozenset(("_&&_", "_||_", "_?_:_"))
Found = tuple[float, Size | None] | None
Rule = Callable[["Estimate", Call, "Overload | None"], Found]


def _text(estimate: Estimate, node: Call, _overload: Overload | None) -> Found:
    """Reads its text once."""
    return (share(estimate.size(node.arguments[0]).most, 0.1), None) if node.arguments else None


def _url(estimate: Estimate, node: Call, _overload: Overload | None) -> Found:
    size = estimate.size(node.arguments[0])
    return share(size.most, 0.1), size


def _twice(estimate: Estimate, node: Call, _overload: Overload | None) -> Found:
    return share(estimate.size(node.arguments[0]).most, 0.2), None


def _same_length(estimate: Estimate, node: Call, _overload: Overload | None) -> Found:
    assert node.target is not None
    size = estimate.size(node.target)
    return share(size.most, 0.1), size


def _elements(estimate: Estimate, node: Call, _overload: Overload | None) -> Found:
    """Looks at each element; at a string's characters where it is a string."""
    if node.target is None or node.target.type is None:
        return None
    size = estimate.size(node.target).most
    if not node.target.type.params:
        return (size if node.function == "includes" else share(size, 0.1)), None
    element = node.target.type.params[0]
    each = 1.0
    if element.name in ("string", "bytes"):
        each += share((by_path((*estimate.path(node.target), "@items")) or UNKNOWN).most, 0.1)
    return times(size, each), None


def _replace(estimate: Estimate, node: Call, _overload: Overload | None) -> Found:
    assert node.target is not None
    size, old, new = (estimate.size(one) for one in (node.target, *node.arguments[:2]))
    count, kept = 0.0, 0.0
    if old.least == 0:
        count, kept = size.most + 1, size.most
    elif new.most <= old.least:
        kept = size.most
    else:
        count = math.ceil(size.most / old.least) if math.isfinite(size.most) else INF
    fewest, rest = 0.0, 0.0
    if old.most == 0:
        fewest, rest = size.least + 1, size.least
    elif old.most <= new.least:
        rest = size.least
    else:
        fewest = math.ceil(size.least / old.most)
    result = Size(times(fewest, new.least) + rest, times(count, new.most) + kept)
    return share(size.most, 0.2), result


def _split(estimate: Estimate, node: Call, _overload: Overload | None) -> Found:
    assert node.target is not None
    size = estimate.size(node.target)
    most = size.most
    if (
        len(node.arguments) > 1
        and isinstance(node.arguments[1], Literal)
        and isinstance(node.arguments[1].value, int)
    ):
        most = node.arguments[1].value if node.arguments[1].value >= 0 else INF
    return share(size.most, 0.2), Size(0, most)


def _join(estimate: Estimate, node: Call, _overload: Overload | None) -> Found:
    assert node.target is not None and node.target.type is not None
    size = Size(0, 0)
    count = estimate.size(node.target)
    if node.target.type.params:
        element = by_path((*estimate.path(node.target), "@items")) or UNKNOWN
        size = count.times(element)
    if node.arguments:
        between = Size(max(count.least - 1, 0), max(count.most - 1, 0))
        size = size.plus(estimate.size(node.arguments[0]).times(between))
    return share(size.most, 0.1), size


def _find(estimate: Estimate, node: Call, _overload: Overload | None) -> Found:
    assert node.target is not None
    size = estimate.size(node.target)
    pattern = estimate.size(node.arguments[0])
    return times(share(size.most + 1, 0.1), share(pattern.most, 0.25)), Size(0, size.most)


def _matches(estimate: Estimate, node: Call, _overload: Overload | None) -> Found:
    text, pattern = (node.target, node.arguments[0]) if node.target is not None else node.arguments
    size = estimate.size(text).most
    return times(share(size + 1, 0.1), share(estimate.size(pattern).most, 0.25)), None


def _contains(estimate: Estimate, node: Call, _overload: Overload | None) -> Found:
    assert node.target is not None
    sizes = [share(estimate.size(one).most, 0.1) for one in (node.target, node.arguments[0])]
    return times(*sizes), None


def _within(estimate: Estimate, node: Call, overload: Overload | None) -> Found:
    cost = share(32, 0.1) + (0 if node.function == "containsIP" else share(16, 0.1) + 1)
    if overload and overload.parameters[1].name == "string":
        cost += share(estimate.size(node.arguments[0]).most, 0.1)
    return cost, None


def _validate(estimate: Estimate, node: Call, _overload: Overload | None) -> Found:
    return share(share(estimate.size(node.arguments[0]).most, 0.1), 32), None


def _equal(estimate: Estimate, node: Call, _overload: Overload | None) -> Found:
    left, right = node.arguments
    if node.function == "_==_" and left.type is not None and left.type == right.type:
        if left.type.name in _UNIT_EQUALITY:
            return 1, None
        if left.type.name == "kubernetes.NamedFormat":
            return share(64, 0.1), None
        if left.type.name == "kubernetes.URL":
            known = estimate.known(right)
            return share(known.most if known else 1, 0.1), None
    return _compare(estimate, node, None)


def _compare(estimate: Estimate, node: Call, overload: Overload | None) -> Found:
    if (
        overload
        and overload.parameters[0].name not in ("string", "bytes")
        and node.function not in ("_==_", "_!=_")
    ):
        return None
    return share(min(estimate.size(argument).most for argument in node.arguments), 0.1), None


def _member(estimate: Estimate, node: Call, overload: Overload | None) -> Found:
    if overload and overload.parameters[1].kind == "list":
        return estimate.size(node.arguments[1]).most, None
    return None


def _add(estimate: Estimate, node: Call, overload: Overload | None) -> Found:
    if overload is None or not (
        overload.parameters[0].kind == "list" or overload.result.name in ("string", "bytes")
    ):
        return None
    left, right = node.arguments
    size = estimate.size(left).plus(estimate.size(right))
    estimate.keep(node, None, _union(estimate.entry(left), estimate.entry(right)))
    return (1 if overload.parameters[0].kind == "list" else share(size.most, 0.1)), size


def _union(left: Entry | None, right: Entry | None) -> Entry | None:
    if left is None or right is None:
        return None
    return Entry(left.of, left.key.or_(right.key), left.value.or_(right.value))


def _choose(estimate: Estimate, node: Call, _overload: Overload | None) -> Found:
    _, left, right = node.arguments
    estimate.keep(node, None, _union(estimate.entry(left), estimate.entry(right)))
    return 0, estimate.size(left).or_(estimate.size(right))


def _convert(estimate: Estimate, node: Call, overload: Overload | None) -> Found:
    """Between strings and bytes."""
    (argument,) = node.arguments
    of_ = overload.parameters[0].name if overload else ""
    size = estimate.size(argument)
    if (node.function, of_) == ("bytes", "string"):
        return share(size.most, 0.1), Size(size.least, size.most * 4)
    if (node.function, of_) == ("string", "bytes"):
        return share(size.most, 0.1), Size(size.least // 4, size.most)
    return None


def _quote(estimate: Estimate, node: Call, _overload: Overload | None) -> Found:
    size = estimate.size(node.arguments[0])
    return share(size.most, 0.1), Size(size.least + 2, size.most * 2 + 2)


def _format(estimate: Estimate, node: Call, _overload: Overload | None) -> Found:
    return (share(estimate.size(node.target).most, 0.1), None) if node.target is not None else None


def _sets(estimate: Estimate, node: Call, _overload: Overload | None) -> Found:
    size = estimate.size(node.arguments[0]).times(estimate.size(node.arguments[1]))
    return share(size.most, 2 if node.function == "sets.equivalent" else 1) + 1, None


def _made(factor: float, size: Size) -> Found:
    """A list that is written anew."""
    return share(times(size.most, factor), 1) + 1 + CREATE_LIST, size


def _number(node: Node, default: float) -> float:
    if isinstance(node, Literal) and type(node.value) is int:
        return max(node.value, 0)
    return default


def _slice(estimate: Estimate, node: Call, _overload: Overload | None) -> Found:
    assert node.target is not None
    end = _number(node.arguments[1], estimate.size(node.target).most)
    length = end - _number(node.arguments[0], 0)
    return _made(1, exactly(length if length >= 0 else INF))


def _range(estimate: Estimate, node: Call, _overload: Overload | None) -> Found:
    return _made(1, exactly(_number(node.arguments[0], INF)))


def _reverse(estimate: Estimate, node: Call, _overload: Overload | None) -> Found:
    assert node.target is not None
    return _made(1, estimate.size(node.target))


def _flatten(estimate: Estimate, node: Call, _overload: Overload | None) -> Found:
    assert node.target is not None
    return _made(
        _number(node.arguments[0], INF) if node.arguments else 1, estimate.size(node.target)
    )


def _squared(estimate: Estimate, node: Call, overload: Overload | None) -> Found:
    """distinct() and sort() compare each with each."""
    sorted_ = node.arguments[0] if node.function == "@sortByAssociatedKeys" else node.target
    assert sorted_ is not None
    size = estimate.size(sorted_)
    element = (
        overload.parameters[-1].params[0].name if overload and node.function != "distinct" else ""
    )
    return _made(2.1 if element in ("string", "bytes") else 2, size.times(size))


RULES: dict[str, Rule] = {
    **dict.fromkeys(
        ("cidr", "isIP", "isCIDR", "ip", "quantity", "isQuantity", "semver", "isSemver"), _text
    ),
    **dict.fromkeys(("startsWith", "endsWith"), _text),
    **dict.fromkeys(("lowerAscii", "upperAscii", "substring", "trim"), _same_length),
    **dict.fromkeys(
        ("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf", "includes"), _elements
    ),
    **dict.fromkeys(("find", "findAll"), _find),
    **dict.fromkeys(("containsIP", "containsCIDR"), _within),
    **dict.fromkeys(("_==_", "_!=_"), _equal),
    **dict.fromkeys(("_<_", "_<=_", "_>_", "_>=_"), _compare),
    **dict.fromkeys(("sets.contains", "sets.intersects", "sets.equivalent"), _sets),
    **dict.fromkeys(("distinct", "sort", "@sortByAssociatedKeys"), _squared),
    **dict.fromkeys(("string", "bytes"), _convert),
    "check": lambda *_: (350_000, None),
    "url": _url,
    "ip.isCanonical": _twice,
    "replace": _replace,
    "split": _split,
    "join": _join,
    "matches": _matches,
    "contains": _contains,
    "validate": _validate,
    "@in": _member,
    "_+_": _add,
    "_?_:_": _choose,
    "strings.quote": _quote,
    "format": _format,
    "slice": _slice,
    "lists.range": _range,
    "reverse": _reverse,
    "flatten": _flatten,
}
