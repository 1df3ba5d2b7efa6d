"""Closures that read device.driver or device.attributes["domain"].id in a single step.

Most expressions consist of these two. The general way is a chain of qualifiers, which is slower.
"""

from __future__ import annotations

from . import syntax
from .attributes import Closure, Frame
from .errors import MissingKeyError
from .syntax import Call, Ident, Literal, Node, Select
from .values import MISSING, NONE, Optional, Value

_EMPTY: dict[str, Value] = {}


def find_shortcut(node: Node) -> Closure | None:
    """Returns a closure that reads the chain in one step, or None for any other chain."""
    test = isinstance(node, Select) and node.test
    optional = isinstance(node, Call) and node.function != "_[_]"
    path: list[str] = []
    step = node
    while not isinstance(step, Ident):
        name = _name_of(step, last=step is node)
        if name is None:
            return None
        path.insert(0, name)
        step = next(step.children())

    if step.name != ".device":
        return None
    if path == ["driver"] and not test and not optional:
        return lambda frame: frame[0].driver
    if len(path) != 3 or path[0] not in ("attributes", "capacity"):
        return None
    return _read_attribute(*path, test=test, optional=optional)


def _name_of(step: Node, last: bool) -> str | None:
    """Returns the field or the constant index of a step, or None for any other step.

    Only the last step of a chain may be a test or optional.
    """
    match step:
        case Select() if last or not step.test:
            return step.field
        case Call(arguments=[_, Literal(value=str() as index)]) if syntax.is_index(step) and (
            last or step.function == "_[_]"
        ):
            return index

    return None


def _read_attribute(
    kind: str, domain: str, identifier: str, *, test: bool, optional: bool
) -> Closure:
    def find(frame: Frame) -> Value:
        return getattr(frame[0], kind).get(domain, _EMPTY).get(identifier, MISSING)

    def find_optional(frame: Frame) -> Optional:
        value = find(frame)
        return NONE if value is MISSING else Optional(value)

    def attribute(frame: Frame) -> Value:
        try:
            return frame[0].attributes[domain][identifier]
        except KeyError:
            raise MissingKeyError(identifier, frame[0].attributes.get(domain, ())) from None

    def capacity(frame: Frame) -> Value:
        try:
            return frame[0].capacity[domain][identifier]
        except KeyError:
            raise MissingKeyError(identifier, frame[0].capacity.get(domain, ())) from None

    if test:
        return lambda frame: find(frame) is not MISSING
    if optional:
        return find_optional
    return attribute if kind == "attributes" else capacity
