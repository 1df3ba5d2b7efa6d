"""The scores of feasible nodes, with the weights of kube-scheduler."""

import pytest

from claimd.kubernetes.scheduling import neighbours, preferences
from claimd.kubernetes.scheduling.objects import Node, Pod
from tests.support.allocating import read


def node(name, zone="a", taints=()):
    labels = {"kubernetes.io/hostname": name, "zone": zone, "size": str(len(name))}
    spec = {"taints": [{"key": key, "effect": "PreferNoSchedule"} for key in taints]}
    return read({"metadata": {"name": name, "labels": labels}, "spec": spec}, Node)


def pod(name="p", on="", app="web", **spec):
    metadata = {"name": name, "namespace": "default", "labels": {"app": app}}
    return read({"metadata": metadata, "spec": {"nodeName": on} | spec}, Pod)


def term(key="zone", app="web"):
    return {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}


def scores(asking, *nodes, others=()):
    by_node = {}
    for other in others:
        by_node.setdefault(other.spec.node_name, []).append(other)
    return preferences.scores(
        asking,
        nodes,
        {each.metadata.name: each for each in nodes},
        by_node,
        [other for other in others if neighbours.is_watchful(other)],
        {},
    )


def test_where_nothing_is_preferred_all_are_alike():
    assert scores(pod(), node("x"), node("y"), others=[pod("q", on="x")]) == {"x": 0, "y": 0}


def test_taints_that_are_a_preference():
    nodes = node("x", taints="ab"), node("y", taints="a"), node("z")
    assert scores(pod(), *nodes) == {"x": 0, "y": 150, "z": 300}
    tolerant = pod(tolerations=[{"key": "b", "operator": "Exists"}])
    assert scores(tolerant, *nodes) == {"x": 0, "y": 0, "z": 300}


def prefers(*weights):
    """Each preference is a weight and a requirement of a label."""
    terms = [
        {"weight": weight, "preference": {"matchExpressions": [requirement]}}
        for weight, requirement in weights
    ]
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}


def test_node_affinity_that_is_a_preference():
    in_a = {"key": "zone", "operator": "In", "values": ["a"]}
    large = {"key": "size", "operator": "Gt", "values": ["1"]}
    nodes = node("x"), node("yy"), node("zz", zone="b"), node("w", zone="b")
    asking = pod(affinity=prefers((30, in_a), (10, large)))
    assert scores(asking, *nodes) == {"x": 150, "yy": 200, "zz": 50, "w": 0}
    odd = {"key": "size", "operator": "Gt", "values": ["many"]}
    assert scores(pod(affinity=prefers((30, odd))), *nodes) == dict.fromkeys(
        ("x", "yy", "zz", "w"), 0
    )


def test_spreading_that_need_not_hold():
    constraint = {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    asking = pod(topologySpreadConstraints=[constraint])
    nodes = node("x"), node("y"), node("z", zone="b")
    others = [pod("q", on="x"), pod("r", on="x"), pod("s", on="z")]
    # 2 * ln(4) and 1 * ln(4), rounded: 3 and 1.
    assert scores(asking, *nodes, others=others) == {"x": 66, "y": 66, "z": 200}
    assert scores(asking, *nodes) == {"x": 200, "y": 200, "z": 200}
    by_host = pod(
        topologySpreadConstraints=[constraint | {"topologyKey": "kubernetes.io/hostname"}]
    )
    scores_ = scores(by_host, *nodes, others=others)
    assert scores_["y"] > scores_["z"] > scores_["x"]
    lacking = read({"metadata": {"name": "bare", "labels": {}}}, Node)
    assert scores(asking, *nodes, lacking, others=others)["bare"] == 0


@pytest.mark.parametrize(("kind", "better"), [("podAffinity", "x"), ("podAntiAffinity", "z")])
def test_pods_that_it_would_rather_be_near_to_or_far_from(kind, better):
    preferred = {"weight": 5, "podAffinityTerm": term()}
    affinity = {kind: {"preferredDuringSchedulingIgnoredDuringExecution": [preferred]}}
    nodes = node("x"), node("z", zone="b")
    scores_ = scores(pod(affinity=affinity), *nodes, others=[pod("q", on="x")])
    assert scores_ == {"x": 0, "z": 0} | {better: 200}

    # The preferences of the other pods count as much.
    there = pod("q", on="x", affinity=affinity)
    assert scores(pod(), *nodes, others=[there]) == {"x": 0, "z": 0} | {better: 200}
    assert scores(pod(app="job"), *nodes, others=[there]) == {"x": 0, "z": 0}


def test_a_pod_that_needs_the_other_draws_it():
    needs = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term()]}}
    nodes = node("x"), node("z", zone="b")
    assert scores(pod(), *nodes, others=[pod("q", on="x", affinity=needs)]) == {"x": 200, "z": 0}


def test_pods_of_a_node_that_is_not_known_and_nodes_that_are_alike_change_nothing():
    wish = {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 10, "podAffinityTerm": term()}
        ]
    }
    asking = pod(affinity={"podAffinity": wish})
    nodes = node("x"), node("y")
    gone = pod("q", on="no-node", affinity={"podAffinity": wish})
    assert scores(asking, *nodes, others=[gone]) == {"x": 0, "y": 0}
    there = pod("r", on="x", affinity={"podAffinity": wish})
    assert scores(asking, *nodes, others=[there]) == {"x": 0, "y": 0}, "both are in its zone"
    assert scores(asking, *nodes, node("z", zone="b"), others=[there, gone])["x"] > 0
