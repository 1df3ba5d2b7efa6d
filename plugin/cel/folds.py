"""Closures for folds, which macros with variables become. Accumulators start when first read, as in
Kubernetes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from .attributes import Closure, Frame
from .errors import EvalError, FatalError
from .macros import ACCUMULATOR
from .syntax import Call, Fold, Ident, ListNode, Node
from .values import Growing, Map, Value, no_overload

if TYPE_CHECKING:
    from .closures import Builder

_GROWING = frozenset(("map", "filter", "transformList"))
LETS = frozenset(("bind", "optMap", "sortBy"))


class _Pending:
    """An accumulator nobody has read yet."""


_PENDING = _Pending()


def build(builder: Builder, node: Fold) -> Closure:
    start, over = builder.build(node.start), builder.build(node.range)
    accumulator = builder.place()
    first, second = builder.variables(node)

    def accumulated(frame: Frame) -> Value:
        value = frame[accumulator]
        if value is _PENDING:
            try:
                value = start(frame)
            except FatalError:
                raise
            except EvalError as error:
                value = error
            frame[accumulator] = value = (
                Growing() if value == [] and isinstance(value, list) else value
            )
        if isinstance(value, EvalError):
            raise value
        return value

    if node.macro in LETS:
        builder.enter({node.accumulator: accumulated})
        body = builder.build(node.result)
        builder.leave()
        return _let(accumulator, body)
    builder.enter({node.accumulator: accumulated})
    variables: dict[str, Closure] = {node.variable: lambda frame: frame[first]}
    if node.second:
        variables[node.second] = lambda frame: frame[second]
    builder.enter(variables)
    if not builder.metered and node.macro in ("all", "exists"):
        assert isinstance(node.step, Call)
        predicate = builder.build(node.step.arguments[1])
        builder.leave()
        builder.leave()
        return _quantified(node.macro, over, predicate, (first, second))
    condition, step = builder.build(node.condition), _step(builder, node, node.step)
    builder.leave()
    result = builder.build(node.result)
    builder.leave()

    def run(frame: Frame) -> Value:
        values = over(frame)
        frame[accumulator] = _PENDING
        for entry in entries(values, bool(second)):
            frame[first], frame[second or first] = entry if second else (entry, entry)
            if not _goes_on(condition, frame):
                break
            try:
                frame[accumulator] = step(frame)
            except FatalError:
                raise
            except EvalError as error:
                frame[accumulator] = error
        value = result(frame)
        return list(value) if type(value) is Growing else value

    return run


def _goes_on(condition: Closure, frame: Frame) -> bool:
    try:
        return condition(frame) is not False
    except FatalError:
        raise
    except EvalError:
        return True


def _let(place: int, body: Closure) -> Closure:
    def run(frame: Frame) -> Value:
        frame[place] = _PENDING
        value = body(frame)
        return list(value) if type(value) is Growing else value

    return run


def entries(values: Value, pairs: bool) -> Iterable[Value]:
    if isinstance(values, list):
        return list(enumerate(values)) if pairs else values
    if isinstance(values, Map):
        return list(values.items() if pairs else values.keys())
    raise no_overload("a macro over elements", values)


def _quantified(macro: str, over: Closure, predicate: Closure, places: tuple[int, int]) -> Closure:
    """all() and exists(): one false or true decides, whatever errors there are beside it."""
    stops: bool = macro == "exists"
    first, second = places

    def run(frame: Frame) -> bool:
        error: EvalError | None = None
        for entry in entries(over(frame), bool(second)):
            frame[first], frame[second or first] = entry if second else (entry, entry)
            try:
                value = predicate(frame)
            except FatalError:
                raise
            except EvalError as failure:
                error = error or failure
                continue
            if value is stops:
                return bool(stops)
            if type(value) is not bool:
                error = error or no_overload(macro, value)
        if error is not None:
            raise error
        return not stops

    return run


def _step(builder: Builder, node: Fold, step: Node) -> Closure:
    """The step; where it adds to the macro's own list or map, without a copy each time."""
    if not isinstance(step, Call):
        return builder.build(step)
    if step.function == "_?_:_" and node.macro != "exists_one":
        chosen, grown = builder.build(step.arguments[0]), _step(builder, node, step.arguments[1])
        same = builder.resolve(step.arguments[2])

        def conditional(frame: Frame) -> Value:
            value = chosen(frame)
            if type(value) is not bool:
                raise no_overload("?:", value)
            return grown(frame) if value else same(frame)

        return conditional
    if node.macro in _GROWING and step.function == "_+_":
        left, right = step.arguments
        if isinstance(left, Ident) and left.name == ACCUMULATOR and isinstance(right, ListNode):
            return _append(builder, left, right)
    return builder.build(step)


def _append(builder: Builder, left: Ident, right: ListNode) -> Closure:
    own, more = builder.build(left), builder.build(right)

    def append(frame: Frame) -> Value:
        try:
            values = own(frame)
        except FatalError:
            raise
        except EvalError:
            more(frame)  # evaluated for what it costs
            raise
        values.extend(more(frame))
        return values

    return builder.charged(append, 1)
