"""Scenes from objects, and lines that fit the terminal from scenes."""

import re

import pytest

from claimd.sim.demo import picture, scene

PLAIN = picture.Style(width=80, color=False)


def node(name):
    return {"metadata": {"name": name}}


def slice_of(node_name, *devices):
    return {
        "metadata": {"name": f"slice-{node_name}"},
        "spec": {"nodeName": node_name, "pool": {"name": node_name}, "devices": list(devices)},
    }


def device(name, product="NVIDIA H100", taint=""):
    document = {"name": name, "attributes": {"productName": {"string": product}}}
    return document | (
        {"taints": [{"key": f"claimd.dev/{taint}", "effect": "NoExecute"}]} if taint else {}
    )


def claim(name, *devices, namespace="default"):
    results = [
        {"pool": pool, "device": device, "request": "r", "driver": "d"} for pool, device in devices
    ]
    status = {"allocation": {"devices": {"results": results}}} if results else {}
    return {"metadata": {"name": name, "namespace": namespace}, "status": status}


def pod(name, claim_name, phase="Running", node_name="one", **status):
    spec = {
        "nodeName": node_name,
        "resourceClaims": [{"name": "gpu", "resourceClaimName": claim_name}],
    }
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
        "status": {"phase": phase} | status,
    }


def scene_of(slices=(), claims=(), pods=(), plugins=None, nodes=("one",)):
    return scene.build([node(name) for name in nodes], slices, claims, pods, plugins or {})


def test_a_gpu_is_free_held_or_sick():
    scene_ = scene_of(
        [slice_of("one", device("gpu-a"), device("gpu-b"), device("gpu-c", taint="wedged"))],
        [claim("held", ("one", "gpu-b"))],
        [pod("train", "held")],
    )
    (node,) = scene_.nodes
    assert [(gpu.state, gpu.note) for gpu in node.gpus] == [
        ("free", ""),
        ("held", "train"),
        ("sick", "wedged"),
    ]
    assert node.product == "NVIDIA H100"
    assert scene_.rows == (
        scene.Row(pod="train", phase="Running", node="one", claim="held", devices=("gpu-b",)),
    )


def test_a_device_of_the_same_name_elsewhere_is_another_one():
    slices = [slice_of("one", device("gpu-a")), slice_of("two", device("gpu-a"))]
    scene_ = scene_of(slices, [claim("held", ("two", "gpu-a"))], nodes=("one", "two"))
    assert [gpu.state for node in scene_.nodes for gpu in node.gpus] == ["free", "held"]
    assert scene_.nodes[1].gpus[0].note == "held"  # the claim, which no pod uses
    assert scene_.rows == (scene.Row(claim="held", node="two", devices=("gpu-a",)),)


def test_claims_made_from_a_template_or_for_an_extended_resource_belong_to_their_pod():
    templated = pod(
        "train", None, resourceClaimStatuses=[{"name": "gpu", "resourceClaimName": "train-gpu-x"}]
    )
    templated["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "gpus"}]
    plain = {"metadata": {"name": "plain", "namespace": "default"}, "spec": {}}
    plain["status"] = {"extendedResourceClaimStatus": {"resourceClaimName": "plain-ext"}}
    scene_ = scene_of(
        [], [claim("train-gpu-x", ("one", "gpu-a")), claim("plain-ext")], [templated, plain]
    )
    assert [(row.pod, row.claim) for row in scene_.rows] == [
        ("plain", "plain-ext"),
        ("train", "train-gpu-x"),
    ]


def test_a_pod_that_waits_says_why_and_one_that_ends_says_so():
    reason = {"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}
    waiting = pod("a", "x", phase="Pending", conditions=[reason])
    ending = pod("b", "x")
    ending["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    system = pod("c", "x")
    system["metadata"]["namespace"] = "claimd-system"
    first, second = scene_of(pods=[waiting, ending, system]).rows
    assert first.waits_for == "0/3 nodes are available"
    assert second.phase == "Terminating"


THREE = scene_of(
    [
        slice_of("amd-1", device("gpu-0000-11-00-0", "AMD Instinct MI300X OAM")),
        slice_of(
            "nvidia-1",
            device("gpu-0000-11-00-0", "NVIDIA H100 80GB HBM3"),
            device("gpu-0000-13-00-0", "NVIDIA H100 80GB HBM3", taint="wedged"),
        ),
    ],
    [claim("train-gpu", ("nvidia-1", "gpu-0000-11-00-0"))],
    [pod("train", "train-gpu", node_name="nvidia-1")],
    {"nvidia-1": "running", "amd-1": "killed"},
    nodes=("nvidia-1", "amd-1", "intel-1"),
)


def test_the_picture():
    lines = picture.draw(THREE, PLAIN)
    assert lines[0].startswith("╭─ amd-1 ─")
    assert re.search(r"│ ● gpu-0000-11-00-0 +│$", lines[2])
    assert re.search(r"│   train +│$", lines[3])
    assert "✗ gpu-0000-13-00-0" in lines[4]
    assert "wedged" in lines[5]
    assert "no GPUs published" in lines[1]
    assert lines[6].index("claimd killed") < lines[6].index("claimd running")
    assert lines[-1] == "train  Running  nvidia-1  train-gpu: gpu-0000-11-00-0"


@pytest.mark.parametrize("width", [10, 24, 40, 79, 80, 120, 200])
@pytest.mark.parametrize("unicode", [True, False])
def test_no_line_is_wider_than_the_terminal(width, unicode):
    style = picture.Style(width=width, color=False, unicode=unicode)
    for line in (*picture.draw(THREE, style), *picture.brief(THREE, style)):
        assert len(line) <= width
        assert unicode or line.isascii()


def test_a_low_terminal_gets_less():
    assert len(picture.draw(THREE, picture.Style(width=80, height=10, color=False))) <= 6


def test_color_is_there_or_not():
    def text(line):
        return re.sub(r"\x1b\[\d+m", "", line)

    colored = picture.draw(THREE, picture.Style(width=80))
    assert any("\x1b[32m" in line for line in colored)
    assert [text(line).rstrip() for line in colored] == picture.draw(THREE, PLAIN)


def test_many_pods_are_counted():
    scene_ = scene_of(pods=[pod(f"p{number}", "x") for number in range(20)])
    assert picture.draw(scene_, PLAIN)[-1] == "and 13 more"


def test_nothing_is_there_yet():
    assert picture.draw(scene.Scene(), PLAIN) == ["no nodes yet"]


def test_a_long_name_ends_before_the_edge_of_its_box():
    lines = picture.draw(scene_of(nodes=["n" * 200]), PLAIN)
    assert re.fullmatch(r"╭─ n+… ─╮", lines[0])
    assert len(lines[0]) == len(lines[1])


def test_a_pod_that_has_no_claim():
    plain = pod("plain", None)
    plain["spec"]["resourceClaims"] = []
    assert picture.draw(scene_of(pods=[plain]), PLAIN)[-1].split()[-1] == "-"
