"""The changes that the page shows."""

import json

from claimd.tools.view.timeline import KEPT, parse_time
from tests.plugin.tools.view.test_rows import add, build_picture, unready
from tests.support.cluster_objects import claim, gpu, gpus, name, node, pod, slice_


def read_texts(picture):
    picture.draw()
    entries = json.loads(picture._board.changes_since(0))["set"]
    numbers = [int(key[7:]) for key in entries if key.startswith("change/")]
    return [entries[f"change/{number}"]["text"] for number in sorted(numbers)]


def test_what_happens_to_a_claim():
    picture = build_picture(slice_(gpus(2)))
    assert read_texts(picture) == []
    add(picture, claim("a", held=[name(0), name(1)], reserved=["p"]))
    picture.take("ResourceClaim", "default/a", None, "v1")
    assert read_texts(picture) == [
        f"claim default/a (pod p) got {name(0)}, {name(1)} on node-1",
        f"claim default/a (pod p) gave back {name(0)}, {name(1)} on node-1",
    ]


def test_a_device_that_fails_while_a_pod_waits_for_it():
    picture = build_picture(slice_(gpus(2)))
    read_texts(picture)
    held = unready("Broken")
    add(picture, unready())
    for _ in range(2):
        add(picture, held)
    changes = read_texts(picture)
    assert changes[1:] == [f"{name(0)} on node-1 failed for claim default/train: it broke"]


def test_what_happens_to_a_device():
    picture = build_picture(slice_(gpus(1)))
    read_texts(picture)
    sick = gpu(0)
    sick["taints"] = [{"key": "x.dev/hot", "value": "95", "effect": "NoSchedule"}]
    for devices in ([sick], gpus(1), gpus(2), gpus(1)):
        add(picture, slice_(devices))
    assert read_texts(picture) == [
        f"{name(0)} on node-1 is tainted: x.dev/hot=95",
        f"{name(0)} on node-1 is well again",
        f"{name(1)} came on node-1",
        f"{name(1)} went on node-1",
    ]


def test_what_happens_to_pods_and_nodes():
    picture = build_picture(node("node-1"))
    read_texts(picture)
    add(picture, pod("job"))
    add(picture, pod("job", nodeName="node-1"))
    add(picture, node("node-1", cordoned=True))
    picture.take("Node", "node-1", None, "v1")
    assert read_texts(picture) == [
        "pod default/job waits",
        "pod default/job goes to node-1",
        "node node-1 is cordoned",
        "node node-1 left",
    ]


def test_the_past_is_as_objects_tell_it():
    held = claim("a", held=[name(0)])
    held["status"]["allocation"]["allocationTimestamp"] = "1970-01-01T00:10:00Z"
    old = gpu(0)
    old["taints"] = [{"key": "x", "effect": "NoSchedule", "timeAdded": "1970-01-01T00:05:00Z"}]
    picture = build_picture(slice_([old]), held)
    assert read_texts(picture) == [
        f"{name(0)} on node-1 is tainted: x",
        f"claim default/a got {name(0)} on node-1",
    ]


def test_an_hour_is_kept():
    now = [1000.0]
    picture = build_picture()
    picture._clock = lambda: now[0]
    read_texts(picture)
    add(picture, node("node-1"))
    now[0] += KEPT - 1
    add(picture, node("node-2"))
    assert len(read_texts(picture)) == 2
    now[0] += 2
    picture.forget_old()
    assert read_texts(picture) == ["node node-2 joined"]


def test_what_is_no_time():
    assert [parse_time(text) for text in ("", "yesterday", "9" * 400)] == [0.0, 0.0, 0.0]
