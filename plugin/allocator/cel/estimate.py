"""The most that an expression could cost for any device, as the API server estimates it before it takes a selector.

Not what it does cost (that is counted in closures), nor a safe bound (that is bound.py): the API server's own guess.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from . import folds
from .cost import CREATE_LIST, CREATE_MAP
from .declarations import Overload
from .library import FUNCTIONS
from .syntax import Call, Fold, Ident, ListNode, Literal, MapNode, Node, Select
from .types import Type

INF = math.inf
Path = tuple[str, ...]


class Size(NamedTuple):
    least: float
    most: float

    def or_(self, other: Size) -> Size:
        return Size(min(self.least, other.least), max(self.most, other.most))

    def plus(self, other: Size) -> Size:
        return Size(self.least + other.least, self.most + other.most)

    def times(self, other: Size) -> Size:
        return Size(_times(self.least, other.least), _times(self.most, other.most))


class Entry(NamedTuple):
    """What a list or a map holds."""

    of: str  # list, map
    key: Size
    value: Size


class Local(NamedTuple):
    path: Path
    size: Size | None
    entry: Entry | None


ONE, UNKNOWN, NOTHING = Size(1, 1), Size(0, INF), Size(INF, 0)

# The sizes that the API allows: a map's greatest length, what its keys and its values are.
_ATTRIBUTE, _QUANTITY = ("attribute", 64), ("quantity", 0)
_MAPS = {
    "attributes": ("map", 32, ("text", 63), ("map", 32, ("text", 32), _ATTRIBUTE)),
    "capacity": ("map", 32, ("text", 63), ("map", 32, ("text", 32), _QUANTITY)),
    "driver": ("text", 63),
    "allowMultipleAllocations": ("text", 1),
}
_SCALARS = frozenset(("bool", "int", "uint", "double", "google.protobuf.Timestamp", "google.protobuf.Duration"))
_UNIT_EQUALITY = frozenset(("kubernetes.Quantity", "kubernetes.Semver", "net.IP", "net.CIDR"))


def of(root: Node) -> float:
    """The estimate for a checked expression; infinite where nothing bounds it."""
    return _Estimate().cost(root)


def _times(left: float, right: float) -> float:
    return left * right if left and right else 0


def _share(size: float, factor: float) -> float:
    return math.ceil(size * factor) if math.isfinite(size) else size


def _is_scalar(of_: Type) -> bool:
    if of_.kind == "opaque" and of_.name == "optional_type":
        return _is_scalar(of_.params[0])
    return of_.kind == "simple" and of_.name in _SCALARS


def _by_path(path: Path) -> Size | None:
    """What the API says of a part of the device."""
    if not path or path[0] != ".device":
        return None
    now: tuple[object, ...] | None = None
    for name in path[1:]:
        if now is None:
            now = _MAPS.get(name)
        elif now[0] != "map":
            return None
        elif name in ("@items", "@values"):
            now = now[3]  # type: ignore[assignment]
        elif name == "@keys":
            now = now[2]  # type: ignore[assignment]
        else:
            now = _ATTRIBUTE if now[3] is _ATTRIBUTE else None
        if now is None:
            return None
    return Size(0, float(str(now[1]))) if now else Size(0, 0)


class _Estimate:
    def __init__(self) -> None:
        self._sizes: dict[int, Size] = {}
        self._entries: dict[int, Entry] = {}
        self._paths: dict[int, Path] = {}
        self._locals: dict[str, list[Local]] = {}

    # What is known of a node

    def _local(self, node: Node) -> Local | None:
        stack = self._locals.get(node.name) if isinstance(node, Ident) else None
        return stack[-1] if stack else None

    def _path(self, node: Node) -> Path:
        local = self._local(node)
        return local.path if local else self._paths.get(id(node), ())

    def _known(self, node: Node) -> Size | None:
        if id(node) in self._sizes:
            return self._sizes[id(node)]
        if isinstance(node, Literal):
            return Size(*[float(len(node.value)) if isinstance(node.value, str | bytes) else 1.0] * 2)
        if isinstance(node, ListNode | MapNode):
            return Size(*[float(len(node.elements if isinstance(node, ListNode) else node.entries))] * 2)
        found = _by_path(self._path(node))
        if found is not None:
            self._sizes[id(node)] = found
            return found
        assert node.type is not None
        if _is_scalar(node.type):
            return ONE
        local = self._local(node)
        return local.size if local else None

    def _size(self, node: Node) -> Size:
        return self._known(node) or UNKNOWN

    def _entry(self, node: Node) -> Entry | None:
        if id(node) in self._entries:
            return self._entries[id(node)]
        local = self._local(node)
        return local.entry if local else None

    def _keep(self, node: Node, size: Size | None, entry: Entry | None = None) -> None:
        if size is not None:
            self._sizes[id(node)] = size
        if entry is not None:
            self._entries[id(node)] = entry

    # What a node costs

    def cost(self, node: Node) -> float:
        match node:
            case Literal():
                return 0
            case Ident():
                self._paths[id(node)] = self._path(node) if self._local(node) else (node.name,)
                return 1
            case Select():
                return self._select(node)
            case ListNode():
                return self._list(node)
            case MapNode():
                return self._map(node)
            case Fold() if node.macro in folds.LETS:
                return self._let(node)
            case Fold():
                return self._fold(node)
            case Call():
                return self._call(node)
        raise TypeError(type(node).__name__)

    def _select(self, node: Select) -> float:
        if node.reference is not None:
            return 1
        cost = self.cost(node.operand)
        if node.test:
            return cost
        self._paths[id(node)] = (*self._path(node.operand), node.field)
        assert node.operand.type is not None
        return cost + (node.operand.type.kind in ("map", "object", "param"))

    def _list(self, node: ListNode) -> float:
        cost = sum(self.cost(element) for element in node.elements)
        value = Size(0, 0) if not node.elements else NOTHING
        for element in node.elements:
            value = value.or_(self._size(element))
        self._keep(node, None, Entry("list", ONE, value))
        return cost + CREATE_LIST

    def _map(self, node: MapNode) -> float:
        cost = 0.0
        key = value = Size(0, 0) if not node.entries else NOTHING
        for key_node, value_node, _ in node.entries:
            cost += self.cost(key_node) + self.cost(value_node)
            key, value = key.or_(self._size(key_node)), value.or_(self._size(value_node))
        self._keep(node, None, Entry("map", key, value))
        return cost + CREATE_MAP

    def _push(self, name: str, local: Local) -> None:
        self._locals.setdefault(name, []).append(local)

    def _bind(self, name: str, node: Node) -> None:
        self._push(name, Local(self._path(node), self._known(node), self._entry(node)))

    def _let(self, node: Fold) -> float:
        cost = self.cost(node.range) + self.cost(node.start)
        self._bind(node.accumulator, node.start)
        cost += self.cost(node.result)
        self._locals[node.accumulator].pop()
        self._keep(node, self._known(node.result), self._entry(node.result))
        return cost

    def _fold(self, node: Fold) -> float:
        over = node.range
        cost = self.cost(over) + self.cost(node.start)
        self._bind(node.accumulator, node.start)
        entry, path = self._entry(over), self._path(over)
        assert over.type is not None
        is_list = (entry.of if entry else over.type.kind) == "list"
        if node.second:
            self._push(node.variable, Local((*path, "@indices" if is_list else "@keys"), entry and entry.key, None))
            self._push(node.second, Local((*path, "@items" if is_list else "@values"), entry and entry.value, None))
        elif is_list:
            self._push(node.variable, Local((*path, "@items"), entry and entry.value, None))
        else:
            self._push(node.variable, Local((*path, "@keys"), entry and entry.key, None))
        step = self.cost(node.condition) + self.cost(node.step)
        self._locals[node.variable].pop()
        if node.second:
            self._locals[node.second].pop()
        cost += self.cost(node.result)
        self._locals[node.accumulator].pop()
        count = self._size(over)
        if isinstance(node.start, Literal):
            self._keep(node, self._known(node.start))
        else:
            self._keep(node, count, self._entry(node.step))
        return cost + _times(count.most, step)

    def _call(self, node: Call) -> float:
        if node.function == "dyn":
            (argument,) = node.arguments
            cost = 1 + self.cost(argument)
            self._keep(node, self._known(argument), self._entry(argument))
            return cost
        costs = [self.cost(argument) for argument in node.arguments]
        if not node.overloads:
            return 0
        target = self.cost(node.target) if node.target is not None else 0
        most, result = 0.0, None
        for overload in self._overloads(node):
            cost, size = self._one(node, overload)
            if node.function not in _LAZY:
                cost += sum(costs)
            elif node.function == "_?_:_":
                cost = costs[0] + max(costs[1:])
            else:
                cost = sum(costs)
            most = max(most, cost)
            if size is not None:
                result = size if result is None else result.or_(size)
            if node.function == "_[_]" and overload and overload.parameters[0].kind in ("list", "map"):
                of_list = overload.parameters[0].kind == "list"
                entry = self._entry(node.arguments[0])
                result = entry.value if entry else None
                self._paths[id(node)] = (*self._path(node.arguments[0]), "@items" if of_list else "@values")
            if result is None:
                result = self._known(node)
        self._keep(node, result)
        return target + most

    def _overloads(self, node: Call) -> list[Overload | None]:
        known = {overload.signature: overload for overload in FUNCTIONS.get(node.function, ())}
        return [known.get(signature) for signature in node.overloads]

    def _one(self, node: Call, overload: Overload | None) -> tuple[float, Size | None]:
        """What the call itself costs, and how large its result is, if that is known."""
        rule = _RULES.get(node.function)
        found = rule(self, node, overload) if rule else None
        return found or (1, None)


_LAZY = frozenset(("_&&_", "_||_", "_?_:_"))
Found = tuple[float, Size | None] | None
Rule = Callable[[_Estimate, Call, "Overload | None"], Found]
size_of = _Estimate._size


def _text(estimate: _Estimate, node: Call, _overload: Overload | None) -> Found:
    """Reads its text once."""
    return (_share(size_of(estimate, node.arguments[0]).most, 0.1), None) if node.arguments else None


def _url(estimate: _Estimate, node: Call, _overload: Overload | None) -> Found:
    size = size_of(estimate, node.arguments[0])
    return _share(size.most, 0.1), size


def _twice(estimate: _Estimate, node: Call, _overload: Overload | None) -> Found:
    return _share(size_of(estimate, node.arguments[0]).most, 0.2), None


def _same_length(estimate: _Estimate, node: Call, _overload: Overload | None) -> Found:
    assert node.target is not None
    size = size_of(estimate, node.target)
    return _share(size.most, 0.1), size


def _elements(estimate: _Estimate, node: Call, _overload: Overload | None) -> Found:
    """Looks at each element; at a string's characters where it is a string."""
    if node.target is None or node.target.type is None:
        return None
    size = size_of(estimate, node.target).most
    if not node.target.type.params:
        return (size if node.function == "includes" else _share(size, 0.1)), None
    element = node.target.type.params[0]
    each = 1.0
    if element.name in ("string", "bytes"):
        each += _share((_by_path((*estimate._path(node.target), "@items")) or UNKNOWN).most, 0.1)
    return _times(size, each), None


