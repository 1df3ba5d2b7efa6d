"""Checked nodes to Python closures. Twice: plain ones, and metered ones that count what each step
costs.

The metered ones charge the same amounts at the same steps as Kubernetes, so that its limit hits
where it does there.
"""

from __future__ import annotations

from collections.abc import Callable

from . import calls, constants, cost, folds, shortcuts, syntax
from .attributes import Closure, Frame, Qualifier, applied
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


class Builder:
    """One expression's closures. `places` is how many variables its frames need."""

    def __init__(self, metered: bool) -> None:
        self.metered = metered
        self.places = 2
        self._scopes: list[dict[str, Closure]] = []
        self._variables: dict[int, tuple[int, int]] = {}

    # Variables

    def variables(self, node: Fold) -> tuple[int, int]:
        """Places for a fold's one or two variables."""
        self._variables[id(node)] = self.place(), self.place() if node.second else 0
        return self._variables[id(node)]

    def set_variables(self, node: Fold, frame: Frame, entry: Value) -> None:
        """Put a frame where it was when the fold was at this entry."""
        first, second = self._variables[id(node)]
        frame[first], frame[second or first] = entry if second else (entry, entry)

    def place(self) -> int:
        self.places += 1
        return self.places - 1

    def enter(self, names: dict[str, Closure]) -> None:
        self._scopes.append(names)

    def leave(self) -> None:
        self._scopes.pop()

    def _variable(self, name: str) -> Closure:
        for scope in reversed(self._scopes):
            if name in scope:
                return scope[name]
        if name != ".device":
            return lambda frame: frame[0].entries[name[1:]]  # a document of this name
        return lambda frame: frame[0].value

    # Nodes

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
        elements = [(self.build(e), at in node.optional) for at, e in enumerate(node.elements)]

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

        return self.charged(run, cost.CREATE_LIST)

    def _map(self, node: MapNode) -> Closure:
        entries = [
            (self.build(key), self.build(value), optional) for key, value, optional in node.entries
        ]

        def run(frame: Frame) -> Map:
            pairs: dict[object, tuple[Value, Value]] = {}
            for left, right, optional in entries:
                key, value = left(frame), right(frame)
                if optional:
                    if type(value) is not Optional:
                        raise EvalError("what follows ? in a map must be optional")
                    if not value.present:
                        pairs.pop(key_of(key), None)
                        continue
                    value = value.value
                pairs[key_of(key)] = (key, value)
            return Map.of(pairs.values())

        return self.charged(run, cost.CREATE_MAP)

    def charged(self, run: Closure, amount: int) -> Closure:
        """The closure, and what it costs even if it fails."""
        if not self.metered or not amount:
            return run

        def metered(frame: Frame) -> Value:
            try:
                value = run(frame)
            except FatalError:
                raise
            except EvalError:
                frame[1].charge(amount)
                raise
            frame[1].charge(amount)
            return value

        return metered

    # Attributes

    def _attribute(self, node: Node) -> Closure:
        if not self.metered and (plain := shortcuts.of(node)):
            return plain
        test = isinstance(node, Select) and node.test
        free = test or _root(node, "_?_:_")
        run = self.charged(self.resolve(node), 0 if free else 1)
        if not test:
            return run

        def present(frame: Frame) -> bool:
            value = run(frame)
            return value.present if type(value) is Optional else bool(value)

        return present

    def resolve(self, node: Node) -> Closure:
        """The value of a chain without the charge for looking it up as a whole."""
        base, qualifiers = self._chain(node)
        metered = self.metered
        if not qualifiers:
            return base
        return lambda frame: applied(frame, base(frame), qualifiers, metered)

    def _chain(self, node: Node) -> tuple[Closure, list[Qualifier]]:
        if constants.value_of(node) is not MISSING:
            return self.build(node), []
        if isinstance(node, Ident):
            return self._variable(node.name), []
        if isinstance(node, Select):
            field = node.field
            base, qualifiers = self._chain(node.operand)
            return base, [*qualifiers, Qualifier(lambda _: field, test=node.test, known=field)]
        if syntax.is_index(node):
            assert isinstance(node, Call)
            base, qualifiers = self._chain(node.arguments[0])
            return base, [*qualifiers, self._qualifier(node)]
        if isinstance(node, Call) and node.function == "_?_:_":
            return self._conditional(node), []
        return self.build(node), []

    def _qualifier(self, node: Call) -> Qualifier:
        index = node.arguments[1]
        optional = node.function != "_[_]"
        known = constants.value_of(index)
        if known is not MISSING:
            return Qualifier(lambda _: known, optional=optional, known=known)
        return Qualifier(self.resolve(index), optional=optional)

    def _conditional(self, node: Call) -> Closure:
        condition = self.build(node.arguments[0])
        then, other = self.resolve(node.arguments[1]), self.resolve(node.arguments[2])

        def run(frame: Frame) -> Value:
            chosen = condition(frame)
            if chosen is True:
                return then(frame)
            if chosen is False:
                return other(frame)
            raise no_overload("?:", chosen)

        return run

    # Calls

    def _call(self, node: Call) -> Closure:
        special = {
            "_&&_": self._logic, "_||_": self._logic, "_?_:_": self._conditional,
            "or": self._or, "orValue": self._or, "@in": self._in,
        }.get(node.function)  # fmt: skip
        if special and (node.function not in ("or", "orValue") or len(node.overloads) == 1):
            return special(node)
        if node.function == "@not_strictly_false":
            return self._not_strictly_false(node)
        nodes = [*([node.target] if node.target is not None else []), *node.arguments]
        arguments = [self.build(n) for n in nodes]
        if node.function in calls.NEEDS_LIST and len(node.overloads) == 1:
            arguments[-1] = calls.or_fatal(arguments[-1])
        run = calls.implementation(node)
        known = [constants.value_of(n) for n in nodes]
        if not self.metered:
            value = constants.folded(run, known)
            if value is not MISSING and nodes:
                return lambda _: value
            return calls.plain(node, run, arguments, known)
        return self._metered(node, run, arguments)

    def _metered(self, node: Call, run: Callable[..., Value], arguments: list[Closure]) -> Closure:
        price = cost.of_call(node.function, node.overloads)
        sequential = len(arguments) > 2 or calls.stops_early(node)

        def metered(frame: Frame) -> Value:
            values, error = calls.evaluated(frame, arguments, sequential)
            result: Value = FAILED
            if error is None:
                try:
                    result = run(*values)
                except EvalError as failure:
                    error = failure
            if len(values) == len(arguments):
                frame[1].charge(price(values, result))
            if error is not None:
                raise error
            return result

        return metered

    def _logic(self, node: Call) -> Closure:
        stops: bool = node.function == "_||_"
        operands = [self.build(term) for term in terms(node, node.function)]

        def run(frame: Frame) -> bool:
            error: EvalError | None = None
            for term in operands:
                try:
                    value = term(frame)
                except FatalError:
                    raise
                except EvalError as failure:
                    error = error or failure
                    continue
                if value is stops:
                    return bool(stops)
                if type(value) is not bool and error is None:
                    error = no_overload("||" if stops else "&&", value)
            if error is not None:
                raise error
            return not stops

        return run

    def _not_strictly_false(self, node: Call) -> Closure:
        argument = self.build(node.arguments[0])

        def run(frame: Frame) -> bool:
            try:
                return argument(frame) is not False
            except FatalError:
                raise
            except EvalError:
                return True

        return self.charged(run, 1)

    def _or(self, node: Call) -> Closure:
        assert node.target is not None
        left, right = self.build(node.target), self.build(node.arguments[0])
        whole = node.function == "or"

        def run(frame: Frame) -> Value:
            value = left(frame)
            if type(value) is not Optional:
                raise no_overload("orValue", value)
            if value is NONE:
                return right(frame)
            return value if whole else value.value

        return run

    def _in(self, node: Call) -> Closure:
        known = constants.value_of(node.arguments[1])
        listed = node.overloads == ("@in: (A, list<A>) -> bool",)
        arguments = [self.build(argument) for argument in node.arguments]
        if (
            not listed
            or not isinstance(known, list)
            or any(type(v) not in _PRIMITIVE for v in known)
        ):
            run = calls.implementation(node)
            return (
                self._metered(node, run, arguments)
                if self.metered
                else calls.plain(node, run, arguments, [MISSING] * 2)
            )
        member = arguments[0]
        texts = frozenset(known) if all(type(v) is str for v in known) else None

        def run_known(frame: Frame) -> bool:
            value = member(frame)
            if type(value) is str and texts is not None:
                return value in texts
            if isinstance(value, Semver | bytes):
                raise FatalError(
                    f"Kubernetes cannot look for {type_name(value)} in a literal list: compare with =="
                )
            return contains(known, value)

        return run_known


_PRIMITIVE = frozenset(
    cls for cls, name in NAMES.items() if name in ("bool", "double", "int", "string", "uint")
)


def terms(node: Node, function: str) -> list[Node]:
    """a && (b && c) as a, b, c: they are evaluated in this order either way."""
    if isinstance(node, Call) and node.function == function:
        return [term for argument in node.arguments for term in terms(argument, function)]
    return [node]


def _root(node: Node, function: str) -> bool:
    """Whether a chain of fields and indexes starts at this function."""
    while isinstance(node, Select) or syntax.is_index(node):
        node = next(node.children())
    return isinstance(node, Call) and node.function == function
