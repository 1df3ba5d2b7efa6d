"""The field tables against what API servers say of themselves: recorded from the OpenAPI documents
of 1.30, 1.31, 1.33 and 1.37. A field is its type, then `!` if it is required, and how a list is
told apart.
"""

import json
from pathlib import Path

import pytest

from claimd.kubernetes.api.objects import models
from claimd.kubernetes.api.objects.shapes import fields_of

RECORDED = json.loads((Path(__file__).parents[4] / "cases" / "api" / "schema.json").read_text())


def words(shape):
    if shape.kind == "struct":
        return shape.struct.__name__
    if shape.kind == "list":
        rule = (
            f" by {','.join(sorted(shape.keys))}" if shape.keys else " set" if shape.unique else ""
        )
        return f"[{words(shape.item)}]{rule}"
    return f"{{{words(shape.item)}}}" if shape.kind == "map" else shape.kind


def table(cls):
    return {
        name: words(f.shape) + ("!" if f.required else "") for name, f in fields_of(cls).items()
    }


@pytest.mark.parametrize("version", models.VERSIONS)
def test_every_class_has_the_fields_of_the_server(version):
    recorded = RECORDED[version]
    if (
        version == "v1alpha3"
    ):  # served whole by 1.33; newer releases have more in what they still serve
        newer = {
            name: recorded.get(name, {}) | fields
            for name, fields in RECORDED["v1alpha3-1.37"].items()
        }
        recorded = recorded | newer
    if version in ("v1alpha3", "v1alpha3-1.31", "v1alpha2"):  # since 1.37 for all
        recorded["ListMeta"] |= {"shardInfo": "ShardInfo"}
        recorded["ShardInfo"] = {"selector": "string!"}
    assert {name: table(cls) for name, cls in models.classes(version).items()} == recorded


def test_seeds_kinds_are_there():
    assert {version: sorted(models.kinds(version)) for version in models.VERSIONS} == {
        "v1": [
            "DeviceClass",
            "DeviceTaintRule",
            "ResourceClaim",
            "ResourceClaimTemplate",
            "ResourceSlice",
        ],
        "v1beta2": [
            "DeviceClass",
            "DeviceTaintRule",
            "ResourceClaim",
            "ResourceClaimTemplate",
            "ResourceSlice",
        ],
        "v1beta1": ["DeviceClass", "ResourceClaim", "ResourceClaimTemplate", "ResourceSlice"],
        "v1alpha3": [
            "DeviceClass",
            "DeviceTaintRule",
            "ResourceClaim",
            "ResourceClaimTemplate",
            "ResourcePoolStatusRequest",
            "ResourceSlice",
        ],
        "v1alpha3-1.31": [
            "DeviceClass",
            "PodSchedulingContext",
            "ResourceClaim",
            "ResourceClaimTemplate",
            "ResourceSlice",
        ],
        "v1alpha2": [
            "PodSchedulingContext",
            "ResourceClaim",
            "ResourceClaimParameters",
            "ResourceClaimTemplate",
            "ResourceClass",
            "ResourceClassParameters",
            "ResourceSlice",
        ],
    }


def test_which_structs_are_applied_as_a_whole():
    """A manager that applies one of these owns all of it. Another one cannot add a field."""
    atomic = {
        name
        for version in models.VERSIONS
        for name, cls in models.classes(version).items()
        if getattr(cls, "atomic", False)
    }
    assert atomic == {"OwnerReference", "NodeSelector", "NodeSelectorTerm"}


OF_METADATA = {"OwnerReference", "ManagedFieldsEntry", "ListMeta", "ShardInfo"}


@pytest.mark.parametrize("version", sorted(models.VERSIONS))
def test_a_version_has_every_class_that_its_objects_are_made_of(version):
    module = models.VERSIONS[version]
    for name, cls in models.classes(version).items():
        if name not in OF_METADATA:
            assert getattr(module, name) is cls, name
