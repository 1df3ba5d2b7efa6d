"""Objects within messages, as the server prints its own values: as JSON of a version, or with the
names of its fields.

The second is what its inner types look like, which have no names on the wire.
"""

from __future__ import annotations

from typing import Any

from ....api.objects import models
from ....api.objects.shapes import Shape, fields_of
from . import canonical

INNER = {"cel": "CEL", "uid": "UID", "ips": "IPs"}


def as_json(struct: str, value: dict[str, Any], version: str = "v1") -> dict[str, Any]:
    """In the order of the type's fields."""
    found = models.classes(version).get(struct)
    if struct == "Reference":
        found = models.classes(version)["ResourceClaimConsumerReference"]
    return _ordered(Shape("struct", struct=found), value) if found else value


def _ordered(shape: Shape, value: Any) -> Any:
    if shape.kind == "struct" and isinstance(value, dict):
        assert shape.struct
        names = fields_of(shape.struct)
        return {
            name: _ordered(field.shape, value[name])
            for name, field in names.items()
            if name in value
        }
    if shape.kind == "list" and isinstance(value, list):
        assert shape.item
        return [_ordered(shape.item, item) for item in value]
    return value


def inner(struct: str, value: dict[str, Any], version: str = "v1") -> dict[str, Any]:
    """Every field, also what is not set, under the name that it has in the server."""
    shape = canonical.shape_of(version, struct) or Shape(
        "struct", struct=models.classes(version)[struct]
    )
    made: dict[str, Any] = _inner(shape, value)
    return made


def _inner(shape: Shape, value: Any) -> Any:
    if value is None:
        return None
    if shape.kind == "struct":
        assert shape.struct
        if shape.struct.__name__ == "ObjectMeta":
            return value
        if shape.struct.__name__ == "Condition":
            return {name: value[name] for name in CONDITION if name in value}
        made: dict[str, Any] = {}
        for name, field in fields_of(shape.struct).items():
            below = value.get(name)
            if (
                field.shape.kind == "struct"
                and field.shape.struct
                and field.shape.struct.__name__ == "ObjectMeta"
            ):
                made |= below or {}
                continue
            if below is None and name not in POINTERS and field.shape.kind in ("string", "integer"):
                below = canonical.ZERO[field.shape.kind]
            made[INNER.get(name, name[0].upper() + name[1:])] = _inner(field.shape, below)
        return made
    if shape.kind == "list":
        assert shape.item
        return [_inner(shape.item, item) for item in value]
    return value


CONDITION = ("type", "status", "observedGeneration", "lastTransitionTime", "reason", "message")
POINTERS = {
    "matchAttribute",
    "distinctAttribute",
    "adminAccess",
    "tolerationSeconds",
    "nodeName",
    "validationError",
}
