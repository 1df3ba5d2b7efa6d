"""Field tables: what a class of a version's module says about each of its fields.

The classes have plain annotations, with the rules `Most`, `Keys`, `Unique` and `Amount` put into
`Annotated`:

    finalizers: Annotated[list[str], Unique(), Most(8)] | None = None

No values here, no documents.
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
    """At most so many items of a list, entries of a map, bytes of a text or of a free document."""

    count: int


@dataclass(frozen=True, init=False)
class Keys:
    """The list is a map in disguise: these fields (named as on the wire) tell its items apart."""

    names: tuple[str, ...]

    def __init__(self, *names: str) -> None:
        object.__setattr__(self, "names", names)


@dataclass(frozen=True)
class Unique:
    """The list is a set: merging adds what is not there.

    A list with neither `Keys` nor this is replaced whole.
    """


@dataclass(frozen=True)
class Amount:
    """The text is a quantity; a document may have a bare number for it."""


@dataclass(frozen=True)
class Shape:
    """What a value may be."""

    kind: str  # string, quantity, integer, boolean, any, struct, list, map
    item: Shape | None = None  # of a list or a map
    struct: type[msgspec.Struct] | None = None
    choices: tuple[str, ...] = ()
    most: int | None = None
    keys: tuple[str, ...] = ()
    unique: bool = False


@dataclass(frozen=True)
class Field:
    name: str  # of the attribute: reserved_for
    wire: str  # in JSON: reservedFor
    shape: Shape = field(compare=False)
    required: bool = False


@cache
def fields_of(struct: type[msgspec.Struct]) -> dict[str, Field]:
    """The fields by their names on the wire, in the order of the class."""
    fields = {}
    for info in msgspec.structs.fields(struct):
        if info.name != "unknown":
            shape = shape_of(info.type)
            fields[info.encode_name] = Field(info.name, info.encode_name, shape, info.required)
    return fields


def shape_of(annotation: typing.Any) -> Shape:
    """What the annotation says; a rule of the outer one counts before a rule within it."""
    rules: list[object] = []
    inner = _without_none(annotation)
    if typing.get_origin(inner) is typing.Annotated:
        inner, *rules = typing.get_args(inner)

    shape = _bare(_without_none(inner))
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


def _bare(annotation: typing.Any) -> Shape:
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
    (inner,) = (a for a in typing.get_args(annotation) if a is not type(None))
    return inner


def child(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
