import copy

from plugin.sim.controllers import pod_gc, workloads
from tests.support.planes import copies, meta, node, pod

NOW = 1767225600.0


def workload(kind, **spec):
    template = {
        "metadata": {"labels": {"app": "demo"}},
        "spec": {"containers": [{"name": "main", "image": "a"}]},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": meta("demo", generation=1),
        "spec": {"template": template} | spec,
    }


class Played:
    """Carries out what is decided, as an API server and nodes would."""

    def __init__(self, **objects):
        self.objects = copies(**objects)

    def step(self):
        calls = workloads.sync(self.objects, NOW)
        for call in calls:
            key = f"{call.namespace}/{call.name or call.body['metadata']['name']}"
            if call.method == "DELETE":
                del self.objects[call.resource][key]
            elif call.method == "PUT":
                self.objects[call.resource][key] = copy.deepcopy(call.body)
            else:
                assert key not in self.objects[call.resource]
                new = copy.deepcopy(call.body)
                new["metadata"]["uid"] = f"uid-{call.body['metadata']['name']}"
                self.objects[call.resource][key] = new
        return calls

    def settle(self):
        for _ in range(20):
            if not self.step():
                return
        raise AssertionError("it never comes to an end")

    def ready(self, *names):
        for one in self.objects["pods"].values():
            if not names or one["metadata"]["name"] in names:
                one["status"] = {
                    "phase": "Running",
                    "conditions": [{"type": "Ready", "status": "True"}],
                }

    @property
    def pods(self):
        return list(self.objects["pods"].values())

    @property
    def images(self):
        return sorted(one["spec"]["containers"][0]["image"] for one in self.pods)


def test_a_deployment_has_as_many_pods_as_it_wants():
    played = Played(deployments=[workload("Deployment", replicas=3)])
    played.settle()
    assert len(played.pods) == 3
    one = played.pods[0]
    assert one["metadata"]["labels"]["app"] == "demo"
    assert one["metadata"]["ownerReferences"][0]["kind"] == "Deployment"
    status = played.objects["deployments"]["default/demo"]["status"]
    assert (status["replicas"], status["readyReplicas"], status["observedGeneration"]) == (3, 0, 1)
    assert status["conditions"][0]["status"] == "False"
    played.ready()
    played.settle()
    status = played.objects["deployments"]["default/demo"]["status"]
    assert (status["availableReplicas"], status["conditions"][0]["status"]) == (3, "True")
    played.objects["deployments"]["default/demo"]["spec"]["replicas"] = 1
    played.settle()
    assert len(played.pods) == 1


def test_a_deployment_without_a_template_or_on_its_way_out_gets_no_pods():
    for part in ({"template": {}}, {"replicas": 2}):
        one = workload("Deployment", **part)
        if "replicas" in part:
            one["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        assert Played(deployments=[one]).step() == []


def test_a_pod_that_fails_or_leaves_is_replaced():
    played = Played(deployments=[workload("Deployment", replicas=2)])
    played.settle()
    first, second = played.pods
    first["status"] = {"phase": "Failed"}
    second["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    played.settle()
    names = {one["metadata"]["name"] for one in played.pods}
    assert len(names) == 3 and first["metadata"]["name"] not in names


def test_a_new_template_replaces_one_pod_at_a_time():
    played = Played(deployments=[workload("Deployment", replicas=3)])
    played.settle()
    played.ready()
    played.objects["deployments"]["default/demo"]["spec"]["template"]["spec"]["containers"][0][
        "image"
    ] = "b"
    played.settle()
    assert played.images == ["a", "a", "b"]
    played.settle()
    assert played.images == ["a", "a", "b"]  # it is not ready yet
    played.ready()
    played.settle()
    assert played.images == ["a", "b", "b"]
    played.ready()
    played.settle()
    played.ready()
    played.settle()
    assert played.images == ["b", "b", "b"]


def test_a_daemon_set_has_a_pod_on_each_node_that_it_runs_on():
    nodes = [
        node("a"),
        node("b"),
        node("c", labels={"no": "yes"}, taints=[{"key": "k", "effect": "NoSchedule"}]),
        node("d", taints=[{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]),
    ]
    played = Played(daemonsets=[workload("DaemonSet")], nodes=nodes)
    played.settle()
    places = [workloads._node_of(one) for one in played.pods]
    assert sorted(places) == ["a", "b", "d"]
    status = played.objects["daemonsets"]["default/demo"]["status"]
    assert (status["desiredNumberScheduled"], status["numberReady"]) == (3, 0)
    del played.objects["nodes"]["b"]
    played.settle()
    assert sorted(workloads._node_of(one) for one in played.pods) == ["a", "d"]


def test_a_daemons_pod_stays_where_no_new_one_would_come():
    nodes = [node("a"), node("b")]
    played = Played(daemonsets=[workload("DaemonSet")], nodes=nodes)
    played.settle()
    for one in played.pods:
        one["spec"]["nodeName"] = workloads._node_of(one)
    played.objects["nodes"]["a"]["spec"]["taints"] = [{"key": "k", "effect": "NoSchedule"}]
    del played.objects["nodes"]["b"]  # its pods are for those who know that it will not come back
    played.settle()
    assert len(played.pods) == 2
    played.objects["nodes"]["a"]["spec"]["taints"] = [{"key": "k", "effect": "NoExecute"}]
    played.settle()
    assert [one["spec"]["nodeName"] for one in played.pods] == ["b"]


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
