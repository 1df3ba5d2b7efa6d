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
from .causes import Causes
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


def check(causes: Causes, struct: str, new: Document, old: Document | None, at: str = "") -> None:
    """`old` is None for what is new."""
    if struct == "DeviceAttribute":
        _union(causes, new, at)
    for rule in rules().get(struct, ()):
        before = old.get(rule.name) if old is not None else None
        value = new.get(rule.name)
        if old is not None and value == before:
            continue
        _field(
            causes, rule, value, before, old is not None, f"{at}.{rule.name}" if at else rule.name
        )


def in_v1beta1(kind: str, cause: Cause) -> Cause:
    """Where the field is in v1beta1, which wraps devices and does not wrap requests."""
    if kind == "ResourceSlice":
        at = re.sub(r"^(spec\.devices\[\d+\])\.", r"\1.basic.", cause.field)
    else:
        at = re.sub(r"(devices\.requests\[\d+\])\.exactly\.", r"\1.", cause.field)
    said = re.sub(r"^(Duplicate value: \{.*)\"exactly\":\{(.*)\}\}$", r"\1\2}", cause.message)
    return Cause(cause.reason, said, at)


def _field(causes: Causes, rule: Rule, value: Any, before: Any, update: bool, at: str) -> None:
    checks = dict(rule.checks)
    if update and "immutable" in checks:
        causes.invalid(at, None, "field is immutable")
        return
    if "fixed" in checks and value is not None and before is not None:
        causes.invalid(at, None, "field cannot be modified once set")
        return
    if (
        any(
            STOPS.get(name, _goes_on)(causes, value, argument, at) for name, argument in rule.checks
        )
        or value is None
    ):
        return
    for check_name, argument in rule.checks:
        if check_name in CHECKS and value != "":
            CHECKS[check_name](causes, value, argument, at)
    if rule.keys:
        _unique(causes, rule, value, at)
    if isinstance(value, list) and rule.below:
        for index, item in enumerate(value):
            check(causes, rule.below, item, _same(rule, item, before), f"{at}[{index}]")
    elif isinstance(value, dict) and rule.below:
        if ("each", "") in rule.checks:
            for name in sorted(value):
                check(causes, rule.below, value[name], (before or {}).get(name), f"{at}[{name}]")
        else:
            check(causes, rule.below, value, before, at)


def _goes_on(*_: object) -> bool:
    return False


def _required(causes: Causes, value: Any, _: str, at: str) -> bool:
    if value in (None, "", {}, []):
        causes.required(at)
        return True
    return False


def _given(causes: Causes, value: Any, _: str, at: str) -> bool:
    if value is None:
        causes.required(at)
    return value is None


def _positive(causes: Causes, value: Any, _: str, at: str) -> bool:
    if not value:
        causes.required(at)
    return not value


def _items(causes: Causes, value: Any, most: str, at: str) -> bool:
    return value is not None and causes.too_many(at, len(value), int(most))


STOPS: dict[str, Callable[[Causes, Any, str, str], bool]] = {
    "required": _required,
    "filled": _required,
    "given": _given,
    "positive": _positive,
    "items": _items,
}


def _texts_of(rule: Callable[[str], list[str]]) -> Callable[[Causes, Any, str, str], None]:
    return lambda causes, value, _, at: causes.texts(at, value, rule(value))


def _enum(causes: Causes, value: Any, choices: str, at: str) -> None:
    if value not in choices.split():
        causes.unsupported(at, value, choices.split())


def _bytes(causes: Causes, value: Any, most: str, at: str) -> None:
    if len(value.encode()) > int(most):
        causes.too_long(at, int(most))


def _length(causes: Causes, value: Any, most: str, at: str) -> None:
    if len(value) > int(most):
        causes.found.append(_too_many_characters(at, int(most)))


def _too_many_characters(at: str, most: int) -> Cause:
    return Cause("FieldValueTooLong", f"Too long: may not be more than {most} characters", at)


def _pool(causes: Causes, value: Any, _: str, at: str) -> None:
    if len(value) > limits.POOL_NAME:
        causes.too_long(at, limits.POOL_NAME)
    for index, part in enumerate(pool_parts(value)):
        if not part:
            causes.invalid(at, value, f"segment {index}: must not be empty")
            continue
        for text in texts.subdomain(part):
            causes.invalid(at, part, f"segment {index}: {text}")


def _uuid(causes: Causes, value: Any, _: str, at: str) -> None:
    if not texts.is_uuid(value):
        causes.invalid(at, value, "must be a lowercase UUID in 8-4-4-4-12 format")


def _unique_values(causes: Causes, value: Any, _: str, at: str) -> None:
    for index, item in enumerate(value):
        if item in value[:index]:
            causes.duplicate(f"{at}[{index}]", item)


def _keys_are_labels(causes: Causes, value: Any, _: str, at: str) -> None:
    for name in sorted(value):
        causes.texts(at, name, texts.label(name, dots=False))


def _extended(causes: Causes, value: Any, _: str, at: str) -> None:
    if "/" not in value:
        causes.invalid(
            at, value, "a name must be a domain-prefixed path, such as 'example.com/my-prop'"
        )


def _least(causes: Causes, value: Any, least: str, at: str) -> None:
    if value < int(least):
        causes.invalid(at, value, f"must be greater than or equal to {least}")


def _most(causes: Causes, value: Any, most: str, at: str) -> None:
    if value > int(most):
        causes.invalid(at, value, f"must be less than or equal to {most}")


CHECKS: dict[str, Callable[[Causes, Any, str, str], None]] = {
    "label": _texts_of(lambda text: texts.label(text, dots=False)),
    "subdomain": _texts_of(texts.subdomain),
    "caseless": _texts_of(texts.caseless),
    "key": _texts_of(texts.qualified),
    "attribute": lambda causes, value, _, at: check_fully_qualified(causes, value, at),
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


def _unique(causes: Causes, rule: Rule, items: list[Document], at: str) -> None:
    from .dumps import as_json

    seen = set()
    for index, item in enumerate(items):
        key = tuple(item.get(name) for name in rule.keys)
        if key in seen:
            causes.duplicate(f"{at}[{index}]", as_json(rule.below, item))
        seen.add(key)


def _same(rule: Rule, item: Document, before: Any) -> Document | None:
    """The item of the old list that this one was, if its items can be told apart."""
    matches: Iterator[Document] = (
        old
        for old in before or ()
        if rule.keys and all(old.get(name) == item.get(name) for name in rule.keys)
    )
    return next(matches, None)


def _union(causes: Causes, value: Document, at: str) -> None:
    if len(value) == 1 and None not in value.values():
        return
    said = [name for name in UNION if value.get(name) is not None]
    listed = ", ".join(f"`{name}`" for name in UNION)
    if not said:
        causes.invalid(at, "", f"must specify one of: {listed}")
    elif len(said) > 1:
        causes.invalid(at, f"{{{', '.join(said)}}}", f"must specify exactly one of: {listed}")
