"""Slices that are decoded for a question: which values matter, and what is shared."""

import json

import msgspec
import pytest

from claimd.tools.explain import objects, shapes
from tests.support.cluster_objects import DRIVER, ROOT, claim, class_, gpu, gpus, selector, slice_


def read(document):
    known = objects.Objects()
    known.add(document)
    return known


def attributes(*documents):
    known = objects.Objects()
    for document in documents:
        known.add(document)
    return shapes.attributes_read(known.claims, known.classes)


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        (f'device.attributes["{DRIVER}"].vendor == "x"', {"vendor"}),
        (f"device.attributes['{DRIVER}']['model'] == 'x'", {"model"}),
        (f'device.attributes["{DRIVER}"].?a.orValue("") == ""', {"a"}),
        (f'device.attributes[?"{DRIVER}"][?"b"].orValue("") == ""', {"b"}),
        (f'has(device.attributes["{DRIVER}"].c)', {"c"}),
        (f'device.capacity["{DRIVER}"].memory.isGreaterThan(quantity("1Gi"))', set()),
        (f'device.attributes["{DRIVER}"].exists(k, k == "x")', None),
        (f'cel.bind(all, device.attributes["{DRIVER}"], all.vendor == "x")', None),
        (f'"{DRIVER}" in device.attributes', None),
        (f'device.attributes["{DRIVER}"]["a" + "b"] == ""', None),
    ],
)
def test_the_attributes_that_an_expression_reads(expression, names):
    wanted = claim(selectors=[selector(expression)])
    assert attributes(wanted) == names
    assert attributes(class_("c", expression)) == names


def test_constraints_and_derived_attributes_read_too():
    derived = [{"name": "x/y", "expression": f'device.attributes["{DRIVER}"].vendor'}]
    wanted = claim(derivedAttributes=derived, constraints=[{"matchAttribute": ROOT}])
    assert attributes(wanted) == {"pcieRoot", "vendor"}


def unlike(**more):
    """Returns a device with its own serial number."""
    device = gpu(0)
    device["attributes"] |= {name: {"string": value} for name, value in more.items()}
    return device


def lists(names, *devices):
    reader = shapes.SliceReader(names)
    read = [
        reader.read_slice(msgspec.Raw(json.dumps(slice_([device])).encode())) for device in devices
    ]
    return [slice_.spec.devices for slice_, _ in read], [is_new for _, is_new in read]


def test_devices_that_differ_in_what_is_not_read_are_one():
    devices, new = lists(frozenset(["vendor"]), unlike(uuid="a"), unlike(uuid="b"))
    assert devices[0] is devices[1]
    assert new == [True, False]


def test_what_is_read_keeps_them_apart():
    for names in (frozenset(["uuid"]), None):
        devices, new = lists(names, unlike(uuid="a"), unlike(uuid="b"))
        assert devices[0] is not devices[1]
        assert new == [True, True]
    devices, _ = lists(frozenset(), unlike(uuid="a"), unlike(serial="a"))
    assert devices[0] != devices[1]


def test_a_list_is_kept_apart_as_it_takes_a_feature():
    first, other = gpu(0), gpu(0)
    first["attributes"]["links"] = {"ints": [1]}
    other["attributes"]["links"] = {"int": 1}
    devices, _ = lists(frozenset(), other, first)
    assert devices[0] != devices[1]

    # The same holds if both devices have lists.
    first["attributes"]["ports"] = {"int": 1}
    other["attributes"]["ports"] = {"ints": [1]}
    devices, _ = lists(frozenset(), other, first)
    assert devices[0] != devices[1]


def test_what_comes_as_json_is_what_comes_as_plain_data():
    document = slice_(gpus(8))
    slice_read, _ = shapes.SliceReader(None).read_slice(msgspec.Raw(json.dumps(document).encode()))
    [slice_added] = read(document).slices
    assert slice_read.spec == slice_added.spec
