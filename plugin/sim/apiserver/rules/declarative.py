"""The rules that are declared beside the fields of the types since 1.36, and the walk that checks
them.

For each struct its fields in the order of the type: what is checked, `> Struct` for what is below,
`[key]` for what tells the items of a list apart. A value that has not changed is not checked again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from ....api import limits
from ....api.document import Document
from ..types.status_errors import Cause
from . import texts
from .field_errors import FieldErrors
from .names import check_fully_qualified, pool_parts

EFFECTS, OPERATORS = "NoExecute NoSchedule None", "Equal Exists"
MODES, SOURCES = "All ExactCount", "FromClaim FromClass"
OPERATIONS = "* NodePrepareResources NodeUnprepareResources"
UNION = ("int", "bool", "string", "version", "ints", "bools", "strings", "versions")

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
class Rule:
    name: str
    checks: tuple[tuple[str, str], ...]
    below: str
    keys: tuple[str, ...]


@cache
def rules() -> dict[str, list[Rule]]:
    found: dict[str, list[Rule]] = {}
    struct = ""
    for line in filter(None, TABLE.split("\n")):
        if not line.startswith(" "):
            struct = line
            found[struct] = []
            continue
        name, _, rest = line.strip().partition(":")
        said, _, below = rest.partition(">")
        below, _, keys = below.partition("[")
        checks = re.findall(r"(\w+)(?:=((?:\S+)(?: [A-Z]\w+)*))?", said)
        found[struct].append(
            Rule(name, tuple(checks), below.strip(), tuple(keys.rstrip("]").split()))
        )
    return found


def check(
    errors: FieldErrors, struct: str, new: Document, old: Document | None, path: str = ""
) -> None:
    """`old` is None for what is new."""
    if struct == "DeviceAttribute":
        _union(errors, new, path)
    for rule in rules().get(struct, ()):
        before = old.get(rule.name) if old is not None else None
        value = new.get(rule.name)
        if old is not None and value == before:
            continue
        _field(
            errors,
            rule,
            value,
            before,
            old is not None,
            f"{path}.{rule.name}" if path else rule.name,
        )


def in_v1beta1(kind: str, cause: Cause) -> Cause:
    """Where the field is in v1beta1, which wraps devices and does not wrap requests."""
    if kind == "ResourceSlice":
        path = re.sub(r"^(spec\.devices\[\d+\])\.", r"\1.basic.", cause.field)
    else:
        path = re.sub(r"(devices\.requests\[\d+\])\.exactly\.", r"\1.", cause.field)
    said = re.sub(r"^(Duplicate value: \{.*)\"exactly\":\{(.*)\}\}$", r"\1\2}", cause.message)
    return Cause(cause.reason, said, path)


def _field(
    errors: FieldErrors, rule: Rule, value: Any, before: Any, update: bool, path: str
) -> None:
    checks = dict(rule.checks)
    if update and "immutable" in checks:
        errors.invalid(path, None, "field is immutable")
        return
    if "fixed" in checks and value is not None and before is not None:
        errors.invalid(path, None, "field cannot be modified once set")
        return
    if (
        any(
            STOPS.get(name, _goes_on)(errors, value, argument, path)
            for name, argument in rule.checks
        )
        or value is None
    ):
        return
    for check_name, argument in rule.checks:
        if check_name in CHECKS and value != "":
            CHECKS[check_name](errors, value, argument, path)
    if rule.keys:
        _unique(errors, rule, value, path)
    if isinstance(value, list) and rule.below:
        for index, item in enumerate(value):
            check(errors, rule.below, item, _same(rule, item, before), f"{path}[{index}]")
    elif isinstance(value, dict) and rule.below:
        if ("each", "") in rule.checks:
            for name in sorted(value):
                check(errors, rule.below, value[name], (before or {}).get(name), f"{path}[{name}]")
        else:
            check(errors, rule.below, value, before, path)


def _goes_on(*_: object) -> bool:
    return False


def _required(errors: FieldErrors, value: Any, _: str, path: str) -> bool:
    if value in (None, "", {}, []):
        errors.required(path)
        return True
    return False


def _given(errors: FieldErrors, value: Any, _: str, path: str) -> bool:
    if value is None:
        errors.required(path)
    return value is None


def _positive(errors: FieldErrors, value: Any, _: str, path: str) -> bool:
    if not value:
        errors.required(path)
    return not value


def _items(errors: FieldErrors, value: Any, most: str, path: str) -> bool:
    return value is not None and errors.too_many(path, len(value), int(most))


STOPS: dict[str, Callable[[FieldErrors, Any, str, str], bool]] = {
    "required": _required,
    "filled": _required,
    "given": _given,
    "positive": _positive,
    "items": _items,
}


def _texts_of(rule: Callable[[str], list[str]]) -> Callable[[FieldErrors, Any, str, str], None]:
    return lambda errors, value, _, path: errors.each_invalid(path, value, rule(value))


def _enum(errors: FieldErrors, value: Any, choices: str, path: str) -> None:
    if value not in choices.split():
        errors.not_supported(path, value, choices.split())


def _bytes(errors: FieldErrors, value: Any, most: str, path: str) -> None:
    if len(value.encode()) > int(most):
        errors.too_long(path, int(most))


def _length(errors: FieldErrors, value: Any, most: str, path: str) -> None:
    if len(value) > int(most):
        errors.causes.append(_too_many_characters(path, int(most)))


def _too_many_characters(path: str, most: int) -> Cause:
    return Cause("FieldValueTooLong", f"Too long: may not be more than {most} characters", path)


def _pool(errors: FieldErrors, value: Any, _: str, path: str) -> None:
    if len(value) > limits.POOL_NAME:
        errors.too_long(path, limits.POOL_NAME)
    for index, part in enumerate(pool_parts(value)):
        if not part:
            errors.invalid(path, value, f"segment {index}: must not be empty")
            continue
        for text in texts.subdomain(part):
            errors.invalid(path, part, f"segment {index}: {text}")


def _uuid(errors: FieldErrors, value: Any, _: str, path: str) -> None:
    if not texts.is_uuid(value):
        errors.invalid(path, value, "must be a lowercase UUID in 8-4-4-4-12 format")


def _unique_values(errors: FieldErrors, value: Any, _: str, path: str) -> None:
    for index, item in enumerate(value):
        if item in value[:index]:
            errors.duplicate(f"{path}[{index}]", item)


def _keys_are_labels(errors: FieldErrors, value: Any, _: str, path: str) -> None:
    for name in sorted(value):
        errors.each_invalid(path, name, texts.label(name, dots=False))


def _extended(errors: FieldErrors, value: Any, _: str, path: str) -> None:
    if "/" not in value:
        errors.invalid(
            path, value, "a name must be a domain-prefixed path, such as 'example.com/my-prop'"
        )


def _least(errors: FieldErrors, value: Any, least: str, path: str) -> None:
    if value < int(least):
        errors.invalid(path, value, f"must be greater than or equal to {least}")


def _most(errors: FieldErrors, value: Any, most: str, path: str) -> None:
    if value > int(most):
        errors.invalid(path, value, f"must be less than or equal to {most}")


CHECKS: dict[str, Callable[[FieldErrors, Any, str, str], None]] = {
    "label": _texts_of(lambda text: texts.label(text, dots=False)),
    "subdomain": _texts_of(texts.subdomain),
    "caseless": _texts_of(texts.caseless),
    "key": _texts_of(texts.qualified),
    "attribute": lambda errors, value, _, path: check_fully_qualified(errors, value, path),
    "enum": _enum,
    "bytes": _bytes,
    "length": _length,
    "pool": _pool,
    "uuid": _uuid,
    "unique": _unique_values,
    "keys": _keys_are_labels,
    "extended": _extended,
    "least": _least,
    "most": _most,
}


def _unique(errors: FieldErrors, rule: Rule, items: list[Document], path: str) -> None:
    from .dumps import as_json

    seen = set()
    for index, item in enumerate(items):
        key = tuple(item.get(name) for name in rule.keys)
        if key in seen:
            errors.duplicate(f"{path}[{index}]", as_json(rule.below, item))
        seen.add(key)


def _same(rule: Rule, item: Document, before: Any) -> Document | None:
    """The item of the old list that this one was, if its items can be told apart."""
    matches: Iterator[Document] = (
        old
        for old in before or ()
        if rule.keys and all(old.get(name) == item.get(name) for name in rule.keys)
    )
    return next(matches, None)


def _union(errors: FieldErrors, value: Document, path: str) -> None:
    if len(value) == 1 and None not in value.values():
        return
    said = [name for name in UNION if value.get(name) is not None]
    listed = ", ".join(f"`{name}`" for name in UNION)
    if not said:
        errors.invalid(path, "", f"must specify one of: {listed}")
    elif len(said) > 1:
        errors.invalid(path, f"{{{', '.join(said)}}}", f"must specify exactly one of: {listed}")
