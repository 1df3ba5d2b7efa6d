"""Converts slices between the served versions of resource.k8s.io and the shape of v1.

v1beta2 and v1 do not differ in any field that claimd reads or writes. v1beta1 nests the content of
a device under `basic`. The status of a claim is the same in all three.
"""

from __future__ import annotations

import msgspec

from .document import Document
from .resource import GROUP, ResourceSlice

# claimd uses the first of these that the API server serves.
PREFERRED = ("v1", "v1beta2", "v1beta1")


def slice_to_wire(slice_: ResourceSlice, version: str) -> Document:
    """Returns the slice in the wire form of a version."""
    _check(version)
    wire: Document = {"apiVersion": f"{GROUP}/{version}", "kind": "ResourceSlice"}
    wire |= msgspec.to_builtins(slice_)
    if version == "v1beta1":
        devices = wire["spec"].get("devices", [])
        wire["spec"]["devices"] = [
            {"name": device.pop("name"), "basic": device} for device in devices
        ]
    return wire


def spec_from_wire(spec: Document, version: str) -> Document:
    """Returns a slice's spec in the shape of v1. Fields that claimd does not know are kept.

    A device that has the shape of v1 already stays as it is.
    """
    _check(version)

    # Servers before 1.36 write `devices: null` for a slice without devices.
    spec = {name: value for name, value in spec.items() if value is not None}
    if version != "v1beta1" or not spec.get("devices"):
        return spec

    devices = []
    for device in spec["devices"]:
        outer = {name: value for name, value in device.items() if name != "basic"}
        devices.append(outer | (device.get("basic") or {}))
    return spec | {"devices": devices}


def _check(version: str) -> None:
    if version not in PREFERRED:
        raise ValueError(f"version {version!r} of {GROUP}: expected one of {', '.join(PREFERRED)}")
