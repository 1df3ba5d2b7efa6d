"""The canonical form of objects, as a server writes them after it has read them.

A real server decodes documents into typed values and encodes those again. Nulls, empty texts and
zeros are lost on the way, unless the type of the field can tell them from a missing value. Structs
are written even if the document had none, and quantities get their canonical form. The field tables
are those of claimd.kubernetes.api.objects, which say which fields are required. This module lists
the differences between those tables and the types of the server. It has no side effects.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import cache, lru_cache
from typing import Any, NamedTuple

import msgspec

from claimd.kubernetes.api import quantity
from claimd.kubernetes.api.document import Document
from claimd.kubernetes.api.objects import models
from claimd.kubernetes.api.objects.shapes import Field, Shape, fields_of

# Optional fields (struct, field) that are written even if they are empty.
ALWAYS_WRITTEN = {
    ("ResourceClaim", "spec"),
    ("ResourceClaimSpec", "devices"),
    ("DeviceClaim", "requests"),
    ("ResourceClaimTemplate", "spec"),
    ("ResourceClaimTemplateSpec", "spec"),
    ("DeviceClass", "spec"),
    ("AllocatedDeviceStatus", "conditions"),
    ("CapacityRequestPolicy", "default"),
    ("DeviceRequest", "deviceClassName"),
    # Free documents of drivers.
    ("StructuredResourceHandle", "vendorClassParameters"),
    ("StructuredResourceHandle", "vendorClaimParameters"),
    ("DriverAllocationResult", "vendorRequestParameters"),
    ("DriverRequests", "vendorParameters"),
    ("ResourceRequest", "vendorParameters"),
    ("VendorParameters", "parameters"),
    # Structs, which Go's encoder never omits.
    ("ResourceClaim", "status"),
    ("ResourceClaimTemplateSpec", "metadata"),
    ("AllocationResult", "devices"),
    ("DeviceTaintRuleSpec", "taint"),
    ("DeviceTaintRule", "status"),
    ("PodSchedulingContext", "status"),
    ("ResourcePoolStatusRequest", "spec"),
}

# Required fields that are nevertheless omitted if they are empty.
OMITTED_IF_EMPTY = {
    ("CapacityRequestPolicyRange", "min"),
    ("DeviceCounterConsumption", "counters"),
    ("CounterSet", "counters"),
    ("ResourcePoolStatusRequestStatus", "poolCount"),
    ("PoolStatus", "driver"),
    ("PoolStatus", "poolName"),
    ("PoolStatus", "generation"),
    ("PartitionTypeStatus", "attribute"),
    ("PartitionTypeStatus", "type"),
    ("PartitionTypeStatus", "total"),
    ("PartitionTypeStatus", "allocatable"),
    ("ShareableSummaryStatus", "fullyAvailableDevices"),
    ("ShareableSummaryStatus", "partiallyAvailableDevices"),
    ("ShareableCapacityStatus", "name"),
    ("ShareableCapacityStatus", "total"),
    ("ShareableCapacityStatus", "consumed"),
    ("ShareableCapacityStatus", "available"),
}

# Pointers in Go. Such a field can have an empty value, which is written.
POINTERS = {
    "adminAccess",
    "allocatable",
    "allocatedDevices",
    "allocationTimestamp",
    "allowMultipleAllocations",
    "availableDevices",
    "bindsToNode",
    "blockOwnerDeletion",
    "bool",
    "capacityKey",
    "controller",
    "defaultPartitionTypeAttribute",
    "distinctAttribute",
    "extendedResourceName",
    "fullyAvailableDevices",
    "int",
    "limit",
    "matchAttribute",
    "partiallyAvailableDevices",
    "partitionTypeAttribute",
    "perDeviceNodeSelection",
    "poolCount",
    "poolName",
    "resourceSliceCount",
    "shareID",
    "string",
    "structuredParameters",
    "timeAdded",
    "tolerationSeconds",
    "total",
    "totalDevices",
    "unavailableDevices",
    "validationError",
    "version",
}
# Pointers in slices since v1beta2, and in devices of all versions.
NODE_POINTERS = {"nodeName", "allNodes"}
# Pointers only in a DeviceTaintSelector.
SELECTOR_POINTERS = {"driver", "pool", "device"}

Write = Callable[[Any], Any]

HEAD = ("apiVersion", "kind", "metadata")
OLD_METADATA = ("v1alpha2", "v1alpha3-1.31")
ZERO: dict[str, Any] = {
    "string": "",
    "integer": 0,
    "boolean": False,
    "quantity": "0",
    "list": None,
    "map": None,
    "any": None,
}


def round_trip(version: str, kind: str, obj: Document, release: str) -> Document:
    """Returns the document in canonical form. The given document is not changed.

    `version` may be v1alpha3-1.31. A document of a kind without a field table is returned as it is.
    """
    shape = shape_of(version, kind)
    if not shape:
        return obj
    assert shape.struct
    result: Document = {name: obj[name] for name in obj if name in ("apiVersion", "kind")}
    if "metadata" in obj:
        result["metadata"] = metadata(obj["metadata"] or {})

    rest = {name: value for name, value in obj.items() if name not in HEAD}
    for name, value in _struct(version, shape.struct, rest).items():
        if name not in HEAD:
            result[name] = value

    # Up to 1.35, the devices of a slice were always written.
    if kind == "ResourceSlice" and release in ("1.34", "1.35") and "spec" in result:
        result["spec"].setdefault("devices", None)
    return result


@cache
def shape_of(version: str, kind: str) -> Shape | None:
    if version not in models.VERSIONS or kind not in models.kinds(version):
        return None
    return Shape("struct", struct=models.kinds(version)[kind])


@cache
def same_form(kind: str, version: str, other: str) -> bool:
    """Returns True if both versions write the same fields of the kind in the same cases."""
    shape, other_shape = shape_of(version, kind), shape_of(other, kind)
    if not shape or not other_shape:
        return False
    return bool(_form(version, shape) == _form(other, other_shape))


def _form(version: str, shape: Shape) -> Any:
    """Returns everything that the canonical form of a value depends on."""
    if shape.kind != "struct":
        return shape.kind, _form(version, shape.item) if shape.item else None
    assert shape.struct
    if shape.struct.__name__ == "ObjectMeta":
        return version in OLD_METADATA
    return [
        (field.name, _form(version, field.shape), field.always, field.keeps_empty)
        for field in _typed_fields(version, shape.struct).in_order
    ]


def metadata(value: Document) -> Document:
    """Returns the metadata without empty fields: a server keeps no empty lists and maps there."""
    result = {
        name: below
        for name, below in value.items()
        if below not in (None, "", [], {}) and name != "selfLink"
    }
    if "ownerReferences" in result:
        result["ownerReferences"] = [_without_nulls(owner) for owner in result["ownerReferences"]]
    return result


def _without_nulls(value: Document) -> Document:
    return {name: below for name, below in value.items() if below is not None}


# ---------------------------------------------------------------- when a field is written


class TypedField(NamedTuple):
    """A field of a struct in a version: the writer of its value, and when the field is written."""

    name: str
    shape: Shape
    write: Write
    always: bool
    # An empty value differs from an absent one.
    keeps_empty: bool


class TypedFields(NamedTuple):
    """The fields of a struct in a version."""

    in_order: tuple[TypedField, ...]
    by_name: dict[str, TypedField]
    # True if any of the fields is always written.
    always_written: bool


@cache
def _typed_fields(version: str, struct: type[msgspec.Struct]) -> TypedFields:
    typed_fields = []
    for field in fields_of(struct).values():
        kind, always = field.shape.kind, _is_always_written(version, struct, field)
        is_scalar = kind in ("string", "integer", "boolean")
        keeps_empty = kind == "any" or (is_scalar and _is_pointer(version, struct, field.wire))
        write = _write_of(version, field.shape)
        typed_fields.append(TypedField(field.wire, field.shape, write, always, keeps_empty))

    return TypedFields(
        tuple(typed_fields),
        {field.name: field for field in typed_fields},
        any(field.always for field in typed_fields),
    )


def _is_always_written(version: str, struct: type[msgspec.Struct], field: Field) -> bool:
    key = (struct.__name__, field.wire)
    if key == ("DeviceRequest", "deviceClassName"):
        # Since v1beta2 it is a field of `exactly`, not of the request.
        return "exactly" not in fields_of(struct)
    if key == ("ResourceSliceSpec", "devices"):
        return version == "v1alpha3-1.31"
    return key in ALWAYS_WRITTEN or (field.required and key not in OMITTED_IF_EMPTY)


def _is_pointer(version: str, struct: type[msgspec.Struct], name: str) -> bool:
    if name in NODE_POINTERS:
        return struct.__name__ in ("Device", "BasicDevice") or version in ("v1", "v1beta2")
    if name in SELECTOR_POINTERS:
        return struct.__name__ == "DeviceTaintSelector"
    return name in POINTERS


# ---------------------------------------------------------------- values


def _struct(version: str, struct: type[msgspec.Struct], value: Document) -> Document:
    result: Document = {}
    if struct.__name__ == "ObjectMeta":
        # This is the metadata of a template. Old versions write a null creation time there.
        if version in OLD_METADATA:
            result["creationTimestamp"] = None
        return result | metadata(value)

    fields = _typed_fields(version, struct)
    if len(value) == 1 and not fields.always_written:
        # Most attributes and amounts have a single field, so no other field needs a look.
        (name,) = value
        typed_field = fields.by_name.get(name)
        if typed_field and value[name] is not None:
            _write_field(typed_field, value[name], result)
        return result

    for field in fields.in_order:
        below = value.get(field[0])
        if below is not None or field[3]:
            _write_field(field, below, result)
    return result


def _write_field(field: TypedField, value: Any, result: Document) -> None:
    name, shape, write, always, keeps_empty = field
    if shape.kind == "struct":
        result[name] = write(value)
        return

    typed = None if value is None else write(value)
    if not _is_empty(typed) or (keeps_empty and typed is not None):
        result[name] = typed
    elif always and shape.kind == "quantity" and name == "default":
        # The only quantity that is a pointer.
        result[name] = None
    elif always:
        result[name] = typed if isinstance(typed, list | dict) else ZERO[shape.kind]


def _is_empty(value: Any) -> bool:
    if not value:
        # A float never counts as empty, not even 0.0.
        return not isinstance(value, float)
    return False


def _write_of(version: str, shape: Shape) -> Write:
    """Returns the function that writes values of this shape.

    Writing is frequent, so the function is built once for each field and then reused.
    """
    if shape.kind == "struct":
        assert shape.struct
        struct = shape.struct
        return lambda value: _struct(version, struct, value or {})

    if shape.kind == "quantity":
        return canonical_quantity
    if shape.kind not in ("list", "map"):
        return _as_it_is

    assert shape.item
    write = _write_of(version, shape.item)
    zero: Any = {} if shape.item.kind == "struct" else ZERO[shape.item.kind]

    def write_list(value: Any) -> Any:
        if not isinstance(value, list):
            return value
        return [write(zero if item is None else item) for item in value]

    def write_map(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {name: write(zero if item is None else item) for name, item in value.items()}

    return write_list if shape.kind == "list" else write_map


def _as_it_is(value: Any) -> Any:
    return value


# ---------------------------------------------------------------- quantities

# The size of the cache of quantities. A cluster has few different ones.
QUANTITIES = 4096
BINARY_SUFFIXES = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
DECIMAL_SUFFIXES = {
    -9: "n",
    -6: "u",
    -3: "m",
    0: "",
    3: "k",
    6: "M",
    9: "G",
    12: "T",
    15: "P",
    18: "E",
}


def canonical_quantity(value: Any) -> str:
    """Returns a quantity with the fewest digits and no fraction, in its own family of suffixes.

    A value that is not a quantity is returned as its text.
    """
    return _canonical_quantity(str(value))


@lru_cache(maxsize=QUANTITIES)
def _canonical_quantity(text: str) -> str:
    try:
        amount = quantity.parse(text)
    except ValueError:
        return text
    if amount == 0:
        return "0"
    is_binary = text.endswith("i")
    if is_binary and abs(amount) >= 1024 and amount.denominator == 1:
        return _binary(int(amount))
    has_exponent = any(letter in text[1:] for letter in "eE") and text[-1].isdigit()
    return _decimal(amount, has_exponent and not is_binary)


def _binary(amount: int) -> str:
    power = 0
    while amount % 1024 == 0 and power + 1 < len(BINARY_SUFFIXES):
        amount, power = amount // 1024, power + 1
    return f"{amount}{BINARY_SUFFIXES[power]}"


def _decimal(amount: Fraction, with_exponent: bool) -> str:
    """Writes an amount in decimal, down to billionths, the smallest unit of a quantity."""
    power = 0
    while amount.denominator != 1 and power > -9:
        amount, power = amount * 1000, power - 3
    number = int(amount)
    # There are suffixes up to E, and exponents of up to three digits.
    largest = 999 if with_exponent else 18
    while number and number % 1000 == 0 and power < largest:
        number, power = number // 1000, power + 3
    if not with_exponent:
        return f"{number}{DECIMAL_SUFFIXES[power]}"
    return f"{number}e{power}" if power else str(number)