def _replace(estimate: _Estimate, node: Call, _overload: Overload | None) -> Found:
    assert node.target is not None
    size, old, new = (size_of(estimate, one) for one in (node.target, *node.arguments[:2]))
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
    result = Size(_times(fewest, new.least) + rest, _times(count, new.most) + kept)
    return _share(size.most, 0.2), result


def _split(estimate: _Estimate, node: Call, _overload: Overload | None) -> Found:
    assert node.target is not None
    size = size_of(estimate, node.target)
    most = size.most
    if len(node.arguments) > 1 and isinstance(node.arguments[1], Literal) and isinstance(node.arguments[1].value, int):
        most = node.arguments[1].value if node.arguments[1].value >= 0 else INF
    return _share(size.most, 0.2), Size(0, most)


def _join(estimate: _Estimate, node: Call, _overload: Overload | None) -> Found:
    assert node.target is not None and node.target.type is not None
    size = Size(0, 0)
    count = size_of(estimate, node.target)
    if node.target.type.params:
        element = _by_path((*estimate._path(node.target), "@items")) or UNKNOWN
        size = count.times(element)
    if node.arguments:
        between = Size(max(count.least - 1, 0), max(count.most - 1, 0))
        size = size.plus(size_of(estimate, node.arguments[0]).times(between))
    return _share(size.most, 0.1), size


