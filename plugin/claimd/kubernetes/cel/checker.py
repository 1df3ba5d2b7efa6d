"""The checker: it writes types and overloads into each node, and refuses what Kubernetes refuses.

The rules are CEL's. `dyn` goes with every type until it is evaluated. The elements of a literal
list or map have one type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from . import types
from .errors import CompileError
from .library import FUNCTIONS
from .syntax import Call, Fold, Ident, ListNode, Literal, MapNode, Node, Select
from .types import (
    ANY,
    BOOL,
    BYTES,
    DOUBLE,
    DYN,
    INT,
    NULL,
    STRING,
    UINT,
    Substitution,
    Type,
    list_of,
    map_of,
)
from .values import TypeValue, UInt

_LITERALS = {
    bool: BOOL,
    int: INT,
    UInt: UINT,
    float: DOUBLE,
    str: STRING,
    bytes: BYTES,
    type(None): NULL,
}
DEVICE = Type("object", "kubernetes.DRADevice")
_FIELDS = {
    "driver": STRING,
    "allowMultipleAllocations": BOOL,
    "attributes": map_of(STRING, map_of(STRING, DYN)),
    "capacity": map_of(STRING, map_of(STRING, Type("object", "kubernetes.Quantity"))),
}
_TYPE_NAMES = {
    "bool": BOOL,
    "int": INT,
    "uint": UINT,
    "double": DOUBLE,
    "string": STRING,
    "bytes": BYTES,
    "null_type": NULL,
    "list": list_of(DYN),
    "map": map_of(DYN, DYN),
    "type": Type("type", "type"),
    "google.protobuf.Timestamp": types.TIMESTAMP,
    "google.protobuf.Duration": types.DURATION,
    "optional_type": Type("opaque", "optional_type"),
    "net.IP": Type("opaque", "net.IP"),
    "net.CIDR": Type("opaque", "net.CIDR"),
}
# The names of operators in messages, where these differ from the functions' names.
_OPERATORS = {
    "!_": "!",
    "-_": "-",
    "@in": "in",
    "_[_]": "an index",
    "_[?_]": "an index",
    "_?_:_": "?:",
}


def check(root: Node, expression: str, *, selector: bool = True, new: bool = False) -> None:
    """Writes types into all nodes. Raises CompileError if they do not go together.

    An expression that is no selector derives an attribute, so its value must be a valid attribute.
    With `new` there are no lists among the attributes and no includes(), since a cluster with
    default features has that feature off.
    """

    def result() -> None:
        if selector:
            _check_selector(root, ANY if new else DYN)
        else:
            _check_derived(root)

    _run(_Checker(new), root, expression, result)


def check_over(
    root: Node,
    expression: str,
    names: Mapping[str, Type],
    objects: Mapping[str, Mapping[str, Type]],
) -> frozenset[str]:
    """Checks an expression over documents of these names, whose value may have any type.

    `objects` has the fields of object types, by the names of the types. Returns the names that the
    expression uses.
    """
    walk = _Checker(new=False, names=names, objects=objects)
    _run(walk, root, expression, lambda: None)
    return frozenset(walk.used)


def _run(walk: _Checker, root: Node, expression: str, result: Callable[[], None]) -> None:
    try:
        walk.run(root)
        result()
    except CompileError as error:
        raise CompileError(error.reason, expression, error.position) from None
    except RecursionError:
        raise CompileError("nested too deeply", expression) from None


def _check_selector(root: Node, attribute: Type) -> None:
    if root.type not in (BOOL, attribute):
        raise CompileError(
            f"a selector must be true or false (or an attribute), this is {root.type}", "", 0
        )


def _check_derived(root: Node) -> None:
    assert root.type is not None
    element = root.type.params[0] if root.type.kind == "list" else root.type
    if element not in (BOOL, INT, STRING, DYN) and element.name != "kubernetes.Semver":
        raise CompileError(
            f"an attribute must be one value or a list of them, this is {root.type}", "", 0
        )


class _Checker:
    """One walk over an expression, from the leaves to the root."""

    def __init__(
        self,
        new: bool,
        names: Mapping[str, Type] = MappingProxyType({}),
        objects: Mapping[str, Mapping[str, Type]] = MappingProxyType({}),
    ) -> None:
        self.used: set[str] = set()
        self._names, self._objects = names, objects
        self._fields = dict(_FIELDS)
        self._absent: frozenset[str] = frozenset()
        if new:
            # The feature gate of lists among attributes is off by default.
            self._fields["attributes"] = map_of(STRING, map_of(STRING, ANY))
            self._absent = frozenset(("includes",))

        self._types = Substitution()
        self._scopes: list[dict[str, Type]] = []
        self._checked: list[Node] = []

    def run(self, root: Node) -> None:
        self._check(root)
        # Only the whole expression determines the meanings of type parameters.
        for node in self._checked:
            assert node.type is not None
            # A type that is still unknown behaves as dyn.
            node.type = self._types.apply(node.type, to_dyn=True)

    def _check(self, node: Node) -> Type:
        match node:
            case Literal():
                type_ = _LITERALS[type(node.value)]
            case Ident():
                type_ = self._ident(node)
            case Select():
                type_ = self._select(node)
            case Call():
                type_ = self._call(node)
            case ListNode():
                type_ = self._list(node)
            case MapNode():
                type_ = self._map(node)
            case Fold():
                type_ = self._fold(node)
            case _:
                raise TypeError(type(node).__name__)

        node.type = type_
        self._checked.append(node)
        return type_

    def _current_type(self, node: Node) -> Type:
        """Checks the node and returns its type, as far as it is known yet."""
        return self._types.apply(self._check(node))

    # Names and fields

    def _local(self, name: str) -> Type | None:
        for scope in reversed(self._scopes):
            if name in scope:
                return scope[name]
        return None

    def _ident(self, node: Ident) -> Type:
        name = node.name
        if not name.startswith("."):
            # A local variable hides every name outside of its scope.
            local = self._local(name)
            if local is not None:
                return local

        # The name is no local variable. A leading dot marks the outermost scope in the tree.
        plain = name.removeprefix(".")
        if plain in self._names:
            node.name = f".{plain}"
            self.used.add(plain)
            return self._names[plain]
        if plain == "device" and not self._names:
            node.name = ".device"
            return DEVICE
        if plain in _TYPE_NAMES:
            node.reference = TypeValue(plain)
            return types.type_of(_TYPE_NAMES[plain])

        names = "the variable here is device"
        if self._names:
            names = f"variables here are {', '.join(sorted(self._names))}"
        raise CompileError(f"unknown name {plain}: {names}", "", node.position)

    def _select(self, node: Select) -> Type:
        # google.protobuf.Timestamp is a type's name, unless `google` is a variable.
        name = None if node.test else _qualified_name(node)
        if name and self._local(name.partition(".")[0]) is None:
            plain = name.removeprefix(".")
            if plain in _TYPE_NAMES:
                node.reference = TypeValue(plain)
                return types.type_of(_TYPE_NAMES[plain])

        type_ = self._field(node, node.operand, node.field, optional=False)
        return BOOL if node.test else type_

    def _field(self, node: Node, operand: Node, field: str, optional: bool) -> Type:
        target, was_optional = types.unwrap_optional(self._current_type(operand))
        if target.kind == "map":
            type_ = target.params[1]
        elif target == DEVICE:
            if field not in self._fields:
                raise CompileError(
                    f"device has no field {field}: it has {', '.join(_FIELDS)}", "", node.position
                )
            type_ = self._fields[field]
        elif target.name in self._objects:
            if field not in self._objects[target.name]:
                raise CompileError(f"undefined field '{field}'", "", node.position)
            type_ = self._objects[target.name][field]
        elif target.kind in ("dyn", "param"):
            # A field of an unknown type makes that type dyn from here on.
            self._types.assignable(DYN, target)
            type_ = DYN
        else:
            raise CompileError(f"{target} has no fields, so no {field}", "", node.position)
        # A field of an optional is optional, too.
        if was_optional or optional:
            type_ = types.optional_of(type_)
        return self._types.apply(type_)

    # Calls

    def _call(self, node: Call) -> Type:
        if node.function == "_?._":
            field = node.arguments[1]
            assert isinstance(field, Literal) and isinstance(field.value, str)
            self._check(field)
            # This operator has no overloads in the library, since its result depends on the field.
            node.overloads = ("select_optional_field",)
            return self._field(node, node.arguments[0], field.value, optional=True)

        for argument in node.arguments:
            self._check(argument)

        if node.target is not None:
            # In sets.contains(a, b), `sets.contains` is the name of a function. It is not a method
            # of a variable `sets`.
            qualified = _qualified_name(node.target)
            name = f"{qualified}.{node.function}".removeprefix(".") if qualified else ""
            if name in FUNCTIONS:
                node.target, node.function = None, name
            else:
                self._check(node.target)

        node.function = node.function.removeprefix(".")
        if node.function not in FUNCTIONS or node.function in self._absent:
            raise CompileError(f"unknown function {node.function}()", "", node.position)
        return self._resolve(node)

    def _resolve(self, node: Call) -> Type:
        """Sets `node.overloads` to those that accept the arguments. Returns the type of the result.

        Raises CompileError if no overload accepts them.
        """
        nodes = [*([node.target] if node.target is not None else []), *node.arguments]
        arguments = tuple(argument.type for argument in nodes if argument.type is not None)
        if node.function in ("_&&_", "_||_"):
            return self._logic(node, arguments)

        result: Type | None = None
        signatures: list[str] = []
        is_member = node.target is not None
        for overload in FUNCTIONS[node.function]:
            if overload.member != is_member or len(overload.parameters) != len(arguments):
                continue
            wanted, gives = overload.parameters, overload.result
            if overload.open_types:
                # Each call has type parameters of its own: max() of ints and of doubles in one
                # expression.
                fresh = {param: self._types.fresh() for param in overload.open_types}
                wanted = tuple(_rename_params(type_, fresh) for type_ in wanted)
                gives = _rename_params(gives, fresh)
            if not self._types.all_assignable(arguments, wanted):
                continue

            # If the results of several overloads differ, the values determine the result's type.
            signatures.append(overload.signature)
            gives = self._types.apply(gives)
            if result is None:
                result = gives
            elif result not in (DYN, gives):
                result = DYN

        if result is None:
            raise self._no_overload(node, arguments)

        node.overloads = tuple(signatures)
        return result

    def _logic(self, node: Call, arguments: tuple[Type, ...]) -> Type:
        for argument, type_ in zip(node.arguments, arguments, strict=True):
            if not self._types.assignable(type_, BOOL):
                raise CompileError(
                    f"expected true or false, this is {self._types.apply(type_)}",
                    "",
                    argument.position,
                )

        node.overloads = (f"{node.function}: (bool, bool) -> bool",)
        return BOOL

    def _no_overload(self, node: Call, arguments: tuple[Type, ...]) -> CompileError:
        names = [str(self._types.apply(type_, to_dyn=True)) for type_ in arguments]
        function = _OPERATORS.get(node.function, node.function.strip("_"))
        if node.target is not None:
            message = f"{names[0]} has no {function}({', '.join(names[1:])})"
        elif node.function in _OPERATORS or node.function.startswith("_"):
            message = f"{function} does not go with {' and '.join(names)}"
        else:
            message = f"{function}() does not take ({', '.join(names)})"

        return CompileError(message, "", node.position)

    # Lists, maps and folds

    def _join(self, before: Type | None, type_: Type) -> Type:
        """Returns the type of elements, given that of the elements before and that of the next."""
        if before is None:
            return type_
        if self._types.assignable(before, type_):
            return types.most_general(before, type_)
        # Mixed elements are refused later, except in arguments of format().
        return DYN

    def _unwrap_optional(self, node: Node, type_: Type) -> Type:
        inner, was_optional = types.unwrap_optional(type_)
        if not was_optional and type_.kind != "dyn":
            raise CompileError(
                f"what follows ? must be optional, this is {self._types.apply(type_)}",
                "",
                node.position,
            )

        return inner

    def _list(self, node: ListNode) -> Type:
        joined: Type | None = None
        for index, element in enumerate(node.elements):
            type_ = self._check(element)
            if index in node.optional:
                type_ = self._unwrap_optional(element, type_)
            joined = self._join(joined, type_)
        return list_of(joined or self._types.fresh())

    def _map(self, node: MapNode) -> Type:
        keys: Type | None = None
        values: Type | None = None
        for key, value, optional in node.entries:
            keys = self._join(keys, self._check(key))
            type_ = self._check(value)
            if optional:
                type_ = self._unwrap_optional(value, type_)
            values = self._join(values, type_)

        return map_of(keys or self._types.fresh(), values or self._types.fresh())

    def _fold(self, node: Fold) -> Type:
        over = self._current_type(node.range)
        start = self._check(node.start)
        variables = self._variables(node, self._types.apply(over))

        # The result sees the accumulator, but not the variables of the loop.
        self._scopes.append({node.accumulator: start})
        self._scopes.append(dict(zip((node.variable, node.second), variables, strict=False)))
        self._expect(node.condition, BOOL)
        self._expect(node.step, start)
        self._scopes.pop()
        self._check(node.result)
        self._scopes.pop()
        assert node.result.type is not None
        return self._types.apply(node.result.type)

    def _variables(self, node: Fold, over: Type) -> tuple[Type, ...]:
        """Returns the types of the variables of a fold over a value of this type."""
        if over.kind == "list":
            return (INT, over.params[0]) if node.second else over.params
        if over.kind == "map":
            return over.params if node.second else over.params[:1]
        if over.kind in ("dyn", "param") and over != ANY:
            self._types.assignable(DYN, over)
            return (DYN, DYN)

        raise CompileError(
            f"{node.macro}() goes over lists and maps, this is {over}", "", node.range.position
        )

    def _expect(self, node: Node, wanted: Type) -> None:
        type_ = self._check(node)
        if not self._types.assignable(wanted, type_):
            expected, actual = self._types.apply(wanted), self._types.apply(type_)
            raise CompileError(f"expected {expected}, this is {actual}", "", node.position)


def _rename_params(type_: Type, names: dict[Type, Type]) -> Type:
    if type_.kind == "param":
        return names[type_]
    if not type_.params:
        return type_
    return Type(
        type_.kind, type_.name, tuple(_rename_params(param, names) for param in type_.params)
    )


def _qualified_name(node: Node) -> str | None:
    """Returns the text of a node such as a.b.c, or None for any other node."""
    if isinstance(node, Ident):
        return node.name
    if isinstance(node, Select) and not node.test:
        inner = _qualified_name(node.operand)
        return f"{inner}.{node.field}" if inner else None
    return None
