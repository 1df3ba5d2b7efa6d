"""The macros: calls that take the name of a variable, which the parser writes out as folds."""

from __future__ import annotations

from collections.abc import Callable

from . import syntax
from .errors import CompileError
from .syntax import Call, Fold, Ident, ListNode, Literal, MapNode, Node, Select

ACCUMULATOR = "@result"
_OLD_ACCUMULATOR = "__result__"
_UNUSED = "#unused"
# Nodes of an expression that optMap() may copy.
_MOST_COPIED = 2000

Expand = Callable[[int, "Node | None", list[Node]], "Node | None"]


def expand(position: int, function: str, target: Node | None, arguments: list[Node]) -> Node | None:
    """Returns the expansion of a macro, or None for an ordinary call."""
    macro = _MACROS.get((function, len(arguments), target is not None))
    return macro(position, target, arguments) if macro else None


def _name(node: Node, message: str = "expected a simple name for the variable") -> str:
    if not isinstance(node, Ident):
        raise CompileError(message, "", node.position)
    return node.name


def _variables(nodes: list[Node]) -> tuple[str, str]:
    """Returns the names of one or two iteration variables. A missing second name is empty."""
    names = [_name(node) for node in nodes]
    if len(names) == 2 and names[0] == names[1]:
        raise CompileError(f"the variable {names[0]} is named twice", "", nodes[1].position)
    for name, node in zip(names, nodes, strict=True):
        # These names belong to the expansion. The second is that of older versions of cel-go.
        if name in (ACCUMULATOR, _OLD_ACCUMULATOR):
            raise CompileError(f"{name} cannot be an iteration variable", "", node.position)
    return names[0], names[1] if len(names) == 2 else ""


def _accumulator(at: int) -> Ident:
    return Ident(at, ACCUMULATOR)


def _has(at: int, _target: Node | None, arguments: list[Node]) -> Node:
    argument = arguments[0]
    if not isinstance(argument, Select) or argument.test:
        raise CompileError("has() takes a field selection such as has(a.b)", "", argument.position)
    return Select(at, argument.operand, argument.field, test=True)


def _fold(
    at: int,
    macro: str,
    target: Node | None,
    names: tuple[str, str],
    parts: tuple[Node, Node, Node, Node],
) -> Fold:
    assert target is not None
    start, condition, step, result = parts
    return Fold(
        at, range_=target, variable=names[0], second=names[1], accumulator=ACCUMULATOR,
        start=start, condition=condition, step=step, result=result, macro=macro,
    )  # fmt: skip


def _all(at: int, target: Node | None, arguments: list[Node]) -> Node:
    *variables, predicate = arguments
    condition = Call(at, "@not_strictly_false", [_accumulator(at)])
    step = Call(at, "_&&_", [_accumulator(at), predicate])
    return _fold(
        at,
        "all",
        target,
        _variables(variables),
        (Literal(at, True), condition, step, _accumulator(at)),
    )


def _exists(at: int, target: Node | None, arguments: list[Node]) -> Node:
    *variables, predicate = arguments
    condition = Call(at, "@not_strictly_false", [Call(at, "!_", [_accumulator(at)])])
    step = Call(at, "_||_", [_accumulator(at), predicate])
    return _fold(
        at,
        "exists",
        target,
        _variables(variables),
        (Literal(at, False), condition, step, _accumulator(at)),
    )


def _exists_one(at: int, target: Node | None, arguments: list[Node]) -> Node:
    *variables, predicate = arguments
    plus_one = Call(at, "_+_", [_accumulator(at), Literal(at, 1)])
    step = Call(at, "_?_:_", [predicate, plus_one, _accumulator(at)])
    result = Call(at, "_==_", [_accumulator(at), Literal(at, 1)])
    return _fold(
        at,
        "exists_one",
        target,
        _variables(variables),
        (Literal(at, 0), Literal(at, True), step, result),
    )


def _growing(
    at: int,
    macro: str,
    target: Node | None,
    names: tuple[str, str],
    parts: tuple[Node, Node, Node | None],
) -> Node:
    """Returns a fold whose list or map grows for each element that passes the filter, if any."""
    start, step, filter_ = parts
    if filter_ is not None:
        step = Call(at, "_?_:_", [filter_, step, _accumulator(at)])
    return _fold(at, macro, target, names, (start, Literal(at, True), step, _accumulator(at)))


def _map(at: int, target: Node | None, arguments: list[Node]) -> Node:
    names = _variables(arguments[:1])
    filter_ = arguments[1] if len(arguments) == 3 else None
    step = Call(at, "_+_", [_accumulator(at), ListNode(at, [arguments[-1]])])
    return _growing(at, "map", target, names, (ListNode(at, []), step, filter_))


