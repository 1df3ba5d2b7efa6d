"""Finds the part of a slice that a refusal is about, and removes it from slices.

This module is pure. A refusal names a field. So one bad value affects only itself or its device,
and not the other devices of the slice. `refusals` decides when to try again, and how to react to a
refusal that names no field.
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

# For example spec.devices[3].attributes[uuid].string; older versions of the API have `basic`.
_FIELD = re.compile(
    r"spec\.devices\[(\d+)\](?:\.basic)?(?:\.(attributes|capacity|taints)\[([^\]]+)\])?"
)


class RejectedPart(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a device: one attribute, capacity or taint, or the whole device.

    The part is left out as long as it has this value. Another value is tried.
    """

    device: str
    part: str  # attributes, capacity, taints, or empty for the device itself
    key: str
    value: DeviceAttribute | DeviceCapacity | DeviceTaint | Device

    def __str__(self) -> str:
        return f"{self.device}: {self.part}[{self.key}]" if self.part else self.device


def part_at(sent: ResourceSlice, field: str) -> RejectedPart | None:
    """Returns the part that a refusal's field belongs to; None if it belongs to no device.

    A field that cannot be removed alone, such as the device's name, stands for the whole device.
    """
    match = _FIELD.match(field)
    if not match or int(match[1]) >= len(sent.spec.devices):
        return None
    device = sent.spec.devices[int(match[1])]
    part, key = match[2] or "", match[3] or ""

    # Taints are a list. An index would mean nothing after the list has changed, so the part is named
    # by the taint's key.
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
    """Returns the slices without the rejected parts.

    Devices stay in their slice, so that one refusal changes only one slice. `rejected` must be in
    the order of the refusals.
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
            reduced = _reduce(device, by_device.get(device.name, []))
            if reduced is not None:
                devices.append(reduced)
        spec = msgspec.structs.replace(slice_.spec, devices=devices)
        slices.append(msgspec.structs.replace(slice_, spec=spec))
    return slices


def _reduce(device: Device, rejected: Sequence[RejectedPart]) -> Device | None:
    """Returns the device without its rejected parts; None if the whole device was rejected."""
    # A device may have been refused as a whole after some of its parts were removed. So the
    # rejected value may be any form of the device between the two.
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
    """Returns the device without this part; None if it does not have the part with this value."""
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
