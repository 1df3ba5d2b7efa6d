"""How calls run: the overload that the values choose, the order of arguments, and what breaks on an
error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from . import constants
from .attributes import Closure, Frame
from .cost import FAILED
from .declarations import Overload, accepts
from .errors import EvalError, FatalError
from .library import FUNCTIONS
from .syntax import Call
from .values import MISSING, NAMES, Value, equal, no_overload, same, type_name

_CLASSES = {name: cls for cls, name in NAMES.items()}


def implementation(node: Call) -> Callable[..., Value]:
    """The function on values, with the choice between overloads that the types leave."""
    if node.function == "_!=_":
        return lambda left, right: same(left, right) is not True
    candidates = [o for o in FUNCTIONS[node.function] if o.signature in node.overloads]
    if len(candidates) == 1 and node.function not in SORTS:
        return _guarded(candidates[0])
    count = len(node.arguments) + (node.target is not None)
    candidates = [o for o in FUNCTIONS[node.function] if len(o.parameters) == count]
    if (
        all(o.implementation is candidates[0].implementation for o in candidates)
        and not candidates[0].guarded
    ):
        return candidates[0].implementation
    name = node.function

    def dispatch(*values: Value) -> Value:
        for overload in candidates:
            if overload.accepts(values):
                return overload.implementation(*values)
        raise no_overload(name, *values)

    return dispatch


SORTS = frozenset(
    ("sort", "@sortByAssociatedKeys")
)  # take any list, whatever type was found for its elements
NEEDS_LIST = SORTS | {"distinct"}


def or_fatal(argument: Closure) -> Closure:
    """Kubernetes counts the cost of sorting even if its argument is an error, and breaks on what is
    no list.
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
    """Whether a first argument that fails keeps the second from being evaluated (and the call from
    being charged).
    """
    if len(node.arguments) + (node.target is not None) < 2:
        return False
    if node.function in ("matches", "find", "findAll"):
        return isinstance(
            constants.value_of(node.arguments[-1 if node.function == "matches" else 0]), str
        )
    singular = not FUNCTIONS[node.function][0].guarded or node.function == "@sortByAssociatedKeys"
    return len(node.overloads) > 1 and not singular


def evaluated(
    frame: Frame, arguments: Sequence[Closure], sequential: bool
) -> tuple[list[Value], EvalError | None]:
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


def _guarded(overload: Overload) -> Callable[..., Value]:
    run = overload.implementation
    if not overload.guarded:
        return run
    classes = [
        _CLASSES.get(of.name) if of.kind in ("simple", "object") else None
        for of in overload.parameters
    ]
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


def plain(
    node: Call, run: Callable[..., Value], arguments: list[Closure], known: list[Value]
) -> Closure:
    if len(arguments) == 1:
        (only,) = arguments
        return lambda frame: run(only(frame))
    if len(arguments) == 2:
        left, right = arguments
        constant = known[1]
        if node.function == "_==_" and type(constant) is str:
            return lambda frame: (
                value == constant if type(value := left(frame)) is str else equal(value, constant)
            )
        if constant is not MISSING:
            return lambda frame: run(left(frame), constant)
        return lambda frame: run(left(frame), right(frame))
    return lambda frame: run(*[argument(frame) for argument in arguments])
