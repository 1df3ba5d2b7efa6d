"""Groups of nodes with the same causes, and the nearest miss of each group."""

import dataclasses

import pytest

from claimd.kubernetes.allocator.causes import Count, Holder, Shortage
from claimd.kubernetes.allocator.identity import DeviceID
from claimd.kubernetes.allocator.verdicts import ClaimVerdict, DeviceVerdict, Reason, RequestVerdict
from claimd.kubernetes.scheduling.filters import Refusal
from claimd.tools.explain import groups
from claimd.tools.explain.answer import NodeAnswer


def device(name, *reasons):
    reasons_ = tuple(Reason(rule="selector", text=reason) for reason in reasons)
    return DeviceVerdict(device=DeviceID("d", "p", name), reasons=reasons_)


def short(name, needed=4, free=0, suitable=8, there=8, reasons=(), **more):
    count = Count(
        noun="GPUs",
        needed=needed,
        free=free,
        suitable=suitable,
        there=there,
        requests=("default/train: gpus",),
    )
    request = RequestVerdict(request="gpus", needed=needed, devices=(device("a", *reasons),))
    return NodeAnswer(
        node=name,
        outcome="no",
        devices="no",
        summary="short",
        shortage=Shortage(counts=(count,)),
        claims=(ClaimVerdict(claim="default/train", requests=(request,)),),
        **more,
    )


def refused_node(name, rule, detail, message="", **more):
    refusal = Refusal(rule=rule, message=message, detail=detail)
    return NodeAnswer(
        node=name,
        outcome="no",
        summary=detail,
        refusals=(detail,),
        refused_by=(refusal,),
        **{"devices": "yes", **more},
    )


CORDONED = Refusal(rule="NodeUnschedulable", message="", detail="it is cordoned")
FULL = Refusal(
    rule="NodeResourcesFit",
    message="Insufficient cpu",
    detail="cpu: the pod requests 8, 0 of 64 are left",
)
OTHER = Refusal(rule="Other", message="", detail="anything")


def test_nodes_that_are_short_alike_go_together_with_their_figures():
    [group] = groups.group_nodes([short("a", free=1), short("b", free=3), short("c", free=2)])
    assert groups.predicate_of(group) == "have too few free GPUs (4 needed, 1 to 3 free)"
    assert group.nodes == ("a", "b", "c")
    assert group.nearest == "b"


def test_all_devices_are_more_on_one_node_than_on_another():
    [group] = groups.group_nodes([short("a", needed=4, free=3), short("b", needed=8, free=7)])
    assert groups.predicate_of(group) == "have too few free GPUs (4 to 8 needed, 3 to 7 free)"


def test_the_reason_of_the_nearest_devices_is_told():
    [group] = groups.group_nodes([short("a", suitable=0, reasons=["memory is 40Gi"])])
    assert groups.predicate_of(group) == (
        "has too few GPUs that suit (4 needed, 0 suit): memory is 40Gi"
    )


def test_each_cause_has_a_verb_that_agrees_in_every_length():
    node = refused_node("n", "NodeUnschedulable", "it is cordoned")
    taint = refused_node("n", "TaintToleration", "taint a:NoSchedule is not tolerated")
    nic = refused_node("n", "NodeResourcesFit", "it has no nic, the pod asks", "Insufficient nic")
    rules = (*node.refused_by, *taint.refused_by, *nic.refused_by)
    [group] = groups.group_nodes([dataclasses.replace(node, refused_by=rules)])
    assert groups.predicate_of(group, "brief") == (
        "is cordoned and has the taint a:NoSchedule, which is not tolerated, and no nic"
    )
    assert groups.predicate_of(group, "least") == (
        "is cordoned and has the taint a:NoSchedule and no nic"
    )
    [group] = groups.group_nodes([short("a", free=1)])
    assert groups.predicate_of(group, "least") == "has too few free GPUs"


def test_the_nearest_miss_comes_first():
    groups_ = groups.group_nodes(
        [
            short("none", suitable=0),
            short("two missing", free=2),
            refused_node("cordoned", "NodeUnschedulable", "it is cordoned"),
        ]
    )
    assert [group.nearest for group in groups_] == ["cordoned", "two missing", "none"]


def test_a_node_with_devices_of_the_class_is_nearer_than_one_of_another_vendor():
    by_name = [short("amd", suitable=0, there=0), short("nvidia", suitable=0, there=8)]
    assert [group.nearest for group in groups.group_nodes(by_name)] == ["nvidia", "amd"]


