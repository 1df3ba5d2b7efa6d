"""Nodes are judged once exactly if their devices are the same and in the same state."""

import json

import pytest

from claimd.kubernetes.allocator.verdicts import NodeVerdict
from claimd.tools.explain import pending, question, sources, text
from tests.support.cluster_objects import (
    A100,
    DRIVER,
    claim,
    class_,
    gpu,
    gpus,
    name,
    node,
    pod,
    rule,
    selector,
    slice_,
)


@pytest.fixture
def load(tmp_path):
    def read(*documents):
        path = tmp_path / "dump.json"
        path.write_text(json.dumps({"kind": "List", "items": [class_(), *documents]}))
        return sources.read_files([path], sources.Scope(name="train"))

    return read


def like(objects, full=False):
    """Returns, for each node, the node that was judged in its place, and the whole answer."""
    claim_ = pending.find_subject(objects, "claim/train", "default")
    answer = pending.report(objects, claim_, full=full)
    return {node_answer.node: node_answer.like for node_answer in answer.nodes}, answer


def unlike(index, **more):
    device = gpu(index, **more)
    device["attributes"]["uuid"] = {"string": f"GPU-{index}-{id(device)}"}
    return device


def places(count, devices=2, **more):
    return [
        slice_([unlike(index, **more) for index in range(devices)], node=f"n-{number}")
        for number in range(count)
    ]


def test_alike_nodes_are_judged_once(load):
    judged_as, answer = like(load(*places(3), claim(count=3)))
    assert judged_as == {"n-0": "", "n-1": "n-0", "n-2": "n-0"}
    assert answer.groups[0].nodes == ("n-0", "n-1", "n-2")


def test_data_of_a_node_has_no_devices_and_claims_of_the_one_judged_for_it(load):
    holders = [claim(f"h{number}", held=[name(0)], on=f"n-{number}") for number in range(2)]
    _, answer = like(load(*places(2), *holders, claim(count=2)))
    judged, other = text.as_data(answer)["nodes"]
    assert "held by claim h0" in judged["summary"] and judged["claims"]
    assert other["like"] == "n-0"
    assert other["summary"] == "claim default/train: 2 GPUs are needed, 1 is free"
    assert not other["shortage"]["counts"][0]["holders"]
    said = json.dumps(other | {"like": ""})
    assert "n-0" not in said and "h0" not in said


def test_in_full_each_is_judged(load):
    judged_as, _ = like(load(*places(3), claim(count=3)), full=True)
    assert set(judged_as.values()) == {""}


@pytest.mark.parametrize(
    "other",
    [
        [claim("other", held=[name(0)], on="n-1")],
        [rule("r", "hot", pool="n-1")],
    ],
)
def test_what_is_held_or_tainted_tells_nodes_apart(load, other):
    judged_as, _ = like(load(*places(3), claim(count=3), *other))
    assert judged_as == {"n-0": "", "n-1": "", "n-2": "n-0"}


def test_other_devices_tell_nodes_apart(load):
    other = slice_(gpus(2, A100), node="n-9")
    judged_as, _ = like(load(*places(2), other, claim(count=3)))
    assert judged_as == {"n-0": "", "n-1": "n-0", "n-9": ""}


def test_a_selector_that_reads_it_tells_devices_apart(load):
    reads = selector('device.attributes["gpu.claimd.dev"].uuid == "x"')
    judged_as, _ = like(load(*places(2), claim(selectors=[reads])))
    assert judged_as == {"n-0": "", "n-1": ""}


def test_slices_of_several_nodes_keep_each_on_its_own(load):
    shared = slice_([{"name": "fabric"}], called="fabric")
    del shared["spec"]["nodeName"]
    everywhere = json.loads(json.dumps(shared))
    everywhere["spec"]["allNodes"] = True
    shared["spec"]["nodeSelector"] = {
        "nodeSelectorTerms": [
            {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}
        ]
    }
    judged_as, _ = like(load(*places(2), shared, claim(count=3)))
    assert set(judged_as.values()) == {""}
    judged_as, _ = like(load(*places(2), everywhere, claim(count=3)))
    assert judged_as == {"n-0": "", "n-1": "n-0"}


def test_a_pool_of_several_nodes_keeps_them_on_their_own(load):
    parts = places(2)
    for part in parts:
        part["spec"]["pool"] |= {"name": "shared", "resourceSliceCount": 2}
    judged_as, _ = like(load(*parts, claim(count=3)))
    assert judged_as == {"n-0": "", "n-1": ""}


