"""device.driver and device.attributes["domain"].id, which most expressions consist of, without
steps between.
"""

from __future__ import annotations

from . import syntax
from .attributes import Closure, Frame, missing
from .syntax import Call, Ident, Literal, Node, Select
from .values import MISSING, NONE, Optional, Value


def of(node: Node) -> Closure | None:
    """The closure for such a chain; None if it is another."""
    test = isinstance(node, Select) and node.test
    optional = isinstance(node, Call) and node.function != "_[_]"
    path: list[str] = []
    at = node
    while not isinstance(at, Ident):
        name = _step(at, first=at is node)
        if name is None:
            return None
        path.insert(0, name)
        at = next(at.children())
    if at.name != ".device":
        return None
    if path == ["driver"] and not test and not optional:
        return lambda frame: frame[0].driver
    if len(path) != 3 or path[0] not in ("attributes", "capacity"):
        return None
    return _in_domain(*path, test=test, optional=optional)


def _step(node: Node, first: bool) -> str | None:
    """The field or constant index of one step. Only the last of a chain, met first here, is a test
    or optional.
    """
    if isinstance(node, Select):
        return node.field if first or not node.test else None
    if isinstance(node, Call) and syntax.is_index(node) and (first or node.function == "_[_]"):
        index = node.arguments[1]
        return index.value if isinstance(index, Literal) and isinstance(index.value, str) else None
    return None


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
