"""The most that an expression could cost for any device, as the API server estimates it before it
takes a selector.

Not what it does cost (that is counted in closures), nor a safe bound (that is bound.py): the API
server's own guess.
"""

from __future__ import annotations

from typing import NamedTuple

from . import estimated, folds, sizes
from .cost import CREATE_LIST, CREATE_MAP
from .declarations import Overload
from .library import FUNCTIONS
from .sizes import Entry, Path, Size
from .syntax import Call, Fold, Ident, ListNode, Literal, MapNode, Node, Select
from .types import Type


class Local(NamedTuple):
    path: Path
    size: Size | None
    entry: Entry | None


_SCALARS = frozenset(
    ("bool", "int", "uint", "double", "google.protobuf.Timestamp", "google.protobuf.Duration")
)


def of(root: Node) -> float:
    """The estimate for a checked expression; infinite where nothing bounds it."""
    return Estimate().cost(root)


def _is_scalar(of_: Type) -> bool:
    if of_.kind == "opaque" and of_.name == "optional_type":
        return _is_scalar(of_.params[0])
    return of_.kind == "simple" and of_.name in _SCALARS


class Estimate:
    def __init__(self) -> None:
        self._sizes: dict[int, Size] = {}
        self._entries: dict[int, Entry] = {}
        self._paths: dict[int, Path] = {}
        self._locals: dict[str, list[Local]] = {}

    # What is known of a node

    def _local(self, node: Node) -> Local | None:
        stack = self._locals.get(node.name) if isinstance(node, Ident) else None
        return stack[-1] if stack else None

    def path(self, node: Node) -> Path:
        local = self._local(node)
        return local.path if local else self._paths.get(id(node), ())

    def known(self, node: Node) -> Size | None:
        if id(node) in self._sizes:
            return self._sizes[id(node)]
        if isinstance(node, Literal):
            return sizes.exactly(
                float(len(node.value)) if isinstance(node.value, str | bytes) else 1.0
            )
        if isinstance(node, ListNode | MapNode):
            return sizes.exactly(
                float(len(node.elements if isinstance(node, ListNode) else node.entries))
            )
        found = sizes.by_path(self.path(node))
        if found is not None:
            self._sizes[id(node)] = found
            return found
        assert node.type is not None
        if _is_scalar(node.type):
            return sizes.ONE
        local = self._local(node)
        return local.size if local else None

    def size(self, node: Node) -> Size:
        return self.known(node) or sizes.UNKNOWN

    def entry(self, node: Node) -> Entry | None:
        if id(node) in self._entries:
            return self._entries[id(node)]
        local = self._local(node)
        return local.entry if local else None

    def keep(self, node: Node, size: Size | None, entry: Entry | None = None) -> None:
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
                self._paths[id(node)] = self.path(node) if self._local(node) else (node.name,)
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
        self._paths[id(node)] = (*self.path(node.operand), node.field)
        assert node.operand.type is not None
        return cost + (node.operand.type.kind in ("map", "object", "param"))

    def _list(self, node: ListNode) -> float:
        cost = sum(self.cost(element) for element in node.elements)
        value = Size(0, 0) if not node.elements else sizes.NOTHING
        for element in node.elements:
            value = value.or_(self.size(element))
        self.keep(node, None, Entry("list", sizes.ONE, value))
        return cost + CREATE_LIST

    def _map(self, node: MapNode) -> float:
        cost = 0.0
        key = value = Size(0, 0) if not node.entries else sizes.NOTHING
        for key_node, value_node, _ in node.entries:
            cost += self.cost(key_node) + self.cost(value_node)
            key, value = key.or_(self.size(key_node)), value.or_(self.size(value_node))
        self.keep(node, None, Entry("map", key, value))
        return cost + CREATE_MAP

    def _push(self, name: str, local: Local) -> None:
        self._locals.setdefault(name, []).append(local)

    def _bind(self, name: str, node: Node) -> None:
        self._push(name, Local(self.path(node), self.known(node), self.entry(node)))

    def _let(self, node: Fold) -> float:
        cost = self.cost(node.range) + self.cost(node.start)
        self._bind(node.accumulator, node.start)
        cost += self.cost(node.result)
        self._locals[node.accumulator].pop()
        self.keep(node, self.known(node.result), self.entry(node.result))
        return cost

    def _fold(self, node: Fold) -> float:
        over = node.range
        cost = self.cost(over) + self.cost(node.start)
        self._bind(node.accumulator, node.start)
        entry, path = self.entry(over), self.path(over)
        assert over.type is not None
        is_list = (entry.of if entry else over.type.kind) == "list"
        if node.second:
            self._push(
                node.variable,
                Local((*path, "@indices" if is_list else "@keys"), entry and entry.key, None),
            )
            self._push(
                node.second,
                Local((*path, "@items" if is_list else "@values"), entry and entry.value, None),
            )
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
        count = self.size(over)
        if isinstance(node.start, Literal):
            self.keep(node, self.known(node.start))
        else:
            self.keep(node, count, self.entry(node.step))
        return cost + sizes.times(count.most, step)

    def _call(self, node: Call) -> float:
        if node.function == "dyn":
            (argument,) = node.arguments
            cost = 1 + self.cost(argument)
            self.keep(node, self.known(argument), self.entry(argument))
            return cost
        costs = [self.cost(argument) for argument in node.arguments]
        if not node.overloads:
            return 0
        target = self.cost(node.target) if node.target is not None else 0
        most, result = 0.0, None
        for overload in self._overloads(node):
            cost, size = self._one(node, overload)
            if node.function not in estimated.LAZY:
                cost += sum(costs)
            elif node.function == "_?_:_":
                cost = costs[0] + max(costs[1:])
            else:
                cost = sum(costs)
            most = max(most, cost)
            if size is not None:
                result = size if result is None else result.or_(size)
            if (
                node.function == "_[_]"
                and overload
                and overload.parameters[0].kind in ("list", "map")
            ):
                of_list = overload.parameters[0].kind == "list"
                entry = self.entry(node.arguments[0])
                result = entry.value if entry else None
                self._paths[id(node)] = (
                    *self.path(node.arguments[0]),
                    "@items" if of_list else "@values",
                )
            if result is None:
                result = self.known(node)
        self.keep(node, result)
        return target + most

    def _overloads(self, node: Call) -> list[Overload | None]:
        known = {overload.signature: overload for overload in FUNCTIONS.get(node.function, ())}
        return [known.get(signature) for signature in node.overloads]

    def _one(self, node: Call, overload: Overload | None) -> tuple[float, Size | None]:
        """What the call itself costs, and how large its result is, if that is known."""
        rule = estimated.RULES.get(node.function)
        found = rule(self, node, overload) if rule else None
        return found or (1, None)
