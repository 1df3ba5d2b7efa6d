"""All rules about pods and nodes at once: with the pods that are there, that go, and that are to come."""

from claimd.kubernetes.scheduling import neighbours, node_rules, resources
from claimd.kubernetes.scheduling.objects import Node
from tests.support import planes
from tests.support.allocating import read

CPU = ["Insufficient cpu"]
NEAR = ["node(s) didn't match pod affinity rules"]
FAR = ["node(s) didn't match pod anti-affinity rules"]
PORTS = ["node(s) didn't have free ports for the requested pod ports"]
NODE = read(planes.node("n1", cpu="4"), Node)
OTHER = read(planes.node("n2", cpu="4"), Node)


def pod(name, on="", cpu="1", priority=0, app="web", **spec):
    document = planes.pod(name, on=on, requests={"cpu": cpu}, priority=priority, **spec)
    document["metadata"]["labels"] = {"app": app}
    (read_,) = planes.parsed(document)
    return read_


def term(app):
    term_ = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {"app": app}},
    }
    return {"requiredDuringSchedulingIgnoredDuringExecution": [term_]}


def rules(asking, *others, promised=(), **more):
    by_node, used = {}, {}
    for other in others:
        by_node.setdefault(other.spec.node_name, []).append(other)
        sums = used.setdefault(other.spec.node_name, {})
        resources.add(sums, resources.pod_requests(other))
    placement = node_rules.Placement(
        nodes={"n1": NODE, "n2": OTHER},
        pods_by_node=by_node,
        used=used,
        watchful=[other for other in others if neighbours.is_watchful(other)],
        promised={"n1": list(promised)},
        **more,
    )
    return node_rules.NodeRules(placement, asking)


def find_refusals(asking, *others, gone=(), node=NODE, **more):
    refusals = rules(asking, *others, **more).refusals(node, [other.metadata.uid for other in gone])
    return node_rules.messages(refusals)


def test_a_node_without_room_is_refused_unless_enough_pods_go():
    large, small = pod("large", on="n1", cpu="3"), pod("small", on="n1")
    asking = pod("p", cpu="2")
    assert find_refusals(asking) == []
    assert find_refusals(asking, large, small) == CPU
    assert find_refusals(asking, large, small, gone=[small]) == CPU
    assert find_refusals(asking, large, small, gone=[large]) == []
    assert find_refusals(asking, large, small, node=OTHER) == []


def test_a_pod_that_is_promised_a_place_counts_if_it_is_as_important():
    asking = pod("p", cpu="3", priority=5)
    assert find_refusals(asking, promised=[pod("q", cpu="2", priority=5)]) == CPU
    assert find_refusals(asking, promised=[pod("q", cpu="1", priority=5)]) == []
    assert find_refusals(asking, promised=[pod("q", cpu="2", priority=4)]) == []
    assert find_refusals(asking, promised=[asking]) == [], "it does not stand in its own way"
    there = pod("there", on="n1", cpu="2")
    assert find_refusals(asking, there, promised=[pod("q", cpu="1", priority=4)]) == CPU


def test_a_pod_that_is_promised_a_place_may_never_come():
    promised = pod("q", app="db", priority=5)
    wants_it = pod("p", affinity={"podAffinity": term("db")})
    assert find_refusals(wants_it, promised=[promised]) == NEAR
    assert find_refusals(wants_it, pod("r", on="n1", app="db"), promised=[promised]) == []
    avoids_it = pod("p", affinity={"podAntiAffinity": term("db")})
    assert find_refusals(avoids_it, promised=[promised]) == FAR
    is_avoided = pod("q", priority=5, affinity={"podAntiAffinity": term("web")})
    assert len(find_refusals(pod("p"), promised=[is_avoided])) == 1


def test_affinity_counts_only_pods_that_stay():
    db, avoids = pod("db", on="n1", app="db"), {"podAntiAffinity": term("db")}
    assert find_refusals(pod("p", affinity=avoids), db) == FAR
    assert find_refusals(pod("p", affinity=avoids), db, gone=[db]) == []
    wants = pod("p", affinity={"podAffinity": term("db")})
    assert find_refusals(wants, db) == []
    assert find_refusals(wants, db, gone=[db]) == NEAR

    # The pods of other nodes keep their own rules.
    elsewhere = pod("far", on="n2", affinity={"podAntiAffinity": term("web")})
    assert len(find_refusals(pod("p"), elsewhere, db, node=OTHER)) == 1
    assert find_refusals(pod("p"), elsewhere, db, gone=[db]) == []
    assert find_refusals(pod("p"), elsewhere, gone=[elsewhere], node=OTHER) == []


def test_a_port_of_the_host_is_free_when_its_pod_goes():
    container = {
        "name": "main",
        "image": "demo",
        "ports": [{"containerPort": 80, "hostPort": 80, "protocol": "TCP"}],
    }
    there, asking = pod("q", on="n1", containers=[container]), pod("p", containers=[container])
    assert find_refusals(asking, there) == PORTS
    assert find_refusals(asking, there, gone=[there]) == []
    assert find_refusals(asking, there, node=OTHER) == []


def test_a_class_provides_a_resource_that_the_node_does_not_have():
    gpu = {"resources": {"requests": {"example.com/gpu": "1"}}, "name": "main", "image": "demo"}
    asking = pod("p", containers=[gpu])
    assert find_refusals(asking) == ["Insufficient example.com/gpu"]
    assert find_refusals(asking, by_class=["example.com/gpu"]) == []
    has_some = read(planes.node("n1", **{"example.com/gpu": "1"}), Node)
    there = pod("q", on="n1", containers=[gpu])
    assert find_refusals(asking, there, by_class=["example.com/gpu"], node=has_some) == [
        "Insufficient example.com/gpu"
    ]


def test_requests_that_are_known_otherwise():
    """The pods of a large cluster are kept without their containers."""
    light, other = pod("q", on="n1", cpu="0"), pod("r", on="n1")
    known = {light.metadata.uid: resources.pod_requests(pod("q", cpu="3"))}
    asking = pod("p", cpu="2")
    assert find_refusals(asking, light, other, gone=[other], requests=known) == CPU
    assert find_refusals(asking, light, other, gone=[other]) == []


def test_pods_are_not_counted_where_nobody_has_affinity():
    db = pod("db", on="n1", app="db")
    assert rules(pod("p"), db)._neighbours_with("n1", [db]) is None
    wants = pod("p", affinity={"podAffinity": term("db")})
    assert rules(wants, db)._neighbours_with("n1", [db]) is not None
