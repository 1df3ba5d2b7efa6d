"""Objects that cannot be read: the error says which object, where and why."""

import msgspec
import pytest

from claimd.common import errors
from claimd.tools.explain import objects
from tests.support.cluster_objects import claim, class_, gpu, gpus, node, pod, slice_


def read(document):
    known = objects.Objects()
    known.add(document)
    return known


def refuse(document):
    with pytest.raises(errors.Fatal) as failure:
        read(document)
    return str(failure.value)


def test_kinds_that_do_not_count_are_passed_over():
    known = read({"kind": "Service", "metadata": {"name": "x"}})
    assert known == objects.Objects()


@pytest.mark.parametrize("metadata", [5, [], "x"])
def test_metadata_that_is_none(metadata):
    document = pod() | {"metadata": metadata or [1]}
    assert refuse(document) == "Pod cannot be read: its metadata is no map"


def damage(document, *place, value):
    parent = document
    for step in place[:-1]:
        parent = parent[step]
    parent[place[-1]] = value
    return document


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (
            damage(slice_([gpu(0)]), "spec", "devices", 0, "capacity", "memory", "value", value="lots"),
            "device gpu-0000-41-00-0, capacity memory: expected a quantity",
        ),
        (
            slice_([gpu(0, consumesCounters=[{"counterSet": "s", "counters": {"c": {"value": "x"}}}])]),
            "device gpu-0000-41-00-0, counter c: expected a quantity",
        ),
        (
            slice_([], sharedCounters=[{"name": "s", "counters": {"c": {"value": "x"}}}]),
            "counter set s, counter c: expected a quantity",
        ),
        (
            claim(capacity={"requests": {"memory": "1e2000000000"}}),
            "request gpus: capacity.memory: expected a quantity",
        ),
        (
            damage(node("n"), "status", "allocatable", "cpu", value="many"),
            "status.allocatable.cpu: expected a quantity",
        ),
        (
            pod(containers=[{"name": "c", "resources": {"requests": {"cpu": "x"}}}]),
            "container c: resources.requests.cpu: expected a quantity",
        ),
        (
            pod(resources={"requests": {"cpu": "abc"}}),
            "spec.resources.requests.cpu: expected a quantity",
        ),
        (damage(claim(), "spec", "devices", "requests", value=5), "Expected `array | null`, got `int`"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_its_place(document, message):
    told = refuse(document)
    assert told.startswith(f"{document['kind']} {document['metadata']['name']} cannot be read: ")
    assert message in told


def test_put_replaces_what_has_the_same_name():
    known = read(claim(count=1))
    known.merge(read(claim(count=2)))
    known.merge(read(claim("other")))
    assert [claim_.metadata.name for claim_ in known.claims] == ["train", "other"]
    assert known.claims[0].spec.devices.requests[0].exactly.count == 2


@pytest.mark.parametrize(
    ("document", "count"),
    [
        ({"kind": "List", "items": [pod(), class_()]}, 2),
        ({"kind": "PodList", "apiVersion": "v1", "items": [{"metadata": {"name": "a"}}, 5]}, 1),
        ({"kind": "PodList", "items": None}, 0),
        ({"kind": "PodList", "items": 5}, 0),
        (pod(), 1),
        (5, 0),
        ({"kind": 5}, 1),
    ],
)
def test_items_of_a_document(document, count):
    assert len(list(objects.items_of(document))) == count


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2", "v1"])
def test_alike_slices_share_their_devices_in_every_version(version):
    known = objects.Objects()
    for number in range(2):
        document = slice_(gpus(2), node=f"n-{number}")
        if version == "v1beta1":
            for device in document["spec"]["devices"]:
                device["basic"] = {name: device.pop(name) for name in [*device] if name != "name"}
        known.add_json(msgspec.Raw(msgspec.json.encode(document)), "ResourceSlice", version)
    first, second = known.slices_for(frozenset())
    assert first.spec.devices is second.spec.devices
    assert first.spec.devices[0].attributes
