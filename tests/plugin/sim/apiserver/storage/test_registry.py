"""Tests of the operations on objects of all kinds."""

import pytest

from claimd.sim.apiserver.storage import registry as registry_module
from claimd.sim.apiserver.types.options import DeleteOptions, WriteOptions
from tests.support import registries
from tests.support.registries import CLAIMS, ME, SLICES, STATUS, claim, patch, refusal, slice_


@pytest.fixture
def registry():
    return registries.new()


NOTHING = {"devices": {"requests": None}}  # the spec of a claim that asks for nothing
RESULT = {"request": "gpu", "driver": "d", "pool": "p", "device": "g"}


def allocate(registry):
    """Returns a claim with an allocated device."""
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "c"}}]}}
    registry.create(CLAIMS, "ns", claim(spec=spec), ME)
    status = {"allocation": {"devices": {"results": [RESULT]}}}
    registry.update(
        CLAIMS,
        "ns",
        "c",
        claim(status=status),
        WriteOptions(field_manager="scheduler", subresource="status"),
    )


def entries(obj):
    return {
        (e["manager"], e["operation"], e.get("subresource", "")): e["fieldsV1"]
        for e in obj["metadata"]["managedFields"]
    }


def test_a_new_object_has_what_the_system_gives(registry):
    stored = registry.create(CLAIMS, "ns", claim(spec={"devices": {}}, status={"devices": []}), ME)
    metadata = stored["metadata"]
    assert (stored["apiVersion"], stored["kind"]) == ("resource.k8s.io/v1", "ResourceClaim")
    assert (metadata["namespace"], metadata["uid"], metadata["resourceVersion"]) == (
        "ns",
        "uid-1",
        "2",
    )
    assert (stored["spec"], stored["status"]) == (NOTHING, {})
    assert "generation" not in metadata
    assert "managedFields" not in metadata  # nothing was said
    labelled = registry.create(CLAIMS, "ns", {"metadata": {"name": "l", "labels": {"a": "1"}}}, ME)
    assert entries(labelled) == {
        ("me", "Update", ""): {"f:metadata": {"f:labels": {".": {}, "f:a": {}}}}
    }
    named = registry.create(CLAIMS, "ns", {"metadata": {"generateName": "c-"}}, ME)
    assert named["metadata"]["name"] == "c-bbbb1"
    assert registry.create(SLICES, "", slice_(), ME)["metadata"]["generation"] == 1


def test_what_cannot_be_created(registry):
    registry.create(CLAIMS, "ns", claim(), ME)
    create = registry.create
    assert refusal(create, CLAIMS, "ns", claim(), ME) == (
        409,
        'resourceclaims.resource.k8s.io "c" already exists',
    )
    assert refusal(create, CLAIMS, "ns", {}, ME) == (
        422,
        'ResourceClaim.resource.k8s.io "" is invalid: metadata.name: Required value: name or generateName is required',
    )
    code, message = refusal(create, CLAIMS, "ns", claim("No"), ME)
    assert code == 422
    assert (
        'metadata.name: Invalid value: "No": a lowercase RFC 1123 subdomain must consist of'
        in message
    )
    other = {"metadata": {"name": "c", "namespace": "other"}}
    assert refusal(create, CLAIMS, "ns", other, ME)[0] == 400
    assert refusal(create, SLICES, "", other, ME)[0] == 400
    versioned = {"metadata": {"name": "d", "resourceVersion": "7"}}
    assert refusal(create, CLAIMS, "ns", versioned, ME) == (
        500,
        "resourceVersion should not be set on objects to be created",
    )


def test_an_update_keeps_what_only_the_system_changes(registry):
    old = registry.create(CLAIMS, "ns", claim(spec={"devices": {}}), ME)
    new = registry.update(
        CLAIMS, "ns", "c", {"metadata": {"labels": {"a": "1"}, "creationTimestamp": "x"}}, ME
    )
    assert new["metadata"]["creationTimestamp"] == old["metadata"]["creationTimestamp"]
    assert new["metadata"]["uid"] == "uid-1"
    assert (new["spec"], new["status"]) == (NOTHING, {})
    assert registry.update(CLAIMS, "ns", "c", new, ME) is new


def test_the_status_is_written_apart(registry):
    registry.create(CLAIMS, "ns", claim(spec={"devices": {}}), ME)
    status = {"allocation": {"devices": {}}}
    wanted = {"metadata": {"labels": {"a": "1"}}, "spec": {}, "status": status}
    new = registry.update(
        CLAIMS, "ns", "c", wanted, WriteOptions(field_manager="driver", subresource="status")
    )
    assert (new["spec"], new["status"]) == (NOTHING, status)
    assert "labels" not in new["metadata"]
    owned = {"f:status": {"f:allocation": {".": {}, "f:devices": {}}}}
    assert entries(new)["driver", "Update", "status"] == owned


