"""The answer in one line, and the changes that help: each is applied, and it does help."""

import dataclasses
import random
import re

import pytest

from claimd.kubernetes.allocator.causes import Change, Count, Holder, Remedy, Shortage
from claimd.kubernetes.allocator.identity import DeviceID
from claimd.kubernetes.allocator.verdicts import ClaimVerdict, DeviceVerdict, Reason, RequestVerdict
from claimd.kubernetes.scheduling.filters import Refusal
from claimd.tools.explain import headline, objects, pending
from claimd.tools.explain.answer import Answer, Group, NodeAnswer
from tests.support import recorded_pods
from tests.support.cluster_objects import (
    A100,
    H100,
    ROOT,
    claim,
    class_,
    container,
    gpu,
    gpus,
    name,
    node,
    pod,
    request,
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
    return pending.report(known, pending.find_subject(known, "pod/job", "default"))


def job(**spec):
    return pod(resourceClaims=TRAIN, **spec)


def plain(**more):
    return node("node-1", **more)


def placed_pod(cpu):
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
            "tolerate a=b:NoSchedule, or remove the taint from node-1",
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
            [plain(), placed_pod("60"), job(containers=[container(cpu="8")])],
            "ask for at most 4 cpu or free some on node-1",
            [plain(), placed_pod("60"), job(containers=[container(cpu="4")])],
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
        ([placed_pod("64"), job(containers=[container(cpu="8")])], ("free some cpu on node-1",)),
        ([placed_pod("64"), job(containers=[container(cpu="96")])], ()),
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


def test_the_line_has_the_nearest_groups_first():
    nodes = [node(f"n-{index}", cordoned=True) for index in range(3)]
    others = [node(f"m-{index}", pool=str(index)) for index in range(2)]
    answer = report(*nodes, *others, pod(nodeSelector={"pool": "a"}))
    assert answer.line == (
        "pod default/job: 0 of 5 nodes could run it: 2 do not match the nodeSelector pool=a; "
        "3 are cordoned and do not match the nodeSelector pool=a"
    )


def test_all_nodes_are_told_as_all():
    nodes = [node(f"n-{index}", cordoned=True) for index in range(3)]
    assert report(*nodes, pod()).line.endswith(": all 3 are cordoned")
    assert report(*nodes[:2], pod()).line.endswith(": both are cordoned")
    assert report(nodes[0], pod()).line.endswith(": n-0 is cordoned")


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
        f"pod default/job: the scheduler says: {conflict} (volume claim data); "
        "explain does not check this; otherwise 1 of 1 nodes could run it"
    )


def test_a_scheduler_of_its_own_is_named_in_the_line():
    assert report(plain(), pod(schedulerName="batch")).line == (
        "pod default/job: 1 of 1 nodes could run it, but scheduler batch has not placed it; "
        "the answer is by the rules of the default scheduler"
    )


def test_an_error_that_ends_the_search_stands_before_all_nodes():
    bad = {"name": "odd", "taints": [taint("x")]}
    reads = selector('device.attributes["gpu.claimd.dev"].vendor == "nvidia"')
    documents = [slice_(gpus(1)), slice_([bad], node="node-2"), node("node-1"), node("node-2")]
    answer = report(*documents, claim(selectors=[reads]), job())
    assert answer.verdict == "pending"
    assert answer.line.startswith(
        "pod default/job: an error on node-2 ends the scheduler's search on all nodes: "
    )


# Four GPUs of one PCIe root, where others hold some: how many have to go under the best root.
ONE_ROOT = [{"matchAttribute": ROOT, "requests": ["gpus"]}]
LARGE = selector('device.attributes["gpu.claimd.dev"].productName.contains("H100")')


def node_with_held(called, *held, model=H100, **more):
    yield node(called, **more)
    yield slice_(gpus(8, model), node=called)
    for index in held:
        yield claim(f"{called}-{index}", held=[name(index)], on=called, pinned=called)


def test_the_nearest_miss_of_one_root_is_where_the_fewest_devices_have_to_go():
    """Three GPUs are free on both nodes; on the first they are under two roots."""
    first = node_with_held("n-1", 0, 1, 5, 6, 7)
    second = node_with_held("n-2", 3, 4, 5, 6, 7)
    answer = report(*first, *second, claim(count=4, constraints=ONE_ROOT), job())
    assert answer.line == (
        "pod default/job: 0 of 2 nodes could run it: both have too few free GPUs under one pcieRoot "
        "(4 needed, 2 to 3 free, others held by claims)"
    )
    assert answer.nearest == "n-2"
    assert answer.help[0] == f"free {name(3)} (claim n-2-3)"


