"""A quick upper bound of what an expression can cost for any device within the API's sizes.

Where it is far below the limit nothing needs to be counted at run time. It is generous: never below
the true cost.
"""

from __future__ import annotations

import math

from . import constants
from .cost import CREATE_LIST, CREATE_MAP
from .syntax import Call, Fold, Ident, ListNode, MapNode, Node, Select
from .values import MISSING, Map, Value, size

_ATTRIBUTE = 64  # characters or elements of an attribute, elements of a map of attributes
_UNKNOWN = math.inf
_PATIENCE = 2000  # looks at nodes; who writes more than that can wait for the counting
_KEEPS = frozenset(
    [
        "lowerAscii",
        "upperAscii",
        "trim",
        "substring",
        "charAt",
        "find",
        "value",
        "first",
        "last",
        "reverse",
        "slice",
        "distinct",
        "sort",
    ]
)
_ONCE = frozenset(  # look at their arguments once at most
    [
        "_==_",
        "_!=_",
        "_<_",
        "_<=_",
        "_>_",
        "_>=_",
        "@in",
        "!_",
        "startsWith",
        "endsWith",
        "isGreaterThan",
        "isLessThan",
        "compareTo",
        "hasValue",
        "size",
    ]
)
_LETS = frozenset(("bind", "optMap"))
_SMALL = frozenset(
    (
        "bool",
        "int",
        "uint",
        "double",
        "kubernetes.Quantity",
        "kubernetes.Semver",
        "net.IP",
        "net.CIDR",
    )
)


def of(root: Node) -> float:
    """The most that the expression can cost; infinite where that is not seen at once."""
    return _Bound().cost(root)


class _Bound:
    def __init__(self) -> None:
        self._steps = 0
        self._sizes: dict[str, float] = {".device": _ATTRIBUTE, "device": _ATTRIBUTE}

    def cost(self, node: Node) -> float:
        if constants.value_of(node) is not MISSING:
            return 0
        if isinstance(node, Fold):
            return self._fold(node)
        inner = sum(map(self.cost, node.children()))
        if isinstance(node, ListNode):
            return inner + CREATE_LIST
        if isinstance(node, MapNode):
            return inner + CREATE_MAP
        if isinstance(node, Call) and node.function not in ("_&&_", "_||_", "_?_:_"):
            return inner + self._call(node)
        return inner + 2

    def _call(self, node: Call) -> float:
        if node.function in ("_[_]", "_[?_]", "_?._"):
            return 2
        largest = max((self.size(child) for child in node.children()), default=0)
        return 8 + largest if node.function in _ONCE else 32 + 3 * (1 + largest) ** 2

    def _fold(self, node: Fold) -> float:
        before = dict(self._sizes)
        try:
            if node.macro in _LETS:
                start = self.cost(node.start)
                self._sizes[node.accumulator] = self.size(node.start)
                return start + self.cost(node.result)
            over = self.size(node.range)
            self._sizes |= {node.accumulator: _UNKNOWN, node.variable: over, node.second: over}
            once = 20 + self._step(node)
            return self.cost(node.range) + over * once + 50
        finally:
            self._sizes = before

    def _step(self, node: Fold) -> float:
        """What one turn costs: the macro's own call is cheap, what the author wrote is counted."""
        if node.macro not in ("all", "exists") or not isinstance(node.step, Call):
            return _UNKNOWN
        return self.cost(node.step.arguments[1])

    def size(self, node: Node) -> float:
        """The most characters or elements that the value, or anything inside of it, has."""
        self._steps += 1
        if self._steps > _PATIENCE:
            return _UNKNOWN
        value = constants.value_of(node)
        if value is not MISSING:
            return _deep(value)
        if isinstance(node, Ident):
            return self._sizes.get(node.name, _UNKNOWN)
        if isinstance(node, Select):
            return 1 if node.test else self.size(node.operand)
        if isinstance(node, ListNode | MapNode):
            return max((self.size(child) for child in node.children()), default=0) + sum(
                1 for _ in node.children()
            )
        if isinstance(node, Call):
            return self._result(node)
        return _UNKNOWN

    def _result(self, node: Call) -> float:
        if node.type is not None and node.type.name in _SMALL:
            return 16
        if node.function in ("_[_]", "_[?_]", "_?._"):
            return self.size(node.arguments[0])
        sizes = [self.size(child) for child in node.children()]
        if node.function in _KEEPS or node.function in ("_?_:_", "or", "orValue", "optional.of"):
            return max(sizes)
        return sum(sizes) if node.function == "_+_" else _UNKNOWN


def _deep(value: Value) -> float:
    if isinstance(value, list):
        return max([len(value), *map(_deep, value)])
    if isinstance(value, Map):
        return max([len(value), *(_deep(part) for entry in value.items() for part in entry)])
    return size(value)
