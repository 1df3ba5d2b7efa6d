"""A reader of slices that shares equal devices, for a question that looks at few attributes.

The GPUs of a large cluster differ only in attributes such as serial numbers, which hardly any
question looks at. One Device object therefore stands for all devices of the same name and shape,
and one list for all lists of the same devices. This saves most of the memory, and nodes with the
same devices can be recognized by the identity of the lists.
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
# An expression reads one attribute by device.attributes["domain"].name or
# device.attributes["domain"]["name"].
_TEXT = r"""(?:"[^"\\]*"|'[^'\\]*')"""
# A name before a parenthesis is a function, which may look at all attributes.
_READING = re.compile(
    rf"attributes\s*\[\s*\??\s*{_TEXT}\s*\]\s*"
    rf"(?:\.\s*\??\s*(\w+)\b(?!\s*\()|\[\s*\??\s*({_TEXT})\s*\])"
)
_LISTS = (b'"ints"', b'"bools"', b'"strings"', b'"versions"')


class _RawDevice(ApiStruct, frozen=True, kw_only=True):
    """A device whose values are still JSON. Its fields are those of Device."""

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
    """Returns the names, without domains, of the attributes that these claims and classes look at.

    Returns None if an expression may look at any attribute.
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
        for _, request in claim.spec.alternatives():
            expressions.update(_expressions(request.selectors))
            for derived in request.derived_attributes:
                expressions.add(derived.expression)

    # Every mention of `attributes` must be a read of one attribute, or any attribute may matter.
    for expression in expressions:
        readings = _READING.findall(expression)
        if len(readings) != expression.count("attributes"):
            return None
        for plain, quoted in readings:
            names.add(plain or quoted[1:-1])
    return frozenset(names)


def _expressions(selectors: Sequence[Any]) -> Iterable[str]:
    for selector in selectors:
        if selector.cel:
            yield selector.cel.expression


class SliceReader:
    """Decodes slices in the form of v1, so that devices of one shape are the same object.

    `attributes` has the names of the attributes whose values matter; None means all. In a device
    that was decoded for another one, the values of the other attributes may be wrong.
    """

    def __init__(self, attributes: frozenset[str] | None) -> None:
        self._attributes = attributes
        self._devices: dict[object, Device] = {}
        self._lists: dict[tuple[int, ...], list[Device]] = {}

    def read_slice(self, document: msgspec.Raw) -> tuple[ResourceSlice, bool]:
        """Returns the slice, and whether it has a device of a shape that is new to this reader.

        Raises ValidationError if the JSON is no slice. The attributes that do not matter are not
        validated in a device whose shape is known.
        """
        raw = msgspec.json.decode(document, type=_RawSlice)
        with_kinds = any(word in bytes(document) for word in _LISTS)
        known = len(self._devices)
        devices = [self._device(device, with_kinds) for device in raw.spec.devices]

        # `_devices` keeps the devices alive, so no id() is used again.
        key = tuple(map(id, devices))
        shared = self._lists.setdefault(key, devices)

        fields = {name: getattr(raw.spec, name) for name in _SPEC_FIELDS}
        spec = ResourceSliceSpec(**fields, devices=shared)
        return ResourceSlice(metadata=raw.metadata, spec=spec), len(self._devices) > known

    def _device(self, document: msgspec.Raw, with_kinds: bool) -> Device:
        """Returns the known device of the same shape, or decodes a new one."""
        raw = msgspec.json.decode(document, type=_RawDevice)
        key = self._key(raw, with_kinds)
        device = self._devices.get(key)
        if device is None:
            device = self._devices[key] = msgspec.json.decode(document, type=Device)
        return device

    def _key(self, raw: _RawDevice, with_kinds: bool) -> object:
        """Returns the shape of a device, in which the values of attributes are still JSON."""
        attributes = raw.attributes
        values = []
        for name, value in attributes.items():
            if self._attributes is None or name.rpartition("/")[2] in self._attributes:
                values.append(bytes(value))

        kinds = []
        if with_kinds:
            # An attribute with a list requires a feature gate, whether or not a question reads it.
            for value in attributes.values():
                kinds.append(bytes(value).partition(b":")[0])
        rest = [bytes(getattr(raw, field)) for field in _REST]
        return raw.name, tuple(attributes), tuple(values), tuple(rest), tuple(kinds)


_SPEC_FIELDS = [name for name in ResourceSliceSpec.__struct_fields__ if name != "devices"]
