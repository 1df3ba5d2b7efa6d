"""Tests of JSON patch, merge patch and strategic merge patch."""

import copy

import pytest

from claimd.sim.apiserver.storage import patches
from claimd.sim.apiserver.types import schema, status_errors

POD = schema.kind_schema("", "v1", "Pod")
CLAIM = schema.kind_schema("resource.k8s.io", "v1", "ResourceClaim")


@pytest.mark.parametrize(
    ("document", "patch", "result"),
    [  # the examples of RFC 7386
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_merge_patch(document, patch, result):
    before = copy.deepcopy(document)
    assert patches.merge_patch(document, patch) == result
    assert document == before


@pytest.mark.parametrize(
    ("operation", "result"),
    [
        ({"op": "add", "path": "/a/1", "value": 9}, {"a": [1, 9, 2], "b": {"x/y": True}}),
        ({"op": "add", "path": "/a/-", "value": 9}, {"a": [1, 2, 9], "b": {"x/y": True}}),
        ({"op": "add", "path": "/a/2", "value": 9}, {"a": [1, 2, 9], "b": {"x/y": True}}),
        ({"op": "replace", "path": "/a/0", "value": 9}, {"a": [9, 2], "b": {"x/y": True}}),
        ({"op": "replace", "path": "", "value": {}}, {}),
        ({"op": "remove", "path": "/b/x~1y"}, {"a": [1, 2], "b": {}}),
        ({"op": "move", "from": "/a/0", "path": "/b/n"}, {"a": [2], "b": {"x/y": True, "n": 1}}),
        (
            {"op": "copy", "from": "/a", "path": "/b/n"},
            {"a": [1, 2], "b": {"x/y": True, "n": [1, 2]}},
        ),
        ({"op": "test", "path": "/b/x~1y", "value": True}, {"a": [1, 2], "b": {"x/y": True}}),
    ],
)
def test_json_patch(operation, result):
    document = {"a": [1, 2], "b": {"x/y": True}}
    assert patches.json_patch(document, [operation]) == result
    assert document == {"a": [1, 2], "b": {"x/y": True}}


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "remove", "path": "/c"},
        {"op": "replace", "path": "/c", "value": 1},
        {"op": "add", "path": "/a/7", "value": 1},
        {"op": "add", "path": "/a/01", "value": 1},
        {"op": "add", "path": "/c/d", "value": 1},
        {"op": "add", "path": "a", "value": 1},
        {"op": "add", "path": "/a"},
        {"op": "test", "path": "/a/0", "value": True},
        {"op": "jump", "path": "/a"},
        {"path": "/a"},
        "no operation",
    ],
)
def test_json_patches_that_do_not_apply(operation):
    with pytest.raises(status_errors.StatusError) as caught:
        patches.json_patch({"a": [1, 2]}, [{"op": "add", "path": "/z", "value": 1}, operation])
    assert caught.value.code == 422
    with pytest.raises(status_errors.StatusError) as caught:
        patches.json_patch({}, {})
    assert caught.value.code == 400


def pod(*containers, **spec):
    return {"spec": {"containers": list(containers)} | spec}


A, B = {"name": "a", "image": "x", "args": ["1"]}, {"name": "b", "image": "y"}


@pytest.mark.parametrize(
    ("patch", "result"),
    [
        (
            pod({"name": "b", "image": "z"}, {"name": "c"}),
            pod(A, {"name": "b", "image": "z"}, {"name": "c"}),
        ),
        (pod({"name": "a", "$patch": "delete"}), pod(B)),
        (pod({"name": "a", "args": ["2"]}), pod(A | {"args": ["2"]}, B)),
        (pod({"$patch": "replace"}, {"name": "c"}), pod({"name": "c"})),
        (pod({"name": "a", "image": None}), pod({"name": "a", "args": ["1"]}, B)),
        ({"spec": {"$patch": "replace", "nodeName": "n"}}, {"spec": {"nodeName": "n"}}),
        ({"spec": {"$retainKeys": ["nodeName"], "nodeName": "n"}}, {"spec": {"nodeName": "n"}}),
        ({"spec": {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]}}, pod(B, A)),
        (
            {"metadata": {"labels": {"l": "1", "m": None}}},
            pod(A, B) | {"metadata": {"labels": {"l": "1"}}},
        ),
    ],
)
def test_strategic_merge_patch(patch, result):
    document = pod(A, B)
    assert patches.strategic_merge(POD, document, patch) == result
    assert document == pod(A, B)


def test_sets_and_keys_come_from_the_field_tables():
    reference = {"resource": "pods", "name": "p", "uid": "u1"}
    document = {"metadata": {"finalizers": ["x"]}, "status": {"reservedFor": [reference]}}
    patch = {
        "metadata": {"finalizers": ["x", "y"]},
        "status": {"reservedFor": [{"uid": "u1", "name": "q"}, {"uid": "u2"}]},
    }
    assert patches.strategic_merge(CLAIM, document, patch) == {
        "metadata": {"finalizers": ["x", "y"]},
        "status": {"reservedFor": [reference | {"name": "q"}, {"uid": "u2"}]},
    }
    removal = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["x"]}}
    assert patches.strategic_merge(CLAIM, document, removal)["metadata"] == {"finalizers": []}
    with pytest.raises(status_errors.StatusError, match=r"unknown directive \$jump"):
        patches.strategic_merge(CLAIM, document, {"$jump": 1})


@pytest.mark.parametrize(
    "patch",
    [
        {"spec": {"$retainKeys": True}},
        {"spec": {"$setElementOrder/containers": 7}},
        {"spec": {"$setElementOrder/containers": ["a"]}},
        {"spec": {"containers": ["a"]}},
        {"spec": {"containers": [{"$patch": "replace"}, "a"]}},
        {"metadata": {"$deleteFromPrimitiveList/finalizers": 7}},
    ],
)
def test_a_directive_with_another_value_than_its_own_is_refused(patch):
    with pytest.raises(status_errors.StatusError) as refused:
        patches.strategic_merge(POD, pod(A, B), patch)
    assert refused.value.code == 400
