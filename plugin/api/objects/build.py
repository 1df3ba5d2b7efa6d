"""Builders: `claim.but.spec.devices.with_config_mixin(...)` is a copy of the claim with that much
changed.

A place is an object and the way into it. Its methods come from the field tables: `with_x` replaces
x, and None takes it away; `with_x_mixin` appends to a list, or merges into a map or an object. The
object one starts from stays as it is.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from . import merge, plain
from .shapes import Field, Shape, child, fields_of

T = TypeVar("T", bound=msgspec.Struct)


class FieldPath(Generic[T]):
    def __init__(self, root: T, way: tuple[Field, ...] = ()) -> None:
        self._root, self._way = root, way

    def __getattr__(self, name: str) -> Any:
        fields = {field.name: field for field in fields_of(self._struct()).values()}
        if name in fields and fields[name].shape.kind == "struct":
            return FieldPath(self._root, (*self._way, fields[name]))
        wanted = name.removeprefix("with_")
        if name.startswith("with_") and wanted in fields:
            return self._setter(fields[wanted], lambda shape, ours, theirs: theirs)
        field = fields.get(wanted.removesuffix("_mixin"))
        if name.startswith("with_") and field and field.shape.kind in ("list", "map", "struct"):
            return self._setter(field, _mixed)
        raise AttributeError(f"no {name!r} here; there are {', '.join(dir(self))}")

    def __dir__(self) -> list[str]:
        names = []
        for field in fields_of(self._struct()).values():
            names += [field.name] if field.shape.kind == "struct" else []
            names += [f"with_{field.name}"]
            names += (
                [f"with_{field.name}_mixin"]
                if field.shape.kind in ("list", "map", "struct")
                else []
            )
        return names

    def _struct(self) -> type[msgspec.Struct]:
        return (self._way[-1].shape.struct if self._way else None) or type(self._root)

    def _setter(self, field: Field, join: Callable[[Shape, Any, Any], Any]) -> Callable[[Any], T]:
        def with_value(value: Any) -> T:
            path = ".".join(step.wire for step in (*self._way, field))
            new = None if value is None else _taken(field.shape, value, path)
            root = copy.deepcopy(self._root)
            _put(root, (*self._way, field), new, join)
            return root

        return with_value


def _put(
    target: Any, way: tuple[Field, ...], new: Any, join: Callable[[Shape, Any, Any], Any]
) -> None:
    """Sets the end of the way, making what is missing on it."""
    field, *rest = way
    ours = getattr(target, field.name)
    if not rest:
        setattr(target, field.name, join(field.shape, ours, new))
        return
    if ours is None:
        assert field.shape.struct
        # What this leaves unset although it is required, the check before sending finds, with its
        # path.
        ours = field.shape.struct(**{f.name: None for f in fields_of(field.shape.struct).values()})
        setattr(target, field.name, ours)
    _put(ours, tuple(rest), new, join)


def _mixed(shape: Shape, ours: Any, theirs: Any) -> Any:
    if shape.kind == "list":
        return (ours or []) + theirs
    return merge.merged(shape, ours, theirs)


def _taken(shape: Shape, value: Any, path: str) -> Any:
    """The value as the field has it: an object or its plain form, and one item where a list is
    expected.
    """
    if shape.kind == "list" and not isinstance(value, list | tuple):
        value = [value]
    problems: list[plain.Problem] = []
    plain_value = list(value) if isinstance(value, tuple) else value
    new = plain.read(
        shape,
        copy.deepcopy(plain_value),
        path,
        False,
        lambda at, text: problems.append(plain.Problem(at, text)),
    )
    if problems:
        raise plain.Invalid(child("with", path), problems)
    return new
