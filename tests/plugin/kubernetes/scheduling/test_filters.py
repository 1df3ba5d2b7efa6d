"""The rules that keep a pod from a node: their order, messages and details."""

import msgspec
import pytest

from claimd.kubernetes.scheduling import filters, resources
from claimd.kubernetes.scheduling.objects import LabelSelector, Node, Pod


def read(data, kind):
    return msgspec.json.decode(msgspec.json.encode(data), type=kind)


def a_node(name="node-1", taints=(), labels=None, allocatable=None, **spec):
    return read(
        {
            "metadata": {"name": name, "labels": labels or {}},
            "spec": {"taints": list(taints), **spec},
            "status": {
                "allocatable": allocatable or {"cpu": "64", "memory": "256Gi", "pods": "110"}
            },
        },
        Node,
    )


def a_pod(name="job", requests=None, ports=(), **spec):
    container = {"resources": {"requests": requests or {}}, "ports": list(ports)}
    metadata = {"name": name, "namespace": "default"}
    return read({"metadata": metadata, "spec": {"containers": [container], **spec}}, Pod)


def refusals(pod, node, **more):
    return list(filters.refusals(pod, node, **{"used": {}, **more}))


def details(pod, node, **more):
    return [refusal.detail for refusal in refusals(pod, node, **more)]


def test_a_pod_that_may_go_there():
    assert refusals(a_pod(requests={"cpu": "64"}), a_node()) == []


def test_a_cordoned_node():
    node = a_node(
        unschedulable=True, taints=[{"key": filters.UNSCHEDULABLE.key, "effect": "NoSchedule"}]
    )
    [refusal] = refusals(a_pod(), node)
    assert refusal.message == "node(s) were unschedulable" and refusal.detail == "it is cordoned"
    everywhere = a_pod(tolerations=[{"operator": "Exists"}])
    assert refusals(everywhere, node) == []


