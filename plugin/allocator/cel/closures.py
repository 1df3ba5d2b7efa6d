"""Checked nodes to Python closures. Twice: plain ones, and metered ones that count what each step costs.

The metered ones charge the same amounts at the same steps as Kubernetes, so that its limit hits where it does there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from . import constants, cost, folds
from .attributes import Closure, Frame, Qualifier, applied, missing
from .cost import FAILED
from .declarations import Overload, accepts
from .errors import EvalError, FatalError
from .library import FUNCTIONS
from .semver import Semver
from .syntax import Call, Fold, Ident, ListNode, Literal, MapNode, Node, Select
from .values import MISSING, NAMES, NONE, Map, Optional, Value, contains, equal, no_overload, same, type_name

_INDEXES = frozenset(("_[_]", "_[?_]", "_?._"))
_CLASSES = {name: cls for cls, name in NAMES.items()}


class Builder:
    """One expression's closures. `places` is how many variables its frames need."""

    def __init__(self, metered: bool) -> None:
        self.metered = metered
        self.places = 2
        self._scopes: list[dict[str, Closure]] = []

    # Variables

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
        return lambda frame: frame[0].value  # the only global one is `device`

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
        if isinstance(node, Ident | Select) or _is_index(node):
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
        entries = [(self.build(key), self.build(value), optional) for key, value, optional in node.entries]

        def run(frame: Frame) -> Map:
            pairs: dict[object, tuple[Value, Value]] = {}
            for key_of, value_of, optional in entries:
                key, value = key_of(frame), value_of(frame)
                if optional:
                    if type(value) is not Optional:
                        raise EvalError("what follows ? in a map must be optional")
                    if not value.present:
                        pairs.pop((type(key), key), None)
                        continue
                    value = value.value
                pairs[(type(key), key if type(key).__hash__ else id(key))] = (key, value)
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
        if not self.metered and (plain := _device_attribute(node, self._scopes)):
            return plain
        test = isinstance(node, Select) and node.test
        free = test or _root(node, "_?_:_")
        run = self.charged(self.resolve(node), 0 if free else 1)
        if not test:
            return run

        def present(frame: Frame) -> bool:
            value = run(frame)
            return value.present if type(value) is Optional else value

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
        if _is_index(node):
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
        if node.function in _NEEDS_LIST and len(node.overloads) == 1:
            arguments[-1] = _or_fatal(arguments[-1])
        run = self._implementation(node)
        known = [constants.value_of(n) for n in nodes]
        if not self.metered:
            value = constants.folded(run, known)
            if value is not MISSING and nodes:
                return lambda _: value
            return _plain(node, run, arguments, known)
        return self._metered(node, run, arguments)

    def _implementation(self, node: Call) -> Callable[..., Value]:
        """The function on values, with the choice between overloads that the types leave."""
        if node.function == "_!=_":
            return lambda left, right: same(left, right) is not True
        candidates = [o for o in FUNCTIONS[node.function] if o.signature in node.overloads]
        if len(candidates) == 1:
            return _guarded(candidates[0])
        count = len(node.arguments) + (node.target is not None)
        candidates = [o for o in FUNCTIONS[node.function] if len(o.parameters) == count]
        if all(o.implementation is candidates[0].implementation for o in candidates) and not candidates[0].guarded:
            return candidates[0].implementation
        name = node.function

        def dispatch(*values: Value) -> Value:
            for overload in candidates:
                if overload.accepts(values):
                    return overload.implementation(*values)
            raise no_overload(name, *values)

        return dispatch

    def _metered(self, node: Call, run: Callable[..., Value], arguments: list[Closure]) -> Closure:
        price = cost.of_call(node.function, node.overloads)
        sequential = len(arguments) > 2 or _stops_early(node)

        def metered(frame: Frame) -> Value:
            values, error = _evaluated(frame, arguments, sequential)
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
        stops = node.function == "_||_"
        terms = [self.build(term) for term in _terms(node, node.function)]

        def run(frame: Frame) -> bool:
            error: EvalError | None = None
            for term in terms:
                try:
                    value = term(frame)
                except FatalError:
                    raise
                except EvalError as failure:
                    error = error or failure
                    continue
                if value is stops:
                    return stops
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
        if not listed or not isinstance(known, list) or any(type(v) not in _PRIMITIVE for v in known):
            run = self._implementation(node)
            return self._metered(node, run, arguments) if self.metered else _plain(node, run, arguments, [MISSING] * 2)
        member = arguments[0]
        texts = frozenset(known) if all(type(v) is str for v in known) else None

        def run_known(frame: Frame) -> bool:
            value = member(frame)
            if type(value) is str and texts is not None:
                return value in texts
            if isinstance(value, Semver | bytes):
                raise FatalError(f"Kubernetes cannot look for {type_name(value)} in a literal list: compare with ==")
            return contains(known, value)

        return run_known


