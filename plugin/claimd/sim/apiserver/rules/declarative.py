"""The rules that are declared in the types of the API since 1.36, and the walk through them.

The table lists the fields of each struct in the order of the type. A line has the checks of the
field, `> Struct` for the type of its values, and `[key]` for the fields that identify the items of
a list. A value that has not changed is not checked again.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from claimd.kubernetes.api import limits
from claimd.kubernetes.api.document import Document

from ..types.status_errors import Cause
from . import formats
from .dumps import as_json
from .field_errors import FieldErrors
from .names import pool_segments, validate_fully_qualified_name

# Checks a value. The parameters are the errors, the value, the argument of the check, and the path.
Check = Callable[[FieldErrors, Any, str, str], None]

EFFECTS, OPERATORS = "NoExecute NoSchedule None", "Equal Exists"
MODES, SOURCES = "All ExactCount", "FromClaim FromClass"
NEEDED = {"required", "filled", "given", "positive"}
UNION_MEMBERS = ("int", "bool", "string", "version", "ints", "bools", "strings", "versions")

TABLE = f"""
ResourceClaim
  spec: immutable > ResourceClaimSpec
  status: > ResourceClaimStatus
ResourceClaimTemplate
  spec: > ResourceClaimTemplateSpec
ResourceClaimTemplateSpec
  spec: > ResourceClaimSpec
ResourceClaimSpec
  devices: > DeviceClaim
DeviceClaim
  requests: items={limits.REQUESTS} > DeviceRequest [name]
  constraints: items={limits.CONSTRAINTS} > DeviceConstraint
  config: items={limits.CONFIGS} > DeviceClaimConfiguration
DeviceRequest
  exactly: > ExactDeviceRequest
  firstAvailable: items={limits.FIRST_AVAILABLE} > DeviceSubRequest [name]
ExactDeviceRequest
  selectors: items={limits.SELECTORS}
  allocationMode: enum={MODES}
  tolerations: > DeviceToleration
  derivedAttributes: items={limits.DERIVED_ATTRIBUTES}
DeviceSubRequest
  deviceClassName: required subdomain
  selectors: items={limits.SELECTORS}
  allocationMode: enum={MODES}
  tolerations: > DeviceToleration
  derivedAttributes: items={limits.DERIVED_ATTRIBUTES}
DeviceToleration
  key: key
  operator: required enum={OPERATORS}
  effect: enum={EFFECTS}
DeviceConstraint
  requests: items={limits.REQUESTS} unique
  matchAttribute: attribute
  distinctAttribute: attribute
DeviceClaimConfiguration
  requests: items={limits.REQUESTS} unique
  opaque: > OpaqueDeviceConfiguration
DeviceClassConfiguration
  opaque: > OpaqueDeviceConfiguration
OpaqueDeviceConfiguration
  driver: required caseless length={limits.DRIVER_NAME}
ResourceClaimStatus
  allocation: fixed > AllocationResult
  reservedFor: items={limits.RESERVED_FOR} > Reference [uid]
  devices: > AllocatedDeviceStatus [driver pool device shareID]
AllocationResult
  devices: > DeviceAllocationResult
DeviceAllocationResult
  results: items={limits.RESULTS} > DeviceRequestAllocationResult
  config: items={limits.ALLOCATION_CONFIGS} > DeviceAllocationConfiguration
DeviceRequestAllocationResult
  driver: required caseless length={limits.DRIVER_NAME}
  pool: required pool
  tolerations: > DeviceToleration
  bindingConditions: items={limits.BINDING_CONDITIONS}
  bindingFailureConditions: items={limits.BINDING_CONDITIONS}
  shareID: uuid
DeviceAllocationConfiguration
  source: required enum={SOURCES}
  requests: items={limits.REQUESTS} unique
  opaque: > OpaqueDeviceConfiguration
AllocatedDeviceStatus
  shareID: uuid
  networkData: > NetworkDeviceData
