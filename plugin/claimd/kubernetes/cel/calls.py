"""Calls of functions: which overload the values select, and what errors of the arguments do."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from . import constants
from .attributes import Closure, Frame
from .cost import FAILED
from .declarations import Overload, accepts
from .errors import EvalError, FatalError
from .library import FUNCTIONS
from .syntax import Call
from .types import Type
from .values import MISSING, NAMES, Map, Value, equal, no_overload, same, size, type_name

_CLASSES = {name: cls for cls, name in NAMES.items()}

# Functions that take any list, whatever type the checker has found for its elements.
SORTS = frozenset(("sort", "@sortByAssociatedKeys"))
NEEDS_LIST = SORTS | {"distinct"}

# Functions that look at each element of their lists, and those that compare each with each.
_LINEAR = frozenset(
    (
        *("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf", "includes", "join"),
        *("format", "sort", "@sortByAssociatedKeys", "@in", "optional.unwrap", "unwrapOpt"),
    )
)
_SETS = frozenset(("sets.contains", "sets.intersects", "sets.equivalent"))


def steps(function: str) -> Callable[[Sequence[Value]], int] | None:
    """Returns a function that counts the steps of a call, given the arguments.

    Returns None if a call takes a few steps at most.
    """
    if function in _LINEAR:
        return lambda values: sum(len(value) for value in values if isinstance(value, list | Map))
    if function == "distinct":
        return lambda values: size(values[0]) ** 2 // 2
    if function in _SETS:
        return lambda values: size(values[0]) * size(values[1]) // 2
    if function == "cel.@mapInsert":
        return lambda values: size(values[0]) // 16
    if function == "lists.range":
        return lambda values: _count(values[0]) // 8
    return None


def _count(value: Value) -> int:
    return value if type(value) is int else 0


def implementation(node: Call) -> Callable[..., Value]:
    """Returns the function for values, which selects among the overloads that fit the types."""
    name = node.function
    # Kubernetes negates ==. An error of == makes this true, which is why no error appears here.
    if name == "_!=_":
        return lambda left, right: same(left, right) is not True

    overloads = FUNCTIONS[name]
    candidates = [overload for overload in overloads if overload.signature in node.overloads]
    if len(candidates) == 1 and name not in SORTS:
        return _guard(candidates[0])

    # If several overloads fit the types, the values select one of all that take as many arguments.
    count = len(node.arguments) + (node.target is not None)
    candidates = [overload for overload in overloads if len(overload.parameters) == count]
    first = candidates[0]
    if not first.guarded and all(
        overload.implementation is first.implementation for overload in candidates
    ):
        return first.implementation

    def dispatch(*values: Value) -> Value:
        for overload in candidates:
            if overload.accepts(values):
                return overload.implementation(*values)
        raise no_overload(name, *values)

    return dispatch


def or_fatal(argument: Closure) -> Closure:
    """Returns a closure for the argument of a sort, which raises FatalError if it is no list.

    Kubernetes counts the cost of sorting even if the argument is an error, and fails at that.
    """

    def run(frame: Frame) -> Value:
        try:
            value = argument(frame)
        except EvalError as error:
            raise FatalError(error.message) from None
        if not isinstance(value, list):
            raise FatalError(f"{type_name(value)} cannot be sorted")
        return value

    return run


def stops_early(node: Call) -> bool:
    """Returns True if an error of the first argument keeps the second from being evaluated.

    The call itself is not charged then.
    """
    if len(node.arguments) + (node.target is not None) < 2:
        return False
    if node.function in ("matches", "find", "findAll"):
        pattern = node.arguments[-1 if node.function == "matches" else 0]
        return isinstance(constants.value_of(pattern), str)
    # With several overloads Kubernetes dispatches by value, and it evaluates arguments in turn for
    # that.
    singular = not FUNCTIONS[node.function][0].guarded or node.function == "@sortByAssociatedKeys"
    return len(node.overloads) > 1 and not singular


def evaluate_arguments(
    frame: Frame, arguments: Sequence[Closure], sequential: bool
) -> tuple[list[Value], EvalError | None]:
    """Returns the values of the arguments, with FAILED for errors, and the first error.

    With `sequential` it stops at the first error, so that there may be fewer values than arguments.
    """
    values: list[Value] = []
    error: EvalError | None = None
    for argument in arguments:
        try:
            values.append(argument(frame))
        except FatalError:
            raise
        except EvalError as failure:
            error = error or failure
            values.append(FAILED)
            if sequential:
                break

    return values, error


def _guard(overload: Overload) -> Callable[..., Value]:
    """Returns the implementation behind a check that the values have the declared types."""
    run = overload.implementation
    if not overload.guarded:
        return run

    # Most overloads take one or two values of plain classes, for which a comparison of classes is
    # enough.
    classes = [_class_of(parameter) for parameter in overload.parameters]
    if len(classes) == 1 and classes[0]:
        (only,) = classes

        def one(value: Value) -> Value:
            if type(value) is not only:
                raise no_overload(overload.name, value)
            return run(value)

        return one

    if len(classes) == 2 and all(classes):
        first, second = classes

        def two(left: Value, right: Value) -> Value:
            if type(left) is not first or type(right) is not second:
                raise no_overload(overload.name, left, right)
            return run(left, right)

        return two

    parameters = overload.parameters

    def several(*values: Value) -> Value:
        if not all(map(accepts, parameters, values)):
            raise no_overload(overload.name, *values)
        return run(*values)

    return several


def _class_of(parameter: Type) -> type | None:
    """Returns the class of all values of the type, or None if they may have several classes."""
    if parameter.kind in ("simple", "object"):
        return _CLASSES.get(parameter.name)
    return None


def plain(
    node: Call,
    run: Callable[..., Value],
    arguments: list[Closure],
    constant_values: list[Value],
) -> Closure:
    """Returns a closure for a call without a meter.

    `constant_values` has the value of each argument that is a constant, and MISSING for the others.
    """
    if len(arguments) == 1:
        (only,) = arguments
        return lambda frame: run(only(frame))
    if len(arguments) != 2:
        return lambda frame: run(*[argument(frame) for argument in arguments])

    left, right = arguments
    constant = constant_values[1]
    if node.function == "_==_" and type(constant) is str:
        # Selectors compare attributes with constant texts most often.
        def equals(frame: Frame) -> bool:
            value = left(frame)
            return value == constant if type(value) is str else equal(value, constant)

        return equals
    if constant is not MISSING:
        return lambda frame: run(left(frame), constant)
    return lambda frame: run(left(frame), right(frame))
