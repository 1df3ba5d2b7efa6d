"""Templates of nodes that do not exist yet, for autoscalers. An allocator decides by them."""

import json

import pytest
import yaml

from claimd.node.publish import template
from claimd.tools.explain import pending, sources
from tests.support import cluster_objects

ROOT = "resource.kubernetes.io/pcieRoot"


@pytest.fixture
def make_template(claimd):
    def make_template(*words):
        code, out, err = claimd("slices", "--template", *words)
        assert (code, err) == (0, "")
        return yaml.safe_load(out)

    return make_template


def devices(content):
    return [
        device
        for slice_ in content["resourceSliceTemplates"]
        for device in slice_.get("devices", ())
    ]


def slices(content, node="new"):
    """Yields the slices of a node made from the template. Each binding gets a value of its own."""
    values = {}
    for number, binding in enumerate(content["attributeBindings"]):
        for device in binding["devices"]:
            of_device = values.setdefault(device["device"], {})
            kind = "int" if binding["attribute"].endswith("numaNode") else "string"
            value = number if kind == "int" else f"pci0000:{number:02x}"
            of_device[binding["attribute"]] = {kind: value}
    for number, slice_ in enumerate(content["resourceSliceTemplates"]):
        pool = {
            "name": node,
            "generation": 1,
            "resourceSliceCount": len(content["resourceSliceTemplates"]),
        }
        spec = {"driver": slice_["driver"], "nodeName": node, "pool": pool}
        spec["devices"] = [
            device | {"attributes": device["attributes"] | values.get(device["name"], {})}
            for device in slice_.get("devices", ())
        ]
        if "sharedCounters" in slice_:
            spec["sharedCounters"] = slice_["sharedCounters"]
        yield cluster_objects.build("ResourceSlice", f"s{number}", spec, namespace="")


def answer(content, claim, tmp_path):
    documents = [cluster_objects.node("new"), cluster_objects.class_(), claim, *slices(content)]
    file = tmp_path / "world.json"
    file.write_text(json.dumps({"kind": "List", "items": documents}))
    objects = sources.read_files([file])
    return pending.report(objects, pending.find_subject(objects, "claim/train", "default")).verdict


def test_what_only_a_live_node_can_tell_is_left_out(make_template):
    content = make_template("machine:dgx-h100")
    assert len(devices(content)) == 8
    for device in devices(content):
        assert not template.OF_ONE_NODE & device["attributes"].keys()
        assert not set(template.IN_COMMON) & device["attributes"].keys()
        assert device["capacity"]["memory"]["value"] == "80Gi"
    assert content["clusterAPI"]["annotations"] == {
        "capacity.cluster-autoscaler.kubernetes.io/dra-driver": "gpu.claimd.dev",
        "capacity.cluster-autoscaler.kubernetes.io/gpu-count": "8",
    }


@pytest.mark.parametrize(
    ("count", "constraint", "verdict"),
    [(8, "", "could run"), (9, "", "pending"), (2, ROOT, "could run"), (3, ROOT, "pending")],
)
def test_an_allocator_decides_by_it(make_template, tmp_path, count, constraint, verdict):
    content = make_template("nvidia:h100=8 roots=2")
    constraints = [{"requests": ["gpus"], "matchAttribute": constraint}] if constraint else []
    selector = cluster_objects.selector(
        'device.attributes["gpu.claimd.dev"].productName.contains("H100")'
    )
    claim = cluster_objects.claim(count=count, selectors=[selector], constraints=constraints)
    assert answer(content, claim, tmp_path) == verdict


@pytest.mark.parametrize(("count", "verdict"), [(4, "could run"), (5, "pending")])
def test_the_gpus_of_one_hive(make_template, tmp_path, count, verdict):
    """The name of a hive differs on each node, so only the binding tells who is in it."""
    content = make_template("machine:two-hives")
    constraint = {"requests": ["gpus"], "matchAttribute": "gpu.claimd.dev/fabric"}
    claim = cluster_objects.claim(count=count, selectors=[], constraints=[constraint])
    assert answer(content, claim, tmp_path) == verdict


def test_parts_keep_their_counters(make_template, tmp_path):
    content = make_template("machine:a100-mig")
    assert any("sharedCounters" in slice_ for slice_ in content["resourceSliceTemplates"])
    # Two GPUs; what is divided is one of them.
    assert (
        content["clusterAPI"]["annotations"]["capacity.cluster-autoscaler.kubernetes.io/gpu-count"]
        == "2"
    )
    part = cluster_objects.selector(
        'device.attributes["gpu.claimd.dev"].profile == "1g.10gb" && '
        'device.attributes["gpu.claimd.dev"].type == "partition"'
    )
    claim = cluster_objects.claim(count=7, selectors=[part])
    assert answer(content, claim, tmp_path) == "could run"


def test_what_is_no_machine(claimd):
    code, out, err = claimd("slices", "--template", "machine:dgx-9000")
    assert (code, out) == (2, "")
    assert err.startswith("claimd: --template machine:dgx-9000: ")
