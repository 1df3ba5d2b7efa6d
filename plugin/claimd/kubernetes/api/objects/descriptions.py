"""Descriptions of all classes and fields: for `help()`, for OpenAPI, and for the docs.

The sentences are in `descriptions.toml`, which is read when the first of them is needed. Limits,
choices and keys come from the schema of the class, so that they are those of its version.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import Any

import msgspec

from .shapes import Field, Shape, fields_of

ABOUT, LIKE = "about", "like"


class Undescribed(LookupError):
    """There is no sentence for this class or field."""


@cache
def table() -> dict[str, dict[str, Any]]:
    """Returns the sentences of `descriptions.toml`."""
    import tomllib  # which few programs need

    text = resources.files(__package__).joinpath("descriptions.toml").read_text("utf-8")
    return tomllib.loads(text)


def describe_class(cls: type[msgspec.Struct]) -> str:
    """Returns a sentence about the class, with the fields that exclude each other."""
    if cls.__name__.endswith("List") and "items" in fields_of(cls):
        return f"A list of {cls.__name__.removesuffix('List')} objects."
    sentences = [_sentence(cls, ABOUT)]
    for group in getattr(cls, "one_of", ()):
        if len(group) > 1:
            sentences.append(f"Exactly one of {_join_names(group)} is set.")
    return " ".join(sentences)


def describe_field(cls: type[msgspec.Struct], field: Field) -> str:
    """Returns a sentence about the field, with its limits."""
    return " ".join([_sentence(cls, field.wire), *_limits(field.shape)])


def docstring_of(cls: type[msgspec.Struct]) -> str:
    """Returns the docstring of a class: its description, and those of its fields."""
    lines = [describe_class(cls), ""]
    for field in fields_of(cls).values():
        required = ", required" if field.required else ""
        lines.append(f"{field.name} ({type_name(field.shape)}{required}):")
        lines.append(f"    {describe_field(cls, field)}")
    return "\n".join(lines)


def type_name(shape: Shape) -> str:
    """Returns a name for people of the type: "string", "list of Device", "map of Counter"."""
    if shape.kind == "struct":
        assert shape.struct
        return shape.struct.__name__
    if shape.item:
        return f"{shape.kind} of {type_name(shape.item)}"
    return "object" if shape.kind == "any" else shape.kind


def _limits(shape: Shape) -> list[str]:
    sentences = []
    if shape.most is not None:
        unit = {"list": "items", "map": "entries"}.get(shape.kind, "bytes")
        sentences.append(f"At most {shape.most} {unit}.")
    choices = shape.choices or (shape.item.choices if shape.item else ())
    if choices:
        sentences.append(f"One of {', '.join(choices)}.")
    if shape.keys:
        sentences.append(f"No two items have the same {_join_names(shape.keys)}.")
    if shape.unique:
        sentences.append("No item is there twice.")
    return sentences


def _join_names(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _sentence(cls: type[msgspec.Struct], key: str) -> str:
    """Returns the sentence for a key of a table of the class, or of one of its base classes."""
    version = cls.__module__.rpartition(".")[2]
    for name in (f"{version}.{cls.__name__}", *(each.__name__ for each in cls.__mro__)):
        found = _find(name, key)
        if found:
            return found
    raise Undescribed(f"descriptions.toml has no {key} in [{cls.__name__}]")


def _find(name: str, key: str) -> str:
    """Returns the sentence for a key of this table, or of the table that it is like."""
    of_class: dict[str, Any] = table()
    for step in name.split("."):
        of_class = of_class.get(step, {})
    if key in of_class:
        return str(of_class[key])
    return _find(of_class[LIKE], key) if LIKE in of_class else ""
