"""Nodes and values back to text, as short as people write them. Macros are shown as macros."""

from __future__ import annotations

from . import values
from .library.formatting import quoted
from .syntax import Call, Fold, Ident, ListNode, Literal, MapNode, Node, Select
from .values import Map, Optional, UInt, Value

_BINARY = (
    "_<_",
    "_<=_",
    "_>_",
    "_>=_",
    "_==_",
    "_!=_",
    "@in",
    "_+_",
    "_-_",
    "_*_",
    "_/_",
    "_%_",
    "_&&_",
    "_||_",
)
_LONGEST = 120


def of_node(node: Node) -> str:
    match node:
        case Literal():
            return of_value(node.value)
        case Ident():
            return node.name.removeprefix(".") if node.name == ".device" else node.name
        case Select():
            text = f"{of_node(node.operand)}.{node.field}"
            return f"has({text})" if node.test else text
        case ListNode():
            return "[" + ", ".join(map(of_node, node.elements)) + "]"
        case MapNode():
            return (
                "{"
                + ", ".join(f"{of_node(key)}: {of_node(value)}" for key, value, _ in node.entries)
                + "}"
            )
        case Fold():
            return _fold(node)
        case Call():
            return _call(node)
    return "…"


def _call(node: Call) -> str:
    arguments = [of_node(argument) for argument in node.arguments]
    if node.function in _BINARY:
        operator = "in" if node.function == "@in" else node.function.strip("_")
        return f"{_inner(node.arguments[0])} {operator} {_inner(node.arguments[1])}"
    match node.function:
        case "!_" | "-_":
            return node.function[0] + _inner(node.arguments[0])
        case "_?_:_":
            return "{} ? {} : {}".format(*arguments)
        case "_[_]":
            return f"{arguments[0]}[{arguments[1]}]"
        case "_[?_]":
            return f"{arguments[0]}[?{arguments[1]}]"
        case "_?._":
            field = node.arguments[1]
            return f"{arguments[0]}.?{field.value if isinstance(field, Literal) else arguments[1]}"
    receiver = "" if node.target is None else f"{_inner(node.target)}."
    return f"{receiver}{node.function}({', '.join(arguments)})"


def _inner(node: Node) -> str:
    text = of_node(node)
    return f"({text})" if isinstance(node, Call) and node.function in (*_BINARY, "_?_:_") else text


def _fold(node: Fold) -> str:
    if node.macro in ("bind", "optMap"):
        return of_node(node.result)
    names = ", ".join(name for name in (node.variable, node.second) if name)
    step = (
        node.step.arguments[1]
        if node.macro in ("all", "exists") and isinstance(node.step, Call)
        else None
    )
    return f"{of_node(node.range)}.{node.macro}({names}, {of_node(step) if step else '…'})"


def of_value(value: Value) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return quoted(value)
        case UInt():
            return f"{value.value}u"
        case list():
            return _short("[", [of_value(element) for element in value], "]")
        case Map():
            return _short(
                "{", [f"{of_value(key)}: {of_value(inner)}" for key, inner in value.items()], "}"
            )
        case Optional():
            return of_value(value.value) if value.present else "missing"
        case int() | float():
            return str(value)
    text = str(value)
    return text if not text.startswith(type(value).__name__) else values.type_name(value)


def _short(opening: str, parts: list[str], closing: str) -> str:
    """All of the parts, or as many as people read."""
    text = opening
    for shown, part in enumerate(parts):
        if shown and len(text) + len(part) > _LONGEST:
            return f"{text}, and {len(parts) - shown} more{closing}"
        text += (", " if shown else "") + part
    return text + closing
