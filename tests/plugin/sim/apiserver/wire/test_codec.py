"""Tests of bodies: media types, and errors of unreadable ones."""

import json
import time

import pytest
import yaml

from claimd.common.http_server import HttpRequest
from claimd.sim.apiserver.types.status_errors import StatusError
from claimd.sim.apiserver.wire import codec, protobuf, yaml_body

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


# ---------------------------------------------------------------- bodies with many values

MANY = {
    "entries": {f"k{number}": "v" for number in range(60)},
    "items": list(range(60)),
    "entries of items": [{"a": 1} for _ in range(30)],
    "nested lists": [[[]] for _ in range(30)],
}
PLACES = {
    "JSON": ("POST", CLAIMS, JSON, json.dumps),
    "YAML": ("POST", CLAIMS, YAML, yaml.safe_dump),
    "a merge patch": (
        *("PATCH", f"{CLAIMS}/a", {"Content-Type": "application/merge-patch+json"}),
        json.dumps,
    ),
    "an apply": (
        *("PATCH", f"{CLAIMS}/a?fieldManager=a", {"Content-Type": "application/apply-patch+yaml"}),
        yaml.safe_dump,
    ),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("many", MANY)
async def test_the_values_of_a_body_have_a_limit(raw, monkeypatch, place, many):
    method, path, headers, dump = PLACES[place]
    body = dump({"metadata": {"name": "a"}, "x": MANY[many]}).encode()
    monkeypatch.setattr(codec, "MAX_VALUES", 62)
    reply = await raw(method, path, body, headers)
    assert (reply.status, reply.json["reason"]) == (413, "RequestEntityTooLarge")
    assert reply.json["message"] == "Request entity too large: limit is 62 values"
    monkeypatch.setattr(codec, "MAX_VALUES", 63)
    assert (await raw(method, path, body, headers)).status != 413


async def test_the_values_of_yaml_are_counted_before_they_are_made(monkeypatch):
    """Checks that the slow half of the work is not done for a body that is refused."""
    monkeypatch.setattr(codec, "MAX_VALUES", 62)
    monkeypatch.setattr(yaml_body, "load", None)
    with pytest.raises(StatusError, match="limit is 62 values"):
        codec.yaml(yaml.safe_dump({f"k{number}": "v" for number in range(100)}).encode())


async def test_the_fields_of_protobuf_have_a_limit(monkeypatch):
    head = b"\x0a\x0f\x0a\x02v1\x12\x09ConfigMap"
    entry = b"\x12\x08\x0a\x03key\x12\x01v"
    content = entry * 12
    body = protobuf.MAGIC + head + b"\x12" + bytes([len(content)]) + content
    # Two in the envelope, two in its type, and three for each entry.
    monkeypatch.setattr(protobuf, "MAX_FIELDS", 40)
    assert protobuf.decode(body)["data"] == {"key": "v"}
    monkeypatch.setattr(protobuf, "MAX_FIELDS", 39)
    with pytest.raises(StatusError, match="limit is 39 fields") as refused:
        protobuf.decode(body)
    assert refused.value.code == 413


def test_many_duplicate_fields_take_no_more_time_than_their_number():
    names = [f'"k{number}":1' for number in range(20_000)]
    body = f"{{{','.join(names + names)}}}".encode()
    before = time.process_time()
    request = HttpRequest("POST", "/", {}, {"content-type": "application/json"}, body)
    assert len(codec.duplicate_fields(request)) == 20_000
    assert time.process_time() - before < 1
