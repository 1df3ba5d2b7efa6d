"""Tests of fields that a version does not have, and of values of a wrong type."""

import pytest

CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
MERGE = {"Content-Type": "application/merge-patch+json"}
APPLY = {"Content-Type": "application/apply-patch+yaml"}


async def test_unknown_fields(raw, builders):
    wrong = builders["claim"]() | {
        "spec": {"foo": 1, "devices": {"requests": [{"name": "gpu", "bar": 1}]}}
    }
    reply = await raw("POST", f"{CLAIMS}?fieldValidation=Strict", wrong)
    assert reply.status == 400
    assert reply.json["message"] == (
        'ResourceClaim in version "v1" cannot be handled as a ResourceClaim: strict decoding error: '
        'unknown field "spec.foo", unknown field "spec.devices.requests[0].bar"'
    )
    wrong = builders["claim"]() | {"foo": 1}
    reply = await raw("POST", CLAIMS, wrong)
    assert (reply.status, reply.headers["warning"]) == (201, '299 - "unknown field \\"foo\\""')
    assert "foo" not in reply.json
    reply = await raw("PATCH", f"{CLAIMS}/c?fieldValidation=Ignore", {"foo": 1}, MERGE)
    assert (reply.status, "warning" in reply.headers) == (200, False)


async def test_fields_that_are_there_twice(raw):
    body = b'{"metadata": {"name": "c", "name": "c"}, "spec": {}}'
    headers = {"Content-Type": "application/json"}
    reply = await raw("POST", f"{CLAIMS}?fieldValidation=Strict", body, headers)
    assert reply.status == 400
    assert reply.json["message"].endswith('strict decoding error: duplicate field "metadata.name"')
    reply = await raw("POST", f"{CLAIMS}?fieldValidation=Ignore", body, headers)
    assert (reply.status, "warning" in reply.headers) == (201, False)


async def test_unknown_fields_of_what_is_applied(raw, builders):
    """Checks that an apply refuses unknown fields with any validation.

    Such fields cannot have an owner.
    """
    config = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim"} | builders["claim"]()
    path = f"{CLAIMS}/c?fieldManager=me&fieldValidation=Ignore"
    reply = await raw("PATCH", path, config | {"foo": 1}, APPLY)
    what = "(/c; resource.k8s.io/v1, Kind=ResourceClaim)"
    why = f"failed to create typed patch object {what}: .foo: field not declared in schema"
    assert (reply.status, reply.json["message"]) == (500, why)
    spec = config["spec"] | {"bar": 1}
    reply = await raw("PATCH", path, config | {"foo": 1, "spec": spec}, APPLY)
    lines = ".spec.bar: field not declared in schema\n  .foo: field not declared in schema"
    assert reply.json["message"].endswith(f"{what}: errors:\n  {lines}")
    assert (await raw("PATCH", path, config, APPLY)).status == 201


REQUEST = {"name": "gpu", "exactly": {"deviceClassName": "a"}}
REQUESTS, METADATA = "spec.devices.requests", "ObjectMeta.metadata"


def asking(request):
    return {"spec": {"devices": {"requests": request}}}


MISTYPED = {
    "a struct": ({"spec": []}, "array", "ResourceClaim.spec", "v1.ResourceClaimSpec"),
    "a list": (asking({}), "object", f"DeviceClaim.{REQUESTS}", "[]v1.DeviceRequest"),
    "an item": (asking(["a"]), "string", f"DeviceClaim.{REQUESTS}", "v1.DeviceRequest"),
    "a text": (
        *(asking([REQUEST | {"name": 1}]), "number"),
        *(f"DeviceRequest.{REQUESTS}.name", "string"),
    ),
    "a number": (
        *(asking([REQUEST | {"exactly": {"count": True}}]), "bool"),
        *(f"ExactDeviceRequest.{REQUESTS}.exactly.count", "int64"),
    ),
    "a map": ({"metadata": {"labels": 1}}, "number", f"{METADATA}.labels", "map[string]string"),
    "an entry": ({"metadata": {"labels": {"a": 1}}}, "number", f"{METADATA}.labels.a", "string"),
    "owners": (
        *({"metadata": {"ownerReferences": {}}}, "object"),
        *(f"{METADATA}.ownerReferences", "[]v1.OwnerReference"),
    ),
}


@pytest.mark.parametrize("case", MISTYPED)
async def test_values_of_another_type(raw, case):
    body, seen, field, wanted = MISTYPED[case]
    reply = await raw("POST", CLAIMS, body)
    why = f"json: cannot unmarshal {seen} into Go struct field {field} of type {wanted}"
    assert reply.status == 400
    assert reply.json["message"].endswith(f"cannot be handled as a ResourceClaim: {why}")


async def test_a_patch_that_makes_a_value_of_another_type(raw, builders):
    await raw("POST", CLAIMS, builders["claim"]())
    reply = await raw("PATCH", f"{CLAIMS}/c", asking(1), MERGE)
    assert reply.status == 422
    (cause,) = reply.json["details"]["causes"]
    assert (cause["field"], "cannot unmarshal number" in cause["message"]) == ("patch", True)


async def test_nulls_in_lists_and_maps_are_the_nothing_of_their_type(raw, builders):
    await raw("POST", CLAIMS, builders["claim"]("c", labels={"a": None}))
    assert (await raw("GET", f"{CLAIMS}/c")).json["metadata"]["labels"] == {"a": ""}


async def test_quantities(raw):
    path = "/apis/resource.k8s.io/v1/resourceslices"

    def with_capacity(value):
        device = {"name": "g", "capacity": {"memory": {"value": value}}}
        pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": "d.example.com", "allNodes": True, "pool": pool, "devices": [device]}
        return {"metadata": {"name": "s"}, "spec": spec}

    for wrong in ("a", True, "1 Gi"):
        reply = await raw("POST", path, with_capacity(wrong))
        assert (reply.status, "quantities must match" in reply.json["message"]) == (400, True)
    reply = await raw("POST", path, with_capacity(1024))
    assert reply.json["spec"]["devices"][0]["capacity"] == {"memory": {"value": "1024"}}