NetworkDeviceData
  interfaceName: bytes={limits.INTERFACE_NAME}
  ips: items={limits.IPS} unique
  hardwareAddress: bytes={limits.HARDWARE_ADDRESS}
DeviceClass
  spec: > DeviceClassSpec
DeviceClassSpec
  selectors: items={limits.SELECTORS}
  config: items={limits.CONFIGS} > DeviceClassConfiguration
  extendedResourceName: extended
ResourceSlice
  spec: > ResourceSliceSpec
ResourceSliceSpec
  devices: > Device
  sharedCounters: items={limits.COUNTER_SETS} > CounterSet [name]
Device
  attributes: each > DeviceAttribute
  consumesCounters: items={limits.CONSUMED_COUNTER_SETS} > DeviceCounterConsumption [counterSet]
  taints: > DeviceTaint
  bindingConditions: items={limits.BINDING_CONDITIONS}
  bindingFailureConditions: items={limits.BINDING_CONDITIONS}
DeviceCounterConsumption
  counterSet: required label
  counters: filled keys
CounterSet
  name: required label
  counters: filled keys
DeviceTaint
  effect: required enum={EFFECTS}
DeviceTaintRule
  spec: > DeviceTaintRuleSpec
DeviceTaintRuleSpec
  taint: > DeviceTaint
ResourcePoolStatusRequest
  spec: immutable > ResourcePoolStatusRequestSpec
  status: > ResourcePoolStatusRequestStatus
ResourcePoolStatusRequestSpec
  driver: required caseless
  poolName: pool
  limit: given most=1000 least=1
ResourcePoolStatusRequestStatus
  poolCount: given least=0
  pools: items={limits.POOLS} > PoolStatus
  conditions: items={limits.POOL_STATUS_CONDITIONS}
PoolStatus
  driver: required caseless
  poolName: required pool
  generation: positive least=0
  resourceSliceCount: least=1
  totalDevices: least=0
  allocatedDevices: least=0
  availableDevices: least=0
  unavailableDevices: least=0
  nodeName: subdomain
  validationError: bytes={limits.POOL_VALIDATION_ERROR}
