"""The served versions of resource.k8s.io, in and out of our one shape, that of v1. Pure.

v1beta2 and v1 are alike in all that we read and write. v1beta1 keeps a device's content under
`basic`, and the status of a claim is the same in all three.
"""

from __future__ import annotations

from typing import Any

import msgspec

from .resource import GROUP, ResourceSlice

PREFERRED = ("v1", "v1beta2", "v1beta1")


def slice_to_wire(slice_: ResourceSlice, version: str) -> dict[str, Any]:
    """The object as a server of this version takes it."""
    wire: dict[str, Any] = {"apiVersion": f"{GROUP}/{_known(version)}", "kind": "ResourceSlice"}
    wire |= msgspec.to_builtins(slice_)
    if version == "v1beta1":
        devices = wire["spec"].get("devices", [])
        wire["spec"]["devices"] = [
            {"name": device.pop("name"), "basic": device} for device in devices
        ]
    return wire


def spec_from_wire(spec: dict[str, Any], version: str) -> dict[str, Any]:
    """A slice's spec in the shape of v1, fields that we do not know included. What has that shape
    is left as it is.

    Servers before 1.36 write `devices: null` for a slice without devices, which is a slice without
    that field.
    """
    spec = {name: value for name, value in spec.items() if value is not None}
    if _known(version) != "v1beta1" or not spec.get("devices"):
        return spec
    devices = [
        {name: value for name, value in device.items() if name != "basic"}
        | (device.get("basic") or {})
        for device in spec["devices"]
    ]
    return spec | {"devices": devices}


def _known(version: str) -> str:
    if version not in PREFERRED:
        raise ValueError(f"version {version!r} of {GROUP}: expected one of {', '.join(PREFERRED)}")
    return version
