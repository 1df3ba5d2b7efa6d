"""Tests of objects in protobuf, encoded by Kubernetes' own library (`tests/oracle/wire`)."""

import base64
import json
from pathlib import Path

import pytest

from claimd.sim.apiserver.types import status_errors
from claimd.sim.apiserver.wire import protobuf

CASES = json.loads((Path(__file__).parents[4] / "cases" / "sim" / "wire.json").read_text())


def drop_empty(value):
    """Drops nulls and empty structs, which protobuf does not have."""
    if isinstance(value, dict):
        kept = {name: drop_empty(part) for name, part in value.items() if part is not None}
        return {name: part for name, part in kept.items() if part != {}}
    return [drop_empty(part) for part in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    "case", CASES, ids=lambda case: f"{case['json']['kind']}-{case['json']['apiVersion']}"
)
def test_says_what_kubernetes_says_in_json(case):
    assert drop_empty(protobuf.decode(base64.b64decode(case["wire"]))) == drop_empty(case["json"])


@pytest.mark.parametrize("case", CASES[:1])
def test_no_damage_is_more_than_a_bad_request(case):
    whole = base64.b64decode(case["wire"])
    for cut in range(len(whole)):
        try:
            protobuf.decode(whole[:cut])
        except status_errors.StatusError as error:
            assert error.code in (400, 415)
        changed = bytearray(whole)
        changed[cut] ^= 0x55
        try:
            protobuf.decode(bytes(changed))
        except status_errors.StatusError as error:
            assert error.code in (400, 415)


@pytest.mark.parametrize("body", [b"", b"{}", protobuf.MAGIC[:3], b"x" + protobuf.MAGIC])
def test_what_is_no_protobuf_of_kubernetes(body):
    with pytest.raises(status_errors.StatusError, match="the body does not begin as") as told:
        protobuf.decode(body)
    assert told.value.code == 400


def test_unknown_kinds_are_asked_for_in_json():
    with pytest.raises(
        status_errors.StatusError,
        match="ResourceClaim of resource.k8s.io/v1alpha2 .* send it as JSON",
    ) as told:
        protobuf.decode(
            protobuf.MAGIC + b"\x0a\x29\x0a\x18resource.k8s.io/v1alpha2\x12\x0dResourceClaim"
        )
    assert told.value.code == 415


def field(number, data):
    return bytes([number << 3 | 2, len(data)]) + data


def test_a_map_of_lists():
    """Checks a map whose values are messages with a list."""
    extra = field(5, field(1, b"k") + field(2, field(1, b"one") + field(1, b"two")))
    head = field(1, b"authorization.k8s.io/v1") + field(2, b"SubjectAccessReview")
    decoded = protobuf.decode(
        protobuf.MAGIC + field(1, head) + field(2, field(2, field(3, b"u") + extra))
    )
    assert decoded["spec"] == {"user": "u", "extra": {"k": ["one", "two"]}}


@pytest.mark.parametrize("raw", [b"NaN", b"1e999", b"Infinity", b'"\\ud800"', b"{", b"[" * 5000])
def test_json_inside_that_is_none(raw):
    """Refuses embedded JSON that is invalid. If it was stored, no list could contain the object."""
    head = field(1, b"apps/v1") + field(2, b"ControllerRevision")
    size = len(raw)
    data = b"\x0a" + bytes([size & 127 | 128, size >> 7]) + raw
    size = len(data)
    content = b"\x12" + bytes([size & 127 | 128, size >> 7]) + data
    size = len(content)
    body = field(1, head) + b"\x12" + bytes([size & 127 | 128, size >> 7]) + content
    with pytest.raises(status_errors.StatusError, match="cannot be read") as told:
        protobuf.decode(protobuf.MAGIC + body)
    assert told.value.code == 400