_PRIMITIVE = frozenset(cls for cls, name in NAMES.items() if name in ("bool", "double", "int", "string", "uint"))


_NEEDS_LIST = frozenset(("sort", "distinct", "@sortByAssociatedKeys"))


def _or_fatal(argument: Closure) -> Closure:
    """Kubernetes counts the cost of sorting even if its argument is an error, and breaks on what is no list."""

    def run(frame: Frame) -> Value:
        try:
            value = argument(frame)
        except EvalError as error:
            raise FatalError(error.message) from None
        if not isinstance(value, list):
            raise FatalError(f"{type_name(value)} cannot be sorted")
        return value

    return run


def _stops_early(node: Call) -> bool:
    """Whether a first argument that fails keeps the second from being evaluated (and the call from being charged)."""
    if len(node.arguments) + (node.target is not None) < 2:
        return False
    if node.function in ("matches", "find", "findAll"):
        return isinstance(constants.value_of(node.arguments[-1 if node.function == "matches" else 0]), str)
    singular = not FUNCTIONS[node.function][0].guarded or node.function == "@sortByAssociatedKeys"
    return len(node.overloads) > 1 and not singular


def _evaluated(
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
    classes = [_CLASSES.get(of.name) if of.kind in ("simple", "object") else None for of in overload.parameters]
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


def _plain(node: Call, run: Callable[..., Value], arguments: list[Closure], known: list[Value]) -> Closure:
    if len(arguments) == 1:
        (only,) = arguments
        return lambda frame: run(only(frame))
    if len(arguments) == 2:
        left, right = arguments
        constant = known[1]
        if node.function == "_==_" and type(constant) is str:
            return lambda frame: value == constant if type(value := left(frame)) is str else equal(value, constant)
        if constant is not MISSING:
            return lambda frame: run(left(frame), constant)
        return lambda frame: run(left(frame), right(frame))
    return lambda frame: run(*[argument(frame) for argument in arguments])


def _terms(node: Node, function: str) -> list[Node]:
    """a && (b && c) as a, b, c: they are evaluated in this order either way."""
    if isinstance(node, Call) and node.function == function:
        return [term for argument in node.arguments for term in _terms(argument, function)]
    return [node]


def _is_index(node: Node) -> bool:
    return isinstance(node, Call) and node.function in _INDEXES


def _root(node: Node, function: str) -> bool:
    """Whether a chain of fields and indexes starts at this function."""
    while isinstance(node, Select) or _is_index(node):
        node = node.operand if isinstance(node, Select) else node.arguments[0]  # type: ignore[attr-defined]
    return isinstance(node, Call) and node.function == function


def _device_attribute(node: Node, scopes: list[dict[str, Closure]]) -> Closure | None:
    """device.driver and device.attributes["domain"].id, which most expressions consist of, without steps between."""
    path: list[str] = []
    test = isinstance(node, Select) and node.test
    optional = isinstance(node, Call) and node.function != "_[_]"
    first = node
    while not isinstance(node, Ident):
        if isinstance(node, Select) and (not node.test or node is first):
            path.append(node.field)
            node = node.operand
            continue
        if not _is_index(node) or (node is not first and node.function != "_[_]"):  # type: ignore[attr-defined]
            return None
        index = node.arguments[1]  # type: ignore[attr-defined]
        if not isinstance(index, Literal) or type(index.value) is not str:
            return None
        path.append(index.value)
        node = node.arguments[0]  # type: ignore[attr-defined]
    if node.name != ".device":
        return None
    path.reverse()
    if path == ["driver"] and not test and not optional:
        return lambda frame: frame[0].driver
    if len(path) != 3 or path[0] not in ("attributes", "capacity"):
        return None
    return _in_domain(*path, test=test, optional=optional)


def _in_domain(kind: str, domain: str, identifier: str, *, test: bool, optional: bool) -> Closure:
    def found(frame: Frame) -> Value:
        return getattr(frame[0], kind).get(domain, _EMPTY).get(identifier, MISSING)

    if test:
        return lambda frame: found(frame) is not MISSING
    if optional:
        return lambda frame: NONE if (value := found(frame)) is MISSING else Optional(value)
    if kind == "attributes":

        def attribute(frame: Frame) -> Value:
            try:
                return frame[0].attributes[domain][identifier]
            except KeyError:
                raise missing(identifier) from None

        return attribute

    def capacity(frame: Frame) -> Value:
        try:
            return frame[0].capacity[domain][identifier]
        except KeyError:
            raise missing(identifier) from None

    return capacity


_EMPTY: dict[str, Value] = {}
