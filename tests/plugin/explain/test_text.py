"""Answers as text: few lines for many nodes, and one node in full."""

from plugin.explain import text
from plugin.explain.answer import Answer, NodeAnswer


def nodes(count, outcome="no", first=0, **more):
    return [
        NodeAnswer(node=f"node-{index}", outcome=outcome, **{"summary": "", **more})
        for index in range(first, first + count)
    ]


def lines(*places, **more):
    answer = Answer(subject="pod default/job", can="could run it", nodes=tuple(places), **more)
    return text.as_text(answer).splitlines()


def test_the_first_line_is_the_answer():
    assert lines(*nodes(2, "yes"))[0] == "pod default/job: 2 of 2 nodes could run it"
    assert lines(*nodes(1, "unknown"), *nodes(1, first=1))[0] == (
        "pod default/job: 0 of 2 nodes could run it, 1 not decided in time"
    )
    assert lines() == ["pod default/job"]


def test_what_stands_before_all_nodes_is_the_answer():
    told = lines(*nodes(1, "yes"), blockers=("it waits", "and waits"), notes=("a note",))
    assert told[:4] == [
        "pod default/job: it waits",
        "  also: and waits",
        "  without that: 1 of 1 nodes could run it",
        "  note: a note",
    ]


def refused(count, *refusals, first=0):
    return nodes(count, refusals=refusals, summary="; ".join(refusals), first=first)


def test_nodes_that_are_refused_alike_are_one_line():
    told = lines(*refused(6, "it is cordoned"), *refused(1, "it is full", first=6))
    assert told[1:] == [
        "",
        "node node-0, node-1, node-2, node-3 and 2 more: no: it is cordoned".replace("node node-0", "nodes node-0"),
        "node node-6: no: it is full",
    ]  # fmt: skip


def test_a_large_cluster_is_one_screen():
    many = [node for index in range(500) for node in refused(1, f"reason {index}", first=index)]
    short = [
        NodeAnswer(node=f"n-{index}", outcome="no", summary=f"lacks {index}")
        for index in range(500)
    ]
    told = lines(*many, *short, *nodes(500, "yes", first=1000))
    assert len(told) < 40
    assert "and 494 more nodes for other reasons: look with --node or -o json" in told


def test_one_node_is_told_of_in_full():
    [place] = refused(1, "it is cordoned")
    assert lines(place)[2] == "node node-0: no: it is cordoned"
