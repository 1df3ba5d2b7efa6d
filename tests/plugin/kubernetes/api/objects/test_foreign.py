"""Objects of the official client and plain data, read as objects of v1."""

import datetime

import msgspec
import pytest

from claimd.kubernetes.api import scheduling
from claimd.kubernetes.api.objects import foreign, plain, v1, v1alpha3_31


def test_an_object_of_the_class_stays_itself():
    claim = v1.ResourceClaim()
    assert foreign.read_object(claim, v1.ResourceClaim) is claim


def test_names_of_python_and_of_json():
    data = {
        "metadata": {
            "creation_timestamp": datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC),
            "labels": {"api_version": "x"},
            "managed_fields": None,
        },
        "spec": {
            "driver": "d",
            "pool": {"name": "p", "generation": 1, "resource_slice_count": 1},
            "nodeName": "n",
            "devices": ({"name": "a", "attributes": {"count": {"int": 1}, "ok": {"bool_": True}}},),
        },
    }
    read = foreign.read_object(data, v1.ResourceSlice)
    assert read.to_dict() == {
        "metadata": {
            "creationTimestamp": "2026-01-02T03:04:05Z",
            "labels": {"api_version": "x"},
        },
        "spec": {
            "driver": "d",
            "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
            "nodeName": "n",
            "devices": [{"name": "a", "attributes": {"count": {"int": 1}, "ok": {"bool": True}}}],
        },
    }
    assert data["spec"]["pool"] == {"name": "p", "generation": 1, "resource_slice_count": 1}


def test_fields_of_a_newer_release_are_kept():
    read = foreign.read_object({"spec": {"devices": {"mood": {"is_good": None}}}}, v1.ResourceClaim)
    assert read.to_dict() == {"spec": {"devices": {"mood": {"is_good": None}}}}


def test_an_old_version_is_converted():
    early = v1alpha3_31.ResourceClaim.from_dict(
        {"spec": {"devices": {"requests": [{"name": "gpu", "deviceClassName": "gpu"}]}}}
    )
    request = foreign.read_object(early, v1.ResourceClaim).spec.devices.requests[0]
    assert request.exactly.device_class_name == "gpu"


def test_a_struct_of_the_allocator():
    struct = msgspec.convert({"metadata": {"name": "c"}}, scheduling.ResourceClaim)
    assert foreign.read_object(struct, v1.ResourceClaim).metadata.name == "c"


def test_an_object_of_ours_keeps_its_unknown_fields():
    data = {"metadata": {"name": "c"}, "mood": {"good": True}}
    assert foreign.to_document(v1.ResourceClaim.from_dict(data)) == data


class V1ResourceClaim:
    """Plays a model of the official client."""

    def to_dict(self):
        return {"api_version": None, "metadata": {"name": "c", "resource_version": "7"}}


def test_a_model_of_the_official_client():
    read = foreign.read_object(V1ResourceClaim(), v1.ResourceClaim)
    assert read.to_dict() == {"metadata": {"name": "c", "resourceVersion": "7"}}


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (7, "expected an object of the resource API or a dict, got a int"),
        ({"kind": "Pod"}, "expected a ResourceClaim, got a Pod"),
        ({"apiVersion": "resource.k8s.io/v2"}, "resource.k8s.io/v2 has no ResourceClaim"),
    ],
)
def test_other_things_are_refused(source, message):
    with pytest.raises(TypeError, match=message):
        foreign.read_object(source, v1.ResourceClaim)


def test_broken_rules_are_named():
    with pytest.raises(plain.Invalid, match=r"requests\[0\]\.name: is required"):
        foreign.read_object({"spec": {"devices": {"requests": [{}]}}}, v1.ResourceClaim)
