"""Field tables: what a class of a version's module says about each of its fields. No values here,
no documents.

The classes have plain annotations, with the rules `Most`, `Keys`, `Unique` and `Amount` put into
`Annotated`:

    reserved_for: Annotated[list[ResourceClaimConsumerReference], Keys("uid"), Most(256)] | None = None
"""

from __future__ import annotations

import types
import typing
from dataclasses import dataclass, field
from functools import cache

import msgspec

SCALARS = {str: "string", int: "integer", bool: "boolean"}


@dataclass(frozen=True)
class Most:
    """At most so many: items of a list, entries of a map, bytes of a text or of a free document as
    JSON.
    """

    count: int


@dataclass(frozen=True, init=False)
class Keys:
    """The list is a map in disguise: these fields (named as on the wire) tell its items apart."""

    names: tuple[str, ...]

    def __init__(self, *names: str) -> None:
        object.__setattr__(self, "names", names)


@dataclass(frozen=True)
class Unique:
    """The list is a set: merging adds what is not there. A list with neither `Keys` nor this is
    replaced whole.
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
    return {
        f.encode_name: Field(f.name, f.encode_name, shape_of(f.type), f.required)
        for f in msgspec.structs.fields(struct)
        if f.name != "unknown"
    }


def shape_of(annotation: typing.Any) -> Shape:
    rules: tuple[object, ...] = ()
    inner = _without_none(annotation)
    if typing.get_origin(inner) is typing.Annotated:
        inner, *found = typing.get_args(inner)
        rules = tuple(found)
    shape = _bare(_without_none(inner))
    return Shape(
        kind="quantity" if any(isinstance(rule, Amount) for rule in rules) else shape.kind,
        item=shape.item,
        struct=shape.struct,
        choices=shape.choices,
        most=next((rule.count for rule in rules if isinstance(rule, Most)), shape.most),
        keys=next((rule.names for rule in rules if isinstance(rule, Keys)), ()),
        unique=any(isinstance(rule, Unique) for rule in rules),
    )


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
