"""The scene of a cluster: nodes with their GPUs, pods with their claims."""

import pytest

from claimd.sim.demo import scene
from claimd.sim.demo.scene import FREE, HELD, SICK, Gpu, Node, Row
from tests.support import planes


def device_named(name, product="", **more):
    attributes = {"productName": {"string": product}} if product else {}
    return {"name": name, "attributes": attributes} | more


def slice_(node, *devices):
    return {"spec": {"nodeName": node, "pool": {"name": node}, "devices": list(devices)}}


def built(nodes=(), slices=(), claims=(), pods=(), plugins=None):
    return scene.build(nodes, slices, claims, pods, plugins or {})


def test_nodes_with_their_gpus_in_order():
    shown = built(
        [planes.node("b"), planes.node("a")],
        [
            slice_("a", device_named("gpu-1", "L4"), device_named("gpu-0", "H100")),
            slice_("a", device_named("gpu-2", "L4")),
        ],
        plugins={"a": "running"},
    )
    gpus = tuple(Gpu(name=f"gpu-{number}", state=FREE) for number in range(3))
    assert shown.nodes == (
        Node(name="a", product="H100, L4", plugin="running", gpus=gpus),
        Node(name="b"),
    )


def test_a_gpu_without_a_product_and_a_slice_without_devices():
    [node] = built([planes.node("a")], [slice_("a", device_named("gpu-0")), slice_("a")]).nodes
    assert (node.product, len(node.gpus)) == ("", 1)


def test_who_holds_a_gpu_is_the_pod_or_else_the_claim():
    claims = [
        planes.claim("mine", devices=["gpu-0"], node="a"),
        planes.claim("nobodys", devices=["gpu-1"], node="a"),
    ]
    pods = [planes.pod("q", claims=["mine"]), planes.pod("p", claims=["mine"])]
    devices = [device_named("gpu-0"), device_named("gpu-1"), device_named("gpu-2")]
    [node] = built([planes.node("a")], [slice_("a", *devices)], claims, pods).nodes
    assert node.gpus == (
        Gpu(name="gpu-0", state=HELD, note="p, q"),
        Gpu(name="gpu-1", state=HELD, note="nobodys"),
        Gpu(name="gpu-2", state=FREE),
    )


def test_what_is_wrong_comes_before_who_has_it():
    taints = [{"key": "claimd.dev/wedged"}, {"key": "plain"}]
    devices = [device_named("gpu-0", taints=taints), device_named("gpu-1", taints=taints[1:])]
    claims = [planes.claim("c", devices=["gpu-0"], node="a")]
    [node] = built([planes.node("a")], [slice_("a", *devices)], claims).nodes
    assert node.gpus == (
        Gpu(name="gpu-0", state=SICK, note="wedged, plain, c"),
        Gpu(name="gpu-1", state=SICK, note="plain"),
    )


def test_a_row_for_each_pod_and_each_claim_that_none_has():
    claims = [
        planes.claim("z", devices=["gpu-0", "gpu-1"], node="a"),
        planes.claim("free"),
        planes.claim("c", devices=["gpu-2"], node="a"),
        planes.claim("made", devices=["gpu-3"], node="a"),
    ]
    q = planes.pod("q", claims=["c", "gone"], templates=["t"], on="a")
    q["status"]["resourceClaimStatuses"] = [{"name": "t", "resourceClaimName": "made"}]
    rows = built(claims=claims, pods=[q, planes.pod("p", templates=["t"])]).rows
    assert rows == (
        Row(pod="p", phase="Pending"),
        Row(pod="q", phase="Running", node="a", claim="c, made", devices=("gpu-2", "gpu-3")),
        Row(claim="free"),
        Row(claim="z", node="a", devices=("gpu-0", "gpu-1")),
    )


def test_the_claim_of_extended_resources():
    pod = planes.pod("p")
    pod["status"]["extendedResourceClaimStatus"] = {"resourceClaimName": "c"}
    [row] = built(claims=[planes.claim("c", devices=["gpu-0"])], pods=[pod]).rows
    assert (row.claim, row.devices) == ("c", ("gpu-0",))


def test_pods_of_other_namespaces_are_not_shown():
    other = planes.pod("p", claims=["c"])
    other["metadata"]["namespace"] = "kube-system"
    assert built(claims=[planes.claim("c")], pods=[other]).rows == (Row(claim="c"),)


def test_a_pod_that_is_leaving():
    pod = planes.pod("p", on="a")
    pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert built(pods=[pod]).rows == (Row(pod="p", phase="Terminating", node="a"),)


@pytest.mark.parametrize(
    ("status", "waits_for"),
    [
        ({}, ""),
        ({"conditions": [{"type": "PodScheduled", "status": "False", "message": "why"}]}, "why"),
        ({"conditions": [{"type": "PodScheduled", "status": "True", "message": "why"}]}, ""),
        ({"conditions": [{"type": "Ready", "status": "False", "message": "why"}]}, ""),
        ({"conditions": [{"type": "PodScheduled", "status": "False"}]}, ""),
        (
            {
                "phase": "Running",
                "conditions": [{"type": "PodScheduled", "status": "False", "message": "why"}],
            },
            "",
        ),
    ],
)
def test_why_a_pod_waits(status, waits_for):
    [row] = built(pods=[planes.pod("p") | {"status": status}]).rows
    assert row.waits_for == waits_for
    assert row.phase == status.get("phase", "Pending")