def test_a_cordoned_node_with_devices_is_nearer_than_a_full_one():
    full = refused_node(
        "a", "NodeResourcesFit", "it runs 110 pods and may run 110", "Too many pods"
    )
    cordoned = refused_node("b", "NodeUnschedulable", "it is cordoned")
    assert [group.nearest for group in groups.group_nodes([full, cordoned])] == ["b", "a"]


def test_holders_are_named_only_where_freeing_would_suffice():
    holder = Holder(device=DeviceID("d", "p", "a"), claims=("default/other",))
    for suitable, told in [(8, ", others held by claims"), (6, "")]:
        node = short("n", needed=7, free=2, suitable=suitable)
        count = dataclasses.replace(node.shortage.counts[0], holders=(holder,))
        node = dataclasses.replace(node, shortage=Shortage(counts=(count,)))
        [group] = groups.group_nodes([node])
        have = "2 free" if suitable == 8 else "6 suit"
        assert f"(7 needed, {have}{told})" in group.text


def test_the_reason_behind_a_held_device_is_the_cause():
    node = short("n", suitable=0)
    held = Reason(rule="held", text="held by claim other")
    memory = Reason(rule="selector", text="memory is 80Gi")
    vendor = Reason(rule="class", text='vendor is "intel"')
    devices = (
        DeviceVerdict(device=DeviceID("d", "p", "intel"), reasons=(vendor,)),
        DeviceVerdict(device=DeviceID("d", "p", "nvidia"), reasons=(held, memory)),
    )
    request = RequestVerdict(request="gpus", needed=4, devices=devices)
    claims = (ClaimVerdict(claim="default/train", requests=(request,)),)
    [group] = groups.group_nodes([dataclasses.replace(node, claims=claims)])
    assert group.text.endswith(": memory is 80Gi")
    assert group.brief == "too few GPUs that suit (4 needed, 0 suit)"


@pytest.mark.parametrize(
    ("rule", "message", "detail", "told"),
    [
        ("NodeUnschedulable", "", "it is cordoned", "is cordoned"),
        (
            "TaintToleration",
            "",
            "taint a=b:NoSchedule is not tolerated",
            "has the taint a=b:NoSchedule, which is not tolerated",
        ),
        (
            "TaintToleration",
            "",
            "it is not ready: taint node.kubernetes.io/not-ready:NoSchedule is not tolerated",
            "is not ready",
        ),
        ("TaintToleration", "", "it is not ready: cgroups", "is not ready"),
        (
            "NodeAffinity",
            "",
            "nodeSelector asks for pool=a, it has pool=b",
            "does not match the nodeSelector pool=a",
        ),
        (
            "NodeAffinity",
            "",
            "its labels do not match the pod's node affinity",
            "does not match the pod's node affinity",
        ),
        (
            "NodeResourcesFit",
            "Insufficient cpu",
            "cpu: the pod requests 8, 4 of 64 are left",
            "has too little cpu left",
        ),
        (
            "NodeResourcesFit",
            "Insufficient a/b",
            "it has no a/b, the pod requests 8",
            "has no a/b",
        ),
        (
            "NodeResourcesFit",
            "Too many pods",
            "it runs 110 pods and may run 110",
            "has no room for another pod",
        ),
        (
            "NodePorts",
            "",
            "host port 80/TCP is taken by pod a/b",
            "has host port 80/TCP taken",
        ),
        (
            "DynamicResources",
            "",
            "claim a/b is allocated on node n",
            "does not have the devices that claim a/b got already, on node n",
        ),
        (
            "PodTopologySpread",
            "",
            "topology spread over zone: zone a has 1 of its pods, zone b has 0, and maxSkew is 1",
            "is refused by topology spread over zone: zone b has fewer matching pods",
        ),
        (
            "PodTopologySpread",
            "",
            "topology spread over zone: zone a has 1 of its pods, zone b has 0, and maxSkew is 1, "
            "so only zone b is allowed",
            "is refused by topology spread over zone, which allows only zone b (fewest matching pods)",
        ),
        ("Other", "", "anything", "is refused: anything"),
        ("InterPodAffinity", "", "it has no label a: near to b", "has no label a: near to b"),
    ],
)
def test_rules_in_words_that_hold_for_many_nodes(rule, message, detail, told):
    [group] = groups.group_nodes([refused_node("n", rule, detail, message)])
    assert groups.predicate_of(group) == told
    assert group.have_devices == 1


