"""The nodes of a parsed expression.

Only the checker writes their fields `type`, `overloads` and `reference`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .types import Type


class Node:
    """A part of an expression, with its position in the text and, once it is checked, its type.

    `constant` is a tuple that holds the value which the node has for every device, or MISSING. It is
    None until `constants.value_of()` has looked for that value.
    """

    __slots__ = ("constant", "position", "type")

    def __init__(self, position: int) -> None:
        self.position = position
        self.type: Type | None = None
        self.constant: tuple[object] | None = None

    def children(self) -> Iterator[Node]:
        return iter(())


class Literal(Node):
    __slots__ = ("value",)

    def __init__(self, position: int, value: object) -> None:
        super().__init__(position)
        self.value = value


class Ident(Node):
    """A variable or, if `reference` is set, the name of a type.

    A leading dot in the name stands for the outermost scope.
    """

    __slots__ = ("name", "reference")

    def __init__(self, position: int, name: str) -> None:
        super().__init__(position)
        self.name = name
        self.reference: object = None


class Select(Node):
    """The expression `operand.field`, or has(operand.field) if `test` is set.

    `reference` is set if the whole is the qualified name of a type.
    """

    __slots__ = ("field", "operand", "reference", "test")

    def __init__(self, position: int, operand: Node, field: str, test: bool = False) -> None:
        super().__init__(position)
        self.operand, self.field, self.test = operand, field, test
        self.reference: object = None

    def children(self) -> Iterator[Node]:
        yield self.operand


class Call(Node):
    """A call of a function. Operators are functions with names such as _+_.

    `overloads` are the signatures of the overloads that fit the types of the arguments.
    """

    __slots__ = ("arguments", "function", "overloads", "target")

    def __init__(
        self, position: int, function: str, arguments: list[Node], target: Node | None = None
    ) -> None:
        super().__init__(position)
        self.function, self.target, self.arguments = function, target, arguments
        self.overloads: tuple[str, ...] = ()

    def children(self) -> Iterator[Node]:
        if self.target is not None:
            yield self.target
        yield from self.arguments


class ListNode(Node):
    __slots__ = ("elements", "optional")

    def __init__(
        self, position: int, elements: list[Node], optional: frozenset[int] = frozenset()
    ) -> None:
        super().__init__(position)
        self.elements, self.optional = elements, optional

    def children(self) -> Iterator[Node]:
        return iter(self.elements)


class MapNode(Node):
    """A map literal. An entry is a key, a value, and whether the value is optional."""

    __slots__ = ("entries",)

    def __init__(self, position: int, entries: list[tuple[Node, Node, bool]]) -> None:
        super().__init__(position)
        self.entries = entries

    def children(self) -> Iterator[Node]:
        for key, value, _ in self.entries:
            yield key
            yield value


class Fold(Node):
    """A loop, which every macro with a variable becomes.

    The accumulator begins as `start`. For each element of `range`, as long as `condition` holds,
    `step` gives the next accumulator. Then `result` is the value. `second` is the name of the
    second variable, or empty.
    """

    __slots__ = (
        "accumulator",
        "condition",
        "macro",
        "range",
        "result",
        "second",
        "start",
        "step",
        "variable",
    )

    def __init__(  # noqa: PLR0913  # one argument for each part
        self, position: int, *, range_: Node, variable: str, second: str, accumulator: str,
        start: Node, condition: Node, step: Node, result: Node, macro: str,
    ) -> None:  # fmt: skip
        super().__init__(position)
        self.range, self.variable, self.second = range_, variable, second
        self.accumulator, self.start, self.condition = accumulator, start, condition
        self.step, self.result, self.macro = step, result, macro

    def children(self) -> Iterator[Node]:
        return iter((self.range, self.start, self.condition, self.step, self.result))


def copy(node: Node) -> Node:
    """Returns a copy of the tree, which is not yet checked.

    A macro that uses its target twice needs a copy, since each node carries its own type.
    """
    match node:
        case Literal():
            return Literal(node.position, node.value)
        case Ident():
            return Ident(node.position, node.name)
        case Select():
            return Select(node.position, copy(node.operand), node.field, node.test)
        case Call():
            target = copy(node.target) if node.target is not None else None
            return Call(node.position, node.function, list(map(copy, node.arguments)), target)
        case ListNode():
            return ListNode(node.position, list(map(copy, node.elements)), node.optional)
        case MapNode():
            entries = [(copy(key), copy(value), optional) for key, value, optional in node.entries]
            return MapNode(node.position, entries)
        case Fold():
            return Fold(
                node.position, range_=copy(node.range), variable=node.variable, second=node.second,
                accumulator=node.accumulator, start=copy(node.start), condition=copy(node.condition),
                step=copy(node.step), result=copy(node.result), macro=node.macro,
            )  # fmt: skip

    raise TypeError(type(node).__name__)


def is_larger(node: Node, limit: int) -> bool:
    """Returns True if the tree has more nodes than the limit."""
    return next(itertools.islice(descendants(node), limit, None), None) is not None


def is_index(node: Node) -> bool:
    """Returns True if the node is a[b], a[?b] or a.?b."""
    return isinstance(node, Call) and node.function in ("_[_]", "_[?_]", "_?._")


def descendants(node: Node) -> Iterator[Node]:
    """Yields the node and all nodes below it."""
    yield node
    for child in node.children():
        yield from descendants(child)


def terms(node: Node, function: str) -> list[Node]:
    """Returns the operands of nested calls of one operator: a, b, c for a && (b && c).

    Brackets do not change the order in which these are evaluated.
    """
    if isinstance(node, Call) and node.function == function:
        return [term for argument in node.arguments for term in terms(argument, function)]
    return [node]
