"""Answers as text: few lines for many nodes, and one node in full."""

import dataclasses

from claimd.kubernetes.allocator.causes import Change, Count, Holder, Remedy, Shortage
from claimd.kubernetes.allocator.identity import DeviceID
from claimd.kubernetes.allocator.verdicts import ClaimVerdict, DeviceVerdict, Reason, RequestVerdict
from claimd.kubernetes.scheduling.filters import Refusal
from claimd.tools.explain import groups, headline, text
from claimd.tools.explain.answer import Answer, NodeAnswer, Quote


def nodes(count, outcome="no", first=0, **more):
    return [
        NodeAnswer(node=f"node-{index}", outcome=outcome, **{"summary": "", **more})
        for index in range(first, first + count)
    ]


def answer(*places, **more):
    return headline.with_line(
        Answer(
            subject="pod default/job",
            can="could run it",
            nodes=places,
            groups=groups.group_nodes(places),
            **more,
        )
    )


def lines(*places, wide=False, **more):
    return text.as_text(answer(*places, **more), wide=wide).splitlines()


def test_the_first_line_is_the_answer():
    assert lines(*nodes(2, "yes"))[0] == "pod default/job: 2 of 2 nodes could run it"
    assert lines(*nodes(1, "unknown"), *nodes(1, "yes", first=1))[0] == (
        "pod default/job: 1 of 2 nodes could run it, 1 not decided in time"
    )
    assert lines() == ["pod default/job: no nodes are known"]


def test_what_stands_before_all_nodes_is_the_answer():
    told = lines(*nodes(1, "yes"), blockers=("it waits", "and waits"), notes=("a note",))
    assert told[:4] == [
        "pod default/job: it waits",
        "  also: and waits",
        "  without that: 1 of 1 nodes could run it",
        "  note: a note",
    ]


def test_what_removes_a_blocker_stands_below_it():
    told = lines(
        *nodes(1, "yes"), blockers=("it waits",), details=("a detail",), remedies=("end it",)
    )
    assert told[1:4] == [
        "  a detail",
        "  would help: end it",
        "  without that: 1 of 1 nodes could run it",
    ]


def refused_nodes(count, *rules, first=0):
    by = tuple(Refusal(rule=rule, message="", detail=detail) for rule, detail in rules)
    details = tuple(refusal.detail for refusal in by)
    return nodes(count, refusals=details, refused_by=by, summary="; ".join(details), first=first)


CORDONED = ("NodeUnschedulable", "it is cordoned")


def other(index):
    return ("NodeAffinity", f"nodeSelector asks for pool={index}, it has no label pool")


def test_nodes_that_are_refused_alike_are_one_line():
    told = lines(*refused_nodes(6, CORDONED), *refused_nodes(1, other(1), first=6))
    assert told == [
        "pod default/job: 0 of 7 nodes could run it: "
        "6 are cordoned; node-6 does not match the nodeSelector pool=1",
        "",
        "6 nodes are cordoned: node-0, node-1, node-2, node-3 and 2 more",
        "",
        "node node-6: no: nodeSelector asks for pool=1, it has no label pool",
    ]


def test_a_large_cluster_is_one_screen():
    many = [node for index in range(500) for node in refused_nodes(1, other(index), first=index)]
    short = nodes(500, first=500, summary="lacks", devices="no")
    told = lines(*many, *short, *nodes(500, "yes", first=1000))
    assert len(told) < 40
    assert "and 994 more nodes for other reasons: look with --node, --all or -o json" in told


def test_wide_has_each_node():
    told = lines(*refused_nodes(6, CORDONED), *nodes(3, "yes", first=6), wide=True)
    assert [line for line in told if line.startswith("node ")] == [
        *(f"node node-{index}: yes" for index in range(6, 9)),
        *(f"node node-{index}: no: it is cordoned" for index in range(6)),
    ]


def test_one_node_is_told_of_in_full():
    [place] = refused_nodes(1, CORDONED)
    assert lines(place)[2] == "node node-0: no: it is cordoned"


def test_as_data_has_a_version_and_the_verdict():
    data = text.as_data(answer(*refused_nodes(1, CORDONED), verdict="pending"))
    assert data["version"] == "claimd.dev/explain/v2"
    assert data["verdict"] == "pending"
    assert data["groups"][0]["nodes"] == ("node-0",)
    assert data["nodes"][0]["refused_by"][0]["rule"] == "NodeUnschedulable"


