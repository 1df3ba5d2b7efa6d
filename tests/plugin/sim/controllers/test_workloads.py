from claimd.sim.controllers import pod_gc, workloads
from tests.support.planes import copies, node, pod
from tests.support.played_workloads import NOW, Played, workload


def test_a_daemon_set_has_a_pod_on_each_node_that_it_runs_on():
    nodes = [
        node("a"),
        node("b"),
        node("c", labels={"no": "yes"}, taints=[{"key": "k", "effect": "NoSchedule"}]),
        node("d", taints=[{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]),
    ]
    played = Played(daemonsets=[workload("DaemonSet")], nodes=nodes)
    played.settle()
    places = [workloads._node_of(pod_) for pod_ in played.pods]
    assert sorted(places) == ["a", "b", "d"]
    status = played.objects["daemonsets"]["default/demo"]["status"]
    assert (status["desiredNumberScheduled"], status["numberReady"]) == (3, 0)
    del played.objects["nodes"]["b"]
    played.settle()
    assert sorted(workloads._node_of(pod_) for pod_ in played.pods) == ["a", "d"]


def test_a_daemons_pod_stays_where_no_new_one_would_come():
    nodes = [node("a"), node("b")]
    played = Played(daemonsets=[workload("DaemonSet")], nodes=nodes)
    played.settle()
    for pod_ in played.pods:
        pod_["spec"]["nodeName"] = workloads._node_of(pod_)
    played.objects["nodes"]["a"]["spec"]["taints"] = [{"key": "k", "effect": "NoSchedule"}]
    del played.objects["nodes"]["b"]  # its pods are for those who know that it will not come back
    played.settle()
    assert len(played.pods) == 2
    played.objects["nodes"]["a"]["spec"]["taints"] = [{"key": "k", "effect": "NoExecute"}]
    played.settle()
    assert [pod_["spec"]["nodeName"] for pod_ in played.pods] == ["b"]


def test_a_daemon_set_is_updated_node_by_node():
    played = Played(daemonsets=[workload("DaemonSet")], nodes=[node("a"), node("b")])
    played.settle()
    played.ready()
    played.objects["daemonsets"]["default/demo"]["spec"]["template"]["spec"]["containers"][0][
        "image"
    ] = "b"
    played.settle()
    assert played.images == ["a", "b"]
    played.ready()
    played.settle()
    assert played.images == ["b", "b"]


def test_a_daemon_set_that_is_updated_by_hand():
    played = Played(
        daemonsets=[workload("DaemonSet", updateStrategy={"type": "OnDelete"})], nodes=[node("a")]
    )
    played.settle()
    played.ready()
    played.objects["daemonsets"]["default/demo"]["spec"]["template"]["spec"]["containers"][0][
        "image"
    ] = "b"
    played.settle()
    assert played.images == ["a"]


def test_pods_of_a_node_that_is_gone_fail_and_go():
    there = copies(
        pods=[pod("a", on="node-1"), pod("b", on="gone"), pod("c")], nodes=[node("node-1")]
    )
    assert pod_gc.missing_nodes(there) == {"gone"}
    (mark,), (delete,) = pod_gc.sync(there, frozenset(["gone"]), NOW)
    assert mark.body["status"]["phase"] == "Failed"
    assert mark.body["status"]["conditions"][0]["message"] == "PodGC: node no longer exists"
    assert (delete.name, delete.body["gracePeriodSeconds"]) == ("b", 0)
    there["pods"]["default/b"]["status"]["phase"] = "Failed"
    assert pod_gc.sync(there, frozenset(["gone"]), NOW)[0] == []
