"""The greatest cost of calls by the API server's estimate, and the sizes of their results.

There is one rule for each function. A function without a rule costs 1, and the size of its result
is unknown. The module `estimate` walks through an expression with these rules.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from .cost import CREATE_LIST
from .declarations import Overload
from .node_sizes import NodeSizes
from .sizes import INF, UNKNOWN, Entry, Size, exact, share, size_of_path, times
from .syntax import Call, Literal, Node

_UNIT_EQUALITY = frozenset(("kubernetes.Quantity", "kubernetes.Semver", "net.IP", "net.CIDR"))
LAZY = frozenset(("_&&_", "_||_", "_?_:_"))
# The cost and the size of the result. None stands for a cost of 1 and an unknown size.
Estimated = tuple[float, Size | None] | None
Rule = Callable[[NodeSizes, Call, Overload | None], Estimated]


# Texts


def _text(nodes: NodeSizes, node: Call, _overload: Overload | None) -> Estimated:
    """Estimates a function that reads its text once."""
    if not node.arguments:
        return None
    return share(nodes.size(node.arguments[0]).most, 0.1), None


def _url(nodes: NodeSizes, node: Call, _overload: Overload | None) -> Estimated:
    size = nodes.size(node.arguments[0])
    return share(size.most, 0.1), size


def _twice(nodes: NodeSizes, node: Call, _overload: Overload | None) -> Estimated:
    return share(nodes.size(node.arguments[0]).most, 0.2), None


def _same_length(nodes: NodeSizes, node: Call, _overload: Overload | None) -> Estimated:
    assert node.target is not None
    size = nodes.size(node.target)
    return share(size.most, 0.1), size


def _replace(nodes: NodeSizes, node: Call, _overload: Overload | None) -> Estimated:
    assert node.target is not None
    size, old, new = (nodes.size(part) for part in (node.target, *node.arguments[:2]))

    # The longest result has as many replacements as possible. It has none if each replacement makes
    # the text shorter.
    count, kept = 0.0, 0.0
    if old.least == 0:
        count, kept = size.most + 1, size.most
    elif new.most <= old.least:
        kept = size.most
    else:
        count = math.ceil(size.most / old.least) if math.isfinite(size.most) else INF

    # The shortest result has as few replacements as possible.
    fewest, rest = 0.0, 0.0
    if old.most == 0:
        fewest, rest = size.least + 1, size.least
    elif old.most <= new.least:
        rest = size.least
    else:
        fewest = math.ceil(size.least / old.most)

    result = Size(times(fewest, new.least) + rest, times(count, new.most) + kept)
    return share(size.most, 0.2), result


def _split_text(nodes: NodeSizes, node: Call, _overload: Overload | None) -> Estimated:
    assert node.target is not None
    size = nodes.size(node.target)
    most = size.most
    match node.arguments:
        case [_, Literal(value=int() as limit), *_]:
            most = limit if limit >= 0 else INF
    return share(size.most, 0.2), Size(0, most)


def _join(nodes: NodeSizes, node: Call, _overload: Overload | None) -> Estimated:
    assert node.target is not None and node.target.type is not None
    size = Size(0, 0)
    count = nodes.size(node.target)
    if node.target.type.params:
        element = size_of_path((*nodes.path(node.target), "@items")) or UNKNOWN
        size = count.times(element)
    if node.arguments:
        between = Size(max(count.least - 1, 0), max(count.most - 1, 0))
        size = size.plus(nodes.size(node.arguments[0]).times(between))
    return share(size.most, 0.1), size


def _find(nodes: NodeSizes, node: Call, _overload: Overload | None) -> Estimated:
    assert node.target is not None
    size = nodes.size(node.target)
    pattern = nodes.size(node.arguments[0])
    return times(share(size.most + 1, 0.1), share(pattern.most, 0.25)), Size(0, size.most)


def _matches(nodes: NodeSizes, node: Call, _overload: Overload | None) -> Estimated:
    text, pattern = (node.target, *node.arguments) if node.target is not None else node.arguments
    size = nodes.size(text).most
    return times(share(size + 1, 0.1), share(nodes.size(pattern).most, 0.25)), None


def _contains(nodes: NodeSizes, node: Call, _overload: Overload | None) -> Estimated:
    assert node.target is not None
    text = share(nodes.size(node.target).most, 0.1)
    wanted = share(nodes.size(node.arguments[0]).most, 0.1)
    return times(text, wanted), None


def _convert(nodes: NodeSizes, node: Call, overload: Overload | None) -> Estimated:
    """Estimates a conversion between strings and bytes."""
    (argument,) = node.arguments
    source = overload.parameters[0].name if overload else ""
    size = nodes.size(argument)
    if (node.function, source) == ("bytes", "string"):
        return share(size.most, 0.1), Size(size.least, size.most * 4)
    if (node.function, source) == ("string", "bytes"):
        return share(size.most, 0.1), Size(size.least // 4, size.most)
    return None


def _quote(nodes: NodeSizes, node: Call, _overload: Overload | None) -> Estimated:
    size = nodes.size(node.arguments[0])
    return share(size.most, 0.1), Size(size.least + 2, size.most * 2 + 2)


def _format(nodes: NodeSizes, node: Call, _overload: Overload | None) -> Estimated:
    if node.target is None:
        return None
    return share(nodes.size(node.target).most, 0.1), None


def _validate(nodes: NodeSizes, node: Call, _overload: Overload | None) -> Estimated:
    return share(share(nodes.size(node.arguments[0]).most, 0.1), 32), None


def _within(nodes: NodeSizes, node: Call, overload: Overload | None) -> Estimated:
    """Estimates containsIP() and containsCIDR(), which parse an argument that is a string."""
    cost = share(32, 0.1)
    if node.function == "containsCIDR":
        cost += share(16, 0.1) + 1
    if overload and overload.parameters[1].name == "string":
        cost += share(nodes.size(node.arguments[0]).most, 0.1)
    return cost, None


# Operators


def _equal(nodes: NodeSizes, node: Call, _overload: Overload | None) -> Estimated:
    left, right = node.arguments
    if node.function == "_==_" and left.type is not None and left.type == right.type:
        if left.type.name in _UNIT_EQUALITY:
            return 1, None
        if left.type.name == "kubernetes.NamedFormat":
            return share(64, 0.1), None
        if left.type.name == "kubernetes.URL":
            size = nodes.known(right)
            return share(size.most if size else 1, 0.1), None

    return _compare(nodes, node, None)


def _compare(nodes: NodeSizes, node: Call, overload: Overload | None) -> Estimated:
    if (
        overload
        and overload.parameters[0].name not in ("string", "bytes")
        and node.function not in ("_==_", "_!=_")
    ):
        return None
    return share(min(nodes.size(argument).most for argument in node.arguments), 0.1), None


def _member(nodes: NodeSizes, node: Call, overload: Overload | None) -> Estimated:
    if overload and overload.parameters[1].kind == "list":
        return nodes.size(node.arguments[1]).most, None
    return None


def _add(nodes: NodeSizes, node: Call, overload: Overload | None) -> Estimated:
    if overload is None:
        return None

    of_lists = overload.parameters[0].kind == "list"
    if not of_lists and overload.result.name not in ("string", "bytes"):
        return None

    left, right = node.arguments
    size = nodes.size(left).plus(nodes.size(right))
    nodes.keep(node, None, _union(nodes.entry(left), nodes.entry(right)))
    return (1 if of_lists else share(size.most, 0.1)), size


def _union(left: Entry | None, right: Entry | None) -> Entry | None:
    if left is None or right is None:
        return None
    return Entry(left.kind, left.key.or_(right.key), left.value.or_(right.value))


def _choose(nodes: NodeSizes, node: Call, _overload: Overload | None) -> Estimated:
    _, left, right = node.arguments
    nodes.keep(node, None, _union(nodes.entry(left), nodes.entry(right)))
    return 0, nodes.size(left).or_(nodes.size(right))


# Lists


def _elements(nodes: NodeSizes, node: Call, _overload: Overload | None) -> Estimated:
    """Estimates a function that looks at each element of a list, or at each character of a string."""
    if node.target is None or node.target.type is None:
        return None

    size = nodes.size(node.target).most
    if not node.target.type.params:
        return (size if node.function == "includes" else share(size, 0.1)), None

    each = 1.0
    if node.target.type.params[0].name in ("string", "bytes"):
        element = size_of_path((*nodes.path(node.target), "@items")) or UNKNOWN
        each += share(element.most, 0.1)
    return times(size, each), None


def _sets(nodes: NodeSizes, node: Call, _overload: Overload | None) -> Estimated:
    size = nodes.size(node.arguments[0]).times(nodes.size(node.arguments[1]))
    return share(size.most, 2 if node.function == "sets.equivalent" else 1) + 1, None


def _new_list(factor: float, size: Size) -> Estimated:
    """Estimates a function that makes a list of this size."""
    return share(times(size.most, factor), 1) + 1 + CREATE_LIST, size


def _number(node: Node, default: float) -> float:
    """Returns the value of a literal int, at least 0, or `default` for any other node."""
    if isinstance(node, Literal) and type(node.value) is int:
        return max(node.value, 0)
    return default


def _slice(nodes: NodeSizes, node: Call, _overload: Overload | None) -> Estimated:
    assert node.target is not None
    end = _number(node.arguments[1], nodes.size(node.target).most)
    length = end - _number(node.arguments[0], 0)
    return _new_list(1, exact(length if length >= 0 else INF))


def _range(_nodes: NodeSizes, node: Call, _overload: Overload | None) -> Estimated:
    return _new_list(1, exact(_number(node.arguments[0], INF)))


def _reverse(nodes: NodeSizes, node: Call, _overload: Overload | None) -> Estimated:
    assert node.target is not None
    return _new_list(1, nodes.size(node.target))


def _flatten(nodes: NodeSizes, node: Call, _overload: Overload | None) -> Estimated:
    assert node.target is not None
    depth = _number(node.arguments[0], INF) if node.arguments else 1
    return _new_list(depth, nodes.size(node.target))


def _compare_pairs(nodes: NodeSizes, node: Call, overload: Overload | None) -> Estimated:
    """Estimates distinct() and sort(), which count as comparisons of each element with each."""
    by_keys = node.function == "@sortByAssociatedKeys"
    compared = node.arguments[0] if by_keys else node.target
    assert compared is not None
    size = nodes.size(compared)

    factor = 2.0
    if overload and node.function != "distinct":
        element = overload.parameters[-1].params[0]
        if element.name in ("string", "bytes"):
            factor = 2.1

    return _new_list(factor, size.times(size))


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
    **dict.fromkeys(("distinct", "sort", "@sortByAssociatedKeys"), _compare_pairs),
    **dict.fromkeys(("string", "bytes"), _convert),
    "check": lambda *_: (350_000, None),
    "url": _url,
    "ip.isCanonical": _twice,
    "replace": _replace,
    "split": _split_text,
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
