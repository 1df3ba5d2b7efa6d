"""The rows of the page, from objects as an API server writes them."""

import json

import msgspec
import pytest

from claimd.tools.view import rows
from claimd.tools.view.board import Board
from claimd.tools.view.follow import Picture
from tests.support import cluster_objects, viewing
from tests.support.cluster_objects import claim, gpu, gpus, name, node, slice_


def build_picture(*documents):
    picture = Picture(Board(), clock=lambda: 1000.0)
    for document in documents:
        add(picture, document)
    return picture


def add(picture, document):
    metadata = document["metadata"]
    key = "/".join(filter(None, [metadata.get("namespace"), metadata["name"]]))
    item = msgspec.Raw(json.dumps(document).encode())
    picture.take(document["kind"], key, item, document["apiVersion"].rpartition("/")[2])


def uses(picture, on="node-1"):
    return [device["use"] for device in rows.row(picture.world, on)["devices"]]


def test_who_has_what():
    picture = build_picture(
        node("node-1"), slice_(gpus(3)), claim("a", held=[name(1)], reserved=["p"])
    )
    row = rows.row(picture.world, "node-1")
    assert [device["use"] for device in row["devices"]] == ["free", "taken", "free"]
    (holder,) = row["devices"][1]["by"]
    assert (holder["claim"], holder["pods"]) == ("default/a", ["p"])
    assert row["devices"][0]["model"] == "NVIDIA H100 80GB HBM3"
    assert row["devices"][0]["memory"] == "80Gi"
    assert row["devices"][0]["size"] == "80Gi"


@pytest.mark.parametrize(
    ("memory", "size"),
    [
        ("196592Mi", "192Gi"),
        ("97887Mi", "95.6Gi"),
        ("85899345920", "80Gi"),
        ("512Mi", "512Mi"),
    ],
)
def test_sizes_are_easy_to_compare(memory, size):
    device = gpu(0)
    device["capacity"] = {"memory": {"value": memory}}
    picture = build_picture(node("node-1"), slice_([device]))
    (shown,) = rows.row(picture.world, "node-1")["devices"]
    assert (shown["memory"], shown["size"]) == (memory, size)


def test_addresses_are_sorted_as_hexadecimal_numbers():
    names = ["gpu-0000-1a-00-0", "gpu-0000-09-00-0", "gpu-0000-11-00-0", "gpu-0000-0b-00-0"]
    names += ["gpu-0000-11-00-0-gi2", "gpu-0000-11-00-0-gi10", "other-2", "other-10"]
    devices = []
    for called in names:
        device = gpu(0)
        device["name"] = called
        devices.append(device)
    picture = build_picture(node("node-1"), slice_(devices))
    shown = [device["name"] for device in rows.row(picture.world, "node-1")["devices"]]
    assert shown == [
        "gpu-0000-09-00-0",
        "gpu-0000-0b-00-0",
        "gpu-0000-11-00-0",
        "gpu-0000-11-00-0-gi2",
        "gpu-0000-11-00-0-gi10",
        "gpu-0000-1a-00-0",
        "other-2",
        "other-10",
    ]


def test_what_is_given_back_is_free_again():
    held = claim("a", held=[name(0)])
    picture = build_picture(slice_(gpus(1)), held)
    assert uses(picture) == ["taken"]
    picture.take("ResourceClaim", "default/a", None, "v1")
    assert uses(picture) == ["free"]
    assert rows.row(picture.world, "node-1")["note"] == "there is no such node"


def unready(*true, **more):
    """A claim whose device has binding conditions. `true` are those that are true."""
    held = claim(held=[name(0)], reserved=["job"])
    [result] = held["status"]["allocation"]["devices"]["results"]
    result |= {"bindingConditions": ["Ready"], "bindingFailureConditions": ["Broken"]}
    device = {"driver": cluster_objects.DRIVER, "pool": "node-1", "device": name(0)}
    told = {"status": "True", "reason": "Told", "message": "it broke"} | more
    conditions = [{"type": type_} | told for type_ in true]
    held["status"]["devices"] = [device | {"conditions": conditions}]
    return held


