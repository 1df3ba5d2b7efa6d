"""The fields of an object that its version does not have, and values of another type than its version's.

In: a document; out: the document without unknown fields, and what to warn of.

Only the resource API has field tables: other kinds are taken as they come.
"""

from __future__ import annotations

from typing import Any

from ...api.objects import models
from ...api.objects.shapes import Shape, child, fields_of
from . import refused
from .catalog import Edition

Document = dict[str, Any]


def shape_of(edition: Edition) -> Shape | None:
    if edition.group != models.GROUP:
        return None
    for name in (edition.version, f"{edition.version}-1.31"):
        if name in models.VERSIONS and edition.kind.resource.kind in models.kinds(name):
            return Shape("struct", struct=models.kinds(name)[edition.kind.resource.kind])
    return None


def checked(edition: Edition, obj: Document, validation: str) -> tuple[Document, tuple[str, ...]]:
    """Strict refuses what is unknown, Warn tells of it, Ignore does not."""
    shape = shape_of(edition)
    unknown: list[str] = []
    if shape:
        obj = _known(shape, obj, "", unknown)
    problems = [f'unknown field "{path}"' for path in unknown]
    if problems and validation == "Strict":
        said = ", ".join(problems)
        kind, version = edition.kind.resource.kind, edition.version
        raise refused.bad_request(
            f'{kind} in version "{version}" cannot be handled as a {kind}: strict decoding error: {said}'
        )
    return obj, tuple(problems) if validation == "Warn" else ()


GO = {"string": "string", "integer": "int64", "boolean": "bool"}
TYPES: dict[str, type] = {"string": str, "integer": int, "boolean": bool}


def _known(shape: Shape, value: Any, path: str, unknown: list[str]) -> Any:  # noqa: PLR0912 - a branch a kind
    """The value with the fields that its type has; 400 if it is of another type."""
    if value is None or shape.kind == "any":
        return value
    if shape.kind == "struct":
        if not isinstance(value, dict):
            raise _wrong(path, "object", value)
        assert shape.struct
        table = fields_of(shape.struct)
        found = {}
        for name, below in value.items():
            if name in table:
                found[name] = _known(table[name].shape, below, child(path, name), unknown)
            elif not path and name in ("apiVersion", "kind"):
                found[name] = below
            else:
                unknown.append(child(path, name))
        return found
    if shape.kind == "list":
        if not isinstance(value, list):
            raise _wrong(path, "array", value)
        assert shape.item
        return [_known(shape.item, item, f"{path}[{index}]", unknown) for index, item in enumerate(value)]
    if shape.kind == "map":
        if not isinstance(value, dict):
            raise _wrong(path, "object", value)
        assert shape.item
        return {name: _known(shape.item, item, f"{path}.{name}", unknown) for name, item in value.items()}
    if shape.kind == "quantity":
        return value
    if not isinstance(value, TYPES[shape.kind]) or (shape.kind == "integer" and isinstance(value, bool)):
        raise _wrong(path, GO[shape.kind], value)
    return value


def _wrong(path: str, wanted: str, value: Any) -> refused.Refused:
    seen = {str: "string", bool: "bool", int: "number", float: "number", dict: "object", list: "array"}[type(value)]
    return refused.bad_request(f"json: cannot unmarshal {seen} into Go struct field {path} of type {wanted}")