def device(name, *reasons, pool="node-0"):
    reasons_ = tuple(Reason(rule=rule, text=words) for rule, words in reasons)
    return DeviceVerdict(device=DeviceID("d.org", pool, name), reasons=reasons_)


def judged_node(*devices, needed=1, summary="short", constraints=(), **more):
    """Returns the answer of a node that was judged for one request."""
    request = RequestVerdict(request="gpus", needed=needed, devices=devices)
    claim = ClaimVerdict(claim="default/c", requests=(request,), constraints=constraints)
    fields = {"node": "node-0", "outcome": "no", "summary": summary, "devices": "no"}
    return NodeAnswer(**fields | more, claims=(claim,))


def rows(place):
    """Returns the text about a node that is the only one."""
    return lines(place)[2:]


MODEL = ("selector", "model is a")


def test_what_a_node_would_give():
    allocation = (DeviceID("d.org", "node-0", "a"), DeviceID("d.org", "pool", "b"))
    [place] = nodes(1, "yes", allocation=allocation)
    assert rows(place) == ["node node-0: yes: would get a, pool/b"]
    alike = dataclasses.replace(place, like="pool")
    assert rows(alike) == ["node node-0: yes: would get a, b"]
    assert rows(*nodes(1, "yes")) == ["node node-0: yes"]
    assert rows(*nodes(1, "yes", summary="as it is")) == ["node node-0: yes: as it is"]
    [cordoned] = refused_nodes(1, CORDONED)
    has = dataclasses.replace(cordoned, allocation=allocation)
    assert rows(has) == ["node node-0: no: it is cordoned (the node has the devices)"]
    tolerant = dataclasses.replace(has, summary="taint a:NoSchedule is not tolerated (only b)")
    assert rows(tolerant) == [
        "node node-0: no: taint a:NoSchedule is not tolerated (only b; the node has the devices)"
    ]


def test_devices_that_lack_the_same_are_one_line_the_nearest_first():
    place = judged_node(
        device("far", MODEL, ("taint", "it is tainted")),
        device("a", ("taint", "it is tainted")),
        device("b", MODEL),
        device("c", MODEL),
        device("d", MODEL, pool="other"),
        device("fits"),
        needed=2,
        pools=("pool p is incomplete",),
    )
    assert rows(place) == [
        "node node-0: no: short",
        "  pool p is incomplete",
        "  claim default/c: request gpus needs 2, 1 of 6 devices suit",
        "    b, c and 1 more: model is a",
        "    a: it is tainted",
        "    far: model is a; it is tainted",
    ]


def test_many_reasons_are_counted():
    few = [device(f"m{number}", ("selector", f"model: {number}")) for number in range(5)]
    held = [device(f"h{number}", ("held", f"claim {number}")) for number in range(3)]
    both = device("both", ("held", "claim x"), ("taint", "tainted: y"))
    told = rows(judged_node(*few, *held, both))
    assert told[2:] == [
        "    m0: model: 0",
        "    m1: model: 1",
        "    m2: model: 2",
        "    3 more: held by claims",
        "    2 more: model",
        "    1 more: held by claims and tainted",
    ]
    odd = [device(f"o{number}", ("selector", f"odd {number}")) for number in range(3)]
    told = rows(judged_node(*few, *held, both, *odd))
    assert told[5:] == [
        "    3 more: held by claims",
        "    2 more: model",
        "    1 more: odd 0",
        "    3 more for other reasons",
    ]


def test_what_the_nodes_line_has_said_is_not_said_again():
    request = "request gpus needs 1, 0 of 1 devices suit"
    place = judged_node(device("a", MODEL), summary=f"claim default/c: {request}")
    assert rows(place)[1:] == ["    a: model is a"]
    apart = judged_node(device("a"), summary="no two", constraints=("no two", "no three"))
    assert rows(apart) == ["node node-0: no: no two", "  no three"]


def test_of_a_request_that_is_not_short_only_a_good_node_tells():
    assert rows(judged_node(device("a"), summary="no")) == ["node node-0: no: no"]
    assert rows(judged_node(summary="no")) == ["node node-0: no: no"]
    good = judged_node(device("a"), device("b", MODEL), outcome="yes", summary="")
    assert rows(good) == [
        "node node-0: yes",
        "  claim default/c: request gpus needs 1, 1 of 2 devices suit",
        "    b: model is a",
    ]


def test_good_nodes_are_three_and_a_number():
    told = lines(*nodes(5, "yes"))
    assert told[1:] == [
        "",
        "node node-0: yes",
        "",
        "node node-1: yes",
        "",
        "node node-2: yes",
        "2 more: yes",
    ]
    assert "more: yes" not in lines(*nodes(3, "yes"))[-1]


