"""Compiled expressions, which can be matched against devices and explained."""

from __future__ import annotations

import contextlib
from functools import cached_property

from . import bound, checker, constants, domains, estimate, explanation, parser, source, syntax
from .attributes import Closure, Frame
from .builder import FIRST_PLACE
from .closures import Closures
from .device import Device, Version
from .errors import CompileError, EvalError
from .meter import LIMIT, Meter
from .semver import Semver
from .syntax import Node
from .values import Value, type_name

_LONGEST = 10 * 1024


def compile(expression: str, *, new: bool = False) -> Program:
    """Compiles a selector. Raises CompileError if the API server refuses the expression.

    The API server checks the syntax, the types and the constants. With `new` it also checks the
    estimated cost and has default features, as for an object that is being created. Objects that
    are stored already may have more.
    """
    return Program(expression, _parse_and_check(expression, selector=True, new=new))


def compile_derived(expression: str) -> Derivation:
    """Compiles an expression whose value becomes an attribute, with the errors of compile()."""
    return Derivation(_parse_and_check(expression, selector=False, new=False))


def _parse_and_check(expression: str, *, selector: bool, new: bool) -> Node:
    # The API server counts bytes.
    if len(expression.encode("utf-8", "surrogatepass")) > _LONGEST:
        raise CompileError(f"longer than {_LONGEST} bytes", expression)

    root = parser.parse(expression)
    checker.check(root, expression, selector=selector, new=new)
    constants.validate(root, expression)
    # Only a new object is refused for its estimate. A stored one keeps what it has.
    if new and estimate.estimate_cost(root) > LIMIT:
        raise CompileError(f"too complex: it could cost more than {LIMIT} for a device", expression)
    return root


class Derivation:
    """A compiled expression that derives an attribute from each device."""

    def __init__(self, root: Node) -> None:
        self._closure, self._places = _build(root, metered=True)

    def evaluate(
        self, device: Device
    ) -> bool | int | str | Version | list[bool | int | str | Version]:
        """Returns the attribute. Raises EvalError if the expression has no value that is valid as one."""
        if device.view.error is not None:
            raise device.view.error

        with Meter() as meter:
            value = self._closure([device.view, meter, *[None] * (self._places - FIRST_PLACE)])

        if not isinstance(value, list):
            return _attribute(value)

        elements = [_attribute(element) for element in value]
        # CEL lists may be mixed, but the API has a field for each type of list.
        if len({type(element) for element in elements}) > 1:
            raise EvalError("the elements of a derived list are of several types")
        return elements


def _attribute(value: Value) -> bool | int | str | Version:
    if isinstance(value, Semver):
        return Version(value.text)
    if type(value) in (bool, int, str):
        return value  # type: ignore[no-any-return]
    raise EvalError(f"an attribute cannot be of type {type_name(value)}")


class Program:
    """A compiled selector. It keeps nothing of a device, and threads may share it."""

    def __init__(self, expression: str, root: Node) -> None:
        self.expression = expression
        self.root = root
        self._metered, self._metered_places = _build(root, metered=True)
        self._plain, self._plain_places = _build(root, metered=False)
        # A cheap selector cannot reach the limit for any device within the API's sizes.
        self._cheap = bound.upper_bound(root) <= LIMIT

    def matches(self, device: Device) -> bool:
        """Returns True if the expression is true. Raises EvalError if Kubernetes has an error."""
        view = device.view
        if view.error is not None:
            raise view.error
        # The plain closures need no meter, so its place in the frame stays empty.
        if self._cheap and view.small:
            return _bool(self._plain([view, None, *[None] * (self._plain_places - FIRST_PLACE)]))
        return self.evaluate(device, Meter())

    def cost(self, device: Device, limit: int = LIMIT) -> int:
        """Returns the cost of the expression for this device, up to the error if there is one."""
        meter = Meter(limit)
        with contextlib.suppress(EvalError):
            self.evaluate(device, meter)
        return meter.cost

    def evaluate(self, device: Device, meter: Meter) -> bool:
        """Returns the same result as matches(), and adds the cost to the meter."""
        if device.view.error is not None:
            raise device.view.error
        # A frame belongs to one evaluation, so that threads can share the closures.
        frame: Frame = [device.view, meter, *[None] * (self._metered_places - FIRST_PLACE)]
        with meter:
            return _bool(self._metered(frame))

    @cached_property
    def drivers(self) -> frozenset[str]:
        """The drivers that the expression requires by comparisons. Empty if it requires none."""
        return domains.drivers(self.root)

    @cached_property
    def domains(self) -> frozenset[str]:
        """The drivers and domains that the expression names."""
        return domains.domains(self.root)

    @cached_property
    def clauses(self) -> tuple[str, ...]:
        """The texts of the operands of &&, which must all be true. One text if there is no &&.

        Joined again they are the same expression. If they were not, the whole expression would be
        the only clause.
        """
        terms = syntax.terms(self.root, "_&&_")
        texts = []
        for term in terms:
            text = source.format_node(term)
            # An operator of lower precedence than && needs brackets to stand in a conjunction.
            lower = isinstance(term, syntax.Call) and term.function in ("_||_", "_?_:_")
            texts.append(f"({text})" if lower else text)

        if len(texts) == 1:
            return (self.expression,)

        try:
            # The texts are parsed again, since the text of some macros is shortened for readers.
            again = syntax.terms(compile(" && ".join(texts)).root, "_&&_")
        except CompileError:
            return (self.expression,)

        if list(map(source.format_node, again)) != list(map(source.format_node, terms)):
            return (self.expression,)
        return tuple(texts)

    def explain(self, device: Device) -> explanation.Explanation:
        """Explains why the expression is not true for this device. An error is a reason, too."""
        return explanation.explain(self.root, self.expression, device)


def _build(root: Node, metered: bool) -> tuple[Closure, int]:
    builder = Closures(metered)
    # Calls with constant arguments are evaluated now, within the limit of one evaluation's steps.
    with Meter():
        closure = builder.build(root)
    return closure, builder.places


def _bool(value: Value) -> bool:
    if type(value) is not bool:
        raise EvalError(f"a selector must be true or false, this is {type_name(value)}")
    return value
