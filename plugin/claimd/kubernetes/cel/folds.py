"""Closures for folds, the loops that all macros with variables become.

An accumulator starts when it is first read, as in Kubernetes. The start is charged at that step. A
start that fails is no error if the accumulator is never read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from . import logic
from .attributes import Closure, Frame
from .builder import Builder
from .errors import EvalError, FatalError
from .macros import ACCUMULATOR
from .syntax import Call, Fold, Ident, ListNode, Node
from .values import Growing, Map, Value, no_overload

# Macros that name a value and iterate over nothing.
LETS = frozenset(("bind", "optMap", "sortBy"))
_GROWING = frozenset(("map", "filter", "transformList"))


class _Pending:
    """The mark for an accumulator that has not been read yet."""


_PENDING = _Pending()
_NO_ENTRY = object()


def build(builder: Builder, node: Fold) -> Closure:
    """Returns the closure of a fold.

    The accumulator in the frame is pending, a value, or the EvalError that is raised for it.
    """
    start, over = builder.build(node.start), builder.build(node.range)
    place = builder.place()
    first, second = builder.variables(node)

    builder.enter({node.accumulator: _accumulator(place, start)})
    if node.macro in LETS:
        # A name for a value needs no loop.
        body = builder.build(node.result)
        builder.leave()
        return _let(place, body)

    variables: dict[str, Closure | int] = {node.variable: first}
    if node.second:
        variables[node.second] = second

    builder.enter(variables)
    # These two need no accumulator, since one element can decide them.
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
    """Returns a closure that reads the accumulator. The first time it evaluates the start."""

    def read_accumulator(frame: Frame) -> Value:
        value = frame[place]
        if value is _PENDING:
            try:
                value = start(frame)
            except FatalError:
                raise
            except EvalError as error:
                value = error
            if isinstance(value, list) and not value:
                # Kubernetes changes a list that begins empty in place.
                value = Growing()
            frame[place] = value
        if isinstance(value, EvalError):
            raise value
        return value

    return read_accumulator


def _detach(value: Value) -> Value:
    """Returns the value of a finished fold, which later additions must not change."""
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
    """Returns the entries that a macro iterates over.

    These are the elements of a list or the keys of a map. With `pairs` they are pairs of index and
    element, or of key and value.
    """
    if isinstance(values, list):
        return list(enumerate(values)) if pairs else values
    if isinstance(values, Map):
        return list(values.items() if pairs else values.keys())
    raise no_overload("a macro over elements", values)


def _quantifier(macro: str, over: Closure, predicate: Closure, places: tuple[int, int]) -> Closure:
    """Returns a closure for all() or exists()."""
    decisive = macro == "exists"
    first, second = places

    def turns(frame: Frame) -> Iterator[Closure]:
        for entry in entries(over(frame), bool(second)):
            if second:
                frame[first], frame[second] = entry
            else:
                frame[first] = entry
            yield predicate

    return lambda frame: logic.join(frame, turns(frame), decisive, macro)


def _metered_quantifier(
    macro: str, over: Closure, predicate: Closure, places: tuple[int, int]
) -> Closure:
    """Returns a closure for all() or exists() that charges as Kubernetes does.

    There the macro is a loop. Each turn evaluates the condition, @not_strictly_false(result) or the
    same with !result, and then the step, which reads the result once more: result && predicate.
    """
    decisive = macro == "exists"
    operator = "||" if decisive else "&&"
    first, second = places
    cost_of_condition = 3 if decisive else 2

    def charge_condition(frame: Frame) -> None:
        for _ in range(cost_of_condition):
            frame[1].charge(1)

    def turns(frame: Frame, remaining: Iterator[Value]) -> Iterator[Closure]:
        for entry in remaining:
            if second:
                frame[first], frame[second] = entry
            else:
                frame[first] = entry
            charge_condition(frame)
            frame[1].charge(1)
            yield predicate

        # The result is read once at the end, before an error is raised.
        frame[1].charge(1)

    def run(frame: Frame) -> bool:
        remaining = iter(entries(over(frame), bool(second)))
        value = logic.join(frame, turns(frame, remaining), decisive, operator)
        if value is decisive:
            # The loop ends when the condition fails, which is evaluated for the next entry.
            if next(remaining, _NO_ENTRY) is not _NO_ENTRY:
                charge_condition(frame)
            frame[1].charge(1)

        return value

    return run


def _step(builder: Builder, node: Fold, step: Node) -> Closure:
    """Returns a closure for the step of a fold.

    If the step adds elements to the result of map, filter or transformList, the closure appends to
    that list in place and does not copy it.
    """
    # Every macro makes a call of its step.
    assert isinstance(step, Call)
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
            # Kubernetes evaluates and charges the other side, too.
            more(frame)
            raise

        values.extend(more(frame))
        return values

    return builder.with_charge(append, 1)
