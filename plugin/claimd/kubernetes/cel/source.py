"""The text of nodes and values, as short as people write them. Macros are shown as macros."""

from __future__ import annotations

from . import values
from .library.formatting import format_literal
from .syntax import Call, Fold, Ident, ListNode, Literal, MapNode, Node, Select
from .values import Map, Optional, UInt, Value

_BINARY = frozenset(
    (
        *("_<_", "_<=_", "_>_", "_>=_", "_==_", "_!=_", "@in"),
        *("_+_", "_-_", "_*_", "_/_", "_%_", "_&&_", "_||_"),
    )
)
# Characters of a list or map that are shown. Only the number of the other elements is shown.
_LONGEST = 120


def format_node(node: Node) -> str:
    """Returns the text of an expression.

    If nothing in it is shortened to `…`, parsing the text gives the same expression.
    """
    match node:
        case Literal():
            return format_value(node.value)
        case Ident():
            return node.name.removeprefix(".") if node.name == ".device" else node.name
        case Select():
            text = f"{format_node(node.operand)}.{node.field}"
            return f"has({text})" if node.test else text
        case ListNode():
            return f"[{', '.join(map(format_node, node.elements))}]"
        case MapNode():
            entries = [
                f"{format_node(key)}: {format_node(value)}" for key, value, _ in node.entries
            ]
            return "{" + ", ".join(entries) + "}"
        case Fold():
            return _fold(node)
        case Call():
            return _call(node)

    return "…"


def _call(node: Call) -> str:
    arguments = [format_node(argument) for argument in node.arguments]
    if node.function in _BINARY:
        operator = "in" if node.function == "@in" else node.function.strip("_")
        return f"{_operand(node.arguments[0])} {operator} {_operand(node.arguments[1])}"

    match node.function:
        case "!_" | "-_":
            return node.function[0] + _operand(node.arguments[0])
        case "_?_:_":
            return "{} ? {} : {}".format(*arguments)
        case "_[_]":
            return f"{arguments[0]}[{arguments[1]}]"
        case "_[?_]":
            return f"{arguments[0]}[?{arguments[1]}]"
        case "_?._":
            field = node.arguments[1]
            assert isinstance(field, Literal)
            return f"{arguments[0]}.?{field.value}"

    # Everything else is written as a call.
    receiver = "" if node.target is None else f"{_operand(node.target)}."
    return f"{receiver}{node.function}({', '.join(arguments)})"


def _operand(node: Node) -> str:
    text = format_node(node)
    if isinstance(node, Call) and (node.function in _BINARY or node.function == "_?_:_"):
        return f"({text})"
    return text


def _fold(node: Fold) -> str:
    if node.macro in ("bind", "optMap"):
        return format_node(node.result)

    names = ", ".join(name for name in (node.variable, node.second) if name)
    # In all() and exists() the author wrote the second operand of the step. The steps of the other
    # macros are the macro's own.
    body = "…"
    if node.macro in ("all", "exists") and isinstance(node.step, Call):
        body = format_node(node.step.arguments[1])
    return f"{format_node(node.range)}.{node.macro}({names}, {body})"


def format_value(value: Value) -> str:
    """Returns the text of a value, as a literal if the type has literals."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return format_literal(value)
        case UInt():
            return f"{value.value}u"
        case list():
            return _short("[", [format_value(element) for element in value], "]")
        case Map():
            entries = [
                f"{format_value(key)}: {format_value(member)}" for key, member in value.items()
            ]
            return _short("{", entries, "}")
        case Optional():
            return format_value(value.value) if value.present else "missing"
        case int() | float():
            return str(value)

    # A class without a text of its own is shown by the name of its type.
    text = str(value)
    return values.type_name(value) if text.startswith(type(value).__name__) else text


def _short(opening: str, parts: list[str], closing: str) -> str:
    """Joins the parts, or as many as fit and the number of the others."""
    text = opening
    for shown, part in enumerate(parts):
        if shown and len(text) + len(part) > _LONGEST:
            return f"{text}, and {len(parts) - shown} more{closing}"
        if shown:
            text += ", "
        text += part

    return text + closing