def mixed_fleet(nodes):
    """Most nodes have the wrong model, some are cordoned or tainted, and all others lack devices."""
    dice = random.Random(35)
    for number in range(nodes):
        model = A100 if dice.random() < 0.56 else H100
        held = set(dice.sample(range(8), dice.randint(2, 8)))
        for root in (range(4), range(4, 8)):
            if not held.intersection(root):
                held.add(dice.choice(root))
        yield from node_with_held(
            f"node-{number}",
            *sorted(held),
            model=model,
            cordoned=dice.random() < 0.02,
            tainted="dedicated=training:NoSchedule" if dice.random() < 0.04 else "",
        )
    yield claim(count=4, selectors=[LARGE], constraints=ONE_ROOT)
    yield job()


@pytest.mark.parametrize("nodes", [60, pytest.param(2000, marks=pytest.mark.slow)])
def test_the_line_about_a_large_fleet_is_short_and_leads_with_the_nearest(nodes):
    known = cluster(*mixed_fleet(nodes))
    subject = pending.find_subject(known, "pod/job", "default")
    answer = pending.report(known, subject, full=False, time_limit=300.0)
    assert len(answer.line) <= 200
    head, _, groups = answer.line.partition(" could run it: ")
    assert head == f"pod default/job: 0 of {nodes} nodes"
    first, *_ = groups.split("; ")
    assert re.fullmatch(
        r"\d+ have too few free GPUs under one pcieRoot \(4 needed, 0 to 3 free, others held by claims\)",
        first,
    )
    assert groups.endswith(" for other reasons")

    # On the nearest node a single GPU has to go.
    assert re.fullmatch(r"free gpu-0000-4\d-00-0 \(claim node-\d+-\d\)", answer.help[0])


def build_answer(nodes=(), *group_sizes, detail="", **more):
    """Returns an answer with groups of these sizes."""
    groups_ = tuple(
        Group(
            causes=(f"cause {index}",),
            outcome="no",
            verb="have",
            text=f"cause {index}{detail}",
            brief=f"cause {index}",
            nodes=tuple(f"n{index}-{number}" for number in range(size)),
            nearest=f"n{index}-0",
            have_devices=0,
        )
        for index, size in enumerate(group_sizes)
    )
    if not nodes:
        names = [name for group in groups_ for name in group.nodes]
        nodes = [NodeAnswer(node=name, outcome="no", summary="") for name in names]
    return headline.with_line(Answer(subject="it", groups=groups_, nodes=tuple(nodes), **more))


@pytest.mark.parametrize(
    ("sizes", "line"),
    [
        ((1, 2), "it: 0 of 3 nodes could have it: n0-0 has cause 0; 2 have cause 1"),
        (
            (1, 4, 2, 3),
            "it: 0 of 10 nodes could have it: n0-0 has cause 0; 4 have cause 1; 2 have cause 2; "
            "3 have cause 3",
        ),
        (
            (1, 4, 2, 3, 1),
            "it: 0 of 11 nodes could have it: n0-0 has cause 0; 4 have cause 1; 2 have cause 2; "
            "3 have cause 3; n4-0 has cause 4",
        ),
        ((2,), "it: 0 of 2 nodes could have it: both have cause 0"),
        ((3,), "it: 0 of 3 nodes could have it: all 3 have cause 0"),
    ],
)
def test_groups_in_the_line(sizes, line):
    assert build_answer((), *sizes).line == line


def test_groups_are_only_counted_where_not_all_have_room():
    line = build_answer((), *range(9, 0, -1)).line
    assert line.endswith("; 2 have cause 7; n8-0 has cause 8") and len(line) <= 200
    line = build_answer((), *range(20, 0, -1)).line
    assert line.endswith("18 have cause 2; 153 for other reasons")


def test_five_reasons_of_five_nodes_are_all_in_the_line():
    answer = report(
        node("node-1", cordoned=True),
        node("node-2", tainted="team=a:NoSchedule"),
        node("node-3"),
        node("node-4"),
        node("node-5", tainted="node.kubernetes.io/not-ready:NoSchedule"),
        pod("web", nodeName="node-3", containers=[container(cpu="60")]),
        claim(),
        *(slice_(gpus(2), node=f"node-{number}") for number in (1, 2, 3, 5)),
        job(containers=[container(cpu="8")]),
    )
    assert len(answer.line) <= 200 and "other reasons" not in answer.line
    for number in range(1, 6):
        assert f"node-{number} " in answer.line, answer.line
    assert "node-2 has the taint team=a:NoSchedule" in answer.line
    assert "node-3 has too little cpu left" in answer.line


