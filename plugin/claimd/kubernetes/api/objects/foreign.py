"""Reads objects that come from elsewhere: those of the official Python client, and plain data.

`read_object` takes an object of this package, an object of the official client, any object with a method
`to_dict`, or plain data. The names of its fields may be those of JSON (`deviceClassName`) or those
of Python (`device_class_name`). The version of the API is that of the object.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from ..document import Document
from . import convert, models, plain
from .meta import Object
from .model import Model
from .shapes import Shape, fields_of

T = TypeVar("T", bound=Object)


def read_object(source: Any, cls: type[T]) -> T:
    """Returns the object as one of this class of v1. The source is not changed.

    Raises `plain.Invalid` if a field breaks a rule of the API, and TypeError if the source is no
    object. Fields of an older version that v1 does not have are lost.
    """
    if isinstance(source, cls):
        return source

    kind = cls.__name__
    document = to_document(source)
    group_version = document.get("apiVersion") or document.get("api_version")
    version = str(group_version or _version_of(source)).rpartition("/")[2]
    if document.get("kind", kind) not in (kind, None):
        raise TypeError(f"expected a {kind}, got a {document['kind']}")

    # The fields have their names in JSON from here on.
    known = models.kinds(version).get(kind) if version in models.VERSIONS else None
    if known is None:
        raise TypeError(f"{models.GROUP}/{version} has no {kind}")
    document = with_json_names(Shape("struct", struct=known), document)
    if version not in ("v1", "v1beta2"):
        document["apiVersion"], document["kind"] = f"{models.GROUP}/{version}", kind
        converted = convert.convert(document, "v1").document
        assert converted is not None
        document = converted
    return cls.from_dict(document)


def to_document(source: Any) -> Document:
    """Returns the object as plain data. The names of fields may be those of JSON or of Python."""
    if isinstance(source, dict):
        return source
    if isinstance(source, Model):
        written: Document = plain.write(source)
        return written
    if isinstance(source, msgspec.Struct):
        return dict(msgspec.to_builtins(source))
    if hasattr(source, "to_dict"):
        return dict(source.to_dict())
    raise TypeError(
        f"expected an object of the resource API or a dict, got a {type(source).__name__}"
    )


def with_json_names(shape: Shape, value: Any) -> Any:
    """Returns a copy of plain data in which fields have their names in JSON.

    Fields that are None are left out, and a time becomes text.
    """
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if shape.kind == "list" and isinstance(value, list | tuple):
        assert shape.item
        return [with_json_names(shape.item, item) for item in value]
    if shape.kind == "map" and isinstance(value, dict):
        assert shape.item
        return {key: with_json_names(shape.item, item) for key, item in value.items()}
    if shape.kind != "struct" or not isinstance(value, dict):
        return value

    assert shape.struct
    fields = fields_of(shape.struct)
    by_name = {field.name: field for field in fields.values()}
    renamed: Document = {}
    for key, item in value.items():
        if item is None:
            continue
        # The official client puts an underscore before a name that Python reserves.
        field = fields.get(key) or by_name.get(key) or fields.get(key.lstrip("_"))
        if field is None:
            renamed[key] = item
        else:
            renamed[field.wire] = with_json_names(field.shape, item)
    return renamed


def _version_of(source: Any) -> str:
    """Returns the version of an object that does not say it: by its class, or else v1.

    The items of a list from an API server do not say their version.
    """
    for version, module in models.VERSIONS.items():
        if isinstance(source, module.KINDS):
            return version.partition("-")[0]
    named = re.match(r"(?:Resource)?(V1(?:alpha\d+|beta\d+)?)[A-Z]", type(source).__name__)
    return named[1].lower() if named else "v1"