def test_several_rules_are_told_together():
    cpu = refused_node("n", "NodeResourcesFit", "cpu: the pod requests 8, 4 of 64 are left")
    memory = refused_node("n", "NodeResourcesFit", "memory: …", "Insufficient memory").refused_by
    both = NodeAnswer(node="n", outcome="no", summary="", refused_by=(*cpu.refused_by, *memory))
    [group] = groups.group_nodes([both])
    assert groups.predicate_of(group).endswith(" and too little memory left")


def test_an_error_an_incomplete_pool_and_no_driver():
    error = NodeAnswer(
        node="a", outcome="error", summary="claim a/b: selector 1 on device d/p/a: no"
    )
    late = NodeAnswer(node="b", outcome="unknown", summary="not decided")
    torn = NodeAnswer(
        node="c", outcome="no", summary="no driver …", pools=("pool x is incomplete: 1 of 2",)
    )
    bare = NodeAnswer(node="d", outcome="no", summary="no driver …")
    assert {
        groups.predicate_of(group) for group in groups.group_nodes([error, late, torn, bare])
    } == {
        "has an error: selector 1: no",
        "is not decided in time",
        "has no devices that can be used: a pool is incomplete",
        "has no driver with devices",
    }


def test_of_nodes_that_are_alike_not_all_may_have_figures():
    counted_node = dataclasses.replace(short("a"), outcome="unknown")
    without = dataclasses.replace(counted_node, node="b", shortage=Shortage())
    for nodes in ([counted_node, without], [without, counted_node]):
        [group] = groups.group_nodes(nodes)
        assert groups.predicate_of(group) == "are not decided in time"


def alike(answer, node):
    return dataclasses.replace(answer, like=node)


def test_of_equals_the_one_that_is_known_in_full_is_the_nearest():
    assert (
        groups.group_nodes([alike(short("a", free=3), "b"), short("b", free=3)])[0].nearest == "b"
    )
    assert (
        groups.group_nodes([alike(short("a", free=3), "b"), short("b", free=1)])[0].nearest == "a"
    )
    assert groups.group_nodes([short("a", free=3), short("b", free=3)])[0].nearest == "a"
    assert (
        groups.group_nodes([alike(short("a", free=1), "c"), alike(short("b", free=1), "c")])[
            0
        ].nearest
        == "a"
    )


def test_of_groups_that_are_equally_near_the_larger_comes_first():
    cordoned = [refused_node(name, "NodeUnschedulable", "it is cordoned") for name in "ab"]
    groups_ = groups.group_nodes([refused_node("c", "Other", "anything"), *cordoned])
    assert [group.nodes for group in groups_] == [("a", "b"), ("c",)]


@pytest.mark.parametrize(
    ("node", "distance"),
    [
        (short("n", free=3), (0, 1, 0)),
        (short("n", free=1), (0, 3, 0)),
        # Enough devices are free, but they cannot be allocated together.
        (short("n", free=4), (0, 1, 0)),
        (short("n", free=3, refused_by=(CORDONED, FULL)), (0, 4, 3)),
        (short("n", suitable=0), (1, 4, 0)),
        (short("n", suitable=0, there=0), (2, 4, 0)),
        (dataclasses.replace(short("n"), shortage=Shortage()), (3, 0, 0)),
        (dataclasses.replace(short("n"), devices="error"), (3, 0, 0)),
        (dataclasses.replace(short("n"), devices="yes"), (0, 0, 0)),
        (dataclasses.replace(short("n"), devices=None, refused_by=(OTHER,)), (0, 4, 4)),
    ],
)
def test_how_far_a_node_is_from_good(node, distance):
    assert groups.distance(node) == distance


def test_rules_with_the_same_verb_share_it():
    def both(*refusals):
        answers = [refused_node("n", *refusal) for refusal in refusals]
        together = tuple(node.refused_by[0] for node in answers)
        return NodeAnswer(node="n", outcome="no", summary="", refused_by=together)

    cordoned = ("NodeUnschedulable", "it is cordoned")
    other, taint = (
        ("Other", "anything"),
        ("TaintToleration", "taint a=b:NoSchedule is not tolerated"),
    )
    for refusals, told in (
        ((cordoned, other), "is cordoned and refused: anything"),
        ((cordoned, taint), "is cordoned and has the taint a=b:NoSchedule, which is not tolerated"),
        ((cordoned, cordoned), "is cordoned"),
    ):
        assert groups.predicate_of(groups.group_nodes([both(*refusals)])[0]) == told