def test_a_rule_for_all_devices_leaves_nodes_alike(load):
    judged_as, answer = like(load(*places(3), rule("r", "hot", driver="gpu.claimd.dev"), claim()))
    assert judged_as == {"n-0": "", "n-1": "n-0", "n-2": "n-0"}
    assert "taint hot:NoSchedule is not tolerated" in answer.line


def test_pods_on_nodes_count_whether_kept_in_full_or_not(load):
    container = {"name": "c", "resources": {"requests": {"cpu": "60"}}}
    port = {"name": "p", "ports": [{"hostPort": 80}]}
    objects = load(
        node("n-0"),
        node("n-1"),
        pod("big", nodeName="n-0", containers=[container]),
        pod("web", nodeName="n-1", containers=[port]),
        pod("train", containers=[container, port]),
    )
    assert len(objects.placed) == 2
    subject = pending.find_subject(objects, "pod/train", "default")
    answer = pending.report(objects, subject, full=False)
    assert [node_answer.summary for node_answer in answer.nodes] == [
        "cpu: the pod requests 60, 4 of 64 are left",
        "host port 80/TCP is taken by pod default/web",
    ]


def test_a_second_question_looks_at_what_the_first_did_not(load):
    """The answers do not depend on the order of the questions."""
    selects_a100 = selector('device.attributes["gpu.claimd.dev"].productName.contains("A100")')
    other = selector('device.attributes["gpu.claimd.dev"].vendor == "nvidia"')
    mixed = [slice_([gpu(0)], node="n-0"), slice_([gpu(0, A100)], node="n-1")]
    wanted = [
        claim(),
        claim("by-model", selectors=[selects_a100]),
        claim("by-vendor", selectors=[other]),
    ]
    objects = load(*mixed, *wanted)
    for name_, good in (("train", 2), ("by-model", 1), ("by-vendor", 2), ("by-model", 1)):
        subject = pending.find_subject(objects, f"claim/{name_}", "default")
        answer = pending.report(objects, subject, full=False)
        assert sum(selects_a100.outcome == "yes" for selects_a100 in answer.nodes) == good


@pytest.mark.parametrize("seed", range(40))
def test_judged_once_is_judged_alike(seed, load):
    """The outcomes and groups are the same as when each node is judged by itself."""
    import random

    source = random.Random(seed)
    documents = []
    for number in range(12):
        here = f"n-{number}"
        model = source.choice([{}, {"model": A100}])
        devices = [unlike(index, **model) for index in range(source.choice([2, 4]))]
        documents.append(slice_(devices, node=here))
        held = [name(index) for index in range(len(devices)) if source.random() < 0.4]
        if held:
            documents.append(claim(f"job-{number}", held=held, on=here))
    large = selector('device.attributes["gpu.claimd.dev"].productName.contains("H100")')
    wanted = claim(count=source.choice([1, 2, 3]), selectors=source.choice([[], [large]]))
    _, once = like(load(*documents, wanted))
    _, each = like(load(*documents, wanted), full=True)
    assert [entry.outcome for entry in once.nodes] == [entry.outcome for entry in each.nodes]
    assert [entry.text for entry in once.groups] == [entry.text for entry in each.groups]
    assert once.line == each.line


def test_what_an_alike_node_would_get_is_its_own(load):
    _, answer = like(load(*places(2, devices=1), claim()))
    assert [[str(device) for device in node_answer.allocation] for node_answer in answer.nodes] == [
        [f"gpu.claimd.dev/n-0/{name(0)}"],
        [f"gpu.claimd.dev/n-1/{name(0)}"],
    ]
    assert f"node n-1: yes: would get {name(0)}" in text.as_text(answer)


def judged_by(monkeypatch, outcome):
    """Returns a list of the seconds of all nodes, and then of each. `outcome` is the next one."""
    seconds = []

    class Unused:
        def __init__(self, limit):
            seconds.append(limit)
            self.remaining = limit

        def is_over(self):
            return False

    def judge(_allocator, where, *_arguments, **_options):
        return NodeVerdict(node=where.metadata.name, outcome=outcome(), summary="judged")

    monkeypatch.setattr(question, "TimeLimit", Unused)
    monkeypatch.setattr(question.explain, "explain_node", judge)
    return seconds


def test_nodes_share_the_time_with_those_that_differ(load, monkeypatch):
    seconds = judged_by(monkeypatch, lambda: "yes")
    like(load(*places(9), slice_(gpus(2, A100), node="n-9"), claim()))
    assert seconds == [10, 5, 10]


