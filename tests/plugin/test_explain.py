"""`claimd explain` from files: what it says for a pod, a claim, each kind of reason, and as JSON."""

import json

import pytest
import yaml

from plugin import cli

ROOT = "resource.kubernetes.io/pcieRoot"


def gpu(index, root="pci0000:40", memory="80Gi", **more):
    attributes = {ROOT: {"string": root}, "model": {"string": "h100"}}
    return {"name": f"gpu-{index}", "attributes": attributes, "capacity": {"memory": {"value": memory}}} | more


def slice_(*devices, node="node-1", count=1):
    pool = {"name": node, "generation": 1, "resourceSliceCount": count}
    spec = {"driver": "gpu.claimd.dev", "nodeName": node, "pool": pool, "devices": list(devices)}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"s-{node}"},
        "spec": spec,
    }


def claim(name="train", held=(), constraints=(), **exactly):
    request = {
        "name": "gpus",
        "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1} | exactly,
    }
    made = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"devices": {"requests": [request], "constraints": list(constraints)}},
    }
    if held:
        results = [
            {"request": "gpus", "driver": "gpu.claimd.dev", "pool": "node-1", "device": device} for device in held
        ]
        made["status"] = {"allocation": {"devices": {"results": results}}}
    return made


CLASS = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": "gpu"},
    "spec": {"selectors": [{"cel": {"expression": 'device.driver == "gpu.claimd.dev"'}}]},
}


@pytest.fixture
def explain(tmp_path, capsys):
    def run(*objects, name="train", more=()):
        path = tmp_path / "dump.yaml"
        path.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": [CLASS, *objects]}))
        code = cli.main(["explain", name, "-f", str(path), *more])
        out, err = capsys.readouterr()
        return code, out + err

    return run


def test_yes(explain):
    code, out = explain(slice_(gpu(0)), claim())
    assert code == 0
    assert out.splitlines() == [
        "claim default/train: 1 of 1 nodes could have it",
        "",
        "node node-1: yes: would get gpu.claimd.dev/node-1/gpu-0",
    ]


def test_held_by(explain):
    _, out = explain(slice_(gpu(0)), claim(), claim("other", held=["gpu-0"]))
    assert "node node-1: no: claim default/train, request gpus: needs 1, 0 suitable" in out
    assert "    node-1/gpu-0: held by claim default/other" in out


def test_selector(explain):
    expression = 'device.capacity["gpu.claimd.dev"].memory.compareTo(quantity("80Gi")) >= 0'
    _, out = explain(slice_(gpu(0, memory="40Gi")), claim(selectors=[{"cel": {"expression": expression}}]))
    assert "node-1/gpu-0: selector 1 false: " in out


def test_constraint(explain):
    devices = [gpu(n, root=f"pci0000:{40 + n // 4}") for n in range(8)]
    _, out = explain(
        slice_(*devices),
        claim(count=4, constraints=[{"matchAttribute": ROOT}]),
        claim("other", held=["gpu-0", "gpu-4"]),
    )
    assert (
        "constraint pcieRoot: no pcieRoot has 4 free; best is pci0000:41 with 3 (1 held by claim default/other)" in out
    )


def test_taint(explain):
    _, out = explain(slice_(gpu(0, taints=[{"key": "hot", "effect": "NoSchedule"}])), claim())
    assert "node-1/gpu-0: taint hot:NoSchedule is not tolerated" in out


def test_taint_rule(explain):
    rule = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceTaintRule",
        "metadata": {"name": "r"},
        "spec": {"deviceSelector": {"device": "gpu-0"}, "taint": {"key": "hot", "effect": "NoExecute"}},
    }
    _, out = explain(slice_(gpu(0), gpu(1)), claim(count=2), rule)
    assert "node-1/gpu-0: taint hot:NoExecute is not tolerated" in out


def test_incomplete_pool(explain):
    _, out = explain(slice_(gpu(0), count=2), claim())
    assert "no: no driver has usable devices on this node" in out
    assert "  pool gpu.claimd.dev/node-1 is incomplete: slices are missing" in out


def test_unknown_class_is_an_error_of_every_node(explain):
    _, out = explain(slice_(gpu(0)), claim(deviceClassName="none"))
    assert "node node-1: error: claim default/train, request gpus: could not retrieve device class none" in out


def test_together(explain):
    """Each request alone could have a device of a model, but there is one device."""
    both = claim()
    both["spec"]["devices"]["requests"].append(both["spec"]["devices"]["requests"][0] | {"name": "more"})
    _, out = explain(slice_(gpu(0)), both)
    assert "no: each request could be satisfied alone, but not together: default/train/gpus, default/train/more" in out


def pod(**spec):
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "job", "namespace": "default"}, "spec": spec}


def test_pod_with_a_template(explain):
    template = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "t", "namespace": "default"},
        "spec": {"spec": claim(count=2)["spec"]},
    }
    waiting = pod(resourceClaims=[{"name": "g", "resourceClaimTemplateName": "t"}])
    _, out = explain(slice_(gpu(0)), template, waiting, name="job")
    assert out.startswith("pod default/job: 0 of 1 nodes could have it\n")
    assert "is not made yet; it will be from the template" in out
    assert "needs 2, 1 of 1 suit" in out


def test_pod_with_an_extended_resource(explain):
    resource = "deviceclass.resource.kubernetes.io/gpu"
    waiting = pod(containers=[{"name": "c", "resources": {"requests": {resource: "3", "cpu": "1"}}}])
    _, out = explain(slice_(gpu(0)), waiting, name="pod/job")
    assert "default/<extended-resources> container-0-request-1: needs 3, 1 of 1 suit" in out


def test_json_has_every_device(explain):
    devices = [gpu(n, taints=[{"key": "hot", "effect": "NoSchedule"}]) for n in range(9)]
    _, out = explain(slice_(*devices), claim(), more=["-o", "json"])
    [node] = json.loads(out)["nodes"]
    [request] = node["claims"][0]["requests"]
    assert len(request["devices"]) == 9 and request["suitable"] == 0 and len(request["nearest"]) == 9
    assert {reason["rule"] for device in request["devices"] for reason in device["reasons"]} == {"taint"}


def test_one_node_only(explain):
    _, out = explain(slice_(gpu(0)), slice_(gpu(0), node="node-2"), claim(), more=["--node", "node-2"])
    assert "node-1" not in out and "would get gpu.claimd.dev/node-2/gpu-0" in out


@pytest.mark.parametrize(
    ("name", "more", "words"),
    [("none", [], "neither a claim nor a pod 'none'"), ("train", ["--node", "x"], "no node 'x' is known")],
)
def test_what_is_not_there(explain, name, more, words):
    code, out = explain(slice_(gpu(0)), claim(), name=name, more=more)
    assert code == 1 and words in out


def test_an_older_claim(explain):
    old = claim()
    old["apiVersion"] = "resource.k8s.io/v1beta1"
    [request] = old["spec"]["devices"]["requests"]
    old["spec"]["devices"]["requests"] = [{"name": "gpus", **request["exactly"]}]
    _, out = explain(slice_(gpu(0)), old)
    assert "would get gpu.claimd.dev/node-1/gpu-0" in out


def test_an_unreadable_file(tmp_path, capsys):
    path = tmp_path / "x.yaml"
    path.write_text("a: [")
    assert cli.main(["explain", "train", "-f", str(path)]) == 1
    assert "is neither JSON nor YAML" in capsys.readouterr().err
