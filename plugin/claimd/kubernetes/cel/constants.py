"""Constants: parts of an expression with the same value for every device, and invalid constants."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from . import types
from .errors import CompileError, EvalError
from .library import FUNCTIONS, formatting, regex
from .syntax import Call, Ident, ListNode, Literal, MapNode, Node, Select, descendants
from .types import Type
from .values import MISSING, Map, Value

_CONVERSIONS = frozenset(
    ["bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"]
)
PATTERN_FUNCTIONS = frozenset(("matches", "find", "findAll"))


def value_of(node: Node) -> Value:
    """Returns the value of a node that Kubernetes treats as a constant, which costs nothing.

    Returns MISSING for any other node. Raises CompileError if the conversion of a constant fails,
    since Kubernetes refuses the expression then. The node must be checked, and keeps the answer.
    """
    if node.constant is None:
        node.constant = (_value_of(node),)
    return node.constant[0]


def _value_of(node: Node) -> Value:
    match node:
        case Literal():
            return node.value
        case Ident() | Select() if node.reference is not None:
            return node.reference
        case ListNode() if not node.optional:
            values = [value_of(element) for element in node.elements]
            return MISSING if _any_missing(values) else values
        case MapNode() if not any(optional for _, _, optional in node.entries):
            pairs = [(value_of(key), value_of(value)) for key, value, _ in node.entries]
            if any(_any_missing(pair) for pair in pairs):
                return MISSING
            return Map.from_pairs(pairs)
        case Call():
            return _convert(node)

    return MISSING


def _any_missing(values: Iterable[Value]) -> bool:
    # Compares by identity, since some values cannot be compared with MISSING.
    return any(value is MISSING for value in values)


def _convert(node: Call) -> Value:
    """Returns the value of a conversion of a constant, such as bool("true"), or MISSING."""
    # No device changes the answer for an empty list.
    if node.function == "@in" and node.overloads == ("@in: (A, list<A>) -> bool",):
        return False if value_of(node.arguments[1]) == [] else MISSING
    if node.function not in _CONVERSIONS or node.target is not None or len(node.arguments) != 1:
        return MISSING

    argument = value_of(node.arguments[0])
    if argument is MISSING:
        return MISSING

    for overload in FUNCTIONS[node.function]:
        if overload.accepts((argument,)):
            try:
                return overload.implementation(argument)
            except EvalError as error:
                raise CompileError(error.message, "", node.position) from None

    raise CompileError(f"{node.function}() does not take this", "", node.position)


def validate(root: Node, expression: str) -> None:
    """Checks the constants: patterns, times, formats, and the types of elements of literals.

    Raises CompileError for the first one that is invalid.
    """
    try:
        _validate(root, exempt=False)
        for node in descendants(root):
            if isinstance(node, Call):
                _validate_patterns(node)
                # A conversion of a constant may fail.
                value_of(node)
    except CompileError as error:
        raise CompileError(error.reason, expression, error.position) from None


def _validate(node: Node, exempt: bool) -> None:
    """Checks literals. The arguments of format() are exempt: they may be of several types."""
    if isinstance(node, Call) and node.function == "format":
        _validate_format(node)
        # format() takes a list of values of any types.
        exempt = True
    if not exempt and isinstance(node, ListNode):
        _homogeneous(
            [(element, index in node.optional) for index, element in enumerate(node.elements)]
        )
    if not exempt and isinstance(node, MapNode):
        _homogeneous([(key, False) for key, _, _ in node.entries])
        _homogeneous([(value, optional) for _, value, optional in node.entries])

    for child in node.children():
        _validate(child, exempt)


def _homogeneous(elements: list[tuple[Node, bool]]) -> None:
    first: Type | None = None
    for element, optional in elements:
        assert element.type is not None
        type_ = element.type
        if optional:
            type_, _ = types.unwrap_optional(type_)
        if first is None:
            first = type_
        elif not types.equivalent(first, type_):
            raise CompileError(
                f"elements must have one type, these are {first} and then {type_}",
                "",
                element.position,
            )


def _validate_patterns(node: Call) -> None:
    if node.function not in PATTERN_FUNCTIONS or not node.arguments:
        return

    patterns = node.arguments[:1] if node.target is not None else node.arguments[:2]
    for argument in patterns:
        pattern = value_of(argument)
        if isinstance(pattern, str):
            try:
                regex.compile_pattern(pattern)
            except EvalError as error:
                raise CompileError(error.message, "", argument.position) from None


def _validate_format(node: Call) -> None:
    """Checks a literal format and a literal list: the number of arguments and their types."""
    arguments = node.arguments[0] if node.arguments else None
    if (
        not isinstance(node.target, Literal)
        or not isinstance(node.target.value, str)
        or not isinstance(arguments, ListNode)
    ):
        return

    used = 0
    try:
        for _, letter, _ in formatting.clauses(node.target.value):
            if letter is None:
                continue
            if used >= len(arguments.elements):
                raise CompileError("the format has more clauses than arguments", "", node.position)
            _validate_clause(letter, arguments.elements[used])
            used += 1
    except EvalError as error:
        raise CompileError(error.message, "", node.position) from None

    if used < len(arguments.elements):
        raise CompileError(
            f"the format takes {used} arguments, not {len(arguments.elements)}", "", node.position
        )


def _validate_clause(letter: str, argument: Node) -> None:
    type_ = argument.type
    assert type_ is not None
    if type_ != types.DYN and type_.name not in formatting.TAKES[letter]:
        raise CompileError(f"%{letter} does not take {type_}", "", argument.position)
    if letter == "s" and isinstance(argument, ListNode | MapNode):
        for child in argument.children():
            _validate_clause(letter, child)


def fold(implementation: Callable[..., Any], arguments: list[Value]) -> Value:
    """Returns the result of a call of constants, or MISSING if it is an error.

    The error is then raised in each evaluation.
    """
    try:
        return implementation(*arguments)
    except EvalError:
        return MISSING
