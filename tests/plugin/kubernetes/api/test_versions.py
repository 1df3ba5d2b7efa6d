"""Slices in the wire form of each version, and back."""

import json

import msgspec
import pytest

from claimd.kubernetes.api import versions
from claimd.kubernetes.api.meta import ObjectMeta
from claimd.kubernetes.api.resource import (
    Device,
    DeviceAttribute,
    DeviceCapacity,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)

DEVICES = [
    Device(
        name="gpu-0",
        attributes={"vendor": DeviceAttribute(string="amd"), "count": DeviceAttribute(int_=0)},
        capacity={"memory": DeviceCapacity(value="16Gi")},
    ),
    Device(name="gpu-1"),
]


def slice_of(devices: list[Device]) -> ResourceSlice:
    pool = ResourcePool(name="node-1", generation=0, resource_slice_count=1)
    return ResourceSlice(
        metadata=ObjectMeta(name="s", resource_version="7"),
        spec=ResourceSliceSpec(driver="d", pool=pool, node_name="node-1", devices=devices),
    )


@pytest.mark.parametrize("version", ["v1", "v1beta2"])
def test_newer_versions_are_flat(version: str) -> None:
    wire = versions.slice_to_wire(slice_of(DEVICES), version)
    assert wire["apiVersion"] == f"resource.k8s.io/{version}"
    assert wire["kind"] == "ResourceSlice"
    assert wire["spec"]["pool"] == {"name": "node-1", "generation": 0, "resourceSliceCount": 1}
    assert wire["spec"]["devices"] == [
        {
            "name": "gpu-0",
            "attributes": {"vendor": {"string": "amd"}, "count": {"int": 0}},
            "capacity": {"memory": {"value": "16Gi"}},
        },
        {"name": "gpu-1"},
    ]


def test_v1beta1_keeps_devices_under_basic() -> None:
    devices = versions.slice_to_wire(slice_of(DEVICES), "v1beta1")["spec"]["devices"]
    assert [set(device) for device in devices] == [{"name", "basic"}, {"name", "basic"}]
    assert devices[0]["basic"]["capacity"] == {"memory": {"value": "16Gi"}}
    assert devices[1]["basic"] == {}


@pytest.mark.parametrize("version", versions.PREFERRED)
@pytest.mark.parametrize("devices", [DEVICES, []], ids=["devices", "none"])
def test_there_and_back(version: str, devices: list[Device]) -> None:
    """A slice that a server of any version has stored reads the same as the one we sent."""
    wire = json.loads(msgspec.json.encode(versions.slice_to_wire(slice_of(devices), version)))
    assert (
        msgspec.convert(versions.spec_from_wire(wire["spec"], version), ResourceSliceSpec)
        == slice_of(devices).spec
    )


def test_unknown_fields_are_kept() -> None:
    spec = {
        "new": 1,
        "devices": [{"name": "a", "beside": 2, "basic": {"bindsToNode": True, "attributes": {}}}],
    }
    before = json.dumps(spec)
    assert versions.spec_from_wire(spec, "v1beta1") == {
        "new": 1,
        "devices": [{"name": "a", "beside": 2, "bindsToNode": True, "attributes": {}}],
    }
    assert json.dumps(spec) == before


@pytest.mark.parametrize("version", ["v1", "v1beta2"])
def test_what_is_flat_already_is_left_as_it_is(version: str) -> None:
    spec = {"devices": [{"name": "a", "basic": {"x": 1}}], "nothing": None}
    assert versions.spec_from_wire(spec, version) == {"devices": spec["devices"]}


def test_a_device_without_content() -> None:
    spec = {"devices": [{"name": "a", "basic": None}, {"name": "b"}]}
    read = versions.spec_from_wire(spec, "v1beta1")
    assert read == {"devices": [{"name": "a"}, {"name": "b"}]}


def test_a_version_that_we_do_not_speak() -> None:
    with pytest.raises(ValueError, match=r"'v1alpha3'.*v1, v1beta2, v1beta1"):
        versions.slice_to_wire(slice_of([]), "v1alpha3")
    with pytest.raises(ValueError, match=r"'v1alpha3'.*v1, v1beta2, v1beta1"):
        versions.spec_from_wire({}, "v1alpha3")
