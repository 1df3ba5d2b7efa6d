"""Tests of the merge rules of kinds."""

from claimd.sim.apiserver.types import schema


def schema_at(kind, path, group="", version="v1"):
    below = schema.kind_schema(group, version, kind)
    for name in path.split("."):
        below = below.item if name == "*" else below.child(name)
    return below


def test_kinds_of_the_resource_api_have_it_from_their_field_tables():
    claim = {"group": "resource.k8s.io", "version": "v1"}
    devices = schema_at("ResourceClaim", "status.devices", **claim)
    assert devices.keys == ("driver", "pool", "device", "shareID")
    assert devices.associative
    assert schema_at("ResourceClaim", "status.devices.*.data", **claim).atomic
    requests = schema_at("ResourceClaim", "spec.devices.requests", **claim)
    assert not requests.associative
    capacity = schema_at("ResourceSlice", "spec.devices.*.capacity", **claim)
    assert (capacity.is_map, capacity.declares("memory")) == (True, False)
    first = schema_at("ResourceClaim", "spec.controller", "resource.k8s.io", "v1alpha3")
    assert first == schema.UNTYPED


def test_kinds_around_it_by_their_lists_with_keys():
    assert schema_at("Pod", "spec.containers").keys == ("name",)
    assert schema_at("Pod", "spec.containers.*.ports").keys == ("containerPort", "protocol")
    assert schema_at("Pod", "spec.containers.*.resources.limits").is_map
    assert schema_at("Pod", "spec.nodeSelector").atomic
    assert schema_at("Node", "spec.podCIDRs").is_set
    assert schema_at("Node", "spec.podCIDRs").associative
    assert not schema_at("Pod", "spec.containers.*.args").associative
    assert schema_at("Deployment", "spec.template.spec.containers.*.env").keys == ("name",)
    assert schema_at("Deployment", "spec.selector").atomic
    assert schema_at("DaemonSet", "spec.template.metadata.labels").is_map


def test_metadata_is_the_same_for_all():
    assert schema_at("Anything", "metadata.ownerReferences").keys == ("uid",)
    assert schema_at("Anything", "metadata.finalizers").is_set
    assert schema_at("Anything", "metadata.labels").is_map
    assert schema_at("Anything", "metadata.ownerReferences.*").atomic
    assert schema_at("Anything", "spec.whatever") == schema.UNTYPED


def test_fields_and_entries():
    pod = schema.kind_schema("", "v1", "Pod")
    assert pod.declares("whatever")
    assert not schema.Schema(is_map=True).declares("whatever")
    mixed = schema.Schema(is_map=True, fields={"a": schema.ATOMIC}, item=schema.UNTYPED)
    assert mixed.declares("a")
    assert mixed.child("a") == schema.ATOMIC
