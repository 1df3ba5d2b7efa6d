"""Tests of the OpenAPI documents that kubectl reads."""

import pytest

from claimd.sim.apiserver.catalog import Catalog
from claimd.sim.apiserver.handlers.openapi import OpenApi

DRA_V1 = "apis/resource.k8s.io/v1"


@pytest.fixture(scope="module")
def openapi():
    return OpenApi(Catalog("1.37"))


def schemas_of(openapi, place):
    return openapi.v3(place)["components"]["schemas"]


def resolve(schemas, schema):
    """Returns the schema that a field refers to."""
    (reference,) = schema["allOf"]
    return schemas[reference["$ref"].removeprefix("#/components/schemas/")]


def test_places(openapi):
    assert openapi.v3_index()["paths"]["api/v1"] == {"serverRelativeURL": "/openapi/v3/api/v1"}
    assert openapi.v3("api/v2") is None
    assert openapi.v3(DRA_V1) is openapi.v3(DRA_V1)


def test_a_patch_takes_these_parameters(openapi):
    kind = {"group": "resource.k8s.io", "version": "v1", "kind": "ResourceClaim"}
    path = f"/{DRA_V1}/namespaces/{{namespace}}/resourceclaims/{{name}}"
    operations = openapi.v3(DRA_V1)["paths"][path]
    for method in ("patch", "put"):
        assert operations[method]["x-kubernetes-action"] == method
        assert operations[method]["x-kubernetes-group-version-kind"] == kind
        names = [parameter["name"] for parameter in operations[method]["parameters"]]
        assert "fieldValidation" in names
    assert f"/{DRA_V1}/deviceclasses/{{name}}" in openapi.v3(DRA_V1)["paths"]


def test_the_fields_of_a_claim(openapi):
    """Checks the schema from a field table, in which structs are named."""
    schemas = schemas_of(openapi, DRA_V1)
    claim = schemas["io.k8s.api.resource.v1.ResourceClaim"]
    assert claim["properties"]["kind"]["type"] == "string"
    spec = resolve(schemas, claim["properties"]["spec"])
    request = resolve(schemas, spec["properties"]["devices"])["properties"]["requests"]
    assert request["type"] == "array"
    exactly = resolve(schemas, resolve(schemas, request["items"])["properties"]["exactly"])
    assert exactly["required"] == ["deviceClassName"]
    assert exactly["properties"]["count"]["type"] == "integer"
    assert exactly["properties"]["allocationMode"]["enum"] == ["ExactCount", "All"]
    capacity = resolve(schemas, exactly["properties"]["capacity"])["properties"]["requests"]
    assert capacity["type"] == "object"
    assert capacity["additionalProperties"] == {"type": "string"}

    status = resolve(schemas, claim["properties"]["status"])
    devices = status["properties"]["devices"]
    assert devices["x-kubernetes-list-type"] == "map"
    assert devices["x-kubernetes-list-map-keys"] == ["driver", "pool", "device", "shareID"]
    data = resolve(schemas, devices["items"])["properties"]["data"]
    assert data["type"] == "object"


def test_descriptions(openapi):
    """Every field of the resource API has one, with the limits of its version."""
    for release in ("1.30", "1.31", "1.37"):
        openapi = OpenApi(Catalog(release))
        places = [place for place in openapi.v3_index()["paths"] if "resource.k8s.io" in place]
        assert places
        for place in places:
            for name, schema in schemas_of(openapi, place).items():
                assert schema["description"], name
                for field, described in schema["properties"].items():
                    assert described["description"], f"{name}.{field}"

    claim = schemas_of(openapi, DRA_V1)["v1.ResourceClaimStatus"]
    assert "At most 256 items." in claim["properties"]["reservedFor"]["description"]
    early = OpenApi(Catalog("1.30"))
    claim = schemas_of(early, "apis/resource.k8s.io/v1alpha2")["v1alpha2.ResourceClaimStatus"]
    assert "At most 32 items." in claim["properties"]["reservedFor"]["description"]


def test_the_fields_of_a_pod(openapi):
    """Checks the schema from protobuf's tables, whose messages may contain themselves."""
    schemas = schemas_of(openapi, "api/v1")
    pod = schemas["io.k8s.api.core.v1.Pod"]
    spec = resolve(schemas, pod["properties"]["spec"])["properties"]
    assert spec["nodeName"] == {"type": "string"}
    assert spec["hostNetwork"] == {"type": "boolean"}
    assert spec["priority"] == {"type": "integer"}
    assert spec["nodeSelector"] == {"type": "object", "additionalProperties": {"type": "string"}}
    container = resolve(schemas, spec["containers"]["items"])["properties"]
    assert container["args"] == {"type": "array", "items": {"type": "string"}}
    policy = schemas_of(openapi, "apis/admissionregistration.k8s.io/v1")
    assert any("ValidatingAdmissionPolicy" in name for name in policy)


def test_version_2_has_every_kind_by_name(openapi):
    definitions = openapi.v2()["definitions"]
    for name, group, version, kind in (
        ("io.k8s.api.core.v1.Pod", "", "v1", "Pod"),
        ("io.k8s.api.resource.v1beta1.DeviceClass", "resource.k8s.io", "v1beta1", "DeviceClass"),
    ):
        expected = {"group": group, "version": version, "kind": kind}
        assert definitions[name]["x-kubernetes-group-version-kind"] == [expected]