@pytest.mark.parametrize(
    ("rule", "detail", "told"),
    [
        (
            "TaintToleration",
            "its kubelet has stopped reporting: taint a:NoSchedule is not tolerated",
            "is unreachable: its kubelet has stopped reporting",
        ),
        (
            "NodeAffinity",
            "the pod's node affinity names node b, it is n",
            "is not meant: the pod's node affinity names node b",
        ),
        ("NodeAffinity", "anything", "is refused: anything"),
    ],
)
def test_more_rules(rule, detail, told):
    assert groups.predicate_of(groups.group_nodes([refused_node("n", rule, detail)])[0]) == told


def counted_node(count, *devices, request="gpus"):
    verdict = RequestVerdict(request=request, needed=count.needed, devices=devices)
    return NodeAnswer(
        node="n",
        outcome="no",
        devices="no",
        summary="",
        shortage=Shortage(counts=(count,)),
        claims=(ClaimVerdict(claim="default/train", requests=(verdict,)),),
    )


def count(needed=2, there=4, suitable=4, free=0, requests=("default/train: gpus",), **more):
    return Count(
        noun="GPUs",
        needed=needed,
        there=there,
        suitable=suitable,
        free=free,
        requests=requests,
        **more,
    )


def verdict(name, *reasons):
    return DeviceVerdict(
        device=DeviceID("d", "p", name),
        reasons=tuple(Reason(rule=rule, text=text) for rule, text in reasons),
    )


def test_what_keeps_most_of_the_nearest_devices_away():
    used = [
        verdict("a", ("consumed", "8Gi of memory are left; claim a has 4Gi")),
        verdict("b", ("consumed", "8Gi of memory are left; claim b has 4Gi")),
        verdict("c", ("taint", "it is tainted; twice")),
    ]
    assert groups.obstacle(count(), counted_node(count(), *used)) == "8Gi of memory are left"
    assert groups.obstacle(count(), counted_node(count(), *used[2:])) == "it is tainted; twice"
    # The holders differ between nodes, and other requests do not matter.
    held = verdict("d", ("held", "claim a"))
    assert groups.obstacle(count(), counted_node(count(), held)) == ""
    assert groups.obstacle(count(), counted_node(count(), *used, request="others")) == ""
    # A device with two reasons counts only if no device has a single one.
    far = verdict("e", ("selector", "model"), ("taint", "it is tainted"))
    assert groups.obstacle(count(), counted_node(count(), far)) == "model"
    assert groups.obstacle(count(), counted_node(count(), far, used[2])) == "it is tainted; twice"


HOLDERS = (Holder(device=DeviceID("d", "p", "a"), claims=("default/other",)),)


@pytest.mark.parametrize(
    ("short_of", "told"),
    [
        (count(there=1, suitable=1, free=1), "has too few GPUs (2 needed, 1 there)"),
        (count(suitable=1, free=1), "has too few GPUs that suit (2 needed, 1 suit)"),
        (count(free=1), "has too few free GPUs (2 needed, 1 free)"),
        (
            count(free=1, holders=HOLDERS),
            "has too few free GPUs (2 needed, 1 free, others held by claims)",
        ),
        (
            count(there=2, suitable=2, free=0, scope="under one pcieRoot"),
            "has too few free GPUs under one pcieRoot (2 needed, 0 free)",
        ),
        (
            count(there=0, suitable=0, scope="with one numaNode"),
            "has too few GPUs with one numaNode (2 needed, 0 there)",
        ),
    ],
)
def test_of_what_there_are_too_few(short_of, told):
    assert (
        groups.predicate_of(groups.group_nodes([counted_node(short_of, verdict("a"))])[0]) == told
    )


def test_what_does_not_go_together():
    node = dataclasses.replace(
        counted_node(count(), verdict("a")),
        shortage=Shortage(),
        summary="claim default/train: no two of them are under one root",
    )
    told = "has not all together: no two of them are under one root"
    assert groups.predicate_of(groups.group_nodes([node])[0]) == told
    plain = dataclasses.replace(node, summary="something: else")
    assert (
        groups.predicate_of(groups.group_nodes([plain])[0])
        == "has not all together: something: else"
    )


def test_an_invalid_pool():
    node = NodeAnswer(node="n", outcome="no", summary="", pools=("pool x is invalid: twice",))
    assert groups.predicate_of(groups.group_nodes([node])[0]) == (
        "has no devices that can be used: a pool is invalid"
    )


def test_good_nodes_are_in_no_group():
    assert groups.group_nodes([NodeAnswer(node="n", outcome="yes", summary="")]) == ()