def test_what_else_is_to_be_known():
    quotes = (
        Quote(text="no nodes", differences=("we find one",)),
        Quote(text="none", when="10:00", source="event"),
    )
    told = lines(
        *refused_nodes(2, CORDONED),
        nearest="node-1",
        help=("uncordon it", "wait", "give up"),
        quotes=quotes,
        changes=("all were free",),
        notes=("a note",),
        blockers=("it waits",),
    )
    assert told[:11] == [
        "pod default/job: it waits",
        "  without that: 0 of 2 nodes could run it",
        "  nearest miss: node-1: it is cordoned",
        "  would help on node-1: uncordon it; or wait",
        '  the scheduler says: "no nodes"',
        "    but we find one",
        '  the scheduler says at 10:00: "none"',
        "  as if: all were free",
        "  note: a note",
        "",
        "2 nodes are cordoned: node-0, node-1",
    ]
    # For a single node its own line has the reason.
    assert not [
        line for line in lines(*refused_nodes(1, CORDONED), nearest="node-0") if "nearest" in line
    ]


def test_how_many_of_a_group_have_the_devices():
    cordoned = [dataclasses.replace(node, devices="yes") for node in refused_nodes(2, CORDONED)]
    assert lines(*cordoned)[-1] == "    2 of them have the devices"
    one_without = [cordoned[0], dataclasses.replace(cordoned[1], devices="no")]
    assert lines(*one_without)[-1] == "    1 of them has the devices"


def short_of(name, *devices, like=""):
    count = Count(noun="GPUs", needed=2, there=4, suitable=4, free=1, requests=("default/c: gpus",))
    place = judged_node(
        *devices, needed=2, node=name, shortage=Shortage(counts=(count,)), like=like
    )
    return place


def test_what_devices_lack_on_the_nearest_of_a_group():
    four = [device(f"a{number}", ("selector", f"model is {number}")) for number in range(4)]
    told = lines(short_of("node-0", *four), short_of("node-1", *four))
    assert told[2:] == [
        "2 nodes have too few free GPUs (2 needed, 1 free): model is 0: node-0, node-1",
        "  node node-0: no: short",
        "    claim default/c: request gpus needs 2, 0 of 4 devices suit",
        "      a0: model is 0",
        "      a1: model is 1",
    ]
    alike = [short_of(f"node-{number}", *four, like="node-9") for number in range(2)]
    assert len(lines(*alike)) == 3


def test_later_groups_are_shorter():
    places = [
        dataclasses.replace(
            judged_node(device("a", MODEL)), node=f"node-{number}", summary=f"s{number}"
        )
        for number in range(4)
    ]
    told = lines(*places)
    assert told[-1] == "node node-3: no: s3"
    assert told[-3] == "    node-0/a: model is a"


def test_data_of_a_node_that_another_was_judged_for():
    holder = Holder(device=DeviceID("d.org", "p", "x"), claims=("default/o",))
    change = Change(kind="free", count=1, holders=(holder,))
    numbers = {"noun": "GPUs", "needed": 2, "there": 4, "suitable": 4, "free": 1}
    count = Count(**numbers, holders=(holder,))
    shortage = Shortage(counts=(count,), remedies=(Remedy(changes=(change,)),))
    allocation = (DeviceID("d.org", "p", "a"),)
    own = judged_node(
        device("a", MODEL), summary=f"{count}", shortage=shortage, allocation=allocation
    )
    data = text.as_data(answer(own, dataclasses.replace(own, node="node-1", like="node-0")))
    first, second = data["nodes"]
    assert first["summary"].endswith("x is held by claim default/o")
    assert second["summary"] == "2 GPUs are needed, 1 is free"
    assert (len(first["claims"]), len(second["claims"])) == (1, 0)
    assert first["shortage"]["remedies"] and not second["shortage"]["remedies"]
    assert first["shortage"]["counts"][0]["holders"]
    assert second["shortage"]["counts"][0]["holders"] == ()
    [request] = first["claims"][0]["requests"]
    assert (request["suitable"], request["nearest"]) == (0, ["d.org/node-0/a"])
    assert request["devices"][0]["device"] == "d.org/node-0/a"
    assert first["allocation"] == ["d.org/p/a"]
    plain = text.as_data(answer(dataclasses.replace(own, like="node-9", shortage=Shortage())))
    assert plain["nodes"][0]["summary"] == f"{count}"
