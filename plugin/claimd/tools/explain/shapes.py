"""Slices read for one question: devices that differ in nothing that it looks at are read once.

The GPUs of a large cluster are alike but for their serial numbers and the like. So a device stands
for all others of its name that have the same shape, and a list of devices for all lists of the same
devices. That saves most of the memory, and nodes can be compared by what they have in common.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from claimd.kubernetes.api.meta import ApiStruct, ObjectMeta
from claimd.kubernetes.api.scheduling import Device, ResourceSlice, ResourceSliceSpec

if TYPE_CHECKING:
    from claimd.kubernetes.api.scheduling import DeviceClass, ResourceClaim

_ABSENT = msgspec.Raw(b"")
# How an expression reads one attribute: device.attributes["domain"].name, or with ["name"].
_TEXT = r"""(?:"[^"\\]*"|'[^'\\]*')"""
# A name with a parenthesis behind it is a function, which may look at all of them.
_READING = re.compile(
    rf"attributes\s*\[\s*\??\s*{_TEXT}\s*\]\s*"
    rf"(?:\.\s*\??\s*(\w+)\b(?!\s*\()|\[\s*\??\s*({_TEXT})\s*\])"
)
_LISTS = (b'"ints"', b'"bools"', b'"strings"', b'"versions"')


class _RawDevice(ApiStruct, frozen=True, kw_only=True):
    """A device of which the values are still JSON. Its fields are those of Device."""

    name: str
    attributes: dict[str, msgspec.Raw] = {}  # noqa: RUF012 - msgspec copies it
    capacity: msgspec.Raw = _ABSENT
    consumes_counters: msgspec.Raw = _ABSENT
    node_name: msgspec.Raw = _ABSENT
    node_selector: msgspec.Raw = _ABSENT
    all_nodes: msgspec.Raw = _ABSENT
    taints: msgspec.Raw = _ABSENT
    binds_to_node: msgspec.Raw = _ABSENT
    binding_conditions: msgspec.Raw = _ABSENT
    binding_failure_conditions: msgspec.Raw = _ABSENT
    allow_multiple_allocations: msgspec.Raw = _ABSENT


_REST = [field for field in _RawDevice.__struct_fields__ if field not in ("name", "attributes")]


class _RawSpec(ResourceSliceSpec, frozen=True, kw_only=True):
    devices: list[msgspec.Raw] = []  # type: ignore[assignment]  # noqa: RUF012


class _RawSlice(ApiStruct, frozen=True, kw_only=True):
    metadata: ObjectMeta
    spec: _RawSpec


def attributes_read(
    claims: Iterable[ResourceClaim], classes: Iterable[DeviceClass]
) -> frozenset[str] | None:
    """The attributes that requests of these claims and classes look at, without their domains.

    None where that cannot be told, as an expression goes through all of them.
    """
    names: set[str] = set()
    expressions: set[str] = set()
    for class_ in classes:
        expressions.update(_expressions(class_.spec.selectors))
    for claim in claims:
        devices = claim.spec.devices
        for constraint in devices.constraints:
            attribute = constraint.match_attribute or constraint.distinct_attribute or ""
            names.add(attribute.rpartition("/")[2])
        for request in devices.requests or ():
            for alternative in (request.exactly, *request.first_available):
                if alternative is None:
                    continue
                expressions.update(_expressions(alternative.selectors))
                for derived in alternative.derived_attributes:
                    expressions.add(derived.expression)

    for expression in expressions:
        readings = _READING.findall(expression)
        if len(readings) != expression.count("attributes"):
            return None
        names.update(plain or quoted[1:-1] for plain, quoted in readings)
    return frozenset(names)


def _expressions(selectors: Sequence[Any]) -> Iterable[str]:
    return [selector.cel.expression for selector in selectors if selector.cel]


class SliceReader:
    """Slices out of JSON in the shape of v1; devices of one shape come as the same object.

    `attributes` are the only ones whose values count; None for all of them.
    """

    def __init__(self, attributes: frozenset[str] | None) -> None:
        self._attributes = attributes
        self._devices: dict[object, Device] = {}
        self._lists: dict[tuple[int, ...], list[Device]] = {}

    def read_slice(self, document: msgspec.Raw) -> tuple[ResourceSlice, bool]:
        """The slice, and whether it has devices that no slice before it had.

        ValidationError where it is none. Of a device like one that was read, the values of
        attributes that do not count are not looked at.
        """
        raw = msgspec.json.decode(document, type=_RawSlice)
        with_kinds = any(word in bytes(document) for word in _LISTS)
        known = len(self._devices)
        devices = [self._device(device, with_kinds) for device in raw.spec.devices]
        # The devices are kept in `_devices`, so an id() remains its device's own.
        key = tuple(map(id, devices))
        shared = self._lists.setdefault(key, devices)

        fields = {name: getattr(raw.spec, name) for name in _SPEC_FIELDS}
        spec = ResourceSliceSpec(**fields, devices=shared)
        return ResourceSlice(metadata=raw.metadata, spec=spec), len(self._devices) > known

    def _device(self, document: msgspec.Raw, with_kinds: bool) -> Device:
        raw = msgspec.json.decode(document, type=_RawDevice)
        key = self._key(raw, with_kinds)
        device = self._devices.get(key)
        if device is None:
            device = self._devices[key] = msgspec.json.decode(document, type=Device)
        return device

    def _key(self, raw: _RawDevice, with_kinds: bool) -> object:
        attributes = raw.attributes
        read = attributes if self._attributes is None else self._attributes
        values = [bytes(attributes[name]) for name in attributes if name.rpartition("/")[2] in read]
        kinds: tuple[bytes, ...] = ()
        if with_kinds:
            # A list takes a feature of its own, whether or not its attribute is looked at.
            kinds = tuple(bytes(value).partition(b":")[0] for value in attributes.values())
        rest = tuple(bytes(getattr(raw, field)) for field in _REST)
        return raw.name, tuple(attributes), tuple(values), rest, kinds


_SPEC_FIELDS = [name for name in ResourceSliceSpec.__struct_fields__ if name != "devices"]
