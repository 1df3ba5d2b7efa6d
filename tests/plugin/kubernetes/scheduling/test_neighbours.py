"""Affinity, anti-affinity and topology spread: why each node is refused."""

import pytest

from claimd.kubernetes.scheduling import filters, neighbours
from claimd.kubernetes.scheduling.objects import Node, Pod
from tests.support.allocating import read

ZONES = {"a1": "a", "a2": "a", "b1": "b", "c1": "c"}
NEAR = "node(s) didn't match pod affinity rules"
FAR = "node(s) didn't match pod anti-affinity rules"
KEPT = "node(s) didn't satisfy existing pods anti-affinity rules"
SPREAD = "node(s) didn't match pod topology spread constraints"
MISSING = "node(s) didn't match pod topology spread constraints (missing required label)"


def nodes(**more):
    """Returns four nodes in three zones; `more` has specs by name."""
    nodes_ = {}
    for name, zone in ZONES.items():
        labels = {"kubernetes.io/hostname": name, "zone": zone}
        spec = more.get(name, {})
        nodes_[name] = read({"metadata": {"name": name, "labels": labels}, "spec": spec}, Node)
    return nodes_


def pod(name="p", on="", namespace="default", deleted=False, labels=None, **spec):
    metadata = {"name": name, "namespace": namespace, "labels": labels or {"app": "web"}}
    if deleted:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return read({"metadata": metadata, "spec": {"nodeName": on} | spec}, Pod)


def term(key="zone", app="web", **more):
    return {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}} | more


def near(*terms):
    return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}


def far(*terms):
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}