def _find(estimate: _Estimate, node: Call, _overload: Overload | None) -> Found:
    assert node.target is not None
    size = size_of(estimate, node.target)
    pattern = size_of(estimate, node.arguments[0])
    return _times(_share(size.most + 1, 0.1), _share(pattern.most, 0.25)), Size(0, size.most)


def _matches(estimate: _Estimate, node: Call, _overload: Overload | None) -> Found:
    text, pattern = (node.target, node.arguments[0]) if node.target is not None else node.arguments
    size = size_of(estimate, text).most
    return _times(_share(size + 1, 0.1), _share(size_of(estimate, pattern).most, 0.25)), None


def _contains(estimate: _Estimate, node: Call, _overload: Overload | None) -> Found:
    assert node.target is not None
    sizes = [_share(size_of(estimate, one).most, 0.1) for one in (node.target, node.arguments[0])]
    return _times(*sizes), None


def _within(estimate: _Estimate, node: Call, overload: Overload | None) -> Found:
    cost = _share(32, 0.1) + (0 if node.function == "containsIP" else _share(16, 0.1) + 1)
    if overload and overload.parameters[1].name == "string":
        cost += _share(size_of(estimate, node.arguments[0]).most, 0.1)
    return cost, None


def _validate(estimate: _Estimate, node: Call, _overload: Overload | None) -> Found:
    return _share(_share(size_of(estimate, node.arguments[0]).most, 0.1), 32), None


