"""Tests of a kind in its versions."""

import json

import pytest

from claimd.kubernetes.api.objects import convert
from claimd.sim.apiserver.catalog import Catalog
from claimd.sim.apiserver.rules import canonical
from claimd.sim.apiserver.types.status_errors import StatusError
from claimd.sim.apiserver.types.stored_object import StoredObject

DRA = "resource.k8s.io"


@pytest.fixture
def catalog():
    return Catalog("1.37")


def test_versions_of_a_group_the_preferred_one_first(catalog):
    assert catalog.versions[DRA] == ["v1", "v1beta2", "v1beta1", "v1alpha3"]
    assert catalog.versions[""] == ["v1"]


def test_what_is_served(catalog):
    served = catalog.served_version(DRA, "v1beta1", "resourceclaims")
    assert (served.api_version, served.is_storage_version) == (f"{DRA}/v1beta1", False)
    assert catalog.served_version(DRA, "v1", "resourceclaims").is_storage_version
    assert catalog.served_version(DRA, "v1alpha3", "resourceclaims") is None
    names = {each.kind.resource.kind for each in catalog.served_versions(DRA, "v1alpha3")}
    assert names == {"DeviceTaintRule", "ResourcePoolStatusRequest"}
    assert catalog.kind("pods").resource.kind == "Pod"
    with pytest.raises(KeyError, match=r"pods\.x is not served like 1\.37"):
        catalog.kind("pods", "x")
    events = [kind for kind in catalog.kinds if kind.resource.plural == "events"]
    assert len(events) == 1


def stored_claim():
    request = {"name": "gpu", "exactly": {"deviceClassName": "c", "allocationMode": "All"}}
    return {
        "apiVersion": f"{DRA}/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "c", "resourceVersion": "3"},
        "spec": {"devices": {"requests": [request]}},
        "status": {},
    }


def test_an_object_in_another_version_and_back(catalog):
    served, stored = catalog.served_version(DRA, "v1beta1", "resourceclaims"), stored_claim()
    shown = served.from_storage(stored)
    assert shown["apiVersion"] == f"{DRA}/v1beta1"
    (request,) = shown["spec"]["devices"]["requests"]
    assert request == {"name": "gpu", "deviceClassName": "c", "allocationMode": "All"}
    assert served.to_storage(shown)["spec"] == stored["spec"]
    assert stored == stored_claim()


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
def test_what_was_encoded_is_kept_as_long_as_the_object_is_the_latest(catalog, version):
    served = catalog.served_version(DRA, version, "resourceclaims")
    stored = StoredObject(stored_claim())
    encoded = served.encode(stored)
    assert served.encode(stored) is encoded
    assert json.loads(encoded).keys() == {"metadata", "spec", "status"}
    assert json.loads(served.encode_whole(stored)) == served.from_storage(stored)

    stored.supersede()
    assert served.encode(stored) == encoded
    assert served.encode(stored) is not served.encode(stored)


def test_versions_of_one_form_share_what_was_encoded(catalog):
    stored, claims = StoredObject(stored_claim()), "resourceclaims"
    newest = catalog.served_version(DRA, "v1", claims)
    alike, other = (catalog.served_version(DRA, name, claims) for name in ("v1beta2", "v1beta1"))
    assert alike.encode(stored) is newest.encode(stored)
    assert other.encode(stored) != newest.encode(stored)
    assert json.loads(alike.encode_whole(stored))["apiVersion"] == f"{DRA}/v1beta2"


@pytest.mark.parametrize("kind", ["ResourceClaim", "ResourceClaimTemplate", "ResourceSlice"])
def test_only_v1beta2_has_the_form_of_v1(kind):
    assert canonical.same_form(kind, "v1beta2", "v1")
    assert not canonical.same_form(kind, "v1beta1", "v1")
    assert not canonical.same_form(kind, "v1alpha3", "v1")
    assert not canonical.same_form("Pod", "v1", "v1"), "no field table says so"


def test_what_has_the_same_form_is_converted_to_the_same(catalog):
    """Checks that the shortcut for versions of the same form equals the conversion."""
    served, stored = catalog.served_version(DRA, "v1beta2", "resourceclaims"), stored_claim()
    converted = convert.convert(stored, "v1beta2").document
    expected = canonical.round_trip("v1beta2", "ResourceClaim", converted, "1.37")
    assert served.from_storage(stored) == expected


def test_what_cannot_be_converted_is_a_bad_request(catalog):
    served = catalog.served_version(DRA, "v1beta1", "resourceclaims")
    with pytest.raises(StatusError) as refused:
        served.to_storage({"metadata": {"name": "c"}, "spec": {"devices": {"requests": 1}}})
    assert refused.value.code == 400


def test_events_are_stored_as_those_of_the_core(catalog):
    served = catalog.served_version("events.k8s.io", "v1", "events")
    event = {
        "apiVersion": "events.k8s.io/v1",
        "note": "n",
        "regarding": {"name": "p"},
        "reason": "R",
    }
    stored = served.to_storage(event)
    assert stored == {
        "apiVersion": "v1",
        "message": "n",
        "involvedObject": {"name": "p"},
        "reason": "R",
    }
    assert served.from_storage(stored) == event


def test_an_empty_object(catalog):
    claims = catalog.served_version(DRA, "v1beta1", "resourceclaims").empty
    assert claims == {"spec": {"devices": {"requests": None}}, "status": {}}
    assert catalog.served_version("", "v1", "pods").empty["spec"] == {"containers": None}
    assert catalog.served_version("", "v1", "configmaps").empty == {}


def test_deprecations(catalog):
    def warning(version, plural):
        return catalog.served_version(DRA, version, plural).deprecation_warning

    assert warning("v1", "deviceclasses") == ""
    assert warning("v1alpha3", "resourcepoolstatusrequests") == ""
    told = f"{DRA}/v1alpha3 DeviceTaintRule is deprecated in v1.36+, unavailable in v1.39+"
    assert warning("v1alpha3", "devicetaintrules") == told
    old = Catalog("1.34").served_version(DRA, "v1beta1", "deviceclasses")
    assert old.deprecation_warning == ""