def test_requests_that_compete_come_with_their_claim_and_the_node():
    large = request("large", selectors=[LARGE])
    short = claim("train", large, request("any", count=2))
    answer = report(plain(), slice_([gpu(0), gpu(1, A100)]), short, job())
    needed = '3 GPUs for requests "any" and "large" together are needed, only 2 exist'
    assert answer.line == (
        f"pod default/job: 0 of 1 nodes could run it: on node-1, claim default/train: {needed}"
    )
    known = cluster(plain(), slice_([gpu(0), gpu(1, A100)]), short)
    of_claim = pending.report(known, pending.find_subject(known, "train", "default"))
    assert of_claim.line == (
        f"claim default/train: 0 of 1 nodes could have it: on node-1: {needed}"
    )


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"cordoned": True}, "node-1 is cordoned"),
        (
            {"tainted": "node.kubernetes.io/disk-pressure:NoSchedule"},
            "node-1's disk is full: taint node.kubernetes.io/disk-pressure:NoSchedule is not tolerated",
        ),
        ({"tainted": "a:NoSchedule"}, "on node-1 taint a:NoSchedule is not tolerated"),
    ],
)
def test_the_only_node_is_named(more, words):
    assert (
        report(plain(**more), pod()).line == f"pod default/job: 0 of 1 nodes could run it: {words}"
    )


def test_a_toleration_of_nearly_the_same_taint_is_named():
    near = [{"key": "team", "value": "b"}]
    tainted = [plain(tainted="team=a:NoSchedule"), node("node-2", tainted="team=a:NoSchedule")]
    but = "(the pod tolerates team=b)"
    answer = report(tainted[0], pod(tolerations=near))
    assert answer.line.endswith(f"on node-1 taint team=a:NoSchedule is not tolerated {but}")
    assert answer.help == ("tolerate team=a:NoSchedule, or remove the taint from node-1",)
    answer = report(*tainted, pod(tolerations=near))
    assert answer.line.endswith(
        f"both have the taint team=a:NoSchedule, which is not tolerated {but}"
    )


def test_a_resource_of_a_class_and_of_a_device_plugin_names_the_one_that_counts():
    plugged = [plain(), node("node-2")]
    for document in plugged:
        document["status"]["allocatable"]["claimd.dev/gpu"] = "1"
    waiting = pod(containers=[container(**{"claimd.dev/gpu": "2"})])
    class_of_it = class_(extendedResourceName="claimd.dev/gpu")
    plugin = "on such a node the plugin takes precedence over class gpu.claimd.dev"
    answer = report(plugged[0], slice_(gpus(2)), class_of_it, waiting)
    assert answer.line == (
        "pod default/job: 0 of 1 nodes could run it: on node-1 claimd.dev/gpu: "
        f"the pod requests 2, the device plugin has 1 of 1 free; {plugin}"
    )
    assert answer.help == ("ask for at most 1 claimd.dev/gpu",)
    answer = report(*plugged, class_of_it, waiting)
    assert answer.line.endswith(
        f"both have too little claimd.dev/gpu left in the device plugin; {plugin}"
    )


def test_the_line_stays_short():
    line = build_answer((), 1, 2, 3, detail=": " + 100 * "x").line
    assert line == (
        f"it: 0 of 6 nodes could have it: n0-0 has cause 0: {100 * 'x'}; "
        "2 have cause 1; 3 have cause 2"
    )
    line = build_answer((), 1, 2, 3, detail=": " + 200 * "x").line
    assert (
        line == "it: 0 of 6 nodes could have it: n0-0 has cause 0; 2 have cause 1; 3 have cause 2"
    )


def outcomes(*those):
    return [
        NodeAnswer(node=f"n{index}", outcome=outcome, summary="s")
        for index, outcome in enumerate(those)
    ]