def test_generation_counts_changes_of_the_spec(registry):
    registry.create(SLICES, "", slice_(), ME)
    same = registry.update(SLICES, "", "s", slice_(labels={"a": "1"}), ME)
    assert same["metadata"]["generation"] == 1
    changed = slice_()["spec"] | {"devices": [{"name": "g"}]}
    assert registry.update(SLICES, "", "s", {"spec": changed}, ME)["metadata"]["generation"] == 2


def test_updates_that_come_too_late_or_mean_another_object(registry):
    old = registry.create(CLAIMS, "ns", claim(), ME)
    registry.update(CLAIMS, "ns", "c", {"metadata": {"labels": {"a": "1"}}}, ME)
    code, message = refusal(registry.update, CLAIMS, "ns", "c", old, ME)
    assert (
        code,
        message.endswith("please apply your changes to the latest version and try again"),
    ) == (409, True)
    code, message = refusal(registry.update, CLAIMS, "ns", "c", {"metadata": {"uid": "x"}}, ME)
    assert (code, "UID in precondition: x, UID in object meta: uid-1" in message) == (409, True)
    assert refusal(registry.update, CLAIMS, "ns", "c", claim("d"), ME) == (
        400,
        "the name of the object (d) does not match the name on the URL (c)",
    )
    assert refusal(registry.update, CLAIMS, "ns", "d", claim("d"), ME)[0] == 404


def test_patches(registry):
    allocate(registry)
    patch(registry, CLAIMS, "c", "merge", {"metadata": {"labels": {"a": "1"}}}, ME)
    patch(registry, CLAIMS, "c", "strategic", {"metadata": {"finalizers": ["x/a"]}}, ME)
    reference = {"resource": "pods", "name": "p", "uid": "u"}
    new = patch(
        registry,
        CLAIMS,
        "c",
        "json",
        [{"op": "add", "path": "/status/reservedFor", "value": [reference]}],
        STATUS,
    )
    assert (new["metadata"]["labels"], new["metadata"]["finalizers"]) == ({"a": "1"}, ["x/a"])
    assert new["status"]["reservedFor"] == [reference]
    test = [{"op": "test", "path": "/metadata/uid", "value": "other"}]
    assert refusal(patch, registry, CLAIMS, "c", "json", test, ME)[0] == 422
    late = {"metadata": {"resourceVersion": "1"}}
    assert refusal(patch, registry, CLAIMS, "c", "merge", late, ME)[0] == 409


def test_apply_creates_changes_and_takes_back(registry):
    first, new = registry.apply(
        CLAIMS, "ns", "c", {"metadata": {"labels": {"a": "1", "b": "1"}}}, ME, force=False
    )
    assert (new, first["metadata"]["uid"]) == (True, "uid-1")
    second, new = registry.apply(
        CLAIMS, "ns", "c", {"metadata": {"labels": {"a": "1"}}}, ME, force=False
    )
    assert (new, second["metadata"]["labels"]) == (False, {"a": "1"})
    other = WriteOptions(field_manager="other")
    config = {"metadata": {"labels": {"a": "2"}}}
    assert refusal(registry.apply, CLAIMS, "ns", "c", config, other, force=False) == (
        409,
        'Apply failed with 1 conflict: conflict with "me": .metadata.labels.a',
    )
    third, _ = registry.apply(CLAIMS, "ns", "c", config, other, force=True)
    assert entries(third) == {("other", "Apply", ""): {"f:metadata": {"f:labels": {"f:a": {}}}}}


def test_apply_of_a_status(registry):
    allocate(registry)
    device = {"driver": "d", "pool": "p", "device": "g"}
    config = {"metadata": {"labels": {"no": "1"}}, "status": {"devices": [device]}}
    new, _ = registry.apply(CLAIMS, "ns", "c", config, STATUS, force=False)
    assert new["status"]["devices"] == [device | {"conditions": None}]
    assert "labels" not in new["metadata"]
    new, _ = registry.apply(CLAIMS, "ns", "c", {"status": {}}, STATUS, force=False)
    assert "devices" not in new["status"]
    for name, config, code in (
        ("d", {}, 404),
        ("c", {"metadata": {"uid": "x"}}, 422),
        ("c", {"metadata": {"managedFields": [{}]}}, 400),
        ("c", {"metadata": {"name": "x"}}, 400),
    ):
        assert refusal(registry.apply, CLAIMS, "ns", name, config, STATUS, force=False)[0] == code
    assert (
        refusal(registry.apply, CLAIMS, "ns", "d", {"metadata": {"uid": "x"}}, ME, force=False)[0]
        == 409
    )