def test_after_the_end_no_node_is_judged(load, monkeypatch):
    seconds = judged_by(monkeypatch, lambda: "yes")
    objects = load(*places(2), claim())
    subject = pending.find_subject(objects, "claim/train", "default")
    answer = pending.report(objects, subject, time_limit=0.0)
    assert [node_answer.outcome for node_answer in answer.nodes] == ["unknown", "unknown"]
    assert answer.verdict == "unknown" and not seconds[2:]


@pytest.mark.parametrize(
    ("time_limit", "note"),
    [
        (0.5, "0.5 s were too short; the scheduler has 10 s for a node: --timeout gives more"),
        (10.0, "the scheduler has 10 s for a node, and may not decide it either: "),
    ],
)
def test_the_note_of_what_is_not_decided_has_the_time_that_there_was(
    load, monkeypatch, time_limit, note
):
    judged_by(monkeypatch, lambda: "unknown")
    objects = load(*places(1), claim())
    subject = pending.find_subject(objects, "claim/train", "default")
    [said] = pending.report(objects, subject, time_limit=time_limit).notes
    assert said.startswith(note)


@pytest.mark.parametrize(("full", "judged"), [(False, 1), (True, 2)])
def test_the_nearest_node_keeps_its_outcome(load, monkeypatch, full, judged):
    """The second question to the nearest node does not contradict the line and the groups."""
    outcomes = iter(["unknown"] * judged + ["yes"] * 3)
    judged_by(monkeypatch, lambda: next(outcomes))
    _, answer = like(load(*places(2), claim()), full=full)
    assert [node_answer.outcome for node_answer in answer.nodes] == ["unknown", "unknown"]
    assert answer.verdict == "unknown" and "not decided in time on any of 2 nodes" in answer.line


def shared(memory="80Gi"):
    """A GPU that claims share by its memory."""
    policy = {"default": memory, "validRange": {"min": "1Gi"}}
    capacity = {"memory": {"value": memory, "requestPolicy": policy}}
    return {**gpu(0), "capacity": capacity, "allowMultipleAllocations": True}


def holder(**consumed):
    held = {"request": "gpus", "driver": DRIVER, "pool": "n-0", "device": name(0)}
    held |= {"shareID": "s1", "consumedCapacity": consumed}
    return {**claim(called="other"), "status": {"allocation": {"devices": {"results": [held]}}}}


def of_release(version):
    document = node("n-0")
    document["status"]["nodeInfo"] = {"kubeletVersion": version}
    return document


def outcome(objects):
    [verdict] = like(objects)[1].nodes
    return verdict.outcome


@pytest.mark.parametrize("version", ["v1.38.0-beta.0", "", "unheard of"])
def test_memory_that_another_has_under_the_qualified_name_counts(load, version):
    """The rule of Kubernetes 1.38, which holds where the release is not known, too."""
    published, place = slice_([shared()], node="n-0"), of_release(version)
    asks = claim(capacity={"requests": {"memory": "40Gi"}})
    full = load(place, published, holder(**{f"{DRIVER}/memory": "76Gi"}), asks)
    assert outcome(full) == "no"
    assert outcome(load(place, published, holder(**{f"{DRIVER}/memory": "40Gi"}), asks)) == "yes"


def test_a_qualified_name_is_one_of_the_drivers_capacities_since_1_38(load):
    published = slice_([shared()], node="n-0")
    asks = claim(capacity={"requests": {f"{DRIVER}/memory": "40Gi"}})
    taken = holder(memory="76Gi")
    newer = of_release("v1.38.1")
    assert outcome(load(newer, published, asks)) == "yes"
    objects = load(newer, published, taken, asks)
    answer = like(objects, full=True)[1]
    assert answer.nodes[0].outcome == "no"
    shown = text.as_text(answer, wide=True)
    assert "memory: needs 40Gi, 4Gi of 80Gi left; default/other has 76Gi" in shown

    answer = like(load(of_release("v1.37.2"), published, asks), full=True)[1]
    assert answer.nodes[0].outcome == "no"
    shown = text.as_text(answer, wide=True)
    assert "its driver's own goes by the plain name, memory" in shown


def test_a_capacity_under_both_names_is_an_error_since_1_38(load):
    both = {"memory": "40Gi", f"{DRIVER}/memory": "40Gi"}
    asks = claim(capacity={"requests": both})
    answer = like(load(of_release("v1.38.0"), slice_([shared()], node="n-0"), asks))[1]
    assert answer.nodes[0].outcome == "error"
    assert "requested both as" in text.as_text(answer, wide=True)


def test_the_api_servers_release_goes_before_that_of_kubelets(load):
    objects = load(of_release("v1.37.2"))
    assert objects.release == 37
    objects.server_release = 38
    assert objects.release == 38