def test_what_stands_in_the_line():
    assert build_answer([], blockers=("first", "second")).line == "it: first"
    assert build_answer([]).line == "it: no nodes are known"
    assert build_answer(outcomes("yes", "no")).line == "it: 1 of 2 nodes could have it"
    assert build_answer(outcomes("yes", "unknown"), can="could run it").line == (
        "it: 1 of 2 nodes could run it, 1 not decided in time"
    )
    notes = ("a remark", "not looked at: volumes", "not looked at: more")
    line = build_answer(outcomes("yes"), notes=notes).line
    assert line == (
        "it: 1 of 1 nodes could have it as far as it can be told; not looked at: volumes"
    )
    assert build_answer(outcomes("no"), notes=notes).line == "it: 0 of 1 nodes could have it: s"


def one_node(**more):
    return NodeAnswer(**{"node": "n", "outcome": "no", "summary": "s", "devices": "no"} | more)


def with_count(**more):
    numbers = {"noun": "GPUs", "needed": 2, "there": 4, "suitable": 4, "free": 1} | more
    reasons = (Reason(rule="selector", text="model is a"),)
    device = DeviceVerdict(device=DeviceID("d", "p", "a"), reasons=reasons)
    request = RequestVerdict(request="gpus", needed=2, devices=(device,))
    return one_node(
        shortage=Shortage(counts=(Count(requests=("default/c: gpus",), **numbers),)),
        claims=(ClaimVerdict(claim="default/c", requests=(request,)),),
    )


HOLDER = Holder(device=DeviceID("d", "p", "b"), claims=("default/other",))


def test_nobody_is_advised_to_use_a_damaged_gpu():
    lost = gpu(0, taints=[taint("claimd.dev/lost", "NoSchedule")])
    answer = report(plain(), slice_([lost, gpu(1)]), claim(count=2), job())
    assert answer.help == (
        "clear the cause of claimd.dev/lost:NoSchedule",
        "ask for 1 in request gpus",
    )


def test_a_place_without_a_device_for_one_request_names_no_reason_of_the_others():
    node_ = with_count(needed=1, there=0, suitable=0, free=0, scope="under one root")
    [count] = node_.shortage.counts
    count = dataclasses.replace(count, requests=("default/c: gpus", "default/c: nic"))
    node_ = dataclasses.replace(node_, shortage=Shortage(counts=(count,)))
    assert headline.own_words(node_) == "1 GPU under one root is needed, none exists"


@pytest.mark.parametrize(
    ("node_answer", "words"),
    [
        (one_node(refusals=("it is cordoned", "too little cpu")), "it is cordoned; too little cpu"),
        (one_node(summary="no devices here"), "no devices on n"),
        (
            one_node(summary="no devices here", pools=("pool p is invalid", "pool q is late")),
            "no devices on n: pool p is invalid; pool q is late",
        ),
        (dataclasses.replace(with_count(), shortage=Shortage()), "s"),
        (with_count(), "2 GPUs are needed, 1 is free: model is a"),
        (with_count(obstacle="b is tainted"), "2 GPUs are needed, 1 of 4 is usable; b is tainted"),
        (
            with_count(holders=(HOLDER,)),
            "2 GPUs are needed, 1 is free: b is held by claim default/other",
        ),
        (
            with_count(holders=(HOLDER,), suitable=1),
            "2 GPUs are needed, 1 of 4 suits: model is a",
        ),
        (
            with_count(holders=(HOLDER,), suitable=2),
            "2 GPUs are needed, 1 is free: b is held by claim default/other",
        ),
        (dataclasses.replace(with_count(), claims=with_count().claims[:0]), "s"),
    ],
)
def test_a_node_in_its_own_words(node_answer, words):
    assert headline.own_words(node_answer) == words
    words = re.sub("^it ", "n ", words)
    answer = headline.with_line(Answer(subject="it", nodes=(node_answer,)))
    assert answer.line == f"it: 0 of 1 nodes could have it: {words}"


def refusal(rule, detail):
    return Refusal(rule=rule, message="", detail=detail)


def freeing(device):
    holder = Holder(device=DeviceID("d", "p", device), claims=("c",))
    return Remedy(changes=(Change(kind="free", count=1, holders=(holder,)),))


def ways(refusals=(), remedies=(), devices="no"):
    answer = one_node(
        refused_by=tuple(refusals),
        devices=devices,
        shortage=Shortage(remedies=tuple(map(freeing, remedies))),
    )
    return list(headline.ways_out(answer))


CORDONED = refusal("NodeUnschedulable", "it is cordoned")
ODD = refusal("Other", "anything")


