"""Objects read, written, checked, copied and shown; the Python client's names for them."""

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claimd.kubernetes.api.objects import models, plain, v1, v1alpha2
from claimd.kubernetes.api.objects.models import (
    V1alpha3AllocationResult,
    V1alpha3ResourceClaimConsumerReference,
    V1alpha3ResourceClaimStatus,
)
from tests.support import samples
from tests.support.documents import documents

KINDS = [(version, kind) for version in models.VERSIONS for kind in models.kinds(version)]


def references(count):
    return [{"resource": "pods", "name": f"p{n}", "uid": f"u{n}"} for n in range(count)]


@pytest.mark.sampled
@pytest.mark.parametrize(("version", "kind"), KINDS, ids=lambda value: value)
def test_a_document_comes_out_as_it_went_in(version, kind):
    cls = models.kinds(version)[kind]

    @settings(max_examples=samples.share(25), deadline=None)
    @given(documents(cls))
    def check(document):
        model = cls.from_dict(document, unknown="refuse")
        assert model.to_dict() == document
        assert cls.from_dict(model.to_dict()) == model
        assert (
            eval(repr(model), vars(models) | models.classes(version)) == model
        )  # the repr is how one would write it

    check()


def test_the_python_clients_model():
    """Seed 004: names, snake case, optional fields that are None, equality."""
    status = V1alpha3ResourceClaimStatus(
        allocation=V1alpha3AllocationResult(controller="c"),
        deallocation_requested=True,
        reserved_for=[V1alpha3ResourceClaimConsumerReference(resource="pods", name="p", uid="u")],
    )
    data = {
        "allocation": {"controller": "c"},
        "reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}],
        "deallocationRequested": True,
    }
    assert status.to_dict() == data
    assert V1alpha3ResourceClaimStatus.from_dict(data) == status
    assert V1alpha3ResourceClaimStatus().reserved_for is None
    assert V1alpha3ResourceClaimStatus() != status
    status.deallocation_requested = None
    assert "deallocationRequested" not in status.to_dict()


class TestInterfaceOfTheOfficialClient:
    """attribute_map, openapi_types, to_dict with the names of Python, and to_str."""

    status = V1alpha3ResourceClaimStatus(
        allocation=V1alpha3AllocationResult(controller="c"),
        reserved_for=[V1alpha3ResourceClaimConsumerReference(resource="pods", name="p", uid="u")],
    )

    def test_names_and_types(self):
        assert V1alpha3ResourceClaimStatus.attribute_map == self.status.attribute_map
        assert self.status.attribute_map["reserved_for"] == "reservedFor"
        assert self.status.openapi_types == {
            "allocation": "V1alpha3AllocationResult",
            "deallocation_requested": "bool",
            "reserved_for": "list[V1alpha3ResourceClaimConsumerReference]",
        }
        assert models.V1DeviceAttribute.attribute_map["int_"] == "int"
        device = models.V1beta1BasicDevice.openapi_types
        assert device["attributes"] == "dict(str, V1beta1DeviceAttribute)"
        assert device["node_selector"] == "V1NodeSelector"
        assert models.V1CounterSet.openapi_types["counters"] == "dict(str, V1Counter)"
        assert models.V1Counter.openapi_types == {"value": "str"}
        assert models.V1OpaqueDeviceConfiguration.openapi_types["parameters"] == "object"
        assert models.V1ObjectMeta.openapi_types["owner_references"] == "list[V1OwnerReference]"
        claims = models.V1ResourceClaimList.openapi_types["items"]
        assert claims == "list[ResourceV1ResourceClaim]"

    def test_the_names_of_types_are_those_of_classes(self):
        """A class of v1 that other versions share has the names of v1 in its types."""
        for version in models.VERSIONS:
            for cls in models.classes(version).values():
                for name in cls.openapi_types.values():
                    inner = name.rpartition("[")[2].rpartition(" ")[2].rstrip(")]")
                    if inner[0].isupper() or inner.startswith("V1"):
                        assert getattr(models, inner)

    def test_plain_data_with_the_names_of_python(self):
        data = self.status.to_dict(names="python")
        assert data == {
            "allocation": {"devices": None, "node_selector": None, "controller": "c"},
            "deallocation_requested": None,
            "reserved_for": [{"api_group": None, "resource": "pods", "name": "p", "uid": "u"}],
        }
        assert eval(self.status.to_str()) == data
        data["reserved_for"][0]["name"] = "other"
        assert self.status.reserved_for[0].name == "p"

    def test_nothing_is_checked(self):
        half = V1alpha3ResourceClaimConsumerReference(resource=None, name="p", uid=7)
        assert half.to_dict(names="python")["uid"] == 7
        free = v1.AllocatedDeviceStatus(driver="d", pool="p", device="x", data={"aB": [None]})
        assert free.to_dict(names="python")["data"] == {"aB": [None]}


