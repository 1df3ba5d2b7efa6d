"""Tests of bodies: media types, and errors of unreadable ones."""

import json

import pytest
import yaml

from claimd.common.http_server import HttpRequest
from claimd.sim.apiserver.types.status_errors import StatusError
from claimd.sim.apiserver.wire import codec, yaml_body

CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
JSON = {"Content-Type": "application/json"}
YAML = {"Content-Type": "application/yaml"}


REFUSED = {
    "another media type": (b"a", {"Content-Type": "text/plain"}, 415, "in an unknown format"),
    "half an object": (b"{", JSON, 400, "json parse error: unexpected end of JSON input ({)"),
    "no JSON": (b"[1,x]", JSON, 400, "invalid character 'x' looking for beginning of value"),
    "nothing": (b"", JSON, 400, "unexpected end of JSON input (<empty>)"),
    "a list": (b"[]", JSON, 400, "json: cannot unmarshal array into Go value of type struct"),
    "a text": (b'"a"', JSON, 400, "json: cannot unmarshal string into Go value"),
    "a number": (b"1", JSON, 400, "json: cannot unmarshal number into Go value"),
    "a flag": (b"true", JSON, 400, "json: cannot unmarshal bool into Go value"),
    "too deep": (b'{"a":' * 50_000 + b"1" + b"}" * 50_000, JSON, 400, "exceeded max depth"),
    "a number out of range": (b'{"a":[-%s]}' % (b"9" * 400), JSON, 400, "value out of range"),
    "one in YAML": (b"a: 0x" + b"f" * 400, YAML, 400, "value out of range"),
    "no YAML": (b"a: [", YAML, 400, "error decoding the body"),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_refusals(raw, case):
    body, headers, code, words = REFUSED[case]
    reply = await raw("POST", CLAIMS, body, headers)
    assert reply.status == code
    assert words in reply.json["message"]


async def test_patches_have_media_types_of_their_own(raw, builders):
    assert (await raw("POST", CLAIMS, builders["claim"]())).status == 201
    reply = await raw("PATCH", f"{CLAIMS}/c", {}, JSON)
    assert (reply.status, reply.json["message"]) == (415, "415: Unsupported Media Type")
    merge = {"Content-Type": "application/merge-patch+json; charset=utf-8"}
    assert (await raw("PATCH", f"{CLAIMS}/c", b"{}", merge)).status == 200
    reply = await raw("PATCH", f"{CLAIMS}/c", b"{", merge)
    assert (reply.status, reply.json["message"]) == (400, "invalid JSON patch")


def request(body, media_type="application/json"):
    return HttpRequest("POST", "/", {}, {"content-type": media_type}, body)


def test_fields_that_are_there_twice():
    body = b'{"a": 1, "b": [{"c": 1, "d": 2, "c": 3, "c": 4}], "a": {"e": 1, "e": 2}}'
    assert codec.duplicate_fields(request(body)) == ["a", "a.e", "b[0].c"]
    assert codec.duplicate_fields(request(b'{"a": {"b": 1}, "b": 1}')) == []
    assert codec.duplicate_fields(request(b"a: 1", "application/yaml")) == []


def test_which_patch():
    patch = [{"op": "test", "path": "/a", "value": 1}]
    body = json.dumps(patch).encode()
    assert codec.patch(request(body, "application/json-patch+json")) == ("json", patch)
    assert codec.patch(request(b"a: 1", "application/apply-patch+yaml")) == ("apply", {"a": 1})
    with pytest.raises(StatusError) as refused:
        codec.patch(request(body, "text/plain"))
    assert refused.value.code == 415


def test_the_words_for_options():
    with pytest.raises(StatusError, match="^couldn't get version/kind; json parse error"):
        codec.document(request(b"["), options=True)


async def test_yaml_comes_in(raw, builders):
    body = yaml.safe_dump(
        builders["claim"]() | {"metadata": {"name": "c", "annotations": {"day": "2024-01-01"}}}
    ).encode()
    body = body.replace(b"'2024-01-01'", b"2024-01-01")
    reply = await raw("POST", CLAIMS, body, {"Content-Type": "application/yaml"})
    assert (reply.status, reply.json["metadata"]["annotations"]) == (201, {"day": "2024-01-01"})


def test_yaml_goes_out_in_one_order_and_as_people_write_it():
    assert yaml_body.dump({"b": "é", "a": [1]}) == "a:\n- 1\nb: é\n".encode()


def test_a_body_for_people_is_indented_and_ends_its_line():
    assert codec.pretty({"kind": "Grün"}) == '{\n  "kind": "Grün"\n}\n'.encode()


def test_a_text_may_have_as_many_digits_as_it_wants():
    body = b'{"a":"%s","b":%s}' % (b"9" * 400, b"9" * 300)
    assert codec.document(request(body)) == {"a": "9" * 400, "b": int("9" * 300)}
