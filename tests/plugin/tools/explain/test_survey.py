"""The survey of all waiting pods, grouped by what they wait for."""

import itertools
import json

import pytest

from claimd.tools.explain import objects, sources, survey, text
from tests.support.cluster_objects import (
    claim,
    class_,
    container,
    gpus,
    name,
    node,
    pod,
    slice_,
    template,
)


@pytest.fixture
def ask(tmp_path):
    def of(*documents, **more):
        path = tmp_path / "dump.json"
        path.write_text(json.dumps({"kind": "List", "items": [class_(), *documents]}))
        return survey.survey_pods(sources.read_files([path]), **more)

    return of


def waiting(called, template_name="two", namespace="default", **spec):
    pod_ = pod(
        called,
        resourceClaims=[{"name": "gpus", "resourceClaimTemplateName": template_name}],
        **spec,
    )
    pod_["metadata"]["namespace"] = namespace
    return pod_


CLUSTER = (
    node("node-1"),
    slice_(gpus(2)),
    claim("other", held=[name(0)]),
    template("one", claim(count=1)),
    template("two", claim(count=2)),
)


def test_pods_that_wait_for_the_same_go_together(ask):
    result = ask(
        *CLUSTER,
        *(waiting(f"web-{index}") for index in range(5)),
        waiting("small", "one"),
        waiting("big", "one", containers=[container(cpu="100")]),
        pod("placed", nodeName="node-1"),
    )
    assert result.line == "7 pods wait for a node: 6 cannot run, 1 could run, for 2 reasons"
    assert [(group.verdict, len(group.pods)) for group in result.groups] == [
        ("pending", 5),
        ("pending", 1),
        ("could run", 1),
    ]
    told = text.survey_text(result).splitlines()
    assert told[3].startswith("5 pods: 0 of 1 nodes could run it: ")
    assert told[4] == "    default/web-0, default/web-1, default/web-2, default/web-3 and 1 more"


def test_of_one_namespace(ask):
    elsewhere = waiting("there", "gone", namespace="elsewhere")
    assert ask(*CLUSTER, waiting("here"), elsewhere).line.startswith("2 pods wait")
    result = ask(*CLUSTER, waiting("here"), elsewhere, namespace="elsewhere")
    assert result.line == "1 pod waits for a node: 1 cannot run"
    assert result.groups[0].line == "claim template elsewhere/gone does not exist"


def test_nothing_waits(ask):
    result = ask(*CLUSTER)
    assert text.survey_text(result) == "no pod waits for a node\n"
    assert text.survey_data(result)["groups"] == ()


def test_as_data_without_each_node(ask):
    [group] = text.survey_data(ask(*CLUSTER, waiting("web")))["groups"]
    assert group["pods"] == ("default/web",)
    assert group["verdict"] == "pending"
    assert "nodes" not in group["answer"]
    assert group["answer"]["groups"][0]["nodes"] == ("node-1",)


def test_without_time_what_is_not_decided_is_told(ask):
    """After the time limit no node is judged, but blockers are still reported."""
    result = ask(*CLUSTER, waiting("web"), waiting("lost", "gone"), time_limit=0.0)
    assert [group.verdict for group in result.groups] == ["pending", "unknown"]
    assert result.groups[1].pods == ("default/web",)


def test_many_groups_are_one_screen(ask):
    pods = [waiting(f"web-{index}", f"gone-{index}") for index in range(50)]
    told = text.survey_text(ask(*CLUSTER, *pods)).splitlines()
    assert len(told) < 60
    assert told[-1] == "and 38 more pods for other reasons: look with -o json"


def test_changes_are_told(ask):
    result = ask(*CLUSTER, waiting("web"), changes=["node node-1 were free"])
    assert "as if: node node-1 were free" in result.notes


def test_without_permission_nothing_is_said_of_the_pods():
    cluster = objects.Objects(unseen=["pods"])
    for document in (class_(), *CLUSTER):
        cluster.add(document)
    result = survey.survey_pods(cluster)
    assert result.line == "whether pods wait for a node is not known: not allowed to see pods"
    assert result.notes == ("not allowed to see pods: the answer may be wrong",)


def test_what_is_not_seen_is_told():
    cluster = objects.Objects(unseen=["pods of other namespaces"])
    for document in (class_(), *CLUSTER, waiting("web")):
        cluster.add(document)
    assert "what they use of nodes is not counted" in survey.survey_pods(cluster).notes[0]


def test_pods_come_by_name_whatever_the_order_of_the_dump(ask):
    for order in itertools.permutations([waiting("b"), waiting("c"), waiting("a")]):
        [group] = ask(*CLUSTER, template("two", claim(count=3)), *order).groups
        assert group.pods == ("default/a", "default/b", "default/c")


def grouped_line(*verdicts_and_sizes):
    """Returns the line of a survey with groups of these sizes."""
    groups = [
        survey.PodGroup(
            line=f"line {index}",
            verdict=verdict,
            pods=tuple(f"p{number}" for number in range(size)),
            answer=None,
        )
        for index, (verdict, size) in enumerate(verdicts_and_sizes)
    ]
    return survey._line(groups, sum(size for _, size in verdicts_and_sizes))


@pytest.mark.parametrize(
    ("groups", "line"),
    [
        ([], "no pod waits for a node"),
        ([("could run", 1)], "1 pod waits for a node: 1 could run"),
        ([("pending", 2)], "2 pods wait for a node: 2 cannot run"),
        ([("pending", 2), ("pending", 1)], "3 pods wait for a node: 3 cannot run, for 2 reasons"),
        (
            [("could run", 3), ("unknown", 2), ("pending", 1)],
            "6 pods wait for a node: 1 cannot run, 2 not decided, 3 could run",
        ),
    ],
)
def test_the_line(groups, line):
    assert grouped_line(*groups) == line


def test_one_pod_is_not_looked_at_beside_others(ask):
    assert ask(*CLUSTER, waiting("a")).notes == ()
    [note] = ask(*CLUSTER, waiting("a"), waiting("b")).notes
    assert note.startswith("each pod is looked at by itself")


def test_the_largest_group_comes_first_and_what_could_run_last(ask):
    small = [waiting(f"s{index}", "one") for index in range(3)]
    result = ask(*CLUSTER, *small, waiting("b", "gone"), waiting("a", "lost"))
    assert [group.pods[0] for group in result.groups] == ["default/a", "default/b", "default/s0"]