@pytest.mark.parametrize(
    ("held", "text"),
    [
        (unready(), "waits for Ready"),
        (unready("Ready", status="False", message="binds"), "waits for Ready: binds"),
        (unready("Broken"), "failed: it broke"),
        (unready("Broken", message=""), "failed: Told"),
        (unready("Ready"), None),
        (claim(held=[name(0)]), None),
    ],
)
def test_what_a_device_lacks_before_a_pod_is_bound(held, text):
    check_unready(held, text)


def test_until_when_a_device_may_lack_it():
    held = unready()
    held["status"]["allocation"]["allocationTimestamp"] = "2026-01-01T10:00:00Z"
    check_unready(held, "waits for Ready until 2026-01-01T10:10:00Z")


def check_unready(held, text):
    picture = build_picture(node("node-1"), slice_(gpus(1)), held)
    [device] = rows.row(picture.world, "node-1")["devices"]
    assert device["by"][0].get("unready") == text


def test_a_monitor_takes_nothing():
    watching = claim("watch", held=[name(0)])
    watching["status"]["allocation"]["devices"]["results"][0]["adminAccess"] = True
    picture = build_picture(slice_(gpus(1)), watching)
    (device,) = rows.row(picture.world, "node-1")["devices"]
    assert device["use"] == "free"
    assert device["by"][0]["admin"]


def test_parts_stand_behind_their_gpu_and_block_it():
    picture = build_picture(*viewing.small_cluster())
    devices = rows.row(picture.world, "mi300-1")["devices"]
    at = [device["name"] for device in devices].index(name(3))
    whole, *parts = devices[at:]
    assert whole["use"] == "divided"
    assert [part["use"] for part in parts] == ["taken", "free", "free", "free"]
    assert {part["parent"] for part in parts} == {name(3)}

    # In the opposite case the whole device is taken, and its parts are blocked.
    picture.take("ResourceClaim", "default/batch-part", None, "v1")
    add(picture, claim("all", held=[name(3)], on="mi300-1"))
    devices = rows.row(picture.world, "mi300-1")["devices"]
    assert [device["use"] for device in devices[at:]] == ["taken", *["blocked"] * 4]


def test_parts_that_do_not_name_their_gpu_are_found_by_its_counters():
    documents = list(viewing.small_cluster())
    for document in documents:
        if document["kind"] == "ResourceSlice":
            for device in document["spec"]["devices"]:
                device["attributes"].pop("parent", None)
    devices = rows.row(build_picture(*documents).world, "mi300-1")["devices"]
    assert [device.get("parent", "") for device in devices] == [*[""] * 4, *[name(3)] * 4]


def test_parts_that_name_their_gpu_as_nvidias_driver_does():
    whole = gpu(0)
    whole["attributes"]["gpu.nvidia.com/uuid"] = {"string": "GPU-1"}
    part = {"name": "gpu-0-mig-9-0", "attributes": {"parentUUID": {"string": "GPU-1"}}}
    published = slice_([gpu(1), part, whole])
    published["spec"]["driver"] = "gpu.nvidia.com"
    held = claim("part", held=[part["name"]])
    held["status"]["allocation"]["devices"]["results"][0]["driver"] = "gpu.nvidia.com"
    picture = build_picture(published, held)
    devices = rows.row(picture.world, "node-1")["devices"]
    assert [device["name"] for device in devices] == [name(0), part["name"], name(1)]
    assert [device["use"] for device in devices] == ["divided", "taken", "free"]


