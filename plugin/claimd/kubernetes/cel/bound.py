"""A quick upper bound for the cost of an expression for any device within the API's sizes.

The bound is generous: it is never below the true cost. If it is below the limit, an evaluation needs
no meter.
"""

from __future__ import annotations

import math

from . import constants, regex
from .cost import CREATE_LIST, CREATE_MAP
from .syntax import Call, Fold, Ident, ListNode, MapNode, Node, Select
from .values import MISSING, Map, Value, size

# The most characters or elements of an attribute, and the most elements of a map of attributes.
_ATTRIBUTE = 64
_UNKNOWN = math.inf
# Looks at nodes. A larger expression is metered, which takes longer than a walk of this size.
_MOST_LOOKS = 2000
_MOST_LETS = 4

_INDEXES = frozenset(("_[_]", "_[?_]", "_?._"))
# Functions whose result is no larger than their largest argument.
_KEEP_SIZE = frozenset(
    (
        *("lowerAscii", "upperAscii", "trim", "substring", "charAt", "find"),
        *("value", "first", "last", "reverse", "slice", "distinct", "sort"),
        *("_?_:_", "or", "orValue", "optional.of"),
    )
)
# Functions that look at their arguments at most once.
_LOOK_ONCE = frozenset(
    (
        *("_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_", "@in", "!_"),
        *("startsWith", "endsWith", "isGreaterThan", "isLessThan", "compareTo"),
        *("hasValue", "size"),
    )
)
_LETS = frozenset(("bind", "optMap"))
_SMALL_TYPES = frozenset(
    (
        *("bool", "int", "uint", "double"),
        *("kubernetes.Quantity", "kubernetes.Semver", "net.IP", "net.CIDR"),
    )
)


def upper_bound(root: Node) -> float:
    """Returns an upper bound for the cost. It is infinite if no simple rule gives a bound."""
    return _Bound().cost(root)


class _Bound:
    """One walk through an expression, with the sizes of the variables in scope."""

    def __init__(self) -> None:
        self._looks = 0
        self._lets = 0
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
        if node.function in _INDEXES:
            return 2
        if node.function in constants.PATTERN_FUNCTIONS and not _is_fast(node):
            return _UNKNOWN

        largest = max((self.size(child) for child in node.children()), default=0)
        if node.function in _LOOK_ONCE:
            return 8 + largest
        # No function looks at each pair of elements more than three times.
        return 32 + 3 * (1 + largest) ** 2

    def _fold(self, node: Fold) -> float:
        # The variables of a fold hide those of the same name outside, and end with it.
        before = dict(self._sizes)
        try:
            if node.macro in _LETS:
                # Each name may stand for a list that holds the list before it twice. Such lists are
                # small, but their comparison costs twice as much with each name.
                self._lets += 1
                if self._lets > _MOST_LETS:
                    return _UNKNOWN
                start = self.cost(node.start)
                self._sizes[node.accumulator] = self.size(node.start)
                return start + self.cost(node.result)

            over = self.size(node.range)
            self._sizes |= {node.accumulator: _UNKNOWN, node.variable: over, node.second: over}
            turn = 20 + self._step(node)
            # Even a list without elements counts as one turn: infinity times 0 has no value.
            return self.cost(node.range) + max(over, 1) * turn + 50
        finally:
            self._sizes = before

    def _step(self, node: Fold) -> float:
        """Returns a bound for one turn without the macro's own calls, which _fold() adds."""
        if node.macro not in ("all", "exists") or not isinstance(node.step, Call):
            return _UNKNOWN
        return self.cost(node.step.arguments[1])

    def size(self, node: Node) -> float:
        """Returns the greatest number of characters or elements of the value or anything in it."""
        # A deep expression may look at its inner nodes once for each level.
        self._looks += 1
        if self._looks > _MOST_LOOKS:
            return _UNKNOWN

        value = constants.value_of(node)
        if value is not MISSING:
            return _size_of_value(value)

        match node:
            case Ident():
                return self._sizes.get(node.name, _UNKNOWN)
            case Select():
                return 1 if node.test else self.size(node.operand)
            case ListNode() | MapNode():
                sizes = [self.size(child) for child in node.children()]
                return max(sizes, default=0) + len(sizes)
            case Call():
                return self._result(node)

        return _UNKNOWN

    def _result(self, node: Call) -> float:
        if node.type is not None and node.type.name in _SMALL_TYPES:
            return 16
        if node.function in _INDEXES:
            return self.size(node.arguments[0])

        sizes = [self.size(child) for child in node.children()]
        if node.function in _KEEP_SIZE:
            return max(sizes)
        return sum(sizes) if node.function == "_+_" else _UNKNOWN


def _is_fast(node: Call) -> bool:
    """Returns True if the pattern of the call is known and takes little time for any attribute."""
    patterns = node.arguments[:1] if node.target is not None else node.arguments[1:2]
    for argument in patterns:
        pattern = constants.value_of(argument)
        if isinstance(pattern, str):
            return regex.compile_pattern(pattern).is_small
    return False


def _size_of_value(value: Value) -> float:
    if isinstance(value, list):
        return max([len(value), *map(_size_of_value, value)])
    if isinstance(value, Map):
        sizes: list[float] = [len(value)]
        for key, member in value.items():
            sizes += (_size_of_value(key), _size_of_value(member))
        return max(sizes)

    return size(value)
