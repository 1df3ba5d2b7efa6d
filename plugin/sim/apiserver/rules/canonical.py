"""How a server writes an object that it has read: every field that its type always has, none that
is empty.

A real one reads documents into typed values. Nulls, empty texts and zeros get lost unless the field
can tell them from nothing, structs are there even if nobody said them, and quantities are in their
canonical form. The field tables are those of plugin.api.objects, which say what is required; where
the types differ from that is said here. Pure.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from typing import Any, NamedTuple

import msgspec

from ....api import quantity
from ....api.document import Document
from ....api.objects import models
from ....api.objects.shapes import Field, Shape, fields_of

# Fields that are written even if nothing is in them (class, field), beside the required ones.
ALWAYS = {
    ("ResourceClaim", "spec"),
    ("ResourceClaimSpec", "devices"),
    ("DeviceClaim", "requests"),
    ("ResourceClaimTemplate", "spec"),
    ("ResourceClaimTemplateSpec", "spec"),
    ("DeviceClass", "spec"),
    ("AllocatedDeviceStatus", "conditions"),
    ("CapacityRequestPolicy", "default"),
    ("DeviceRequest", "deviceClassName"),
    # documents that drivers keep
    ("StructuredResourceHandle", "vendorClassParameters"),
    ("StructuredResourceHandle", "vendorClaimParameters"),
    ("DriverAllocationResult", "vendorRequestParameters"),
    ("DriverRequests", "vendorParameters"),
    ("ResourceRequest", "vendorParameters"),
    ("VendorParameters", "parameters"),
    # structs, which are never empty enough to be left out
    ("ResourceClaim", "status"),
    ("ResourceClaimTemplateSpec", "metadata"),
    ("AllocationResult", "devices"),
    ("DeviceTaintRuleSpec", "taint"),
    ("DeviceTaintRule", "status"),
    ("PodSchedulingContext", "status"),
    ("ResourcePoolStatusRequest", "spec"),
}
# Required, and yet left out if empty.
PERHAPS = {
    ("CapacityRequestPolicyRange", "min"),
    ("DeviceCounterConsumption", "counters"),
    ("CounterSet", "counters"),
    ("ResourcePoolStatusRequestStatus", "poolCount"),
    *(("PoolStatus", name) for name in ("driver", "poolName", "generation")),
    *(("PartitionTypeStatus", name) for name in ("attribute", "type", "total", "allocatable")),
    *(
        ("ShareableSummaryStatus", name)
        for name in ("fullyAvailableDevices", "partiallyAvailableDevices")
    ),
    *(("ShareableCapacityStatus", name) for name in ("name", "total", "consumed", "available")),
}
# Fields that tell nothing from an empty value, and keep it.
POINTERS = {
    *(
        "adminAccess",
        "tolerationSeconds",
        "matchAttribute",
        "distinctAttribute",
        "allocationTimestamp",
        "shareID",
    ),
    *(
        "extendedResourceName",
        "perDeviceNodeSelection",
        "partitionTypeAttribute",
        "bindsToNode",
        "capacityKey",
    ),
    *(
        "allowMultipleAllocations",
        "timeAdded",
        "poolName",
        "limit",
        "defaultPartitionTypeAttribute",
        "poolCount",
    ),
    *(
        "resourceSliceCount",
        "totalDevices",
        "allocatedDevices",
        "availableDevices",
        "unavailableDevices",
    ),
    *(
        "validationError",
        "total",
        "allocatable",
        "fullyAvailableDevices",
        "partiallyAvailableDevices",
    ),
    *(
        "structuredParameters",
        "controller",
        "blockOwnerDeletion",
        "int",
        "bool",
        "string",
        "version",
    ),
}
PLAIN_POINTERS = {"nodeName", "allNodes"}  # of slices since v1beta2, and of devices in all versions
SELECTOR_POINTERS = {"driver", "pool", "device"}  # of DeviceTaintSelector
HEAD = ("apiVersion", "kind", "metadata")
ZERO: dict[str, Any] = {
    "string": "",
    "integer": 0,
    "boolean": False,
    "quantity": "0",
    "list": None,
    "map": None,
    "any": None,
}


def typed(version: str, kind: str, obj: Document, release: str) -> Document:
    """The document as a server writes it that has read it; `version` may be v1alpha3-1.31. Another
    one, not changed.
    """
    shape = shape_of(version, kind)
    if not shape:
        return obj
    assert shape.struct
    made: Document = {}
    for name, value in obj.items():
        if name in ("apiVersion", "kind"):
            made[name] = value
        elif name == "metadata":
            made[name] = metadata(value or {})
    rest = {name: value for name, value in obj.items() if name not in HEAD}
    made |= {
        name: value
        for name, value in _struct(version, shape.struct, rest).items()
        if name not in HEAD
    }
    if kind == "ResourceSlice" and release == "1.34" and "spec" in made:
        made["spec"].setdefault("devices", None)  # which may be left out since 1.36 only
    return made


@cache
def shape_of(version: str, kind: str) -> Shape | None:
    known = models.VERSIONS.get(version)
    return (
        Shape("struct", struct=models.kinds(version)[kind])
        if known and kind in models.kinds(version)
        else None
    )


class TypedField(NamedTuple):
    """A field of a struct in a version, and when it is written."""

    name: str
    shape: Shape
    always: bool
    keeps: bool  # an empty value, which is something else than none


@cache
def _places(version: str, struct: type[msgspec.Struct]) -> tuple[TypedField, ...]:
    return tuple(
        TypedField(
            field.wire,
            field.shape,
            _always(version, struct, field),
            field.shape.kind == "any"
            or (
                field.shape.kind in ("string", "integer", "boolean")
                and _pointer(version, struct, field.wire)
            ),
        )
        for field in fields_of(struct).values()
    )


def _put(version: str, place: TypedField, value: Any, made: Document) -> None:
    name, shape, always, keeps = place
    if shape.kind == "struct":
        assert shape.struct
        made[name] = _struct(version, shape.struct, value or {})
        return
    found = None if value is None else _value(version, shape, value)
    if not _empty(found) or (keeps and found is not None):
        made[name] = found
    elif always and shape.kind == "quantity" and name == "default":
        made[name] = None  # a pointer
    elif always:
        made[name] = found if isinstance(found, list | dict) else ZERO[shape.kind]


def _empty(value: Any) -> bool:
    return (
        value is None
        or value is False
        or value in ("", [], {})
        or (value == 0 and isinstance(value, int))
    )


def _always(version: str, struct: type[msgspec.Struct], field: Field) -> bool:
    key = (struct.__name__, field.wire)
    if key == ("DeviceRequest", "deviceClassName"):
        return "exactly" not in fields_of(
            struct
        )  # since v1beta2 it is not a field of the request itself
    if key == ("ResourceSliceSpec", "devices"):
        return version == "v1alpha3-1.31"
    return key in ALWAYS or (field.required and key not in PERHAPS)


def _pointer(version: str, struct: type[msgspec.Struct], name: str) -> bool:
    if name in PLAIN_POINTERS:
        return struct.__name__ in ("Device", "BasicDevice") or version in ("v1", "v1beta2")
    if name in SELECTOR_POINTERS:
        return struct.__name__ == "DeviceTaintSelector"
    return name in POINTERS


def _struct(version: str, struct: type[msgspec.Struct], value: Document) -> Document:
    if struct.__name__ == "ObjectMeta":
        # of a template; old versions wrote when it was made, which it never was
        return (
            {"creationTimestamp": None} if version in ("v1alpha2", "v1alpha3-1.31") else {}
        ) | metadata(value)
    made: Document = {}
    for place in _places(version, struct):
        below = value.get(place.name)
        if below is not None or place.always:
            _put(version, place, below, made)
    return made


def _value(version: str, shape: Shape, value: Any) -> Any:
    if shape.kind == "list" and isinstance(value, list):
        assert shape.item
        return [_item(version, shape.item, item) for item in value]
    if shape.kind == "map" and isinstance(value, dict):
        assert shape.item
        return {name: _item(version, shape.item, item) for name, item in value.items()}
    return canonical(value) if shape.kind == "quantity" else value


def _item(version: str, shape: Shape, value: Any) -> Any:
    if shape.kind == "struct":
        assert shape.struct
        return _struct(version, shape.struct, value or {})
    if value is None:
        return ZERO[shape.kind]
    return _value(version, shape, value)


def metadata(value: Document) -> Document:
    """Without what is empty: a server keeps no empty lists and maps there."""
    made = {
        name: below
        for name, below in value.items()
        if below not in (None, "", [], {}) and name != "selfLink"
    }
    if "ownerReferences" in made:
        made["ownerReferences"] = [
            {name: below for name, below in owner.items() if below is not None}
            for owner in made["ownerReferences"]
        ]
    return made


# ---------------------------------------------------------------- quantities

BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
DECIMAL = {-9: "n", -6: "u", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P", 18: "E"}


def canonical(value: Any) -> str:
    """As few digits as possible and no fraction, in the family of suffixes that it came in."""
    text = str(value)
    try:
        amount = quantity.parse(text)
    except ValueError:
        return text
    binary = text.endswith("i")
    exponent = not binary and any(letter in text[1:] for letter in "eE") and text[-1].isdigit()
    if amount == 0:
        return "0"
    if binary and abs(amount) >= 1024 and amount.denominator == 1:
        return _scaled(int(amount), 1024, BINARY)
    return _decimal(amount, exponent)


def _scaled(amount: int, base: int, suffixes: tuple[str, ...]) -> str:
    power = 0
    while amount % base == 0 and power + 1 < len(suffixes):
        amount, power = amount // base, power + 1
    return f"{amount}{suffixes[power]}"


def _decimal(amount: Fraction, exponent: bool) -> str:
    power = 0
    while amount.denominator != 1 and power > -9:
        amount, power = amount * 1000, power - 3
    number = int(amount)
    while number % 1000 == 0 and power < 18:
        number, power = number // 1000, power + 3
    if exponent:
        return f"{number}e{power}" if power else str(number)
    return f"{number}{DECIMAL[power]}"
