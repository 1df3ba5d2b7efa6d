"""Strict decoding: finds fields that an object's version does not have, and values of a wrong type.

The field tables of the resource API describe its kinds. The tables of protobuf describe the others.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from claimd.kubernetes.api.document import Document
from claimd.kubernetes.api.objects import meta, models
from claimd.kubernetes.api.objects.shapes import Shape, child, fields_of

from ..catalog import ServedVersion
from ..types import status_errors
from ..types.resource import GroupResource
from ..types.status_errors import StatusError
from ..types.structure import Structure
from . import protobuf, protobuf_fields
from .protobuf_fields import JSON_NAMES, NO_QUANTITY

GO_TYPES = {
    "string": "string",
    "quantity": "resource.Quantity",
    "integer": "int64",
    "boolean": "bool",
}
INDEX = re.compile(r"\[\d+\]")
METADATA = Shape("struct", struct=meta.ObjectMeta)
JSON_TYPES: dict[str, type] = {"string": str, "integer": int, "boolean": bool}


def shape_of(served: ServedVersion) -> Shape | None:
    """Returns the field table of a kind of the resource API, or None."""
    if served.group != models.GROUP:
        return None
    names = [served.version]
    if served.api_resource.release == "1.31":
        names.insert(0, f"{served.version}-1.31")
    for name in names:
        if name in models.VERSIONS and served.kind.resource.kind in models.kinds(name):
            return Shape("struct", struct=models.kinds(name)[served.kind.resource.kind])
    return None


class WrongType(StatusError):
    """The error about a value of a wrong type, in an object of a request or after a patch."""

    def __init__(self, served: ServedVersion, why: str) -> None:
        super().__init__(400, "BadRequest", f"{_cannot_handle(served)}: {why}")
        self.why = why

    def of_patch(self, patched: Document) -> StatusError:
        """Returns the same error for the sender of a patch."""
        shown = json.dumps(json.dumps(patched, separators=(",", ":")))
        message = f"Invalid value: {shown}: {self.why}"
        cause = status_errors.Cause("FieldValueInvalid", message, "patch")
        return status_errors.invalid(GroupResource("", "", ""), "", [cause])


def _cannot_handle(served: ServedVersion) -> str:
    kind = served.kind.resource.kind
    return f'{kind} in version "{served.version}" cannot be handled as a {kind}'


# ---------------------------------------------------------------- unknown fields


def decode(
    served: ServedVersion, obj: Document, validation: str, duplicates: Sequence[str] = ()
) -> tuple[Document, tuple[str, ...]]:
    """Returns the object without the fields that this version does not have, and the warnings.

    `validation` is the request's fieldValidation. Unknown and duplicate fields are an error with
    Strict and warnings with Warn. Raises WrongType for a value of a wrong type in any case.
    """
    obj, unknown = _drop_unknown(served, obj)
    problems = [f'duplicate field "{path}"' for path in duplicates]
    problems += [f'unknown field "{path}"' for path in unknown]
    if problems and validation == "Strict":
        why = f"strict decoding error: {', '.join(problems)}"
        raise status_errors.bad_request(f"{_cannot_handle(served)}: {why}")
    return obj, tuple(problems) if validation == "Warn" else ()


def decode_applied(served: ServedVersion, config: Document) -> Document:
    """Returns a configuration to apply.

    Refuses unknown fields, because they cannot have an owner.
    """
    config, unknown = _drop_unknown(served, config)
    if not unknown:
        return config

    lines = [f".{path}: field not declared in schema" for path in unknown]
    listed = lines[0] if len(lines) == 1 else "errors:\n  " + "\n  ".join(lines)
    metadata = config.get("metadata") or {}
    name = f"{metadata.get('namespace', '')}/{metadata.get('name', '')}"
    what = f"({name}; {served.api_version}, Kind={served.kind.resource.kind})"
    raise StatusError(500, "", f"failed to create typed patch object {what}: {listed}")


def of_kind(document: Document, api_version: str, kind: str) -> Document:
    """Returns a document that is never stored, such as a Binding or a review, without unknown
    fields.

    Raises a 400 for a value of a wrong type.
    """
    message = protobuf.tables().kinds[api_version, kind]
    try:
        known: Document = protobuf_fields.drop_unknown(message, document, "", [])
    except protobuf_fields.TypeMismatch as error:
        version = api_version.rpartition("/")[2]
        what = f'{kind} in version "{version}" cannot be handled as a {kind}'
        raise status_errors.bad_request(f"{what}: {error}") from error
    return known


def _drop_unknown(served: ServedVersion, obj: Document) -> tuple[Document, list[str]]:
    unknown: list[str] = []
    if served.structure:
        return _by_structure(served, served.structure, obj, unknown), unknown
    shape, message = shape_of(served), protobuf_fields.message_of(served)
    try:
        if shape:
            decoder = _Decoder(served.version, unknown)
            obj = decoder.value(shape, obj, "", served.kind.resource.kind)
        elif message:
            obj = protobuf_fields.drop_unknown(message, obj, "", unknown)
    except (_TypeMismatch, protobuf_fields.TypeMismatch) as error:
        raise WrongType(served, str(error)) from error
    return obj, unknown


def _by_structure(
    served: ServedVersion, structure: Structure, obj: Document, unknown: list[str]
) -> Document:
    """Drops the unknown fields of a custom resource or of a definition.

    The types of a custom resource are checked later, when it is validated.
    """
    known: Document = structure.known(obj, "", unknown)
    mistyped = None
    if not served.kind.is_custom:
        known = structure.without_nulls(known)
        mistyped = structure.find_mistyped(known)
    if mistyped:
        path, wanted, value = mistyped
        field = f"{served.kind.resource.kind}.{path}"
        seen = f"json: cannot unmarshal {JSON_NAMES[type(value)]} into Go struct field {field}"
        raise WrongType(served, f"{seen} of type {GO_TYPES.get(wanted, wanted)}")

    metadata = known.get("metadata")
    if metadata is not None:
        decoder = _Decoder(served.version, unknown)
        try:
            known["metadata"] = decoder.value(METADATA, metadata, "metadata", "ObjectMeta")
        except _TypeMismatch as error:
            raise WrongType(served, str(error)) from error

    if served.kind.is_custom:
        unknown.sort()
    return known


# ---------------------------------------------------------------- decoding by field tables


class _TypeMismatch(Exception):
    """A value of a wrong type. The message is that of Go's library."""


