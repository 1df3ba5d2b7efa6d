"""Objects in the form in which a server prints its own values inside messages.

The form is JSON of a version, or Go with the field names of the server's internal types.
"""

from __future__ import annotations

from typing import Any

import msgspec

from claimd.kubernetes.api.document import Document
from claimd.kubernetes.api.objects import models
from claimd.kubernetes.api.objects.shapes import Field, Shape, fields_of

from . import canonical

# The internal names that are not the wire name with a capital letter.
INTERNAL_NAMES = {"cel": "CEL", "uid": "UID", "ips": "IPs"}
POINTERS = {
    "matchAttribute",
    "distinctAttribute",
    "adminAccess",
    "tolerationSeconds",
    "nodeName",
    "validationError",
}
CONDITION_FIELDS = (
    "type",
    "status",
    "observedGeneration",
    "lastTransitionTime",
    "reason",
    "message",
)


def as_json(struct: str, value: Document, version: str = "v1") -> Document:
    """Returns the value with its fields in the order of the type."""
    if struct == "Reference":
        struct = "ResourceClaimConsumerReference"
    cls = models.classes(version).get(struct)
    if not cls:
        return value
    ordered: Document = _order_fields(Shape("struct", struct=cls), value)
    return ordered


def _order_fields(shape: Shape, value: Any) -> Any:
    if shape.kind == "struct" and isinstance(value, dict):
        assert shape.struct
        fields = fields_of(shape.struct)
        return {
            name: _order_fields(fields[name].shape, value[name]) for name in fields if name in value
        }
    if shape.kind == "list" and isinstance(value, list):
        assert shape.item
        return [_order_fields(shape.item, item) for item in value]
    return value


def internal(struct: str, value: Document, version: str = "v1") -> Document:
    """Returns the value with all fields of the internal type, including those that are not set."""
    shape = canonical.shape_of(version, struct)
    if not shape:
        shape = Shape("struct", struct=models.classes(version)[struct])
    shown: Document = _internal(shape, value)
    return shown


def _internal(shape: Shape, value: Any) -> Any:
    if value is None:
        return None
    if shape.kind == "struct":
        assert shape.struct
        return _internal_struct(shape.struct, value)
    if shape.kind == "list":
        assert shape.item
        return [_internal(shape.item, item) for item in value]
    return value


def _internal_struct(struct: type[msgspec.Struct], value: Document) -> Document:
    # The types that all API groups share have no internal form.
    if struct.__name__ == "ObjectMeta":
        return value
    if struct.__name__ == "Condition":
        return {name: value[name] for name in CONDITION_FIELDS if name in value}

    shown: Document = {}
    for name, field in fields_of(struct).items():
        if _is_embedded(field):
            shown |= value.get(name) or {}
            continue
        below = value.get(name)
        is_zero = field.shape.kind in ("string", "integer") and name not in POINTERS
        if below is None and is_zero:
            below = canonical.ZERO[field.shape.kind]
        internal_name = INTERNAL_NAMES.get(name, name[0].upper() + name[1:])
        shown[internal_name] = _internal(field.shape, below)
    return shown


def _is_embedded(field: Field) -> bool:
    """Returns True for the metadata of a template, which Go embeds among the other fields."""
    struct = field.shape.struct
    return field.shape.kind == "struct" and struct is not None and struct.__name__ == "ObjectMeta"