def spread(key="zone", skew=1, **more):
    constraint = {
        "maxSkew": skew,
        "topologyKey": key,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    return [constraint | more]


def find_refusals(asking, *others, of=None, namespaces=None):
    """Returns the first message of each node that refuses the pod."""
    of = of or nodes()
    by_node = {}
    for other in others:
        by_node.setdefault(other.spec.node_name, []).append(other)
    watchful = [other for other in others if neighbours.is_watchful(other)]
    about = neighbours.Neighbours(asking, of, by_node, watchful, namespaces or {})
    messages = {}
    for name, node in of.items():
        first = filters.first_refusals(about.refusals(node))
        if first:
            messages[name] = first[0].message
    return messages


def test_a_pod_that_asks_for_nothing_may_go_anywhere():
    assert find_refusals(pod(), pod("q", on="a1")) == {}


def test_a_pod_goes_where_the_one_is_that_it_wants_to_be_near_to():
    asking = pod(labels={"app": "job"}, affinity=near(term()))
    assert find_refusals(asking, pod("q", on="a1")) == {"b1": NEAR, "c1": NEAR}
    assert find_refusals(asking, pod("q", on="a1"), pod("r", on="b1")) == {"c1": NEAR}
    assert find_refusals(asking) == dict.fromkeys(ZONES, NEAR)
    by_host = pod(labels={"app": "job"}, affinity=near(term("kubernetes.io/hostname")))
    assert find_refusals(by_host, pod("q", on="a1")) == {"a2": NEAR, "b1": NEAR, "c1": NEAR}
    nowhere = pod(labels={"app": "job"}, affinity=near(term("rack")))
    assert find_refusals(nowhere, pod("q", on="a1")) == dict.fromkeys(ZONES, NEAR)


def test_one_pod_has_to_match_all_terms():
    asking = pod(labels={"app": "x"}, affinity=near(term(), term(app="db")))
    assert find_refusals(asking, pod("q", on="a1"), pod("r", on="a1", labels={"app": "db"})) == (
        dict.fromkeys(ZONES, NEAR)
    )


def test_the_first_of_pods_that_want_to_be_near_to_each_other():
    asking = pod(affinity=near(term()))
    assert find_refusals(asking) == {}
    assert find_refusals(asking, pod("q", on="a1")) == {"b1": NEAR, "c1": NEAR}
    assert find_refusals(pod(affinity=near(term("rack")))) == dict.fromkeys(ZONES, NEAR)


def test_a_pod_keeps_away_from_others():
    asking = pod(affinity=far(term()))
    assert find_refusals(asking, pod("q", on="a1")) == {"a1": FAR, "a2": FAR}
    by_host = pod(affinity=far(term("kubernetes.io/hostname"), term("rack")))
    assert find_refusals(by_host, pod("q", on="a1"), pod("r", on="b1")) == {"a1": FAR, "b1": FAR}


def test_a_pod_that_is_there_keeps_others_away():
    there = pod("q", on="a1", labels={"app": "db"}, affinity=far(term()))
    assert find_refusals(pod(), there) == {"a1": KEPT, "a2": KEPT}
    assert find_refusals(pod(labels={"app": "job"}), there) == {}
    elsewhere = pod("q", on="no-node", labels={"app": "db"}, affinity=far(term()))
    assert find_refusals(pod(), elsewhere) == {}


def test_the_order_of_what_is_said():
    there = pod("q", on="a1", affinity=far(term()))
    both = far(term()) | near(term(app="none"))
    assert set(find_refusals(pod(affinity=both), there).values()) == {NEAR}
    assert find_refusals(pod(affinity=far(term())), there) == {"a1": FAR, "a2": FAR}
    spreading = pod(affinity=far(term()), topologySpreadConstraints=spread())
    assert find_refusals(spreading, there) == {"a1": SPREAD, "a2": SPREAD}


@pytest.mark.parametrize(
    ("more", "namespace", "is_meant"),
    [
        ({}, "default", True),
        ({}, "other", False),
        ({"namespaces": ["other"]}, "other", True),
        ({"namespaces": ["other"]}, "default", False),
        ({"namespaceSelector": {}}, "other", True),
        ({"namespaceSelector": {}}, "unknown", True),
        ({"namespaceSelector": {"matchLabels": {"team": "a"}}}, "other", True),
        ({"namespaceSelector": {"matchLabels": {"team": "a"}}}, "default", False),
        ({"namespaceSelector": {"matchLabels": {"team": "a"}}, "namespaces": ["default"]}, "default", True),
        ({"labelSelector": None}, "default", False),
        ({"labelSelector": {}}, "default", True),
        ({"matchLabelKeys": ["tier"]}, "default", False),
        ({"matchLabelKeys": ["tier", "none"], "labelSelector": {}}, "default", False),
        ({"matchLabelKeys": ["app"]}, "default", True),
        ({"mismatchLabelKeys": ["tier"]}, "default", True),
        ({"mismatchLabelKeys": ["app"]}, "default", False),
    ],
)  # fmt: skip
def test_which_pods_a_term_is_about(more, namespace, is_meant):
    asked = {name: value for name, value in (term() | more).items() if value is not None}
    asking = pod(labels={"app": "web", "tier": "1"}, affinity=far(asked))
    other = pod("q", on="c1", namespace=namespace, labels={"app": "web", "tier": "2"})
    messages = find_refusals(asking, other, namespaces={"other": {"team": "a"}, "default": {}})
    assert messages == ({"c1": FAR} if is_meant else {})


def test_pods_are_spread():
    asking = pod(topologySpreadConstraints=spread())
    assert find_refusals(asking) == {}
    assert find_refusals(asking, pod("q", on="a1")) == {"a1": SPREAD, "a2": SPREAD}
    two = pod(topologySpreadConstraints=spread(skew=2))
    assert find_refusals(two, pod("q", on="a1")) == {}
    assert find_refusals(two, pod("q", on="a1"), pod("r", on="a2")) == {"a1": SPREAD, "a2": SPREAD}
    everywhere = [pod(name, on=name) for name in ("a1", "b1", "c1")]
    assert find_refusals(asking, *everywhere) == {}


def test_only_the_first_spread_that_refuses_is_told():
    both = [*spread(), *spread("kubernetes.io/hostname")]
    about = neighbours.Neighbours(
        pod(topologySpreadConstraints=both), nodes(), {"a1": [pod("q", on="a1")]}, [], {}
    )
    (only,) = about.refusals(nodes()["a1"])
    assert "zone" in only.detail


def test_only_the_first_rule_about_pods_that_refuses_is_told():
    """Affinity, anti-affinity and the anti-affinity of others are one rule of the scheduler."""
    others = [pod("q", on="a1", affinity=far(term()))]
    wishes = near(term(app="none")) | far(term(), term("kubernetes.io/hostname"))
    for asking, message in (
        (pod(affinity=wishes), NEAR),
        (pod(affinity=far(term(), term("kubernetes.io/hostname"))), FAR),
    ):
        about = neighbours.Neighbours(asking, nodes(), {"a1": others}, others, {})
        assert [refusal.message for refusal in about.refusals(nodes()["a1"])] == [message]

    both = [pod("q", on="a1", affinity=far(term(), term("kubernetes.io/hostname")))]
    about = neighbours.Neighbours(pod(), nodes(), {"a1": both}, both, {})
    assert len(list(about.refusals(nodes()["a1"]))) == 1


def test_which_pods_count_for_a_spread():
    asking = pod(topologySpreadConstraints=spread())
    for other in (
        pod("q", on="a1", namespace="other"),
        pod("q", on="a1", deleted=True),
        pod("q", on="a1", labels={"app": "db"}),
    ):
        assert find_refusals(asking, other) == {}
    keys = pod(
        labels={"app": "web", "v": "1"}, topologySpreadConstraints=spread(matchLabelKeys=["v"])
    )
    assert find_refusals(keys, pod("q", on="a1", labels={"app": "web", "v": "2"})) == {}
    same = pod("q", on="a1", labels={"app": "web", "v": "1"})
    assert find_refusals(keys, same) == {"a1": SPREAD, "a2": SPREAD}

    # A constraint with an empty selector counts only the pod itself.
    every = pod(topologySpreadConstraints=spread(labelSelector={}))
    assert find_refusals(every, pod("q", on="a1"), pod("r", on="a1")) == {}


def test_a_pod_that_the_constraint_is_not_about_is_spread_by_the_others():
    asking = pod(labels={"app": "job"}, topologySpreadConstraints=spread())
    assert find_refusals(asking, pod("q", on="a1")) == {}
    assert find_refusals(asking, pod("q", on="a1"), pod("r", on="a1")) == {
        "a1": SPREAD,
        "a2": SPREAD,
    }


def test_a_node_without_the_label_is_no_place():
    asking = pod(topologySpreadConstraints=spread("rack"))
    assert find_refusals(asking) == dict.fromkeys(ZONES, MISSING)
    both = [*spread(), *spread("rack", whenUnsatisfiable="ScheduleAnyway")]
    assert find_refusals(pod(topologySpreadConstraints=both)) == {}


def test_domains_that_there_have_to_be():
    few = pod(topologySpreadConstraints=spread(minDomains=4))
    everywhere = [pod(name, on=name) for name in ("a1", "b1", "c1")]
    assert find_refusals(few, *everywhere) == dict.fromkeys(ZONES, SPREAD)
    assert find_refusals(pod(topologySpreadConstraints=spread(minDomains=3)), *everywhere) == {}


def test_nodes_where_the_pod_cannot_go_count_as_the_policies_say():
    elsewhere = [pod("q", on="a1"), pod("r", on="b1")]
    only = {"nodeSelector": {"kubernetes.io/hostname": "a1"}}
    asking = pod(topologySpreadConstraints=spread(), **only)
    assert find_refusals(asking, *elsewhere) == {}  # zone a is the only one that counts
    ignoring = pod(topologySpreadConstraints=spread(nodeAffinityPolicy="Ignore"), **only)
    assert find_refusals(ignoring, *elsewhere) == {"a1": SPREAD, "a2": SPREAD, "b1": SPREAD}

    tainted = nodes(c1={"taints": [{"key": "x", "effect": "NoSchedule"}]})
    asking = pod(topologySpreadConstraints=spread())
    assert find_refusals(asking, *elsewhere, of=tainted) == {
        "a1": SPREAD,
        "a2": SPREAD,
        "b1": SPREAD,
    }
    honoring = pod(topologySpreadConstraints=spread(nodeTaintsPolicy="Honor"))
    assert find_refusals(honoring, *elsewhere, of=tainted) == {}


def test_which_pods_have_to_be_looked_at_again_when_others_come():
    assert neighbours.depends_on_others(pod(affinity=near(term())))
    assert neighbours.depends_on_others(pod(topologySpreadConstraints=spread()))
    assert not neighbours.depends_on_others(pod(affinity=far(term())))


def test_it_is_said_in_detail():
    there = pod("q", on="a1", affinity=far(term(app="job")))
    about = neighbours.Neighbours(
        pod(labels={"app": "job"}, affinity=near(term(app="db"))),
        nodes(),
        {"a1": [there]},
        [there],
        {},
    )
    (refusal,) = about.refusals(nodes()["a1"])
    assert refusal.rule == "InterPodAffinity"
    assert refusal.detail == "the pod's affinity needs pods with app=db by zone, and none is here"
    both = near(term(app="db"), term(app="cache"))
    about = neighbours.Neighbours(pod(affinity=both), nodes(), {"a1": [there]}, [], {})
    (refusal,) = about.refusals(nodes()["a1"])
    assert refusal.detail == (
        "the pod's two affinity terms over zone (app=db; app=cache) need one and the same pod that "
        "matches both, and no zone has such a pod"
    )
    elsewhere = pod("r", on="b1", labels={"app": "db"})
    both = near(term(app="db"), term(app="db"))
    about = neighbours.Neighbours(pod(affinity=both), nodes(), {"b1": [elsewhere]}, [], {})
    (refusal,) = about.refusals(nodes()["a1"])
    assert refusal.detail.endswith("matches both, and the node's zone has no such pod")
    others = near(term(app="db"), term(app="cache"), term("kubernetes.io/hostname", app="web"))
    about = neighbours.Neighbours(pod(affinity=others), nodes(), {"a1": [there]}, [], {})
    (refusal,) = about.refusals(nodes()["a1"])
    assert refusal.detail == (
        "the pod's affinity needs pods with app=db by zone and pods with app=cache by zone and "
        "pods with app=web by kubernetes.io/hostname, and no single pod here matches all of them"
    )
    about = neighbours.Neighbours(
        pod(affinity=near(term("rack", app="db"))), nodes(), {"a1": [there]}, [], {}
    )
    (refusal,) = about.refusals(nodes()["a1"])
    assert (
        refusal.detail == "it has no label rack: the pod's affinity needs pods with app=db by rack"
    )
    about = neighbours.Neighbours(pod(labels={"app": "job"}), nodes(), {"a1": [there]}, [there], {})
    (refusal,) = about.refusals(nodes()["a1"])
    assert refusal.detail == "the anti-affinity of running pod default/q keeps this pod off zone=a"
    about = neighbours.Neighbours(
        pod(affinity=far(term(app="job"))),
        nodes(),
        {"a1": [pod("r", on="a1", labels={"app": "job"})]},
        [],
        {},
    )
    (refusal,) = about.refusals(nodes()["a1"])
    assert refusal.detail == (
        "the pod's anti-affinity keeps it away from pods with app=job by zone, and one is here"
    )
    about = neighbours.Neighbours(
        pod(topologySpreadConstraints=spread()), nodes(), {"a1": [pod("r", on="a1")]}, [], {}
    )
    (refusal,) = about.refusals(nodes()["a1"])
    assert refusal.detail == (
        "topology spread over zone: zone a has 1 of its pods, zone b has 0, and maxSkew is 1"
    )
    there = {"a1": [pod("r", on="a1")], "b1": [pod("s", on="b1")]}
    about = neighbours.Neighbours(pod(topologySpreadConstraints=spread()), nodes(), there, [], {})
    (refusal,) = about.refusals(nodes()["a1"])
    assert refusal.detail == (
        "topology spread over zone: zone a has 1 of its pods, zone c has 0, and maxSkew is 1, "
        "so only zone c is allowed"
    )