class _Decoder:
    """Walks a document along its version's field table, and collects unknown fields."""

    def __init__(self, version: str, unknown: list[str]) -> None:
        self._version, self._unknown = version, unknown

    def value(self, shape: Shape, value: Any, path: str, holder: str) -> Any:
        """Returns the value without the fields that its type does not have.

        `holder` is the name of the struct that has the value as a field, for messages.
        """
        if value is None or shape.kind == "any":
            return value
        match shape.kind:
            case "struct":
                return self._struct(shape, value, path, holder)
            case "list":
                return self._list(shape, value, path, holder)
            case "map":
                return self._map(shape, value, path, holder)
            case "quantity":
                return self._quantity(value)
        is_number_in_disguise = shape.kind == "integer" and isinstance(value, bool)
        if not isinstance(value, JSON_TYPES[shape.kind]) or is_number_in_disguise:
            raise self._mismatch(shape, value, path, holder)
        return value

    def _struct(self, shape: Shape, value: Any, path: str, holder: str) -> Document:
        if not isinstance(value, dict):
            raise self._mismatch(shape, value, path, holder)
        assert shape.struct
        fields, name_of_struct = fields_of(shape.struct), shape.struct.__name__
        known: Document = {}
        for name, below in value.items():
            if name in fields:
                shape = fields[name].shape
                # A shortcut for scalars, which most fields are.
                if type(below) is JSON_TYPES.get(shape.kind):
                    known[name] = below
                    continue
                known[name] = self.value(shape, below, child(path, name), name_of_struct)
            elif not path and name in ("apiVersion", "kind"):
                known[name] = below
            else:
                self._unknown.append(child(path, name))
        return known

    def _list(self, shape: Shape, value: Any, path: str, holder: str) -> list[Any]:
        if not isinstance(value, list):
            raise self._mismatch(shape, value, path, holder)
        assert shape.item
        items = []
        for index, item in enumerate(value):
            present = _zero(shape.item) if item is None else item
            items.append(self.value(shape.item, present, f"{path}[{index}]", holder))
        return items

    def _map(self, shape: Shape, value: Any, path: str, holder: str) -> Document:
        if not isinstance(value, dict):
            raise self._mismatch(shape, value, path, holder)
        assert shape.item
        entries: Document = {}
        for name, entry in value.items():
            present = _zero(shape.item) if entry is None else entry
            entries[name] = self.value(shape.item, present, f"{path}.{name}", holder)
        return entries

    @staticmethod
    def _quantity(value: Any) -> Any:
        # A number is a quantity, too, but the text "True" is no flag.
        if not protobuf_fields.is_quantity(str(value).strip()):
            raise _TypeMismatch(NO_QUANTITY)
        return value

    def _mismatch(self, shape: Shape, value: Any, path: str, holder: str) -> _TypeMismatch:
        field = f"{holder}.{INDEX.sub('', path)}"
        seen, wanted = JSON_NAMES[type(value)], self._go_type(shape)
        return _TypeMismatch(
            f"json: cannot unmarshal {seen} into Go struct field {field} of type {wanted}"
        )

    def _go_type(self, shape: Shape) -> str:
        match shape.kind:
            case "struct":
                assert shape.struct
                of_meta = shape.struct.__module__.endswith(".meta")
                return f"{'v1' if of_meta else self._version}.{shape.struct.__name__}"
            case "list":
                assert shape.item
                return f"[]{self._go_type(shape.item)}"
            case "map":
                assert shape.item
                return f"map[string]{self._go_type(shape.item)}"
        return GO_TYPES.get(shape.kind, "string")


ZEROS: dict[str, Any] = {
    "string": "",
    "integer": 0,
    "boolean": False,
    "quantity": "0",
    "list": [],
    "any": None,
}


def _zero(shape: Shape) -> Any:
    """Returns the zero value that Go decodes from a null in a list or a map."""
    return ZEROS.get(shape.kind, {})
