"""Answers as text: few lines for many nodes, and one node in full."""

from plugin.explain import groups, headline, text
from plugin.explain.answer import Answer, NodeAnswer
from plugin.scheduling.filters import Refusal


def nodes(count, outcome="no", first=0, **more):
    return [
        NodeAnswer(node=f"node-{index}", outcome=outcome, **{"summary": "", **more})
        for index in range(first, first + count)
    ]


def answer(*places, **more):
    return headline.completed(
        Answer(
            subject="pod default/job",
            can="could run it",
            nodes=places,
            groups=groups.of(places),
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


def refused(count, *rules, first=0):
    by = tuple(Refusal(rule=rule, message="", detail=detail) for rule, detail in rules)
    details = tuple(refusal.detail for refusal in by)
    return nodes(count, refusals=details, refused_by=by, summary="; ".join(details), first=first)


CORDONED = ("NodeUnschedulable", "it is cordoned")


def other(index):
    return ("NodeAffinity", f"nodeSelector asks for pool={index}, it has no label pool")


def test_nodes_that_are_refused_alike_are_one_line():
    told = lines(*refused(6, CORDONED), *refused(1, other(1), first=6))
    assert told == [
        "pod default/job: 0 of 7 nodes could run it: "
        "6 are cordoned; node-6 does not match the nodeSelector pool=1",
        "",
        "6 nodes are cordoned: node-0, node-1, node-2, node-3 and 2 more",
        "",
        "node node-6: no: nodeSelector asks for pool=1, it has no label pool",
    ]


def test_a_large_cluster_is_one_screen():
    many = [node for index in range(500) for node in refused(1, other(index), first=index)]
    short = nodes(500, first=500, summary="lacks", devices="no")
    told = lines(*many, *short, *nodes(500, "yes", first=1000))
    assert len(told) < 40
    assert "and 994 more nodes for other reasons: look with --node, --all or -o json" in told


def test_wide_has_each_node():
    told = lines(*refused(6, CORDONED), *nodes(3, "yes", first=6), wide=True)
    assert [line for line in told if line.startswith("node ")] == [
        *(f"node node-{index}: yes" for index in range(6, 9)),
        *(f"node node-{index}: no: it is cordoned" for index in range(6)),
    ]


def test_one_node_is_told_of_in_full():
    [place] = refused(1, CORDONED)
    assert lines(place)[2] == "node node-0: no: it is cordoned"


def test_as_data_has_a_version_and_the_verdict():
    data = text.as_data(answer(*refused(1, CORDONED), verdict="pending"))
    assert data["version"] == "claimd.dev/explain/v2"
    assert data["verdict"] == "pending"
    assert data["groups"][0]["nodes"] == ("node-0",)
    assert data["nodes"][0]["refused_by"][0]["rule"] == "NodeUnschedulable"