"""


@dataclass(frozen=True)
class FieldRules:
    """The rules of one field: its checks with their arguments, and the type below it."""

    name: str
    checks: dict[str, str]
    # The type of the value, or of a list's items or a map's entries.
    struct: str
    # The fields that tell the items of a list apart.
    keys: tuple[str, ...]
    # The absence of the field can be an error.
    is_needed: bool


@cache
def rules() -> dict[str, list[FieldRules]]:
    """Returns the rules of the table, by the name of the struct."""
    structs: dict[str, list[FieldRules]] = {}
    fields: list[FieldRules] = []
    for line in filter(None, TABLE.split("\n")):
        if not line.startswith(" "):
            fields = structs[line] = []
            continue
        name, _, rest = line.strip().partition(":")
        listed, _, below = rest.partition(">")
        struct, _, keys = below.partition("[")
        # An argument may have several words. Those after the first begin with a capital letter.
        checks = dict(re.findall(r"(\w+)(?:=((?:\S+)(?: [A-Z]\w+)*))?", listed))
        is_needed = not NEEDED.isdisjoint(checks)
        key_fields = tuple(keys.rstrip("]").split())
        fields.append(FieldRules(name, checks, struct.strip(), key_fields, is_needed))
    return structs


def validate(
    errors: FieldErrors, struct: str, new: Document, old: Document | None, path: str = ""
) -> None:
    """Validates a value of the struct and everything below it. `old` is None for a new value."""
    if struct == "DeviceAttribute":
        _validate_union(errors, new, path)
    for field in rules().get(struct, ()):
        value, before = new.get(field.name), old.get(field.name) if old is not None else None
        if value is None and old is None and not field.is_needed:
            continue
        # A stored value that has not changed may break a rule that is newer.
        if old is not None and value == before:
            continue
        field_path = f"{path}.{field.name}" if path else field.name
        _validate_field(errors, field, value, before, old is not None, field_path)


def in_v1beta1(kind: str, cause: Cause) -> Cause:
    """Returns the cause with the field's path in v1beta1.

    That version wraps devices in `basic`, and it does not wrap requests in `exactly`.
    """
    path, message = cause.field, cause.message
    if kind == "ResourceSlice":
        path = re.sub(r"^(spec\.devices\[\d+\])\.", r"\1.basic.", path)
    else:
        path = re.sub(r"(devices\.requests\[\d+\])\.exactly\.", r"\1.", path)
    message = re.sub(r"^(Duplicate value: \{.*)\"exactly\":\{(.*)\}\}$", r"\1\2}", message)
    return Cause(cause.reason, message, path)


def _validate_field(
    errors: FieldErrors, field: FieldRules, value: Any, before: Any, is_update: bool, path: str
) -> None:
    checks = field.checks
    if is_update and "immutable" in checks:
        errors.invalid(path, None, "field is immutable")
        return
    if "fixed" in checks and value is not None and before is not None:
        errors.invalid(path, None, "field cannot be modified once set")
        return

    # If one of these checks fails, the value is not checked further.
    for check, argument in checks.items():
        if check in CONCLUSIVE and CONCLUSIVE[check](errors, value, argument, path):
            return

    if value is None:
        return
    for check, argument in checks.items():
        if check in CHECKS and value != "":
            CHECKS[check](errors, value, argument, path)

    if field.keys:
        _validate_keys(errors, field, value, path)
    if field.struct:
        _validate_below(errors, field, value, before, path)


def _validate_below(
    errors: FieldErrors, field: FieldRules, value: Any, before: Any, path: str
) -> None:
    if isinstance(value, list):
        for index, item in enumerate(value):
            old_item = _old_item(field, item, before or [])
            validate(errors, field.struct, item, old_item, f"{path}[{index}]")
    elif isinstance(value, dict) and "each" in field.checks:
        for name in sorted(value):
            if field.struct == "DeviceAttribute" and _is_one_value(value[name]):
                continue
            old_entry = (before or {}).get(name)
            validate(errors, field.struct, value[name], old_entry, f"{path}[{name}]")
    elif isinstance(value, dict):
        validate(errors, field.struct, value, before, path)


def _old_item(field: FieldRules, item: Document, before: list[Document]) -> Document | None:
    """Returns the item of the old list with the same keys, or None."""
    if not field.keys:
        return None
    for old in before:
        if all(old.get(name) == item.get(name) for name in field.keys):
            return old
    return None


def _validate_keys(
    errors: FieldErrors, field: FieldRules, items: list[Document], path: str
) -> None:
    seen = set()
    for index, item in enumerate(items):
        key = tuple(item.get(name) for name in field.keys)
        if key in seen:
            errors.duplicate(f"{path}[{index}]", as_json(field.struct, item))
        seen.add(key)


def _is_one_value(attribute: Document) -> bool:
    """Returns True for an attribute with a single value: a quick check that most of them pass."""
    return len(attribute) == 1 and None not in attribute.values()


def _validate_union(errors: FieldErrors, value: Document, path: str) -> None:
    """Checks that exactly one of the members is set."""
    given = [name for name in UNION_MEMBERS if value.get(name) is not None]
    members = ", ".join(f"`{name}`" for name in UNION_MEMBERS)
    if not given:
        errors.invalid(path, "", f"must specify one of: {members}")
    elif len(given) > 1:
        why = f"must specify exactly one of: {members}"
        errors.invalid(path, f"{{{', '.join(given)}}}", why)


# ---------------------------------------------------------------- checks that end the validation


def _check_filled(errors: FieldErrors, value: Any, _: str, path: str) -> bool:
    if value in (None, "", {}, []):
        errors.required(path)
        return True
    return False


def _check_given(errors: FieldErrors, value: Any, _: str, path: str) -> bool:
    if value is None:
        errors.required(path)
    return value is None


def _nonzero(errors: FieldErrors, value: Any, _: str, path: str) -> bool:
    if not value:
        errors.required(path)
    return not value


def _max_items(errors: FieldErrors, value: Any, limit: str, path: str) -> bool:
    return value is not None and errors.too_many(path, len(value), int(limit))


CONCLUSIVE: dict[str, Callable[[FieldErrors, Any, str, str], bool]] = {
    "required": _check_filled,
    "filled": _check_filled,
    "given": _check_given,
    "positive": _nonzero,
    "items": _max_items,
}

# ---------------------------------------------------------------- checks of a value


def _format(problems_of: Callable[[str], list[str]]) -> Check:
    return lambda errors, value, _, path: errors.each_invalid(path, value, problems_of(value))


def _enum(errors: FieldErrors, value: Any, choices: str, path: str) -> None:
    if value not in choices.split():
        errors.not_supported(path, value, choices.split())


def _max_bytes(errors: FieldErrors, value: Any, limit: str, path: str) -> None:
    if len(value.encode()) > int(limit):
        errors.too_long(path, int(limit))


def _max_length(errors: FieldErrors, value: Any, limit: str, path: str) -> None:
    if len(value) > int(limit):
        message = f"Too long: may not be more than {limit} characters"
        errors.causes.append(Cause("FieldValueTooLong", message, path))


def _pool(errors: FieldErrors, value: Any, _: str, path: str) -> None:
    if len(value) > limits.POOL_NAME:
        errors.too_long(path, limits.POOL_NAME)
    for index, segment in enumerate(pool_segments(value)):
        if not segment:
            errors.invalid(path, value, f"segment {index}: must not be empty")
            continue
        for why in formats.dns_subdomain(segment):
            errors.invalid(path, segment, f"segment {index}: {why}")


def _uuid(errors: FieldErrors, value: Any, _: str, path: str) -> None:
    if not formats.is_uuid(value):
        errors.invalid(path, value, "must be a lowercase UUID in 8-4-4-4-12 format")


def _unique(errors: FieldErrors, value: Any, _: str, path: str) -> None:
    for index, item in enumerate(value):
        if item in value[:index]:
            errors.duplicate(f"{path}[{index}]", item)


def _labels_as_keys(errors: FieldErrors, value: Any, _: str, path: str) -> None:
    for name in sorted(value):
        errors.each_invalid(path, name, formats.dns_label(name, names_dots=False))


def _extended_resource(errors: FieldErrors, value: Any, _: str, path: str) -> None:
    if "/" not in value:
        why = "a name must be a domain-prefixed path, such as 'example.com/my-prop'"
        errors.invalid(path, value, why)


def _minimum(errors: FieldErrors, value: Any, minimum: str, path: str) -> None:
    if value < int(minimum):
        errors.invalid(path, value, f"must be greater than or equal to {minimum}")


def _maximum(errors: FieldErrors, value: Any, maximum: str, path: str) -> None:
    if value > int(maximum):
        errors.invalid(path, value, f"must be less than or equal to {maximum}")


def _attribute(errors: FieldErrors, value: Any, _: str, path: str) -> None:
    validate_fully_qualified_name(errors, value, path)


CHECKS: dict[str, Check] = {
    "label": _format(lambda text: formats.dns_label(text, names_dots=False)),
    "subdomain": _format(formats.dns_subdomain),
    "caseless": _format(formats.caseless_subdomain),
    "key": _format(formats.qualified_name),
    "attribute": _attribute,
    "enum": _enum,
    "bytes": _max_bytes,
    "length": _max_length,
    "pool": _pool,
    "uuid": _uuid,
    "unique": _unique,
    "keys": _labels_as_keys,
    "extended": _extended_resource,
    "least": _minimum,
    "most": _maximum,
}
