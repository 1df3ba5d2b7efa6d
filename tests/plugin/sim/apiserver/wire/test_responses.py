"""Tests of responses in the formats that clients accept."""

import pytest
import yaml

CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
NAMESPACE = "/api/v1/namespaces/default"


async def test_only_what_is_accepted_is_written(refusal, raw):
    code, reason, message = await refusal("GET", CLAIMS, None, {"Accept": "text/html"})
    assert (code, reason, message.startswith("406: Not Acceptable")) == (406, "NotAcceptable", True)
    reply = await raw("GET", f"{CLAIMS}?watch=1", headers={"Accept": "application/yaml"})
    assert (reply.status, "stream=watch" in reply.json["message"]) == (406, True)


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("*/*", "application/json"),
        ("application/*", "application/json"),
        ("text/html, application/yaml", "application/yaml"),
        ("application/json;as=Table;v=v9;g=meta.k8s.io, application/yaml", "application/yaml"),
        ("application/json;as=Table;v=v1;g=other, application/yaml", "application/yaml"),
        ("application/vnd.kubernetes.protobuf, application/json", "application/json"),
    ],
)
async def test_the_first_of_what_is_accepted_and_there(raw, accept, content_type):
    reply = await raw("GET", NAMESPACE, headers={"Accept": accept})
    assert (reply.status, reply.headers["content-type"]) == (200, content_type)


async def test_pretty_text_is_no_ascii_alone(raw):
    labels = {"metadata": {"name": "m"}, "data": {"a": "é"}}
    reply = await raw("POST", "/api/v1/namespaces/default/configmaps?pretty=1", labels)
    assert '"a": "é"'.encode() in reply.body


async def test_errors_are_written_as_they_are_accepted(raw):
    reply = await raw("GET", f"{NAMESPACE}x", headers={"Accept": "application/yaml"})
    assert (reply.status, yaml.safe_load(reply.body)["reason"]) == (404, "NotFound")
    assert (await raw("GET", f"{NAMESPACE}x")).headers["cache-control"] == "no-cache, private"
    pretty = await raw("GET", f"{NAMESPACE}x?pretty=1")
    assert pretty.body.startswith(b"{\n  ")


async def test_pretty_and_yaml(raw):
    pretty = (await raw("GET", "/api/v1/namespaces/default?pretty=true")).body
    assert pretty.startswith(b"{\n  ")
    assert (
        await raw("GET", "/api/v1/namespaces/default", headers={"User-Agent": "curl/8"})
    ).body == pretty
    plain = await raw(
        "GET", "/api/v1/namespaces/default?pretty=false", headers={"User-Agent": "curl/8"}
    )
    assert b"\n" not in plain.body
    as_yaml = await raw("GET", "/api/v1/namespaces/default", headers={"Accept": "application/yaml"})
    assert as_yaml.headers["content-type"] == "application/yaml"
    assert yaml.safe_load(as_yaml.body)["status"] == plain.json["status"]


async def test_shapes_of_an_answer(raw, builders):
    await raw("POST", CLAIMS, builders["claim"]())
    table = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}
    answer = (await raw("GET", CLAIMS, headers=table)).json
    assert [column["name"] for column in answer["columnDefinitions"]] == ["Name", "State", "Age"]
    (row,) = answer["rows"]
    assert (row["cells"][:2], row["object"]["kind"]) == (["c", "pending"], "PartialObjectMetadata")
    whole = (await raw("GET", f"{CLAIMS}?includeObject=Object", headers=table)).json["rows"][0]
    assert whole["object"]["spec"] == builders["claim"]()["spec"]
    assert (
        "object"
        not in (await raw("GET", f"{CLAIMS}?includeObject=None", headers=table)).json["rows"][0]
    )
    metadata = {"Accept": "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"}
    answer = (await raw("GET", CLAIMS, headers=metadata)).json
    assert (answer["kind"], "spec" in answer["items"][0]) == ("PartialObjectMetadataList", False)