def _equal(estimate: _Estimate, node: Call, _overload: Overload | None) -> Found:
    left, right = node.arguments
    if node.function == "_==_" and left.type is not None and left.type == right.type:
        if left.type.name in _UNIT_EQUALITY:
            return 1, None
        if left.type.name == "kubernetes.NamedFormat":
            return _share(64, 0.1), None
        if left.type.name == "kubernetes.URL":
            known = estimate._known(right)
            return _share(known.most if known else 1, 0.1), None
    return _compare(estimate, node, None)


def _compare(estimate: _Estimate, node: Call, overload: Overload | None) -> Found:
    if overload and overload.parameters[0].name not in ("string", "bytes") and node.function not in ("_==_", "_!=_"):
        return None
    return _share(min(size_of(estimate, argument).most for argument in node.arguments), 0.1), None


def _member(estimate: _Estimate, node: Call, overload: Overload | None) -> Found:
    if overload and overload.parameters[1].kind == "list":
        return size_of(estimate, node.arguments[1]).most, None
    return None


def _add(estimate: _Estimate, node: Call, overload: Overload | None) -> Found:
    if overload is None or not (overload.parameters[0].kind == "list" or overload.result.name in ("string", "bytes")):
        return None
    left, right = node.arguments
    size = size_of(estimate, left).plus(size_of(estimate, right))
    estimate._keep(node, None, _union(estimate._entry(left), estimate._entry(right)))
    return (1 if overload.parameters[0].kind == "list" else _share(size.most, 0.1)), size


