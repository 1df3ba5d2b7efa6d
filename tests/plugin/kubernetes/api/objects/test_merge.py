"""Deep merge in the way of seed 000: absent fields stay, scalars replace, maps merge, lists by their
keys or whole.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from claimd.kubernetes.api.objects import merge, meta, models, plain, shapes, v1
from tests.support import samples
from tests.support.documents import documents

Status = v1.ResourceClaimStatus


def merge_dicts(cls, ours, theirs):
    ours_, other = cls.from_dict(ours), cls.from_dict(theirs)
    ours_.merge_from(other)
    assert other.to_dict() == theirs
    return ours_.to_dict()


def reference(uid, name="p"):
    return {"resource": "pods", "name": name, "uid": uid}


def device(name, **fields):
    return {"driver": "d", "pool": "p", "device": name, **fields}


def condition(kind, status):
    return {
        "type": kind,
        "status": status,
        "reason": "R",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }


def test_reserved_for_is_merged_by_uid():
    ours = {"reservedFor": [reference("u1"), reference("u2")]}
    theirs = {"reservedFor": [reference("u3"), reference("u2", "renamed")]}
    assert merge_dicts(Status, ours, theirs) == {
        "reservedFor": [reference("u1"), reference("u2", "renamed"), reference("u3")]
    }


def test_devices_are_merged_by_driver_pool_device_and_share_and_their_conditions_by_type():
    ours = {
        "devices": [
            device(
                "a",
                conditions=[condition("Ready", "False"), condition("Other", "True")],
                data={"x": 1},
            ),
            device("a", shareID="s1"),
        ]
    }
    theirs = {
        "devices": [
            device(
                "a", conditions=[condition("Ready", "True")], networkData={"ips": ["10.0.0.1/24"]}
            ),
            device("a", shareID="s2"),
        ]
    }
    ready = [condition("Ready", "True"), condition("Other", "True")]
    assert merge_dicts(Status, ours, theirs) == {
        "devices": [
            device("a", conditions=ready, data={"x": 1}, networkData={"ips": ["10.0.0.1/24"]}),
            device("a", shareID="s1"),
            device("a", shareID="s2"),
        ]
    }


def test_absent_leaves_alone_and_scalars_and_free_documents_replace():
    ours = {
        "allocation": {"allocationTimestamp": "old"},
        "devices": [device("a", data={"x": 1, "y": 2})],
    }
    assert merge_dicts(Status, ours, {}) == ours
    theirs = {
        "allocation": {"allocationTimestamp": "new", "devices": {"results": []}},
        "devices": [device("a", data=[])],
    }
    assert merge_dicts(Status, ours, theirs) == theirs


def test_lists_without_keys_are_replaced_whole():
    def allocation(*names):
        results = [{"request": "r", "driver": "d", "pool": "p", "device": name} for name in names]
        return {"allocation": {"devices": {"results": results}}}

    assert merge_dicts(Status, allocation("a", "b"), allocation("c")) == allocation("c")


def test_maps_merge_to_the_bottom_and_sets_grow():
    ours = {"labels": {"a": "1", "b": "2"}, "finalizers": ["x", "y"]}
    theirs = {"labels": {"b": "3", "c": "4"}, "finalizers": ["y", "z"]}
    assert merge_dicts(meta.ObjectMeta, ours, theirs) == {
        "labels": {"a": "1", "b": "3", "c": "4"},
        "finalizers": ["x", "y", "z"],
    }
    ours = {
        "name": "gpu",
        "capacity": {"memory": {"value": "1Gi", "requestPolicy": {"default": "1Gi"}}},
    }
    theirs = {"name": "gpu", "capacity": {"memory": {"value": "2Gi"}, "engines": {"value": "4"}}}
    assert merge_dicts(v1.Device, ours, theirs)["capacity"] == {
        "memory": {"value": "2Gi", "requestPolicy": {"default": "1Gi"}},
        "engines": {"value": "4"},
    }


def test_unknown_fields_are_laid_over_too():
    assert merge_dicts(Status, {"mood": {"a": 1}, "x": 1}, {"mood": {"b": 2}}) == {
        "mood": {"b": 2},
        "x": 1,
    }


def test_nothing_is_shared_with_the_other():
    ours, theirs = (
        Status(),
        Status.from_dict(
            {"reservedFor": [reference("u")], "devices": [device("a", data={"x": [1]})]}
        ),
    )
    ours.merge_from(theirs)
    ours.reserved_for[0].name = "other"
    ours.devices[0].data["x"].append(2)
    assert theirs.reserved_for[0].name == "p"
    assert theirs.devices[0].data == {"x": [1]}
    with pytest.raises(TypeError, match="expected a ResourceClaimStatus, got a ResourceClaim"):
        ours.merge_from(v1.ResourceClaim())


@pytest.mark.sampled
@settings(max_examples=samples.share(50), deadline=None)
@given(st.data(), st.sampled_from([(v, k) for v in models.VERSIONS for k in models.kinds(v)]))
def test_merging_twice_is_merging_once_and_with_itself_changes_nothing(data, which):
    cls = models.kinds(which[0])[which[1]]
    ours, theirs = (cls.from_dict(data.draw(documents(cls))) for _ in range(2))
    itself = ours.copy()
    itself.merge_from(ours)
    assert itself == ours
    ours.merge_from(theirs)
    again = ours.copy()
    again.merge_from(theirs)
    assert again == ours
    for name, value in theirs.to_dict().items():
        if isinstance(value, str | bool):
            assert plain.write(ours)[name] == value


def test_a_node_selector_is_one_value():
    def allocation(**selector):
        return {"allocation": {"nodeSelector": {"nodeSelectorTerms": [], **selector}}}

    assert merge_dicts(Status, allocation(x=1), allocation(y=2)) == allocation(y=2)


@pytest.mark.parametrize(
    ("kind", "whole"),
    [
        (meta.OwnerReference, {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}),
        (meta.NodeSelector, {"nodeSelectorTerms": [{}]}),
        (meta.NodeSelectorTerm, {}),
    ],
)
def test_what_is_one_value_is_replaced_whole(kind, whole):
    ours = kind.from_dict(whole | {"later": 1})
    theirs = kind.from_dict(whole)
    shape = shapes.Shape(kind="struct", struct=kind)
    assert merge.merge_values(shape, ours, theirs).to_dict() == whole
    condition_ = meta.Condition.from_dict(condition("Ready", "True") | {"later": 1})
    other = meta.Condition.from_dict(condition("Ready", "False"))
    shape = shapes.Shape(kind="struct", struct=meta.Condition)
    assert merge.merge_values(shape, condition_, other).to_dict()["later"] == 1, "others are merged"
