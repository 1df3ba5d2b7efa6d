"""A kind in its versions."""

import pytest

from plugin.sim.apiserver import catalog as catalog_module
from plugin.sim.apiserver.catalog import Catalog
from plugin.sim.apiserver.types.status_errors import StatusError

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
    names = {one.kind.resource.kind for one in catalog.served_versions(DRA, "v1alpha3")}
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


def test_what_was_converted_is_kept_as_long_as_the_object_is_the_same(catalog):
    served, stored = catalog.served_version(DRA, "v1beta1", "resourceclaims"), stored_claim()
    assert served.from_storage(stored) is served.from_storage(stored)
    assert served.from_storage(stored_claim()) is not served.from_storage(stored)


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


def test_what_was_converted_long_ago_is_converted_again(catalog, monkeypatch):
    monkeypatch.setattr(catalog_module, "CONVERTED", 2)
    served = catalog.served_version(DRA, "v1beta1", "resourceclaims")
    stored = [stored_claim() for _ in range(3)]
    shown = [served.from_storage(claim) for claim in stored]
    assert served.from_storage(stored[1]) is shown[1]
    assert served.from_storage(stored[2]) is shown[2]
    assert served.from_storage(stored[0]) is not shown[0]