def test_each_way_out_has_all_that_is_needed():
    assert ways(remedies="ab") == ["free a (claim c)", "free b (claim c)"]
    assert ways(remedies="abcd") == [f"free {name} (claim c)" for name in "abc"]
    assert ways([CORDONED, CORDONED], "ab") == [
        "uncordon n, and free a (claim c)",
        "uncordon n, and free b (claim c)",
    ]
    # The node has the devices already, or no devices are asked for.
    assert ways([CORDONED], "ab", devices="yes") == ["uncordon n"]
    assert ways([CORDONED], "ab", devices=None) == ["uncordon n"]
    # If one refusal has no remedy, no other change is offered.
    assert ways([CORDONED, ODD], "ab") == []
    assert ways([CORDONED]) == []
    assert ways(devices="yes") == []


@pytest.mark.parametrize(
    ("rule", "detail", "way"),
    [
        ("TaintToleration", "taint a:NoSchedule is not tolerated", "tolerate a:NoSchedule, or remove the taint from n"),
        ("TaintToleration", "it is late: taint a:NoSchedule is not tolerated", "get n ready"),
        ("TaintToleration", "it is not ready", "get n ready"),
        ("TaintToleration", "its disk is full: taint a:NoSchedule is not tolerated", "free disk space on n"),
        ("TaintToleration", "its network is not set up: taint a:NoSchedule is not tolerated", "set up the network of n"),
        ("NodeAffinity", "nodeSelector asks for a=b, it has a=c", "label n a=b"),
        ("NodeAffinity", "nodeSelector asks for kubernetes.io/os=a, it has b", None),
        ("NodeAffinity", "nodeSelector asks for a=b", None),
        ("NodeAffinity", "its labels do not match, it has a=c", None),
        ("NodeResourcesFit", "cpu: the pod requests 8, 4 of 8 are left", "ask for at most 4 cpu or free some on n"),
        ("NodeResourcesFit", "cpu: the pod requests 9, 4 of 8 are left", "ask for at most 4 cpu"),
        ("NodeResourcesFit", "cpu: the pod requests 9 while init container i runs, 4 of 8 are left", "ask for at most 4 cpu while init container i runs"),
        ("NodeResourcesFit", "cpu: the pod requests 8, 0 of 8 are left", "free some cpu on n"),
        ("NodeResourcesFit", "cpu: the pod requests 9, 0 of 8 are left", None),
        ("NodeResourcesFit", "it runs 110 pods and may run 110", None),
        ("NodePorts", "host port 80/TCP is taken by pod a/b", "free host port 80/TCP on n"),
    ],
)  # fmt: skip
def test_what_undoes_a_rule(rule, detail, way):
    assert ways([refusal(rule, detail)], devices="yes") == ([way] if way else [])


def test_a_group_as_a_line_begins():
    two, other = build_answer((), 2, 1).groups
    assert headline.group_title(two) == "2 nodes have cause 0"
    assert headline.group_title(other) == "1 node has cause 1"


RECORDED = {
    "a-gpu-and-a-nic-under-one-root": "0 of 1 nodes could run it: on node-1, claim default/train: "
    "1 NIC under the same pcieRoot as 1 GPU is needed, no pcieRoot has both",
    "a-rule-taints-the-devices": "0 of 1 nodes could run it: 1 GPU is needed, 0 of 2 are usable; "
    "both: taint maintenance:NoSchedule is not tolerated by the claim "
    "(set by DeviceTaintRule maintenance)",
    "a-selector-that-fails-on-one-of-two-nodes": "an error on node-1 ends the scheduler's search "
    "on all nodes: claim default/train: its first selector: CEL runtime error: no such key: vendor",
    "another-pod-keeps-it-away": "0 of 1 nodes could run it: on node-1 the anti-affinity of "
    "running pod default/web keeps this pod off the node",
    "near-to-two-pods-in-two-zones": "0 of 4 nodes could run it: all 4 are refused: the pod's "
    "two affinity terms over zone (app=db; app=cache) need one and the same pod that matches both, "
    "and no zone has such a pod",
    "spread-with-a-node-that-is-tainted": "0 of 4 nodes could run it: node-c1 has the taint "
    "team:NoSchedule, which is not tolerated; 3 are refused by topology spread over zone, "
    "which allows only zone c (fewest matching pods)",
}


@pytest.mark.parametrize("name", RECORDED)
def test_the_first_line_about_a_pod_that_was_recorded(name):
    [recorded] = [each for each in recorded_pods.situations() if each.name == name]
    line = recorded_pods.explained(recorded).answer.line
    assert line == f"pod default/job: {RECORDED[name]}"
    assert len(line) <= 200
