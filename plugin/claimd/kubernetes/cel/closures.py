"""Python closures for checked nodes: plain ones, and metered ones that count the cost of each step.

The metered closures charge the same amounts at the same steps as Kubernetes, so that its limit
takes effect at the same step. The plain ones are faster. They are for expressions that can never
reach the limit.
"""

from __future__ import annotations

from collections.abc import Callable

from . import calls, constants, cost, folds, logic, shortcuts, syntax
from .attributes import Closure, Frame, Qualifier, apply_qualifiers
from .builder import Builder
from .cost import FAILED
from .errors import EvalError, FatalError
from .semver import Semver
from .syntax import Call, Fold, Ident, ListNode, MapNode, Node, Select
from .values import (
    MISSING,
    NAMES,
    NONE,
    Map,
    Optional,
    Value,
    contains,
    key_of,
    no_overload,
    type_name,
)

# Calls of constants that take more steps are evaluated at run time, where a meter limits them.
_MOST_STEPS_OF_FOLDING = 1000
_PRIMITIVES = frozenset(
    cls for cls, name in NAMES.items() if name in ("bool", "double", "int", "string", "uint")
)


class Closures(Builder):
    """The closures of one expression."""

    def build(self, node: Node) -> Closure:
        value = constants.value_of(node)
        if value is not MISSING:
            return lambda _: value
        if isinstance(node, Fold):
            return folds.build(self, node)
        if isinstance(node, ListNode):
            return self._list(node)
        if isinstance(node, MapNode):
            return self._map(node)
        if isinstance(node, Ident | Select) or syntax.is_index(node):
            return self._attribute(node)

        assert isinstance(node, Call)
        return self._call(node)

    def _list(self, node: ListNode) -> Closure:
        elements = [
            (self.build(element), index in node.optional)
            for index, element in enumerate(node.elements)
        ]

        def run(frame: Frame) -> list[Value]:
            values = []
            for element, optional in elements:
                value = element(frame)
                if optional:
                    if type(value) is not Optional:
                        raise EvalError("what follows ? in a list must be optional")
                    if not value.present:
                        continue
                    value = value.value
                values.append(value)

            return values

        return self.with_charge(run, cost.CREATE_LIST)

    def _map(self, node: MapNode) -> Closure:
        entries = [
            (self.build(key), self.build(value), optional) for key, value, optional in node.entries
        ]

        def run(frame: Frame) -> Map:
            # A later entry replaces an earlier one with the same key.
            pairs: dict[object, tuple[Value, Value]] = {}
            for key_closure, value_closure, optional in entries:
                key, value = key_closure(frame), value_closure(frame)
                if optional:
                    if type(value) is not Optional:
                        raise EvalError("what follows ? in a map must be optional")
                    if not value.present:
                        # An absent entry removes an earlier one with the same key.
                        pairs.pop(key_of(key), None)
                        continue
                    value = value.value
                pairs[key_of(key)] = (key, value)

            return Map.from_pairs(pairs.values())

        return self.with_charge(run, cost.CREATE_MAP)

    # Attributes: a variable and its fields and indexes

    def _attribute(self, node: Node) -> Closure:
        if not self.metered:
            shortcut = shortcuts.find_shortcut(node)
            if shortcut:
                return shortcut
        elif isinstance(node, Ident):
            variable = self.variable_with_charge(node.name)
            if variable:
                return variable

        # A whole chain costs 1 in addition to its steps. There is no such charge for has() and for
        # a chain that starts with a conditional.
        test = isinstance(node, Select) and node.test
        free = test or _root(node, "_?_:_")
        run = self.with_charge(self.resolve(node), 0 if free else 1)
        if not test:
            return run

        def present(frame: Frame) -> bool:
            value = run(frame)
            return value.present if type(value) is Optional else bool(value)

        return present

    def resolve(self, node: Node) -> Closure:
        base, qualifiers = self._chain(node)
        if not qualifiers:
            return base
        metered = self.metered
        return lambda frame: apply_qualifiers(frame, base(frame), qualifiers, metered)

    def _chain(self, node: Node) -> tuple[Closure, list[Qualifier]]:
        """Returns a closure for the start of the chain, and the steps of the chain."""
        if constants.value_of(node) is not MISSING:
            return self.build(node), []
        if isinstance(node, Ident):
            return self.variable(node.name), []
        if isinstance(node, Select):
            field = node.field
            base, qualifiers = self._chain(node.operand)
            return base, [*qualifiers, Qualifier(lambda _: field, test=node.test)]
        if syntax.is_index(node):
            assert isinstance(node, Call)
            base, qualifiers = self._chain(node.arguments[0])
            return base, [*qualifiers, self._index(node)]
        if isinstance(node, Call) and node.function == "_?_:_":
            return self._conditional(node), []
        return self.build(node), []

    def _index(self, node: Call) -> Qualifier:
        index = node.arguments[1]
        optional = node.function != "_[_]"
        value = constants.value_of(index)
        if value is not MISSING:
            return Qualifier(lambda _: value, optional=optional)
        return Qualifier(self.resolve(index), optional=optional)

    # Calls

    def _call(self, node: Call) -> Closure:
        match node.function:
            case "_&&_" | "_||_":
                return self._logic(node)
            case "_?_:_":
                return self._conditional(node)
            case "or" | "orValue" if len(node.overloads) == 1:
                return self._or(node)
            case "@in":
                return self._membership(node)
            case "@not_strictly_false":
                return self._not_strictly_false(node)

        nodes = [*([node.target] if node.target is not None else []), *node.arguments]
        arguments = [self.build(argument) for argument in nodes]
        if node.function in calls.NEEDS_LIST and len(node.overloads) == 1:
            arguments[-1] = calls.or_fatal(arguments[-1])

        run = calls.implementation(node)
        if self.metered:
            return self._meter_call(node, run, arguments)

        # A call of constants alone is evaluated once, when the expression is compiled.
        constant_values = [constants.value_of(argument) for argument in nodes]
        value = self._fold_call(node, run, constant_values)
        if value is not MISSING:
            return lambda _: value
        return calls.plain(node, run, arguments, constant_values)

    def _fold_call(self, node: Call, run: Callable[..., Value], values: list[Value]) -> Value:
        """Returns the value of a call if all its arguments are constants. Otherwise MISSING."""
        if not values or any(value is MISSING for value in values):
            return MISSING
        steps = calls.steps(node.function)
        if steps and steps(values) > _MOST_STEPS_OF_FOLDING:
            return MISSING
        return constants.fold(run, values)

    def _meter_call(
        self, node: Call, run: Callable[..., Value], arguments: list[Closure]
    ) -> Closure:
        price = cost.cost_of_call(node.function, node.overloads)
        steps = calls.steps(node.function)
        # Kubernetes evaluates both of two arguments even if the first fails. Of more than two it
        # stops at the first error.
        sequential = len(arguments) > 2 or calls.stops_early(node)
        if len(arguments) == 2 and not sequential and not steps:
            return _meter_pair(price, run, arguments[0], arguments[1])

        def run_metered(frame: Frame) -> Value:
            values, error = calls.evaluate_arguments(frame, arguments, sequential)
            result: Value = FAILED
            if error is None:
                if steps:
                    frame[1].spend(steps(values))
                try:
                    result = run(*values)
                except EvalError as failure:
                    error = failure
            # A call that failed costs as much. A call costs nothing if an error kept some of its
            # arguments from being evaluated.
            if len(values) == len(arguments):
                frame[1].charge(price(values, result))
            if error is not None:
                raise error
            return result

        return run_metered

    def _conditional(self, node: Call) -> Closure:
        condition = self.build(node.arguments[0])
        then, otherwise = self.resolve(node.arguments[1]), self.resolve(node.arguments[2])

        def run(frame: Frame) -> Value:
            chosen = condition(frame)
            if chosen is True:
                return then(frame)
            if chosen is False:
                return otherwise(frame)
            raise no_overload("?:", chosen)

        return run

    def _logic(self, node: Call) -> Closure:
        decisive = node.function == "_||_"
        operator = "||" if decisive else "&&"
        operands = [self.build(term) for term in syntax.terms(node, node.function)]
        return lambda frame: logic.join(frame, operands, decisive, operator)

    def _not_strictly_false(self, node: Call) -> Closure:
        argument = self.build(node.arguments[0])

        def run(frame: Frame) -> bool:
            try:
                return argument(frame) is not False
            except FatalError:
                raise
            except EvalError:
                return True

        return self.with_charge(run, 1)

    def _or(self, node: Call) -> Closure:
        """Returns a closure for optional.or(optional) or optional.orValue(value)."""
        assert node.target is not None
        optional, alternative = self.build(node.target), self.build(node.arguments[0])
        stays_optional = node.function == "or"

        def run(frame: Frame) -> Value:
            value = optional(frame)
            if type(value) is not Optional:
                raise no_overload("orValue", value)
            if value is NONE:
                return alternative(frame)
            return value if stays_optional else value.value

        return run

    def _membership(self, node: Call) -> Closure:
        """Returns a closure for `in`. Kubernetes has a special rule for literal lists of primitives."""
        members = constants.value_of(node.arguments[1])
        of_list = node.overloads == ("@in: (A, list<A>) -> bool",)
        arguments = [self.build(argument) for argument in node.arguments]
        if (
            not of_list
            or not isinstance(members, list)
            or any(type(member) not in _PRIMITIVES for member in members)
        ):
            run = calls.implementation(node)
            if self.metered:
                return self._meter_call(node, run, arguments)
            return calls.plain(node, run, arguments, [MISSING] * 2)

        wanted = arguments[0]
        # A set finds texts in one step, however long the list is.
        texts: frozenset[str] | None = None
        if all(type(member) is str for member in members):
            texts = frozenset(members)

        def run_literal(frame: Frame) -> bool:
            value = wanted(frame)
            if type(value) is str and texts is not None:
                return value in texts
            # Kubernetes hashes the wanted value here, and these types cannot be hashed.
            if isinstance(value, Semver | bytes):
                raise FatalError(
                    f"Kubernetes cannot look for {type_name(value)} in a literal list: "
                    "compare with =="
                )

            return contains(members, value)

        return run_literal


def _meter_pair(
    price: cost.Cost, run: Callable[..., Value], left: Closure, right: Closure
) -> Closure:
    """Returns a closure for a call of two arguments. An error of one does not stop the other."""

    def run_metered(frame: Frame) -> Value:
        result: Value = FAILED
        error: EvalError | None = None
        values: list[Value] = [FAILED, FAILED]
        try:
            values[0] = left(frame)
        except FatalError:
            raise
        except EvalError as failure:
            error = failure
        try:
            values[1] = right(frame)
        except FatalError:
            raise
        except EvalError as failure:
            error = error or failure

        if error is None:
            try:
                result = run(values[0], values[1])
            except EvalError as failure:
                error = failure

        frame[1].charge(price(values, result))
        if error is not None:
            raise error
        return result

    return run_metered


def _root(node: Node, function: str) -> bool:
    """Returns True if a chain of fields and indexes starts with a call of this function."""
    while isinstance(node, Select) or syntax.is_index(node):
        node = next(node.children())
    return isinstance(node, Call) and node.function == function