def _union(left: Entry | None, right: Entry | None) -> Entry | None:
    if left is None or right is None:
        return None
    return Entry(left.of, left.key.or_(right.key), left.value.or_(right.value))


def _choose(estimate: _Estimate, node: Call, _overload: Overload | None) -> Found:
    _, left, right = node.arguments
    estimate._keep(node, None, _union(estimate._entry(left), estimate._entry(right)))
    return 0, size_of(estimate, left).or_(size_of(estimate, right))


def _convert(estimate: _Estimate, node: Call, overload: Overload | None) -> Found:
    """Between strings and bytes."""
    (argument,) = node.arguments
    of_ = overload.parameters[0].name if overload else ""
    size = size_of(estimate, argument)
    if (node.function, of_) == ("bytes", "string"):
        return _share(size.most, 0.1), Size(size.least, size.most * 4)
    if (node.function, of_) == ("string", "bytes"):
        return _share(size.most, 0.1), Size(size.least // 4, size.most)
    return None


def _quote(estimate: _Estimate, node: Call, _overload: Overload | None) -> Found:
    size = size_of(estimate, node.arguments[0])
    return _share(size.most, 0.1), Size(size.least + 2, size.most * 2 + 2)


def _format(estimate: _Estimate, node: Call, _overload: Overload | None) -> Found:
    return (_share(size_of(estimate, node.target).most, 0.1), None) if node.target is not None else None


def _sets(estimate: _Estimate, node: Call, _overload: Overload | None) -> Found:
    size = size_of(estimate, node.arguments[0]).times(size_of(estimate, node.arguments[1]))
    return _share(size.most, 2 if node.function == "sets.equivalent" else 1) + 1, None


def _made(factor: float, size: Size) -> Found:
    """A list that is written anew."""
    return _share(_times(size.most, factor), 1) + 1 + CREATE_LIST, size


def _number(node: Node, default: float) -> float:
    if isinstance(node, Literal) and type(node.value) is int:
        return max(node.value, 0)
    return default


def _slice(estimate: _Estimate, node: Call, _overload: Overload | None) -> Found:
    assert node.target is not None
    end = _number(node.arguments[1], size_of(estimate, node.target).most)
    length = end - _number(node.arguments[0], 0)
    return _made(1, Size(*[length if length >= 0 else INF] * 2))


def _range(estimate: _Estimate, node: Call, _overload: Overload | None) -> Found:
    return _made(1, Size(*[_number(node.arguments[0], INF)] * 2))


def _reverse(estimate: _Estimate, node: Call, _overload: Overload | None) -> Found:
    assert node.target is not None
    return _made(1, size_of(estimate, node.target))


def _flatten(estimate: _Estimate, node: Call, _overload: Overload | None) -> Found:
    assert node.target is not None
    return _made(_number(node.arguments[0], INF) if node.arguments else 1, size_of(estimate, node.target))


def _squared(estimate: _Estimate, node: Call, overload: Overload | None) -> Found:
    """distinct() and sort() compare each with each."""
    sorted_ = node.arguments[0] if node.function == "@sortByAssociatedKeys" else node.target
    assert sorted_ is not None
    size = size_of(estimate, sorted_)
    element = overload.parameters[-1].params[0].name if overload and node.function != "distinct" else ""
    return _made(2.1 if element in ("string", "bytes") else 2, size.times(size))


_RULES: dict[str, Rule] = {
    **dict.fromkeys(("cidr", "isIP", "isCIDR", "ip", "quantity", "isQuantity", "semver", "isSemver"), _text),
    **dict.fromkeys(("startsWith", "endsWith"), _text),
    **dict.fromkeys(("lowerAscii", "upperAscii", "substring", "trim"), _same_length),
    **dict.fromkeys(("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf", "includes"), _elements),
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
