"""The fields of an object that its version does not have, and values of another type than its
version's.

In: a document; out: the document without unknown fields, and what to warn of.

Only the resource API has field tables: other kinds are taken as they come.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from ....api import quantity
from ....api.document import Document
from ....api.objects import models
from ....api.objects.shapes import Shape, child, fields_of
from ..catalog import ServedVersion
from ..types import status_errors
from ..types.resource import GroupResource
from . import protobuf_fields


def shape_of(served: ServedVersion) -> Shape | None:
    if served.group != models.GROUP:
        return None
    old = served.api_resource.release == "1.31"
    for name in (f"{served.version}-1.31", served.version) if old else (served.version,):
        if name in models.VERSIONS and served.kind.resource.kind in models.kinds(name):
            return Shape("struct", struct=models.kinds(name)[served.kind.resource.kind])
    return None


class WrongType(status_errors.StatusError):
    """A value of another type than the field's, in what was sent or in what a patch made."""

    def __init__(self, served: ServedVersion, why: str) -> None:
        kind = served.kind.resource.kind
        text = f'{kind} in version "{served.version}" cannot be handled as a {kind}: {why}'
        super().__init__(400, "BadRequest", text)
        self.why = why

    def of_patch(self, made: Document) -> status_errors.StatusError:
        shown = json.dumps(json.dumps(made, separators=(",", ":")))
        cause = status_errors.Cause(
            "FieldValueInvalid", f"Invalid value: {shown}: {self.why}", "patch"
        )
        return status_errors.invalid(GroupResource("", "", ""), "", [cause])


def checked(
    served: ServedVersion, obj: Document, validation: str, twice: Sequence[str] = ()
) -> tuple[Document, tuple[str, ...]]:
    """Strict refuses what is unknown or there twice, Warn tells of it, Ignore does not; Apply has
    words of its own.
    """
    shape = shape_of(served)
    unknown: list[str] = []
    if shape:
        try:
            obj = _Check(served.version, unknown).known(shape, obj, "", served.kind.resource.kind)
        except _Wrong as error:
            raise WrongType(served, str(error)) from error
    elif message := protobuf_fields.message_of(served):
        try:
            obj = protobuf_fields.known(message, obj, "", unknown)
        except protobuf_fields.Wrong as error:
            raise WrongType(served, str(error)) from error
    if validation == "Apply":
        _check_applied(served, obj, unknown)
        return obj, ()
    problems = [f'duplicate field "{path}"' for path in twice] + [
        f'unknown field "{path}"' for path in unknown
    ]
    if problems and validation == "Strict":
        said = ", ".join(problems)
        kind, version = served.kind.resource.kind, served.version
        raise status_errors.bad_request(
            f'{kind} in version "{version}" cannot be handled as a {kind}: strict decoding error: {said}'
        )
    return obj, tuple(problems) if validation == "Warn" else ()


def _check_applied(served: ServedVersion, config: Document, unknown: Sequence[str]) -> None:
    if not unknown:
        return
    metadata = config.get("metadata") or {}
    what = f"{metadata.get('namespace', '')}/{metadata.get('name', '')}"
    lines = [f".{path}: field not declared in schema" for path in unknown]
    said = lines[0] if len(lines) == 1 else "errors:\n  " + "\n  ".join(lines)
    about = f"({what}; {served.api_version}, Kind={served.kind.resource.kind})"
    raise status_errors.StatusError(500, "", f"failed to create typed patch object {about}: {said}")


GO = {"string": "string", "quantity": "resource.Quantity", "integer": "int64", "boolean": "bool"}
TYPES: dict[str, type] = {"string": str, "integer": int, "boolean": bool}
SEEN: dict[type, str] = {
    str: "string",
    bool: "bool",
    int: "number",
    float: "number",
    dict: "object",
    list: "array",
}
QUANTITIES = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)


class _Wrong(Exception):
    pass


def zero(shape: Shape) -> Any:
    """What null is in a list or a map, which have a place for it: the type's own nothing."""
    return {
        "string": "",
        "integer": 0,
        "boolean": False,
        "quantity": "0",
        "list": [],
        "any": None,
    }.get(shape.kind, {})


class _Check:
    def __init__(self, version: str, unknown: list[str]) -> None:
        self._version, self._unknown = version, unknown

    def known(self, shape: Shape, value: Any, path: str, holder: str) -> Any:
        """The value with the fields that its type has. `holder` is the struct that it is a field
        of.
        """
        if value is None or shape.kind == "any":
            return value
        if shape.kind == "struct":
            return self._struct(shape, value, path, holder)
        if shape.kind == "list":
            if not isinstance(value, list):
                raise self._wrong(shape, value, path, holder)
            assert shape.item
            items = (
                (index, zero(shape.item) if item is None else item)
                for index, item in enumerate(value)
            )
            return [
                self.known(shape.item, item, f"{path}[{index}]", holder) for index, item in items
            ]
        if shape.kind == "map":
            if not isinstance(value, dict):
                raise self._wrong(shape, value, path, holder)
            assert shape.item
            pairs = {
                name: zero(shape.item) if item is None else item for name, item in value.items()
            }
            return {
                name: self.known(shape.item, item, f"{path}.{name}", holder)
                for name, item in pairs.items()
            }
        if shape.kind == "quantity":
            return self._quantity(value)
        if not isinstance(value, TYPES[shape.kind]) or (
            shape.kind == "integer" and isinstance(value, bool)
        ):
            raise self._wrong(shape, value, path, holder)
        return value

    def _struct(self, shape: Shape, value: Any, path: str, holder: str) -> Document:
        if not isinstance(value, dict):
            raise self._wrong(shape, value, path, holder)
        assert shape.struct
        table = fields_of(shape.struct)
        found = {}
        for name, below in value.items():
            if name in table:
                found[name] = self.known(
                    table[name].shape, below, child(path, name), shape.struct.__name__
                )
            elif not path and name in ("apiVersion", "kind"):
                found[name] = below
            else:
                self._unknown.append(child(path, name))
        return found

    @staticmethod
    def _quantity(value: Any) -> Any:
        try:
            quantity.parse(str(value).strip())  # "True" is no quantity either
        except ValueError as error:
            raise _Wrong(QUANTITIES) from error
        return value

    def _wrong(self, shape: Shape, value: Any, path: str, holder: str) -> _Wrong:
        place, seen = re.sub(r"\[\d+\]", "", path), SEEN[type(value)]
        return _Wrong(
            f"json: cannot unmarshal {seen} into Go struct field {holder}.{place} of type {self._go(shape)}"
        )

    def _go(self, shape: Shape) -> str:
        if shape.kind == "struct":
            assert shape.struct
            name = shape.struct.__name__
            return (
                f"v1.{name}"
                if shape.struct.__module__.endswith(".meta")
                else f"{self._version}.{name}"
            )
        if shape.kind == "list":
            assert shape.item
            return f"[]{self._go(shape.item)}"
        if shape.kind == "map":
            assert shape.item
            return f"map[string]{self._go(shape.item)}"
        return GO.get(shape.kind, "string")
