"""Which part of a slice a refusal is about, and the slices without that part.

Pure. A refusal names the field that it is about. So one bad value costs itself or its device, and
not everything that stands in the same slice. When to try again, and what to do about a refusal that
names no field, is in `refusals`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from claimd.kubernetes.api.resource import (
    Device,
    DeviceAttribute,
    DeviceCapacity,
    DeviceTaint,
    ResourceSlice,
)

# As in spec.devices[3].attributes[uuid].string; `basic` stands in older versions of the API.
_FIELD = re.compile(
    r"spec\.devices\[(\d+)\](?:\.basic)?(?:\.(attributes|capacity|taints)\[([^\]]+)\])?"
)


class RejectedPart(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a device: one attribute, capacity or taint, or all of the device.

    It is left out for as long as its value is the same; another value is tried.
    """

    device: str
    part: str  # attributes, capacity, taints, or empty for the device itself
    key: str
    value: DeviceAttribute | DeviceCapacity | DeviceTaint | Device

    def __str__(self) -> str:
        return f"{self.device}: {self.part}[{self.key}]" if self.part else self.device


def part_at(sent: ResourceSlice, field: str) -> RejectedPart | None:
    """The part that a cause of the refusal points at; None if at no device of the slice.

    A field that we cannot take out by itself, such as the device's name, is the whole device's.
    """
    match = _FIELD.match(field)
    if not match or int(match[1]) >= len(sent.spec.devices):
        return None
    device = sent.spec.devices[int(match[1])]
    part, key = match[2] or "", match[3] or ""

    # Taints are a list: the key is an index, which says nothing once the list has changed.
    if part == "taints" and key.isdecimal() and int(key) < len(device.taints):
        taint = device.taints[int(key)]
        return RejectedPart(device=device.name, part=part, key=taint.key, value=taint)

    values: Mapping[str, DeviceAttribute | DeviceCapacity] = device.attributes
    if part == "capacity":
        values = device.capacity
    if part and key in values:
        return RejectedPart(device=device.name, part=part, key=key, value=values[key])
    return RejectedPart(device=device.name, part="", key="", value=device)


def remove(
    desired: Sequence[ResourceSlice], rejected: Sequence[RejectedPart]
) -> list[ResourceSlice]:
    """The slices without what was rejected.

    Devices stay in their slice, so that one refusal changes one slice. `rejected` is in the order
    in which it was refused.
    """
    if not rejected:
        return list(desired)

    by_device: dict[str, list[RejectedPart]] = {}
    for part in rejected:
        by_device.setdefault(part.device, []).append(part)

    slices = []
    for slice_ in desired:
        devices = []
        for device in slice_.spec.devices:
            reduced = _reduced(device, by_device.get(device.name, []))
            if reduced is not None:
                devices.append(reduced)
        spec = msgspec.structs.replace(slice_.spec, devices=devices)
        slices.append(msgspec.structs.replace(slice_, spec=spec))
    return slices


def _reduced(device: Device, rejected: Sequence[RejectedPart]) -> Device | None:
    """The device without its rejected parts; None if all of it was rejected."""
    # A device may have been refused as a whole after some of its parts were taken out. So what it
    # looked like then has to be compared, and each form on the way is kept.
    forms = [device]
    for part in rejected:
        reduced = _without_part(forms[-1], part)
        if reduced is not None:
            forms.append(reduced)

    for part in rejected:
        if not part.part and part.value in forms:
            return None
    return forms[-1]


def _without_part(device: Device, part: RejectedPart) -> Device | None:
    """The device without this part; None if it has no such part, or one of another value."""
    if part.part == "attributes" and device.attributes.get(part.key) == part.value:
        attributes = {key: value for key, value in device.attributes.items() if key != part.key}
        return msgspec.structs.replace(device, attributes=attributes)
    if part.part == "capacity" and device.capacity.get(part.key) == part.value:
        capacity = {key: value for key, value in device.capacity.items() if key != part.key}
        return msgspec.structs.replace(device, capacity=capacity)
    if part.part == "taints" and part.value in device.taints:
        taints = [taint for taint in device.taints if taint != part.value]
        return msgspec.structs.replace(device, taints=taints)
    return None
