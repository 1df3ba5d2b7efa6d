"""The greatest cost that an expression could have for any device, as the API server estimates it.

The API server refuses a selector whose estimate is beyond the limit. The estimate is neither the
cost of the expression, which the metered closures count, nor a safe bound as in `bound`.
"""

from __future__ import annotations

from . import estimate_rules, folds, sizes
from .cost import CREATE_LIST, CREATE_MAP
from .declarations import Overload
from .library import FUNCTIONS
from .node_sizes import Local, NodeSizes
from .sizes import Entry, Size
from .syntax import Call, Fold, Ident, ListNode, Literal, MapNode, Node, Select


def estimate_cost(root: Node) -> float:
    """Returns the estimate for a checked expression. It is infinite if nothing limits a size."""
    return _Estimate().cost(root)


class _Estimate:
    """One walk through an expression, from the leaves to the root."""

    def __init__(self) -> None:
        self._nodes = NodeSizes()

    def cost(self, node: Node) -> float:
        match node:
            case Literal():
                return 0
            case Ident():
                path = self._nodes.path(node) if self._nodes.local(node) else (node.name,)
                self._nodes.keep_path(node, path)
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

        self._nodes.keep_path(node, (*self._nodes.path(node.operand), node.field))
        assert node.operand.type is not None
        return cost + (node.operand.type.kind in ("map", "object", "param"))

    def _list(self, node: ListNode) -> float:
        cost = sum(self.cost(element) for element in node.elements)
        value = sizes.NOTHING if node.elements else Size(0, 0)
        for element in node.elements:
            # The elements may differ, so the entry has the range of all their sizes.
            value = value.or_(self._nodes.size(element))
        self._nodes.keep(node, None, Entry("list", sizes.ONE, value))
        return cost + CREATE_LIST

    def _map(self, node: MapNode) -> float:
        cost = 0.0
        key = value = sizes.NOTHING if node.entries else Size(0, 0)
        for key_node, value_node, _ in node.entries:
            cost += self.cost(key_node) + self.cost(value_node)
            key = key.or_(self._nodes.size(key_node))
            value = value.or_(self._nodes.size(value_node))

        self._nodes.keep(node, None, Entry("map", key, value))
        return cost + CREATE_MAP

    # Folds

    def _bind(self, name: str, node: Node) -> None:
        nodes = self._nodes
        nodes.enter(name, Local(nodes.path(node), nodes.known(node), nodes.entry(node)))

    def _let(self, node: Fold) -> float:
        cost = self.cost(node.range) + self.cost(node.start)
        self._bind(node.accumulator, node.start)
        cost += self.cost(node.result)
        self._nodes.leave(node.accumulator)
        self._nodes.keep(node, self._nodes.known(node.result), self._nodes.entry(node.result))
        return cost

    def _fold(self, node: Fold) -> float:
        cost = self.cost(node.range) + self.cost(node.start)
        self._bind(node.accumulator, node.start)

        self._enter_variables(node)
        step = self.cost(node.condition) + self.cost(node.step)
        self._nodes.leave(node.variable)
        if node.second:
            self._nodes.leave(node.second)

        cost += self.cost(node.result)
        self._nodes.leave(node.accumulator)

        # A fold that starts with a number or a bool keeps that size. Others grow with their range.
        count = self._nodes.size(node.range)
        if isinstance(node.start, Literal):
            self._nodes.keep(node, self._nodes.known(node.start))
        else:
            self._nodes.keep(node, count, self._nodes.entry(node.step))

        return cost + sizes.times(count.most, step)

    def _enter_variables(self, node: Fold) -> None:
        """Begins a scope with the variables of a fold.

        One variable is an element of a list or a key of a map. Two variables are index and element,
        or key and value.
        """
        over = node.range
        assert over.type is not None
        entry, path = self._nodes.entry(over), self._nodes.path(over)
        key = entry.key if entry else None
        value = entry.value if entry else None
        is_list = (entry.kind if entry else over.type.kind) == "list"

        keys = Local((*path, "@indices" if is_list else "@keys"), key, None)
        values = Local((*path, "@items" if is_list else "@values"), value, None)
        if node.second:
            # Kubernetes appends both to one slice: where it has room, the second path overwrites
            # the first. That is so for the attributes and capacities of a domain.
            if len(path) == 3:
                keys = keys._replace(path=values.path)
            self._nodes.enter(node.variable, keys)
            self._nodes.enter(node.second, values)
        else:
            self._nodes.enter(node.variable, values if is_list else keys)

    # Calls

    def _call(self, node: Call) -> float:
        if node.function == "dyn":
            (argument,) = node.arguments
            cost = 1 + self.cost(argument)
            self._nodes.keep(node, self._nodes.known(argument), self._nodes.entry(argument))
            return cost

        costs = [self.cost(argument) for argument in node.arguments]
        if not node.overloads:
            return 0

        target = self.cost(node.target) if node.target is not None else 0

        # The overload with the greatest cost counts, and the largest of the results.
        most: float = 0
        result: Size | None = None
        for overload in _overloads(node):
            cost, size = self._own_cost(node, overload)
            most = max(most, _add_arguments(node.function, cost, costs))
            if size is not None:
                result = size if result is None else result.or_(size)
            if node.function == "_[_]" and overload:
                result = self._index(node, overload, result)
            if result is None:
                result = self._nodes.known(node)

        self._nodes.keep(node, result)
        return target + most

    def _own_cost(self, node: Call, overload: Overload | None) -> tuple[float, Size | None]:
        """Returns the cost of the call itself, and the size of its result if that is known."""
        rule = estimate_rules.RULES.get(node.function)
        estimated = rule(self._nodes, node, overload) if rule else None
        return estimated or (1, None)

    def _index(self, node: Call, overload: Overload, size: Size | None) -> Size | None:
        """Returns the size of an element of a list or map, if that is known."""
        kind = overload.parameters[0].kind
        if kind not in ("list", "map"):
            return size

        container = node.arguments[0]
        step = "@items" if kind == "list" else "@values"
        self._nodes.keep_path(node, (*self._nodes.path(container), step))
        entry = self._nodes.entry(container)
        return entry.value if entry else None


def _overloads(node: Call) -> list[Overload | None]:
    by_signature = {overload.signature: overload for overload in FUNCTIONS.get(node.function, ())}
    return [by_signature.get(signature) for signature in node.overloads]


def _add_arguments(function: str, cost: float, costs: list[float]) -> float:
    # Only one of the branches is evaluated.
    if function == "_?_:_":
        return costs[0] + max(costs[1:])
    # Operators that may skip an operand cost nothing themselves.
    if function in estimate_rules.LAZY:
        return sum(costs)
    return cost + sum(costs)
