"""Nodes by what keeps a pod away: which go together, and which is the nearest miss."""

import dataclasses

import pytest

from plugin.allocator.causes import Count, Shortage
from plugin.allocator.identity import DeviceID
from plugin.allocator.verdicts import ClaimVerdict, DeviceVerdict, Reason, RequestVerdict
from plugin.explain import groups
from plugin.explain.answer import NodeAnswer
from plugin.scheduling.filters import Refusal


def device(name, *reasons):
    made = tuple(Reason(rule="selector", text=reason) for reason in reasons)
    return DeviceVerdict(device=DeviceID("d", "p", name), reasons=made)


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


def refused(name, rule, detail, message="", **more):
    refusal = Refusal(rule=rule, message=message, detail=detail)
    return NodeAnswer(
        node=name,
        outcome="no",
        summary=detail,
        refusals=(detail,),
        refused_by=(refusal,),
        **{"devices": "yes", **more},
    )


def test_nodes_that_are_short_alike_go_together_with_their_figures():
    [group] = groups.of([short("a", free=1), short("b", free=3), short("c", free=2)])
    assert groups.said_of(group) == "have too few free GPUs (4 needed, 1 to 3 free)"
    assert group.nodes == ("a", "b", "c")
    assert group.nearest == "b"


def test_all_devices_are_more_on_one_node_than_on_another():
    [group] = groups.of([short("a", needed=4, free=3), short("b", needed=8, free=7)])
    assert groups.said_of(group) == "have too few free GPUs (4 to 8 needed, 3 to 7 free)"


def test_the_reason_of_the_nearest_devices_is_told():
    [group] = groups.of([short("a", suitable=0, reasons=["memory is 40Gi"])])
    assert groups.said_of(group) == (
        "has too few GPUs that suit (4 needed, 0 suit): memory is 40Gi"
    )


def test_the_nearest_miss_comes_first():
    found = groups.of(
        [
            short("none", suitable=0),
            short("two missing", free=2),
            refused("cordoned", "NodeUnschedulable", "it is cordoned"),
        ]
    )
    assert [group.nearest for group in found] == ["cordoned", "two missing", "none"]


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
            "has as many pods as they may",
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
        ("Other", "", "anything", "is refused: anything"),
    ],
)
def test_rules_in_words_that_hold_for_many_nodes(rule, message, detail, told):
    [group] = groups.of([refused("n", rule, detail, message)])
    assert groups.said_of(group) == told
    assert group.have_devices == 1


def test_several_rules_are_told_together():
    cpu = refused("n", "NodeResourcesFit", "cpu: the pod requests 8, 4 of 64 are left")
    memory = refused("n", "NodeResourcesFit", "memory: …", "Insufficient memory").refused_by
    both = NodeAnswer(node="n", outcome="no", summary="", refused_by=(*cpu.refused_by, *memory))
    [group] = groups.of([both])
    assert groups.said_of(group).endswith(" and too little memory left")


def test_an_error_an_incomplete_pool_and_no_driver():
    error = NodeAnswer(
        node="a", outcome="error", summary="claim a/b: selector 1 on device d/p/a: no"
    )
    late = NodeAnswer(node="b", outcome="unknown", summary="not decided")
    torn = NodeAnswer(
        node="c", outcome="no", summary="no driver …", pools=("pool x is incomplete: 1 of 2",)
    )
    bare = NodeAnswer(node="d", outcome="no", summary="no driver …")
    assert {groups.said_of(group) for group in groups.of([error, late, torn, bare])} == {
        "has an error: selector 1: no",
        "is not decided in time",
        "has no devices that can be used: a pool is incomplete",
        "has no driver with devices",
    }


def test_of_nodes_that_are_alike_not_all_may_have_figures():
    counted = dataclasses.replace(short("a"), outcome="unknown")
    without = dataclasses.replace(counted, node="b", shortage=Shortage())
    for nodes in ([counted, without], [without, counted]):
        [group] = groups.of(nodes)
        assert groups.said_of(group) == "are not decided in time"
