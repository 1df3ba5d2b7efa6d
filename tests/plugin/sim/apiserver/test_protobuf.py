"""What Go's clients send. The bytes are put together here by the rules of the format; kubectl's are in test_kubectl."""

import json

import pytest

from plugin.sim.apiserver import protobuf, refused

HEADERS = {"Content-Type": "application/vnd.kubernetes.protobuf"}


def number(value):
    data = b""
    value &= (1 << 64) - 1
    while value > 0x7F:
        data += bytes([value & 0x7F | 0x80])
        value >>= 7
    return data + bytes([value])


def field(place, value):
    """A field with a number, or with a text, bytes or a message that is put together already."""
    if isinstance(value, int):
        return number(place << 3) + number(value)
    data = value.encode() if isinstance(value, str) else value
    return number(place << 3 | 2) + number(len(data)) + data


def envelope(api_version, kind, raw):
    head = field(1, api_version) + field(2, kind)
    return protobuf.MAGIC + field(1, head) + field(2, raw) + field(3, "") + field(4, "")


def metadata(name, *more):
    # what is empty is written all the same, and a time that is none as the year 1
    return field(1, field(1, name) + field(2, "") + field(8, field(1, -62135596800) + field(2, 0)) + b"".join(more))


def test_a_slice_with_everything_that_is_special():
    def entry(key, value):
        return field(1, key) + field(2, value)

    attributes = field(2, entry("no", field(3, 0))) + field(2, entry("index", field(2, 0)))
    attributes += field(2, entry("model", field(4, "x")))
    device = field(1, "gpu-0") + attributes + field(3, entry("memory", field(1, field(1, "80Gi"))))
    spec = field(1, "d") + field(2, field(1, "p") + field(2, 1) + field(3, 1)) + field(3, "n1") + field(6, device)
    raw = metadata("s", field(11, entry("a", "b")), field(14, "f/1"), field(14, "f/2")) + field(2, spec)
    assert protobuf.document(envelope("resource.k8s.io/v1", "ResourceSlice", raw)) == {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "s", "labels": {"a": "b"}, "finalizers": ["f/1", "f/2"]},
        "spec": {
            "driver": "d",
            "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
            "nodeName": "n1",
            "devices": [
                {
                    "name": "gpu-0",
                    "attributes": {"no": {"bool": False}, "index": {"int": 0}, "model": {"string": "x"}},
                    "capacity": {"memory": {"value": "80Gi"}},
                }
            ],
        },
    }


def test_fields_of_other_forms():
    spec = field(1, "me") + field(2, -5) + field(4, field(1, 1700000000) + field(2, 5000))
    found = protobuf.document(envelope("coordination.k8s.io/v1", "Lease", metadata("l") + field(2, spec)))
    assert found["spec"] == {
        "holderIdentity": "me",
        "leaseDurationSeconds": -5,
        "renewTime": "2023-11-14T22:13:20.000005Z",
    }
    volume = field(1, "v") + field(2, field(1, field(1, "/x")))  # its source is no field of its own in JSON
    extra = field(5, field(1, "k") + field(2, field(1, "one") + field(1, "two")))
    found = protobuf.document(envelope("v1", "Pod", metadata("p") + field(2, field(1, volume))))
    assert found["spec"] == {"volumes": [{"name": "v", "hostPath": {"path": "/x"}}]}
    review = field(2, field(3, "u") + extra)
    found = protobuf.document(envelope("authorization.k8s.io/v1", "SubjectAccessReview", review))
    assert found["spec"] == {"user": "u", "extra": {"k": ["one", "two"]}}
    data = field(5, field(1, json.dumps({"a": [1]})))
    status = field(3, field(4, field(1, "d") + field(2, "p") + field(3, "x") + data))
    found = protobuf.document(envelope("resource.k8s.io/v1", "ResourceClaim", metadata("c") + status))
    assert found["status"] == {"devices": [{"driver": "d", "pool": "p", "device": "x", "data": {"a": [1]}}]}
    options = protobuf.document(envelope("resource.k8s.io/v1", "DeleteOptions", field(1, 0) + field(5, "All")))
    assert options == {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeleteOptions",
        "gracePeriodSeconds": 0,
        "dryRun": ["All"],
    }


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"{}", "does not appear to be a protobuf message"),
        (envelope("v1", "Nothing", b""), 'no kind "Nothing" is registered for version "v1"'),
        (envelope("v1", "Pod", b"\x0a\x7f"), "cut off"),
        (envelope("v1", "Pod", field(1, field(1, b"\xff"))), "decode"),
        (protobuf.MAGIC + b"\xff", "error decoding the body"),
    ],
)
def test_what_cannot_be_read(body, words):
    with pytest.raises(refused.Refused, match=words) as caught:
        protobuf.document(body)
    assert caught.value.code == 400


async def test_over_http(raw):
    body = envelope("v1", "ConfigMap", metadata("m") + field(2, field(1, "a") + field(2, "b")))
    maps = "/api/v1/namespaces/default/configmaps"
    found = await raw("POST", maps, body, HEADERS)
    assert (found.status, found.json["data"]) == (201, {"a": "b"})
    assert (await raw("GET", maps, headers={"Accept": f"{HEADERS['Content-Type']}, */*"})).json["items"]
    assert (await raw("GET", maps, headers={"Accept": HEADERS["Content-Type"]})).status == 406