def _filter(at: int, target: Node | None, arguments: list[Node]) -> Node:
    names = _variables(arguments[:1])
    step = Call(at, "_+_", [_accumulator(at), ListNode(at, [arguments[0]])])
    return _growing(at, "filter", target, names, (ListNode(at, []), step, arguments[1]))


def _transform_list(at: int, target: Node | None, arguments: list[Node]) -> Node:
    names = _variables(arguments[:2])
    filter_ = arguments[2] if len(arguments) == 4 else None
    step = Call(at, "_+_", [_accumulator(at), ListNode(at, [arguments[-1]])])
    return _growing(at, "transformList", target, names, (ListNode(at, []), step, filter_))


def _transform_map(at: int, target: Node | None, arguments: list[Node]) -> Node:
    names = _variables(arguments[:2])
    filter_ = arguments[2] if len(arguments) == 4 else None
    step = Call(at, "cel.@mapInsert", [_accumulator(at), Ident(at, names[0]), arguments[-1]])
    return _growing(at, "transformMap", target, names, (MapNode(at, []), step, filter_))


def _transform_entry(at: int, target: Node | None, arguments: list[Node]) -> Node:
    names = _variables(arguments[:2])
    filter_ = arguments[2] if len(arguments) == 4 else None
    step = Call(at, "cel.@mapInsert", [_accumulator(at), arguments[-1]])
    return _growing(at, "transformMapEntry", target, names, (MapNode(at, []), step, filter_))


def _let(at: int, name: str, value: Node, body: Node, macro: str) -> Fold:
    """Returns a fold over nothing, which gives the name to the value in its body."""
    return Fold(
        at, range_=ListNode(at, []), variable=_UNUSED, second="", accumulator=name, start=value,
        condition=Literal(at, False), step=Ident(at, name), result=body, macro=macro,
    )  # fmt: skip


def _bind(at: int, target: Node | None, arguments: list[Node]) -> Node | None:
    # A method called bind() of anything else is an ordinary call.
    if not isinstance(target, Ident) or target.name != "cel":
        return None
    name = _name(arguments[0], "cel.bind() takes a simple name for its variable")
    return _let(at, name, arguments[1], arguments[2], "bind")


def _opt_map(at: int, target: Node | None, arguments: list[Node]) -> Node:
    body = Call(at, "optional.of", [_opt_body(at, target, arguments)])
    return _opt_branch(at, target, body)


def _opt_flat_map(at: int, target: Node | None, arguments: list[Node]) -> Node:
    return _opt_branch(at, target, _opt_body(at, target, arguments))


def _opt_body(at: int, target: Node | None, arguments: list[Node]) -> Node:
    assert target is not None
    # The target stands twice in the expansion. In a chain of these macros it doubles each time.
    if syntax.is_larger(target, _MOST_COPIED):
        raise CompileError("too large: optMap() doubles what it is applied to", "", at)
    value = Call(at, "value", [], syntax.copy(target))
    return _let(at, _name(arguments[0]), value, arguments[1], "optMap")


def _opt_branch(at: int, target: Node | None, body: Node) -> Node:
    return Call(
        at, "_?_:_", [Call(at, "hasValue", [], target), body, Call(at, "optional.none", [])]
    )


def _sort_by(at: int, target: Node | None, arguments: list[Node]) -> Node:
    if not isinstance(target, ListNode | Select | Ident | Fold | Call):
        raise CompileError("sortBy() sorts a list", "", at)
    # The name keeps the list from being evaluated twice. No author can write it.
    hidden = "@__sortBy_input__"
    keys = _map(at, Ident(at, hidden), arguments)
    return _let(
        at, hidden, target, Call(at, "@sortByAssociatedKeys", [keys], Ident(at, hidden)), "sortBy"
    )


_MACROS: dict[tuple[str, int, bool], Expand] = {
    ("has", 1, False): _has,
    ("all", 2, True): _all,
    ("all", 3, True): _all,
    ("exists", 2, True): _exists,
    ("exists", 3, True): _exists,
    ("exists_one", 2, True): _exists_one,
    ("exists_one", 3, True): _exists_one,
    ("existsOne", 3, True): _exists_one,
    ("map", 2, True): _map,
    ("map", 3, True): _map,
    ("filter", 2, True): _filter,
    ("transformList", 3, True): _transform_list,
    ("transformList", 4, True): _transform_list,
    ("transformMap", 3, True): _transform_map,
    ("transformMap", 4, True): _transform_map,
    ("transformMapEntry", 3, True): _transform_entry,
    ("transformMapEntry", 4, True): _transform_entry,
    ("optMap", 2, True): _opt_map,
    ("optFlatMap", 2, True): _opt_flat_map,
    ("sortBy", 2, True): _sort_by,
    ("bind", 3, True): _bind,
}
