"""Tests of the merge rules of kinds."""

from claimd.sim.apiserver.types import schema


def at(kind, path, group="", version="v1"):
    below = schema.kind_schema(group, version, kind)
    for name in path.split("."):
        below = below.item if name == "*" else below.child(name)
    return below


def test_kinds_of_the_resource_api_have_it_from_their_field_tables():
    claim = {"group": "resource.k8s.io", "version": "v1"}
    devices = at("ResourceClaim", "status.devices", **claim)
    assert devices.keys == ("driver", "pool", "device", "shareID")
    assert devices.associative
    assert at("ResourceClaim", "status.devices.*.data", **claim).atomic
    requests = at("ResourceClaim", "spec.devices.requests", **claim)
    assert not requests.associative
    capacity = at("ResourceSlice", "spec.devices.*.capacity", **claim)
    assert (capacity.is_map, capacity.declares("memory")) == (True, False)
    first = at("ResourceClaim", "spec.controller", "resource.k8s.io", "v1alpha3")
    assert first == schema.UNTYPED


def test_kinds_around_it_by_their_lists_with_keys():
    assert at("Pod", "spec.containers").keys == ("name",)
    assert at("Pod", "spec.containers.*.ports").keys == ("containerPort", "protocol")
    assert at("Pod", "spec.containers.*.resources.limits").is_map
    assert at("Pod", "spec.nodeSelector").atomic
    assert at("Node", "spec.podCIDRs").is_set
    assert at("Node", "spec.podCIDRs").associative
    assert not at("Pod", "spec.containers.*.args").associative
    assert at("Deployment", "spec.template.spec.containers.*.env").keys == ("name",)
    assert at("Deployment", "spec.selector").atomic
    assert at("DaemonSet", "spec.template.metadata.labels").is_map


def test_metadata_is_the_same_for_all():
    assert at("Anything", "metadata.ownerReferences").keys == ("uid",)
    assert at("Anything", "metadata.finalizers").is_set
    assert at("Anything", "metadata.labels").is_map
    assert at("Anything", "metadata.ownerReferences.*").atomic
    assert at("Anything", "spec.whatever") == schema.UNTYPED


def test_fields_and_entries():
    pod = schema.kind_schema("", "v1", "Pod")
    assert pod.declares("whatever")
    assert not schema.Schema(is_map=True).declares("whatever")
    mixed = schema.Schema(is_map=True, fields={"a": schema.ATOMIC}, item=schema.UNTYPED)
    assert mixed.declares("a")
    assert mixed.child("a") == schema.ATOMIC
