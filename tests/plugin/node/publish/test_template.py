"""The template of a node, from its slices. tests/plugin/tools/cli/test_template.py lets an allocator use it."""

from claimd.node.publish import template
from tests.support.worlds import DRIVER

ROOT = "resource.kubernetes.io/pcieRoot"


def device(name, **attributes):
    return {"name": name, "attributes": {key: {"string": v} for key, v in attributes.items()}}


def slice_(*devices, **more):
    return {"spec": {"driver": DRIVER, "nodeName": "n1", "devices": list(devices), **more}}


def test_each_slice_has_a_template_in_the_pool_of_the_node():
    counters = [{"name": "gpu-0", "counters": {"memory": {"value": "80Gi"}}}]
    only_counters = {"spec": {"driver": DRIVER, "nodeName": "n1", "sharedCounters": counters}}
    built = template.build([only_counters, slice_(device("gpu-0", model="x"))], "pool")
    common = {"driver": DRIVER, "pool": {"name": "pool"}}
    assert built == {
        "resourceSliceTemplates": [
            {**common, "sharedCounters": counters},
            {**common, "devices": [device("gpu-0", model="x")]},
        ],
        "attributeBindings": [],
    }


def test_what_is_true_of_one_node_alone_is_left_out():
    built = template.build([slice_(device("gpu-0", **{ROOT: "a", "model": "x", "uuid": "1"}))], "p")
    (only,) = built["resourceSliceTemplates"][0]["devices"]
    assert list(only["attributes"]) == ["model"]


def test_the_annotations_count_whole_gpus_of_the_driver_with_the_most():
    def count(*slices):
        return template.cluster_api_annotations({"resourceSliceTemplates": list(slices)})

    prefix = "capacity.cluster-autoscaler.kubernetes.io"
    assert count() == {}
    other = {"driver": "other", "devices": [device("x")]}
    parts = {"driver": DRIVER, "devices": [device("gpu-1"), device("part", parent="gpu-1")]}
    assert count({"driver": DRIVER, "devices": [device("gpu-0")]}, other, parts) == {
        f"{prefix}/dra-driver": DRIVER,
        f"{prefix}/gpu-count": "2",
    }


def test_devices_that_have_a_root_in_common_are_bound():
    devices = [device(f"gpu-{n}", **{ROOT: root}) for n, root in enumerate(("a", "b", "a"))]
    built = template.build([slice_(*devices)], "pool")
    (binding,) = built["attributeBindings"]
    assert binding["attribute"] == ROOT
    assert [each["device"] for each in binding["devices"]] == ["gpu-0", "gpu-2"]