def test_names_of_every_version():
    assert models.V1ResourceClaim is v1.ResourceClaim
    assert (
        models.ResourceV1ResourceClaim is v1.ResourceClaim
    )  # that client's way out of two classes of a name
    assert models.V1alpha2ResourceHandle is v1alpha2.ResourceHandle
    assert models.V1beta1BasicDevice.__module__.endswith("v1beta1")
    assert models.V1beta2ExactDeviceRequest is v1.ExactDeviceRequest
    assert models.V1alpha3AllocatedDeviceStatus.__module__.endswith("v1alpha3")  # 1.31 had none
    for name in ("V1beta1ExactDeviceRequest", "V2ResourceClaim", "V1alpha2DeviceClass", "NoSuch"):
        with pytest.raises(AttributeError, match=name):
            getattr(models, name)


def test_the_items_of_a_map_have_the_names_of_python():
    device = v1.Device(name="d", attributes={"a": v1.DeviceAttribute(string="x")})
    given = device.to_dict(names="python")["attributes"]["a"]
    assert type(given) is dict


def test_a_shared_class_that_an_old_version_does_not_use_has_the_name_of_v1():
    assert models.V1Condition is models.V1beta1Condition
    with pytest.raises(AttributeError, match="no versions of its own; it is called V1Condition"):
        _ = models.V1alpha2Condition


@pytest.mark.parametrize(
    ("version", "limit"),
    [
        ("v1alpha2", 32),
        ("v1alpha3-1.31", 32),
        ("v1alpha3", 256),
        ("v1beta1", 256),
        ("v1beta2", 256),
        ("v1", 256),
    ],
)
def test_reserved_for_has_a_limit(version, limit):
    cls = models.classes(version)["ResourceClaimStatus"]
    cls.from_dict({"reservedFor": references(limit)})
    with pytest.raises(plain.Invalid) as caught:
        cls.from_dict({"reservedFor": references(limit + 1)})
    assert [str(p) for p in caught.value.problems] == [
        f"reservedFor: has {limit + 1} items, at most {limit} are allowed"
    ]


def test_limits_of_v1alpha2s_handles():
    handle = {"driverName": "d", "data": "x" * 16 * 1024}
    v1alpha2.AllocationResult.from_dict({"resourceHandles": [handle] * 32})
    with pytest.raises(plain.Invalid) as caught:
        v1alpha2.AllocationResult.from_dict(
            {"resourceHandles": [{"data": "é" * 8 * 1024 + "x"}] + [handle] * 32}
        )
    assert [str(p) for p in caught.value.problems] == [
        "resourceHandles[0].data: has 16385 bytes, at most 16384 are allowed",
        "resourceHandles: has 33 items, at most 32 are allowed",
    ]


def test_every_broken_rule_is_named_by_its_path():
    with pytest.raises(plain.Invalid) as caught:
        v1.ResourceClaim.from_dict(
            {
                "metadata": {"name": 7, "labels": ["a"]},
                "spec": {
                    "devices": {
                        "requests": [
                            {"exactly": {"allocationMode": "Some", "count": True}},
                            {"name": "b"},
                            {
                                "name": "c",
                                "exactly": {"deviceClassName": "x"},
                                "firstAvailable": [],
                            },
                        ],
                        "config": [{"opaque": {"driver": "d", "parameters": {"x": "y" * 10240}}}],
                        "constraints": {},
                    }
                },
                "status": {
                    "reservedFor": [*references(1), *references(1)],
                    "devices": [
                        {"driver": "d", "pool": "p", "device": "x"},
                        {"driver": "d", "pool": "p", "device": "x"},
                    ],
                },
            }
        )
    assert sorted(str(p) for p in caught.value.problems) == [
        "metadata.labels: expected a map, got ['a']",
        "metadata.name: expected a string, got 7",
        "spec.devices.config[0].opaque.parameters: has 10248 bytes, at most 10240 are allowed",
        "spec.devices.constraints: expected a list, got {}",
        "spec.devices.requests[0].exactly.allocationMode: expected one of ExactCount, All, got 'Some'",
        "spec.devices.requests[0].exactly.count: expected a whole number, got True",
        "spec.devices.requests[0].exactly.deviceClassName: is required",
        "spec.devices.requests[0].name: is required",
        "spec.devices.requests[1]: exactly one of exactly, firstAvailable is expected, got none",
        "spec.devices.requests[2]: exactly one of exactly, firstAvailable is expected, got exactly and firstAvailable",
        "status.devices[1]: is there twice: d, p, x",
        "status.reservedFor[1]: is there twice: u0",
    ]


