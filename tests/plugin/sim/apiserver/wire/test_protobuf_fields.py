"""Tests of the fields of kinds outside the resource API."""

import pytest

from claimd.sim.apiserver.wire import protobuf_fields

PODS = "/api/v1/namespaces/default/pods"
MERGE = {"Content-Type": "application/merge-patch+json"}


async def test_unknown_fields_of_a_pod(raw):
    container = {"name": "c", "image": "i", "volumeMount": [], "ports": [{"containerPort": 80}]}
    pod = {
        "metadata": {"name": "p"},
        "spec": {"containers": [container], "volumes": [{"name": "v", "emptyDir": {}}]},
    }
    reply = await raw("POST", f"{PODS}?fieldValidation=Strict", pod)
    assert (
        reply.status,
        'unknown field "spec.containers[0].volumeMount"' in reply.json["message"],
    ) == (400, True)
    reply = await raw("POST", PODS, pod)
    assert (reply.status, "volumeMount" in reply.json["spec"]["containers"][0]) == (201, False)
    assert reply.json["spec"]["volumes"][0]["name"] == "v"
    reply = await raw("PATCH", f"{PODS}/p", {"metadata": {"labels": {"a": 1}}}, MERGE)
    assert (
        "cannot unmarshal number into Go struct field metadata.labels.a of type string"
        in reply.json["message"]
    )


POD, NODE = "core/v1.Pod", "core/v1.Node"


def test_unknown_fields_are_dropped_and_named():
    unknown = []
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "foo": 1,
        "spec": {
            "nodeName": "n",
            "containers": [{"name": "c", "bar": 1}],
            "nodeSelector": {"any": "name"},
            "resourceClaims": [{"name": "r", "source": {"resourceClaimName": "c"}}],
        },
    }
    known = protobuf_fields.drop_unknown(POD, pod, "", unknown)
    assert unknown == ["foo", "spec.containers[0].bar"]
    assert known["spec"] == pod["spec"] | {"containers": [{"name": "c"}]}
    assert known["apiVersion"] == "v1"


@pytest.mark.parametrize(
    ("message", "obj", "why"),
    [
        (POD, [], "array into Go struct field  of type object"),
        (
            POD,
            {"spec": {"containers": {}}},
            "object into Go struct field spec.containers of type array",
        ),
        (
            POD,
            {"spec": {"nodeSelector": []}},
            "array into Go struct field spec.nodeSelector of type object",
        ),
        (
            POD,
            {"spec": {"nodeName": 1}},
            "number into Go struct field spec.nodeName of type string",
        ),
        (
            POD,
            {"spec": {"priority": True}},
            "bool into Go struct field spec.priority of type int64",
        ),
        (
            POD,
            {"spec": {"hostNetwork": 1}},
            "number into Go struct field spec.hostNetwork of type bool",
        ),
        (
            NODE,
            {"status": {"capacity": {"cpu": []}}},
            "array into Go struct field status.capacity.cpu",
        ),
    ],
)
def test_values_of_another_type(message, obj, why):
    with pytest.raises(protobuf_fields.TypeMismatch) as mismatch:
        protobuf_fields.drop_unknown(message, obj, "", [])
    assert why in str(mismatch.value)


def test_what_is_taken_as_it_is():
    node = {"status": {"capacity": {"cpu": 1, "memory": "1Gi", "share": 0.5}}, "metadata": None}
    assert protobuf_fields.drop_unknown(NODE, node, "", []) == node


def test_nulls_in_lists_and_maps_are_the_nothing_of_their_type():
    pod = {
        "metadata": {"labels": {"a": None}, "finalizers": [None]},
        "spec": {"containers": [None], "volumes": None},
    }
    known = protobuf_fields.drop_unknown(POD, pod, "", [])
    assert known["metadata"] == {"labels": {"a": ""}, "finalizers": [""]}
    assert known["spec"] == {"containers": [{}], "volumes": None}


@pytest.mark.parametrize("amount", ["x", "", "1Z"])
async def test_what_is_no_quantity_is_refused(raw, amount):
    """Checks quantities, because the scheduler computes with them."""
    node = {"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": amount}}}
    reply = await raw("POST", "/api/v1/nodes", node)
    assert (reply.status, "quantities must match" in reply.json["message"]) == (400, True)


async def test_a_quantity_that_is_null_is_none_at_all(raw):
    node = {"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": None, "memory": 7}}}
    reply = await raw("POST", "/api/v1/nodes", node)
    assert (reply.status, reply.json["status"]["allocatable"]["cpu"]) == (201, "0")
