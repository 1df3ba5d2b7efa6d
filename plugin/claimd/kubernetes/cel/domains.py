"""The drivers and domains that an expression names.

With these, explanations tell a misspelt name from a missing device.
"""

from __future__ import annotations

from . import syntax
from .syntax import Call, Ident, Literal, Node, Select

# The fields of a device that are maps of domains.
_MAPS = ("attributes", "capacity")


def drivers(root: Node) -> frozenset[str]:
    """Returns the drivers that the expression requires, by operands of && that compare the driver."""
    names = [_driver(term) for term in syntax.terms(root, "_&&_")]
    return frozenset(name for name in names if name)


def domains(root: Node) -> frozenset[str]:
    """Returns all drivers in comparisons, and all domains of attributes and capacities."""
    names: set[str] = set()
    for node in syntax.descendants(root):
        driver = _driver(node)
        if driver:
            names.add(driver)
        if isinstance(node, Call) and syntax.is_index(node):
            operand, index = node.arguments
            if _is_device_field(operand, *_MAPS) and isinstance(index, Literal):
                names.add(str(index.value))

    return frozenset(names)


def _driver(node: Node) -> str:
    """Returns the driver in a comparison with device.driver, or "" for any other node."""
    if not isinstance(node, Call) or node.function != "_==_":
        return ""

    left, right = node.arguments
    if isinstance(left, Literal):
        left, right = right, left
    if not _is_device_field(left, "driver") or not isinstance(right, Literal):
        return ""
    return right.value if isinstance(right.value, str) else ""


def _is_device_field(node: Node, *fields: str) -> bool:
    return (
        isinstance(node, Select)
        and node.field in fields
        and isinstance(node.operand, Ident)
        and node.operand.name in ("device", ".device")
    )
