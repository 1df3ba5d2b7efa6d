"""Closures for folds, which all macros with variables become.

An accumulator starts when it is first read, as in Kubernetes: a start that fails is no error where
nobody reads it, and it is charged where it is read.
"""

from __future__ import annotations

from collections.abc import Iterable

from .attributes import Closure, Frame
from .builder import Builder
from .errors import EvalError, FatalError
from .macros import ACCUMULATOR
from .syntax import Call, Fold, Ident, ListNode, Node
from .values import Growing, Map, Value, no_overload

LETS = frozenset(("bind", "optMap", "sortBy"))  # name one value; they go over nothing
_GROWING = frozenset(("map", "filter", "transformList"))


class _Pending:
    """An accumulator nobody has read yet."""


_PENDING = _Pending()


def build(builder: Builder, node: Fold) -> Closure:
    """The fold's closure. Its accumulator is pending, a value, or the EvalError that stands for it."""
    start, over = builder.build(node.start), builder.build(node.range)
    place = builder.place()
    first, second = builder.variables(node)

    builder.enter({node.accumulator: _accumulator(place, start)})
    if node.macro in LETS:
        body = builder.build(node.result)
        builder.leave()
        return _let(place, body)

    variables: dict[str, Closure | int] = {node.variable: first}
    if node.second:
        variables[node.second] = second
    builder.enter(variables)
    if node.macro in ("all", "exists"):
        assert isinstance(node.step, Call)
        predicate = builder.build(node.step.arguments[1])
        builder.leave()
        builder.leave()
        quantifier = _metered_quantifier if builder.metered else _quantifier
        return quantifier(node.macro, over, predicate, (first, second))

    condition, step = builder.build(node.condition), _step(builder, node, node.step)
    builder.leave()
    result = builder.build(node.result)
    builder.leave()

    def run(frame: Frame) -> Value:
        values = over(frame)
        frame[place] = _PENDING
        for entry in entries(values, bool(second)):
            if second:
                frame[first], frame[second] = entry
            else:
                frame[first] = entry
            if not _goes_on(condition, frame):
                break
            # An error becomes the accumulator: a later step may absorb it, as || does.
            try:
                frame[place] = step(frame)
            except FatalError:
                raise
            except EvalError as error:
                frame[place] = error
        return _detach(result(frame))

    return run


def _accumulator(place: int, start: Closure) -> Closure:
    """Reads the accumulator, and starts it where nobody has read it before."""

    def read(frame: Frame) -> Value:
        value = frame[place]
        if value is _PENDING:
            try:
                value = start(frame)
            except FatalError:
                raise
            except EvalError as error:
                value = error
            if isinstance(value, list) and not value:
                value = Growing()
            frame[place] = value
        if isinstance(value, EvalError):
            raise value
        return value

    return read


def _detach(value: Value) -> Value:
    """A value that is no longer the accumulator's own."""
    return list(value) if type(value) is Growing else value


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
        return _detach(body(frame))

    return run


def entries(values: Value, pairs: bool) -> Iterable[Value]:
    """What a macro goes over: elements or keys, or with `pairs` each with its index or its value."""
    if isinstance(values, list):
        return list(enumerate(values)) if pairs else values
    if isinstance(values, Map):
        return list(values.items() if pairs else values.keys())
    raise no_overload("a macro over elements", values)


def _quantifier(macro: str, over: Closure, predicate: Closure, places: tuple[int, int]) -> Closure:
    """all() and exists(): one false or true decides, whatever errors there are beside it."""
    decisive: bool = macro == "exists"
    first, second = places

    def run(frame: Frame) -> bool:
        error: EvalError | None = None
        for entry in entries(over(frame), bool(second)):
            if second:
                frame[first], frame[second] = entry
            else:
                frame[first] = entry
            try:
                value = predicate(frame)
            except FatalError:
                raise
            except EvalError as failure:
                error = error or failure
                continue
            if value is decisive:
                return bool(decisive)
            if type(value) is not bool:
                error = error or no_overload(macro, value)
        if error is not None:
            raise error
        return not decisive

    return run


def _metered_quantifier(
    macro: str, over: Closure, predicate: Closure, places: tuple[int, int]
) -> Closure:
    """The same with what the macro costs in Kubernetes, where it is written out as a loop.

    Each turn asks whether it goes on, @not_strictly_false(result) or of its opposite, and reads the
    result once more for its step, result && predicate.
    """
    decisive: bool = macro == "exists"
    first, second = places
    goes_on = 3 if decisive else 2

    def run(frame: Frame) -> bool:
        meter = frame[1]
        error: EvalError | None = None
        decided = False
        for entry in entries(over(frame), bool(second)):
            if second:
                frame[first], frame[second] = entry
            else:
                frame[first] = entry
            for _ in range(goes_on):
                meter.charge(1)
            if decided:
                break
            meter.charge(1)
            try:
                value = predicate(frame)
            except FatalError:
                raise
            except EvalError as failure:
                error = error or failure
                continue
            if value is decisive:
                decided = True
            elif type(value) is not bool:
                error = error or no_overload("||" if decisive else "&&", value)
        meter.charge(1)
        if decided:
            return decisive
        if error is not None:
            raise error
        return not decisive

    return run


def _step(builder: Builder, node: Fold, step: Node) -> Closure:
    """The step; where it adds to the macro's own list or map, without a copy each time."""
    if not isinstance(step, Call):
        return builder.build(step)

    if step.function == "_?_:_" and node.macro != "exists_one":
        chosen, grown = builder.build(step.arguments[0]), _step(builder, node, step.arguments[1])
        unchanged = builder.resolve(step.arguments[2])

        def conditional(frame: Frame) -> Value:
            value = chosen(frame)
            if type(value) is not bool:
                raise no_overload("?:", value)
            return grown(frame) if value else unchanged(frame)

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

    return builder.with_charge(append, 1)