@pytest.mark.parametrize(
    ("taint", "toleration", "detail"),
    [
        ({"key": "k", "effect": "NoSchedule"}, None, "taint k:NoSchedule is not tolerated"),
        ({"key": "k", "value": "v", "effect": "NoExecute"}, {"key": "k"}, "taint k=v:NoExecute is not tolerated (the pod tolerates k without a value)"),
        ({"key": "k", "value": "v", "effect": "NoExecute"}, {"key": "k", "value": "w"}, "taint k=v:NoExecute is not tolerated (the pod tolerates k=w)"),
        ({"key": "k", "effect": "NoExecute"}, {"key": "k", "operator": "Exists", "effect": "NoSchedule"}, "taint k:NoExecute is not tolerated (the pod tolerates k only for NoSchedule)"),
        ({"key": "k", "value": "5", "effect": "NoExecute"}, {"key": "k", "operator": "Lt", "value": "3"}, "taint k=5:NoExecute is not tolerated (the pod tolerates k Lt 3)"),
        ({"key": "k", "effect": "NoExecute"}, {"key": "other", "operator": "Exists"}, "taint k:NoExecute is not tolerated"),
        ({"key": "k", "value": "v", "effect": "NoSchedule"}, {"key": "k", "value": "v"}, None),
        ({"key": "k", "effect": "PreferNoSchedule"}, None, None),
        (
            {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"},
            {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"},
            "it is not ready: taint node.kubernetes.io/not-ready:NoSchedule is not tolerated",
        ),
    ],
)  # fmt: skip
def test_taints(taint, toleration, detail):
    pod = a_pod(tolerations=[toleration] if toleration else [])
    assert details(pod, a_node(taints=[taint])) == ([detail] if detail else [])


def test_node_selectors_name_what_the_node_has():
    pod = a_pod(nodeSelector={"pool": "batch", "zone": "a"})
    assert details(pod, a_node(labels={"pool": "web"})) == [
        "nodeSelector asks for pool=batch, it has pool=web",
        "nodeSelector asks for zone=a, it has no label zone",
    ]


def affinity(**expression):
    terms = [{"matchExpressions": [expression]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"nodeAffinity": required}


def test_node_affinity():
    pod = a_pod(affinity=affinity(key="zone", operator="In", values=["a"]))
    assert refusals(pod, a_node(labels={"zone": "a"})) == []
    assert details(pod, a_node()) == [
        "its labels do not match the pod's node affinity: zone in (a), it has no label zone"
    ]
    bad = a_pod(affinity=affinity(key="zone", operator="Like"))
    assert "cannot be evaluated: 'Like' is not an operator" in details(bad, a_node())[0]


def test_resources_that_are_not_left():
    used = {"cpu": 60 * 10**9, "pods": 110 * 10**9}
    pod = a_pod(requests={"cpu": "8", "memory": "512Gi", "example.com/nic": "1", "claimed": "1"})
    refusals_ = refusals(pod, a_node(), used=used, by_claims={"claimed"})
    assert [refusal.message for refusal in refusals_] == [
        "Insufficient cpu", "Insufficient memory", "Insufficient example.com/nic", "Too many pods",
    ]  # fmt: skip
    assert [refusal.detail for refusal in refusals_] == [
        "cpu: the pod requests 8, 4 of 64 are left",
        "memory: the pod requests 512Gi, 256Gi of 256Gi are left",
        "it has no example.com/nic, the pod requests 1",
        "it runs 110 pods and may run 110",
    ]


@pytest.mark.parametrize(
    ("wanted", "taken", "free"),
    [
        ({"hostPort": 80}, {"hostPort": 80}, False),
        ({"hostPort": 80}, {"hostPort": 81}, True),
        ({"hostPort": 80}, {"hostPort": 80, "protocol": "UDP"}, True),
        ({"hostPort": 80, "hostIP": "10.0.0.1"}, {"hostPort": 80, "hostIP": "10.0.0.2"}, True),
        ({"hostPort": 80, "hostIP": "10.0.0.1"}, {"hostPort": 80}, False),
        ({"containerPort": 80}, {"hostPort": 80}, True),
    ],
)
def test_host_ports(wanted, taken, free):
    other = a_pod("web", ports=[taken])
    details_ = details(a_pod(ports=[wanted]), a_node(), neighbours=[other])
    assert details_ == ([] if free else ["host port 80/TCP is taken by pod default/web"])


def test_the_scheduler_stops_at_the_first_rule():
    pod = a_pod(requests={"cpu": "100", "memory": "1Ti"}, nodeSelector={"a": "b"})
    first = filters.first_refusals(refusals(pod, a_node()))
    assert [refusal.rule for refusal in first] == ["NodeAffinity"]
    pod = a_pod(requests={"cpu": "100", "memory": "1Ti"})
    assert len(filters.first_refusals(refusals(pod, a_node()))) == 2


def test_init_containers_take_turns():
    sidecar = {"restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}}
    init = {"resources": {"requests": {"cpu": "4"}}}
    pod = read(
        {
            "metadata": {"name": "job"},
            "spec": {
                "initContainers": [sidecar, init],
                "containers": [{"resources": {"requests": {"cpu": "2"}}}],
            },
        },
        Pod,
    )
    assert resources.pod_requests(pod) == {"cpu": 5 * 10**9, "pods": 10**9}


def test_ports_of_init_containers_count_only_as_sidecars():
    ports = [{"hostPort": 80}]
    sidecar = a_pod(initContainers=[{"ports": ports, "restartPolicy": "Always"}])
    before = a_pod(initContainers=[{"ports": ports}])
    assert sidecar.host_ports == {(80, "TCP", "0.0.0.0")}
    assert before.host_ports == set()


def test_what_the_pod_requests_as_a_whole_counts_instead_of_its_containers():
    whole = {"requests": {"cpu": "65", "hugepages-2Mi": "4Mi", "example.com/x": "1"}}
    pod = a_pod(requests={"cpu": "1", "memory": "1Gi"}, resources=whole)
    assert details(pod, a_node()) == [
        "cpu: the pod requests 65, 64 of 64 are left",
        "it has no hugepages-2Mi, the pod requests 4Mi",
    ]


@pytest.mark.parametrize(
    ("key", "operator", "selects"),
    [
        ("app", "In", True), ("app", "NotIn", False), ("app", "Exists", True), ("app", "DoesNotExist", False),
        ("x", "In", False), ("x", "NotIn", True), ("x", "Exists", False), ("x", "DoesNotExist", True),
    ],
)  # fmt: skip
def test_label_selectors(key, operator, selects):
    requirement = {"key": key, "operator": operator, "values": ["job"]}
    selector = read({"matchExpressions": [requirement]}, LabelSelector)
    assert filters.selects(selector, {"app": "job"}) is selects


def test_a_label_selector_asks_for_all_that_it_names():
    selector = read({"matchLabels": {"app": "job", "tier": "a"}}, LabelSelector)
    assert filters.selects(selector, {"app": "job", "tier": "a", "x": "y"})
    assert not filters.selects(selector, {"app": "job"})
    assert filters.selects(LabelSelector(), {})


def test_taints_that_are_a_preference_are_counted():
    soft = [{"key": key, "effect": "PreferNoSchedule"} for key in "abc"]
    node = a_node()
    node = read(
        {
            "metadata": {"name": "n"},
            "spec": {"taints": [*soft, {"key": "d", "effect": "NoSchedule"}]},
        },
        Node,
    )
    assert filters.count_unwelcome_taints(a_pod(), node) == 3
    tolerant = a_pod(tolerations=[{"key": "a", "operator": "Exists"}])
    assert filters.count_unwelcome_taints(tolerant, node) == 2


def named(*lists):
    fields = [{"key": "metadata.name", "operator": "In", "values": names} for names in lists]
    return {"matchFields": fields}


@pytest.mark.parametrize(
    ("terms", "messages"),
    [
        ([named(["node-1"])], ["node(s) were unschedulable"]),
        ([named(["node-2"])], ["node(s) didn't satisfy plugin(s) [NodeAffinity]"]),
        ([named(["node-2"]), named(["node-1"])], ["node(s) were unschedulable"]),
        ([named(["node-1", "node-2"], ["node-2"])], ["node(s) didn't satisfy plugin(s) [NodeAffinity]"]),
        # If the names contradict each other, or a term has no names, all nodes are tried.
        ([named(["node-1"], ["node-2"])], ["node(s) were unschedulable"]),
        ([named(["node-2"]), {"matchExpressions": [{"key": "x", "operator": "Exists"}]}], ["node(s) were unschedulable"]),
        ([], ["node(s) were unschedulable"]),
    ],
)  # fmt: skip
def test_affinity_that_names_nodes_comes_first(terms, messages):
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    pod = a_pod(affinity={"nodeAffinity": required}, nodeSelector={"no": "node"})
    first = filters.first_refusals(refusals(pod, a_node(unschedulable=True)))
    assert [refusal.message for refusal in first] == messages


@pytest.mark.parametrize(
    ("requirements", "detail"),
    [
        ([("zone", "In", ["b", "c"])], ": zone in (b, c), it has zone=a"),
        ([("zone", "NotIn", ["a"])], ": zone notin (a), it has zone=a"),
        ([("zone", "DoesNotExist", [])], ": !zone, it has zone=a"),
        ([("gpus", "Gt", ["4"])], ": gpus>4, it has gpus=4"),
        ([("gpus", "Lt", ["4"])], ": gpus<4, it has gpus=4"),
        ([("x", "Exists", []), ("zone", "In", ["a"]), ("y", "In", ["1"])],
         ": x, it has no label x; y in (1), it has no label y"),
    ],
)  # fmt: skip
def test_what_the_affinity_asks_for_stands_beside_what_the_node_has(requirements, detail):
    expressions = [
        {"key": key, "operator": operator, "values": values}
        for key, operator, values in requirements
    ]
    terms = [{"matchExpressions": expressions}]
    node = a_node(labels={"zone": "a", "gpus": "4"})
    prefix = "its labels do not match the pod's node affinity"
    for given, expected in ((terms, prefix + detail), (terms * 2, prefix)):
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": given}}
        assert details(a_pod(affinity={"nodeAffinity": required}), node) == [expected]
