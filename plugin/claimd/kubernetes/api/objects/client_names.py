"""The interface of the official Python client's models, for the classes of this package.

With `attribute_map` and `openapi_types` the official client takes an object of ours as the body of
a request. `to_python` returns what the `to_dict()` of its models returns.
"""

from __future__ import annotations

from typing import Any

import msgspec

from .shapes import Shape, fields_of

TYPES = {"string": "str", "quantity": "str", "integer": "int", "boolean": "bool", "any": "object"}
# The core API has a class of this name in v1, too.
AMBIGUOUS = {"V1ResourceClaim": "ResourceV1ResourceClaim"}


class AttributeMap:
    """The names in JSON, by the names in Python."""

    def __get__(self, obj: object, cls: type[msgspec.Struct]) -> dict[str, str]:
        return {field.name: field.wire for field in fields_of(cls).values()}


class OpenApiTypes:
    """The types as the official client names them, by the names in Python."""

    def __get__(self, obj: object, cls: type[msgspec.Struct]) -> dict[str, str]:
        version = _version_of(cls)
        return {field.name: _type_name(field.shape, version) for field in fields_of(cls).values()}


def to_python(value: Any) -> Any:
    """Returns plain data with the names of Python, and None for fields that are not set."""
    if isinstance(value, list):
        return [to_python(item) for item in value]
    if isinstance(value, dict):
        return {key: to_python(item) for key, item in value.items()}
    if not isinstance(value, msgspec.Struct):
        return value
    names = [field.name for field in fields_of(type(value)).values()]
    return {name: to_python(getattr(value, name)) for name in names}


def _type_name(shape: Shape, version: str) -> str:
    if shape.kind == "list":
        assert shape.item
        return f"list[{_type_name(shape.item, version)}]"
    if shape.kind == "map":
        assert shape.item
        return f"dict(str, {_type_name(shape.item, version)})"
    if shape.struct is None:
        return TYPES[shape.kind]

    # A type that several versions share is named after the version of the class that uses it.
    is_common = shape.struct.__module__.endswith(".meta")
    name = f"{'V1' if is_common else version}{shape.struct.__name__}"
    return AMBIGUOUS.get(name, name)


def _version_of(cls: type[msgspec.Struct]) -> str:
    """Returns the version of a class as the names begin: V1, V1beta1, V1alpha3."""
    module = cls.__module__.rpartition(".")[2]
    return module.partition("_")[0].capitalize() if module.startswith("v1") else "V1"
