"""The answer in a line, and what would help: each way out is taken, and it helps."""

import pytest

from plugin.explain import objects, pending
from tests.support.cluster_objects import (
    claim,
    class_,
    container,
    gpus,
    name,
    node,
    pod,
    selector,
    slice_,
    taint,
)

TRAIN = [{"name": "gpu", "resourceClaimName": "train"}]


def cluster(*documents):
    known = objects.Objects()
    for document in (class_(), *documents):
        known.add(document)
    return known


def report(*documents):
    known = cluster(*documents)
    return pending.report(known, pending.find(known, "pod/job", "default"))


def job(**spec):
    return pod(resourceClaims=TRAIN, **spec)


def plain(**more):
    return node("node-1", **more)


def placed(cpu):
    return pod("web", nodeName="node-1", containers=[container(cpu=cpu)])


def with_port(called, **spec):
    return pod(called, containers=[{"name": "c", "ports": [{"hostPort": 80}]}], **spec)


TAINTED = plain(tainted="a=b:NoSchedule")
TOLERATION = {"key": "a", "operator": "Equal", "value": "b", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("before", "way", "after"),
    [
        ([plain(cordoned=True), job()], "uncordon node-1", [plain(), job()]),
        (
            [TAINTED, job()],
            "tolerate a=b:NoSchedule, or take it from node-1",
            [TAINTED, job(tolerations=[TOLERATION])],
        ),
        (
            [plain(tainted="node.kubernetes.io/not-ready:NoSchedule"), job()],
            "get node-1 ready",
            [plain(), job()],
        ),
        (
            [plain(), job(nodeSelector={"pool": "a"})],
            "label node-1 pool=a",
            [plain(pool="a"), job(nodeSelector={"pool": "a"})],
        ),
        (
            [plain(), placed("60"), job(containers=[container(cpu="8")])],
            "ask for at most 4 cpu or free some on node-1",
            [plain(), placed("60"), job(containers=[container(cpu="4")])],
        ),
        (
            [plain(), with_port("web", nodeName="node-1"), with_port("job")],
            "free host port 80/TCP on node-1",
            [plain(), with_port("job")],
        ),
    ],
)
def test_what_would_help_does(before, way, after):
    answer = report(slice_(gpus(1)), claim(), *before)
    assert (answer.verdict, answer.nearest, answer.help) == ("pending", "node-1", (way,))
    assert report(slice_(gpus(1)), claim(), *after).verdict == "could run"


def test_the_node_and_its_devices_take_both():
    held = claim("other", held=[name(0)])
    answer = report(slice_(gpus(1)), claim(), held, plain(cordoned=True), job())
    assert answer.help == ("uncordon node-1, and free gpu-0000-41-00-0 (claim other)",)
    assert report(slice_(gpus(1)), claim(), plain(), job()).verdict == "could run"


def test_where_nothing_simple_helps_nothing_is_promised():
    affinity = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]
            }
        }
    }
    answer = report(slice_(gpus(1)), claim(), plain(), job(affinity=affinity))
    assert (answer.verdict, answer.help) == ("pending", ())


@pytest.mark.parametrize(
    ("more", "way"),
    [
        ([job(containers=[container(cpu="96")])], ("ask for at most 64 cpu",)),
        ([placed("64"), job(containers=[container(cpu="8")])], ("free some cpu on node-1",)),
        ([placed("64"), job(containers=[container(cpu="96")])], ()),
        ([job(nodeSelector={"kubernetes.io/hostname": "node-9"})], ()),
    ],
)
def test_only_what_can_help_is_promised(more, way):
    assert report(slice_(gpus(1)), claim(), plain(), *more).help == way


def test_a_way_is_said_once():
    taints = [
        {"key": "node.kubernetes.io/not-ready", "effect": effect}
        for effect in ("NoSchedule", "NoExecute")
    ]
    broken = plain()
    broken["spec"]["taints"] = taints
    assert report(slice_(gpus(1)), claim(), broken, job()).help == ("get node-1 ready",)


def test_what_the_pod_has_itself_is_not_to_be_freed():
    mine = claim("mine", held=[name(0)])
    claims = [{"name": called, "resourceClaimName": called} for called in ("mine", "train")]
    answer = report(slice_(gpus(1)), claim(), mine, plain(), pod(resourceClaims=claims))
    assert answer.verdict == "pending"
    assert not [way for way in answer.help if "free" in way]
    other = claim("other", held=[name(1)])
    answer = report(slice_(gpus(2)), claim(), mine, other, plain(), pod(resourceClaims=claims))
    assert answer.help[0] == f"free {name(1)} (claim other)"


def test_the_line_has_the_largest_groups_first():
    nodes = [node(f"n-{index}", cordoned=True) for index in range(3)]
    others = [node(f"m-{index}", pool=str(index)) for index in range(2)]
    answer = report(*nodes, *others, pod(nodeSelector={"pool": "a"}))
    assert answer.line.startswith(
        "pod default/job: 0 of 5 nodes could run it: "
        "3 are cordoned and do not match the nodeSelector pool=a; 2 do not match"
    )


def test_all_nodes_are_told_as_all():
    nodes = [node(f"n-{index}", cordoned=True) for index in range(3)]
    assert report(*nodes, pod()).line.endswith(": all 3 are cordoned")
    assert report(*nodes[:2], pod()).line.endswith(": both are cordoned")
    assert report(nodes[0], pod()).line.endswith(": on n-0 it is cordoned")


def test_what_is_not_looked_at_is_said_in_the_line():
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    answer = report(plain(), pod(volumes=volumes))
    assert answer.line == (
        "pod default/job: 1 of 1 nodes could run it as far as it can be told; not looked at: where its volumes are"
    )


def test_what_the_scheduler_says_of_it_is_said_instead():
    conflict = "1 node(s) had volume node affinity conflict"
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "message": f"0/1 nodes are available: {conflict}.",
    }
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    waiting = pod(volumes=volumes) | {"status": {"conditions": [condition]}}
    assert report(plain(), waiting).line == (
        "pod default/job: 1 of 1 nodes could run it by the rules that are looked at, "
        f"but the scheduler says: {conflict}"
    )


def test_an_error_that_ends_the_search_stands_before_all_nodes():
    bad = {"name": "odd", "taints": [taint("x")]}
    reads = selector('device.attributes["gpu.claimd.dev"].vendor == "nvidia"')
    documents = [slice_(gpus(1)), slice_([bad], node="node-2"), node("node-1"), node("node-2")]
    answer = report(*documents, claim(selectors=[reads]), job())
    assert answer.verdict == "pending"
    assert answer.line.startswith(
        "pod default/job: an error on node node-2 ends the scheduler's search on all nodes: "
    )
