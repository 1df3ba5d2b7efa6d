"""The fields of kinds outside the resource API: finds unknown fields and values of a wrong type.

The tables of protobuf describe the fields. They are those of Kubernetes 1.37 and contain only
types.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from claimd.kubernetes.api import quantity
from claimd.kubernetes.api.document import Document
from claimd.kubernetes.api.objects.shapes import child

from ..catalog import ServedVersion
from . import protobuf

# Fields of earlier releases, which the tables do not have.
EARLIER_FIELDS = {"core/v1.PodResourceClaim": "source"}
JSON_TYPES: dict[str, tuple[type, ...]] = {
    "text": (str,),
    "bytes": (str,),
    "int": (int,),
    "flag": (bool,),
    "quantity": (str, int, float),
    "either": (str, int),
    "time": (str,),
    "microtime": (str,),
    "texts": (list,),
}
GO_TYPES = {"flag": "bool", "int": "int64"}

# Go's names for the types of JSON.
JSON_NAMES: dict[type, str] = {
    str: "string",
    bool: "bool",
    int: "number",
    float: "number",
    dict: "object",
    list: "array",
}


NO_QUANTITY = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)
# The size of the cache of quantities. A cluster has few different ones.
QUANTITIES = 4096


class TypeMismatch(Exception):
    """A value whose type is not that of its field. The message is that of Go's library."""


def _mismatch(path: str, wanted: str, value: Any) -> TypeMismatch:
    seen = JSON_NAMES[type(value)]
    return TypeMismatch(
        f"json: cannot unmarshal {seen} into Go struct field {path} of type {wanted}"
    )


@lru_cache(maxsize=QUANTITIES)
def is_quantity(text: str) -> bool:
    try:
        quantity.parse(text)
    except ValueError:
        return False
    return True


def message_of(served: ServedVersion) -> str | None:
    return protobuf.tables().kinds.get((served.api_version, served.kind.resource.kind))


def fields_of(message: str) -> Iterator[tuple[str, str]]:
    """Yields the name and form of each field, with the fields of inlined messages."""
    for field in protobuf.tables().messages[message].values():
        if field.is_inlined:
            yield from fields_of(field.form)
        else:
            yield field.name, field.form


def drop_unknown(message: str, value: Any, path: str, unknown: list[str]) -> Any:
    """Returns the value without the fields that its type does not have.

    The paths of the dropped fields are appended to `unknown`. Raises TypeMismatch for the first
    value of a wrong type.
    """
    if value is None:
        return None
    if not isinstance(value, dict):
        raise _mismatch(path, "object", value)

    forms = dict(fields_of(message))
    known: Document = {}
    for name, below in value.items():
        if name in forms:
            known[name] = _check_value(forms[name], below, child(path, name), unknown)
        elif EARLIER_FIELDS.get(message) == name or (not path and name in ("apiVersion", "kind")):
            known[name] = below
        else:
            unknown.append(child(path, name))
    return known


def _check_value(form: str, value: Any, path: str, unknown: list[str]) -> Any:
    outer, _, inner = form.partition(":")
    if value is None or form in ("raw", "fields"):
        return value

    if outer == "list":
        if not isinstance(value, list):
            raise _mismatch(path, "array", value)
        return [
            _zero(inner) if item is None else _check_value(inner, item, f"{path}[{index}]", unknown)
            for index, item in enumerate(value)
        ]

    if outer == "map":
        if not isinstance(value, dict):
            raise _mismatch(path, "object", value)
        return {
            name: _zero(inner)
            if item is None
            else _check_value(inner, item, f"{path}.{name}", unknown)
            for name, item in value.items()
        }

    if form not in JSON_TYPES:
        return drop_unknown(form, value, path, unknown)
    is_flag_in_disguise = isinstance(value, bool) and form != "flag"
    if not isinstance(value, JSON_TYPES[form]) or is_flag_in_disguise:
        raise _mismatch(path, GO_TYPES.get(form, "string"), value)
    if form == "quantity" and not is_quantity(str(value).strip()):
        raise TypeMismatch(NO_QUANTITY)
    return value


def _zero(form: str) -> Any:
    """Returns the zero value that Go decodes from a null in a list or a map."""
    match form:
        case "int":
            return 0
        case "flag":
            return False
        case "quantity":
            return "0"
        case "texts":
            return []
    if form in JSON_TYPES:
        return ""
    return [] if form.startswith("list:") else {}