def test_dry_runs_change_nothing(registry):
    registry.create(CLAIMS, "ns", claim(), ME)
    version = registry.store.resource_version
    dry = WriteOptions(field_manager="me", dry_run=True)
    assert registry.create(CLAIMS, "ns", claim("d"), dry)["metadata"]["name"] == "d"
    assert refusal(registry.create, CLAIMS, "ns", claim(), dry)[0] == 409
    labelled = {"metadata": {"labels": {"a": "1"}}}
    assert registry.update(CLAIMS, "ns", "c", labelled, dry)["metadata"]["labels"] == {"a": "1"}
    assert registry.apply(CLAIMS, "ns", "e", {}, dry, force=False)[1]
    registry.delete(CLAIMS, "ns", "c", DeleteOptions(dry_run=True))
    assert registry.store.resource_version == version


def test_finalizers_hold_an_object(registry):
    registry.create(SLICES, "", slice_(finalizers=["x/a"]), ME)
    held = registry.delete(SLICES, "", "s", DeleteOptions())
    assert held["metadata"]["deletionGracePeriodSeconds"] == 0
    assert held["metadata"]["generation"] == 2
    assert registry.delete(SLICES, "", "s", DeleteOptions()) is held  # once is enough
    code, message = refusal(registry.update, SLICES, "", "s", slice_(finalizers=["x/a", "x/b"]), ME)
    assert (code, message.endswith('found new finalizers []string{"x/b"}')) == (422, True)
    again = registry.update(SLICES, "", "s", slice_(finalizers=["x/a"], labels={"a": "1"}), ME)
    assert again["metadata"]["deletionTimestamp"] == held["metadata"]["deletionTimestamp"]
    registry.update(SLICES, "", "s", slice_(), ME)
    assert registry.store.find(SLICES.resource, "", "s") is None


def test_preconditions_of_a_deletion(registry):
    registry.create(CLAIMS, "ns", claim(), ME)
    for options, words in (
        (
            DeleteOptions(uid="x"),
            "the UID in the precondition (x) does not match the UID in record (uid-1).",
        ),
        (
            DeleteOptions(resource_version="9"),
            "the ResourceVersion in the precondition (9) does not match",
        ),
    ):
        code, message = refusal(registry.delete, CLAIMS, "ns", "c", options)
        assert code == 409
        assert message.startswith(
            'Operation cannot be fulfilled on ResourceClaim.resource.k8s.io "c": ' + words
        )
    registry.delete(CLAIMS, "ns", "c", DeleteOptions(uid="uid-1", resource_version="2"))
    assert refusal(registry.delete, CLAIMS, "ns", "c", DeleteOptions())[0] == 404


def test_who_changes_nothing_leaves_no_trace(registry):
    """Checks that a write of dropped fields changes nothing, although time goes on."""
    registry.release = "1.34"
    allocate(registry)
    status = {"allocation": {"devices": {"results": [RESULT | {"bindingConditions": ["a"]}]}}}
    writer = WriteOptions(field_manager="scheduler", subresource="status")
    before = registry.store.get(CLAIMS.resource, "ns", "c")
    assert registry.update(CLAIMS, "ns", "c", claim(status=status), writer) is before


def test_no_object_grows_without_end(registry, monkeypatch):
    """Checks each way of writing: an object could grow by many requests that are small."""
    registry.create(CLAIMS, "ns", claim(), ME)
    monkeypatch.setattr(registry_module, "MAX_STORED", 2000)
    large = {"metadata": {"name": "c", "annotations": {"a": "x" * 2000}}}
    new = {"metadata": {"name": "d", "annotations": {"a": "x" * 2000}}}
    too_large = (500, "etcdserver: request is too large")
    assert refusal(registry.create, CLAIMS, "ns", new, ME) == too_large
    assert refusal(registry.update, CLAIMS, "ns", "c", large, ME) == too_large
    assert refusal(registry.change, CLAIMS, "ns", "c", lambda old: old | large, ME) == too_large
    assert refusal(registry.apply, CLAIMS, "ns", "c", large, ME, True) == too_large
    assert registry.store.get(CLAIMS.resource, "ns", "c")["metadata"].get("annotations") is None
