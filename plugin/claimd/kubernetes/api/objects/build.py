"""Builders: `claim.but.spec.devices.with_config_mixin(...)` is a changed copy of the claim.

A FieldPath is an object and a path to one of its parts. Its methods derive from the fields of the
part's class: `with_x` sets the field x, or removes it if the value is None. `with_x_mixin` appends
to a list, or merges into a map or an object. The original object never changes.

`ResourceClaim.but.spec.devices.with_config_mixin(...)`, of the class, is a Change. `claim + change`
is a changed copy, and `change + change` is a change, as in jsonnet.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from . import descriptions, merge, plain
from .shapes import Field, Shape, child, fields_of

T = TypeVar("T", bound=msgspec.Struct)
# Called with the shape, the current value and the new one. Returns the value to set.
Join = Callable[[Shape, Any, Any], Any]
# The fields that lead to a value, the new value, and how it joins the current one.
Step = tuple[tuple[Field, ...], Any, Join]

# The kinds of fields that a value can be joined with, and what happens then.
JOINED = {
    "list": "with the value appended, or with several",
    "map": "with the entries of the value added",
    "struct": "with the fields of the value merged into it",
}


class Change(Generic[T]):
    """A change of objects of one class. `object + change` is a changed copy.

    `change + change` is a change that does both, one after the other.
    """

    def __init__(self, struct: type[T], steps: tuple[Step, ...]) -> None:
        self.struct, self._steps = struct, steps

    def __add__(self, other: Change[T]) -> Change[T]:
        if not isinstance(other, Change):
            return NotImplemented
        if other.struct is not self.struct:
            raise TypeError(
                f"expected a change of a {self.struct.__name__}, "
                f"got one of a {other.struct.__name__}"
            )
        return Change(self.struct, self._steps + other._steps)

    def apply_to(self, obj: T) -> T:
        """Returns a changed copy of the object."""
        root = copy.deepcopy(obj)
        for way, value, join in self._steps:
            _set_at(root, way, copy.deepcopy(value), join)
        return root

    def create(self) -> T:
        """Returns a new object with this change. Its other fields are None, also required ones."""
        return self.apply_to(_empty(self.struct))


class FieldPath(Generic[T]):
    """An object, or a part of one, that can return changed copies of the object.

    The type of a value is checked at once. The rules of the whole object are checked when it is
    written. For a class in place of an object, the methods return a Change.
    """

    def __init__(self, root: T | type[T], way: tuple[Field, ...] = ()) -> None:
        self._root, self._way = root, way

    def __getattr__(self, name: str) -> Any:
        # A name of a part leads one step further.
        fields = {field.name: field for field in fields_of(self._struct()).values()}
        if name in fields and fields[name].shape.kind == "struct":
            return FieldPath(self._root, (*self._way, fields[name]))

        # A field may itself end in "_mixin", so the whole name is tried first.
        if name.startswith("with_"):
            wanted = name.removeprefix("with_")
            if wanted in fields:
                return self._setter(name, fields[wanted], _replace)
            field = fields.get(wanted.removesuffix("_mixin"))
            if field and field.shape.kind in JOINED:
                return self._setter(name, field, _mix)
        raise AttributeError(f"no {name!r} here; there are {', '.join(dir(self))}")

    def __dir__(self) -> list[str]:
        names = []
        for field in fields_of(self._struct()).values():
            if field.shape.kind == "struct":
                names.append(field.name)
            names.append(f"with_{field.name}")
            if field.shape.kind in JOINED:
                names.append(f"with_{field.name}_mixin")
        return names

    def _class(self) -> type[T]:
        return self._root if isinstance(self._root, type) else type(self._root)

    def _struct(self) -> type[msgspec.Struct]:
        return (self._way[-1].shape.struct if self._way else None) or self._class()

    def _setter(self, name: str, field: Field, join: Join) -> Callable[[Any], T | Change[T]]:
        way = (*self._way, field)
        path = ".".join(step.wire for step in way)

        def with_value(value: Any) -> T | Change[T]:
            new = None if value is None else _read_new_value(field.shape, value, path)
            change = Change(self._class(), ((way, new, join),))
            return change if isinstance(self._root, type) else change.apply_to(self._root)

        effect = (
            JOINED[field.shape.kind] if join is _mix else "set to the value, or removed if None"
        )
        with_value.__name__ = with_value.__qualname__ = name
        with_value.__doc__ = (
            f"Returns a copy with {path} {effect}.\n\n"
            f"{descriptions.describe_field(self._struct(), field)}"
        )
        return with_value


def _set_at(target: Any, way: tuple[Field, ...], new: Any, join: Join) -> None:
    """Sets the field at the end of the path, and creates the parts that are missing on the path."""
    field, *rest = way
    ours = getattr(target, field.name)
    if not rest:
        setattr(target, field.name, join(field.shape, ours, new))
        return

    if ours is None:
        struct = field.shape.struct
        assert struct
        ours = _empty(struct)
        setattr(target, field.name, ours)
    _set_at(ours, tuple(rest), new, join)


def _empty(struct: type[T]) -> T:
    """Returns an object whose fields are all None, also required ones.

    The check when the object is written names the required ones that are still None.
    """
    return struct(**dict.fromkeys(field.name for field in fields_of(struct).values()))


def _replace(shape: Shape, ours: Any, theirs: Any) -> Any:
    return theirs


def _mix(shape: Shape, ours: Any, theirs: Any) -> Any:
    if shape.kind == "list":
        return (ours or []) + theirs
    return merge.merge_values(shape, ours, theirs)


def _read_new_value(shape: Shape, value: Any, path: str) -> Any:
    """Returns a copy of the value as an object of the field's type.

    The value may be an object or its plain form. For a list it may also be a single item. Raises
    Invalid if it cannot become the field's type.
    """
    if isinstance(value, tuple):
        value = list(value)
    if shape.kind == "list" and not isinstance(value, list):
        value = [value]

    problems: list[plain.Problem] = []

    def report(at: str, text: str) -> None:
        problems.append(plain.Problem(at, text))

    new = plain.read_value(shape, copy.deepcopy(value), path, False, report)
    if problems:
        raise plain.Invalid(child("with", path), problems)
    return new