def test_a_taint_and_its_rule():
    sick = gpu(0)
    sick["taints"] = [{"key": "x.dev/hot", "effect": "NoSchedule"}]
    rule = {"deviceSelector": {"device": name(1)}, "taint": {"key": "drain", "effect": "NoExecute"}}
    picture = build_picture(slice_([sick, *gpus(3)[1:]]))
    add(
        picture,
        cluster_objects.build(
            "DeviceTaintRule", "r", rule, "resource.k8s.io/v1beta2", namespace=""
        ),
    )
    first, second, third = rows.row(picture.world, "node-1")["devices"]
    assert (first["sick"], second["sick"], "sick" in third) == (1, 2, False)
    assert second["why"][0]["text"] == "drain"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("79", "claimd.dev/xid=79 (the GPU has fallen off the bus; reboot the node)"),
        ("many", "claimd.dev/xid=many"),
        ("9" * 60, f"claimd.dev/xid={'9' * 60}"),
    ],
)
def test_the_taint_of_an_xid_says_what_it_means(value, text):
    sick = gpu(0)
    sick["taints"] = [{"key": "claimd.dev/xid", "value": value, "effect": "NoSchedule"}]
    (device,) = rows.row(build_picture(slice_([sick])).world, "node-1")["devices"]
    assert [why["text"] for why in device["why"]] == [text]


def test_ten_comes_after_two():
    devices = [gpu(0) | {"name": f"gpu-{number}"} for number in (10, 2, 1)]
    row = rows.row(build_picture(slice_(devices)).world, "node-1")
    assert [device["name"] for device in row["devices"]] == ["gpu-1", "gpu-2", "gpu-10"]


def test_devices_of_no_single_node_have_a_row():
    spec = slice_(gpus(2), node="rack")
    del spec["spec"]["nodeName"]
    spec["spec"]["allNodes"] = True
    picture = build_picture(spec, claim("a", held=[name(0)], on="rack"))
    called = f"pool rack of {cluster_objects.DRIVER}"
    assert uses(picture, called) == ["taken", "free"]
    assert rows.row(picture.world, called)["note"] == "devices of several nodes"


def test_an_older_generation_of_a_pool_is_not_shown():
    old, new = slice_(gpus(4), called="old"), slice_(gpus(2), called="new")
    new["spec"]["pool"]["generation"] = 2
    assert len(uses(build_picture(old, new))) == 2


def test_v1beta1_is_read():
    (device,) = gpus(1)
    beta = slice_([{"name": device.pop("name"), "basic": device}])
    beta["apiVersion"] = "resource.k8s.io/v1beta1"
    assert uses(build_picture(beta)) == ["free"]


@pytest.mark.parametrize(
    "damage",
    [
        lambda document: document["spec"]["devices"].append({"name": 7}),
        lambda document: document["spec"].update(devices="x"),
        lambda document: document.update(spec=None),
    ],
)
def test_what_cannot_be_read_is_named_and_stays_as_it_was(damage):
    picture = build_picture(slice_(gpus(2)), claim("a", held=[name(0)]))
    document = slice_(gpus(2))
    damage(document)
    add(picture, document)
    picture.draw()
    assert uses(picture) == ["taken", "free"]
    (problem,) = json.loads(picture._board.changes_since(0))["set"]["problems"]
    assert problem.startswith("ResourceSlice 00000-gpu.claimd.dev-node-1 cannot be read: ")


@pytest.mark.parametrize(
    "kind", ["Node", "Pod", "ResourceClaim", "ResourceSlice", "DeviceTaintRule"]
)
def test_what_could_never_be_read_may_go(kind):
    picture = build_picture(slice_(gpus(1)))
    picture.take(kind, "x", msgspec.Raw(b"[]"), "v1")
    picture.draw()
    assert "problems" in json.loads(picture._board.changes_since(0))["set"]
    picture.take(kind, "x", None, "v1")
    picture.draw()
    assert "problems" not in json.loads(picture._board.changes_since(0))["set"]


def test_details_of_a_device():
    picture = build_picture(slice_(gpus(1)))
    details = rows.details(picture.world, "node-1", name(0), cluster_objects.DRIVER)
    assert details["attributes"]["vendor"] == "nvidia"
    assert details["capacity"] == {"memory": "80Gi"}
    assert rows.details(picture.world, "node-1", "gone", cluster_objects.DRIVER) is None
