"""Builders: `claim.but.spec.devices.with_config_mixin(...)` is a copy of the claim, changed.

A FieldPath is an object and the way into it. Its methods come from the field tables: `with_x`
replaces x, and None takes it away; `with_x_mixin` appends to a list, or merges into a map or an
object. The object one starts from stays as it is.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from . import merge, plain
from .shapes import Field, Shape, child, fields_of

T = TypeVar("T", bound=msgspec.Struct)
# Shape, the value that is there, the new one: what stands there then.
Join = Callable[[Shape, Any, Any], Any]

MIXABLE = ("list", "map", "struct")


class FieldPath(Generic[T]):
    """An object, or a part of one, of which a changed copy can be made.

    A value is checked at once, by the field's type; the rules of the whole object are checked when
    it is written.
    """

    def __init__(self, root: T, way: tuple[Field, ...] = ()) -> None:
        self._root, self._way = root, way

    def __getattr__(self, name: str) -> Any:
        fields = {field.name: field for field in fields_of(self._struct()).values()}
        if name in fields and fields[name].shape.kind == "struct":
            return FieldPath(self._root, (*self._way, fields[name]))

        if name.startswith("with_"):
            wanted = name.removeprefix("with_")
            if wanted in fields:
                return self._setter(fields[wanted], _replaced)
            field = fields.get(wanted.removesuffix("_mixin"))
            if field and field.shape.kind in MIXABLE:
                return self._setter(field, _mixed)
        raise AttributeError(f"no {name!r} here; there are {', '.join(dir(self))}")

    def __dir__(self) -> list[str]:
        names = []
        for field in fields_of(self._struct()).values():
            if field.shape.kind == "struct":
                names.append(field.name)
            names.append(f"with_{field.name}")
            if field.shape.kind in MIXABLE:
                names.append(f"with_{field.name}_mixin")
        return names

    def _struct(self) -> type[msgspec.Struct]:
        return (self._way[-1].shape.struct if self._way else None) or type(self._root)

    def _setter(self, field: Field, join: Join) -> Callable[[Any], T]:
        way = (*self._way, field)

        def with_value(value: Any) -> T:
            path = ".".join(step.wire for step in way)
            new = None if value is None else _accepted(field.shape, value, path)
            root = copy.deepcopy(self._root)
            _put(root, way, new, join)
            return root

        return with_value


def _put(target: Any, way: tuple[Field, ...], new: Any, join: Join) -> None:
    """Sets the end of the way, making what is missing on it."""
    field, *rest = way
    ours = getattr(target, field.name)
    if not rest:
        setattr(target, field.name, join(field.shape, ours, new))
        return

    if ours is None:
        struct = field.shape.struct
        assert struct
        # What this leaves unset although it is required, is found by the check before sending, with
        # its path.
        ours = struct(**dict.fromkeys(part.name for part in fields_of(struct).values()))
        setattr(target, field.name, ours)
    _put(ours, tuple(rest), new, join)


def _replaced(shape: Shape, ours: Any, theirs: Any) -> Any:
    return theirs


def _mixed(shape: Shape, ours: Any, theirs: Any) -> Any:
    if shape.kind == "list":
        return (ours or []) + theirs
    return merge.merged(shape, ours, theirs)


def _accepted(shape: Shape, value: Any, path: str) -> Any:
    """The value as the field has it: an object or its plain form, one item where a list is due."""
    if isinstance(value, tuple):
        value = list(value)
    if shape.kind == "list" and not isinstance(value, list):
        value = [value]

    problems: list[plain.Problem] = []

    def report(at: str, text: str) -> None:
        problems.append(plain.Problem(at, text))

    new = plain.read(shape, copy.deepcopy(value), path, False, report)
    if problems:
        raise plain.Invalid(child("with", path), problems)
    return new
