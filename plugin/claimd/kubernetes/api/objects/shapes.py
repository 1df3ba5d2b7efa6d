"""Field tables: the types and rules of the fields of a class, derived from its annotations.

The rules `Most`, `Keys`, `Unique` and `Amount` are part of an annotation:

    finalizers: Annotated[list[str], Unique(), Most(8)] | None = None
"""

from __future__ import annotations

import types
import typing
from dataclasses import dataclass, field, replace
from functools import cache

import msgspec

SCALARS = {str: "string", int: "integer", bool: "boolean"}


@dataclass(frozen=True)
class Most:
    """A rule: the most items of a list, entries of a map, or bytes of a text or a document."""

    count: int


@dataclass(frozen=True, init=False)
class Keys:
    """A rule: the list is a map in disguise. The key are these fields, by their names in JSON."""

    names: tuple[str, ...]

    def __init__(self, *names: str) -> None:
        object.__setattr__(self, "names", names)


@dataclass(frozen=True)
class Unique:
    """A rule: the list is a set. A merge adds the items that are missing.

    A merge replaces a list that has neither `Keys` nor this rule.
    """


@dataclass(frozen=True)
class Amount:
    """A rule: the text is a quantity. In a document it may also be a number."""


@dataclass(frozen=True)
class Shape:
    """The type of a value, with its rules."""

    kind: str  # string, quantity, integer, boolean, any, struct, list, map
    item: Shape | None = None  # the shape of each item of a list, or value of a map
    struct: type[msgspec.Struct] | None = None
    choices: tuple[str, ...] = ()
    most: int | None = None
    keys: tuple[str, ...] = ()
    unique: bool = False


@dataclass(frozen=True)
class Field:
    """A field of a class."""

    name: str  # the attribute, such as reserved_for
    wire: str  # the name in JSON, such as reservedFor
    shape: Shape = field(compare=False)
    required: bool = False


@cache
def fields_of(struct: type[msgspec.Struct]) -> dict[str, Field]:
    """Returns the fields of a class by their names on the wire, in the order of the class."""
    fields = {}
    for info in msgspec.structs.fields(struct):
        if info.name != "unknown":
            shape = shape_of(info.type)
            fields[info.encode_name] = Field(info.name, info.encode_name, shape, info.required)
    return fields


def shape_of(annotation: typing.Any) -> Shape:
    """Returns the shape that an annotation describes.

    A rule of the outer `Annotated` overrides the same rule within it.
    """
    rules: list[object] = []
    inner = _without_none(annotation)
    if typing.get_origin(inner) is typing.Annotated:
        inner, *rules = typing.get_args(inner)

    shape = _shape_of_type(_without_none(inner))
    for rule in rules:
        match rule:
            case Amount():
                shape = replace(shape, kind="quantity")
            case Most():
                shape = replace(shape, most=rule.count)
            case Keys():
                shape = replace(shape, keys=rule.names)
            case Unique():
                shape = replace(shape, unique=True)
    return shape


def _shape_of_type(annotation: typing.Any) -> Shape:
    """Returns the shape of an annotation without rules and without None."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if annotation is typing.Any:
        return Shape("any")
    if annotation in SCALARS:
        return Shape(SCALARS[annotation])
    if origin is typing.Literal:
        return Shape("string", choices=arguments)
    if origin is list:
        return Shape("list", item=shape_of(arguments[0]))
    if origin is dict:
        return Shape("map", item=shape_of(arguments[1]))
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return Shape("struct", struct=annotation)
    raise TypeError(f"a field table has no place for {annotation!r}")


def _without_none(annotation: typing.Any) -> typing.Any:
    if typing.get_origin(annotation) not in (typing.Union, types.UnionType):
        return annotation

    # A field is a type or None, never one of several types.
    (inner,) = (part for part in typing.get_args(annotation) if part is not type(None))
    return inner


def child(path: str, name: str) -> str:
    """Returns the path of a field, given the path of its object."""
    return f"{path}.{name}" if path else name