def test_quantities_are_checked_and_numbers_taken():
    counter = models.V1Counter.from_dict({"value": 5})
    assert counter.value == "5"
    with pytest.raises(
        plain.Invalid, match=r"value: expected a quantity such as 80Gi or 500m, got 'much'"
    ):
        models.V1Counter.from_dict({"value": "much"})


def test_what_breaks_a_rule_is_not_written():
    status = v1.ResourceClaimStatus(
        reserved_for=[v1.ResourceClaimConsumerReference.from_dict(r) for r in references(257)]
    )
    with pytest.raises(plain.Invalid, match="reservedFor: has 257 items"):
        status.to_dict()
    status.reserved_for = [{"uid": "u"}]  # type: ignore[list-item]
    with pytest.raises(plain.Invalid, match=r"reservedFor\[0\]: expected an object"):
        status.to_dict()
    with pytest.raises(TypeError, match="uid"):
        v1.ResourceClaimConsumerReference(resource="pods", name="p")  # type: ignore[call-arg]


def test_unknown_fields_are_kept_or_refused():
    data = {"allocation": {"devices": {"results": [], "weight": 3}}, "mood": {"good": [True]}}
    kept = v1.ResourceClaimStatus.from_dict(data)
    assert kept.to_dict() == data
    assert "mood" in repr(kept)
    assert kept != v1.ResourceClaimStatus.from_dict({"allocation": {"devices": {"results": []}}})
    with pytest.raises(plain.Invalid) as caught:
        v1.ResourceClaimStatus.from_dict(data, unknown="refuse")
    assert {p.path for p in caught.value.problems} == {"allocation.devices.weight", "mood"}


def test_a_newer_servers_request_is_understood_as_one():
    """A kind of request that this version does not know breaks no rule."""
    request = {"name": "r", "sideways": {"x": 1}}
    assert v1.DeviceRequest.from_dict(request).to_dict() == request


@pytest.mark.sampled
@given(
    st.recursive(
        st.one_of(st.none(), st.integers(), st.text("ab")),
        lambda inner: (
            st.dictionaries(
                st.sampled_from(
                    ["spec", "devices", "requests", "exactly", "name", "status", "reservedFor", "x"]
                ),
                inner,
            )
            | st.lists(inner)
        ),
    )
)
def test_any_document_is_an_object_or_an_error_with_paths(document):
    try:
        model = v1.ResourceClaim.from_dict(document)
    except plain.Invalid as invalid:
        assert invalid.problems
    else:
        assert isinstance(model, v1.ResourceClaim)


def test_copies_share_nothing():
    data = {
        "reservedFor": references(1),
        "devices": [{"driver": "d", "pool": "p", "device": "x", "data": {"a": [1]}}],
    }
    first = v1.ResourceClaimStatus.from_dict(data)
    second, third = first.copy(), v1.ResourceClaimStatus(devices=[])
    third.clone_from(first)
    assert first == second == third
    second.devices[0].data["a"].append(2)
    third.reserved_for[0].uid = "other"
    written = first.to_dict()
    written["devices"][0]["data"]["a"].append(3)
    assert first.to_dict() == data
    assert data["devices"][0]["data"] == {"a": [1]}
    with pytest.raises(TypeError, match="expected a ResourceClaimStatus, got a DeviceTaint"):
        first.clone_from(v1.DeviceTaint(key="k", effect="NoExecute"))


def test_repr_shows_what_is_set():
    taint = v1.DeviceTaint(key="claimd.dev/sick", effect="NoExecute")
    assert repr(taint) == "DeviceTaint(key='claimd.dev/sick', effect='NoExecute')"
    assert repr(v1.ResourceClaimStatus(reserved_for=[])) == "ResourceClaimStatus(reserved_for=[])"


def test_a_running_plugin_never_loads_this():
    code = """
import sys, claimd.node.app, claimd.tools.cli
ours = ("claimd.kubernetes.api.objects", "claimd.kubernetes.structured", "claimd.common.time_limit")
print([module for module in sys.modules if module.startswith((*ours, "tomllib"))])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_change_of_another_class_is_refused():
    change = v1.ResourceClaim.but.spec.with_devices(None)
    with pytest.raises(
        TypeError, match="expected a change of a DeviceClass, got one of a Resource"
    ):
        _ = v1.DeviceClass() + change
    with pytest.raises(TypeError, match="unsupported operand"):
        _ = v1.DeviceClass() + 7


def test_the_values_of_a_map_have_rules_too():
    counters = v1.CounterSet(name="all", counters={"memory": "80Gi"})
    assert [problem.path for problem in counters.problems()] == ["counters[memory]"]
