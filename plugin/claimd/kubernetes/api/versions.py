"""The served versions of resource.k8s.io, in and out of our one shape, that of v1.

Pure. v1beta2 and v1 are alike in all that we read and write. v1beta1 keeps a device's content under
`basic`, and the status of a claim is the same in all three.
"""

from __future__ import annotations

import msgspec

from .document import Document
from .resource import GROUP, ResourceSlice

PREFERRED = ("v1", "v1beta2", "v1beta1")


def slice_to_wire(slice_: ResourceSlice, version: str) -> Document:
    """The object as a server of this version takes it."""
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
    """A slice's spec in the shape of v1, with the fields that we do not know.

    What has that shape already is left as it is. Servers before 1.36 write `devices: null` for a
    slice without devices, which is a slice without that field.
    """
    _check(version)
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
