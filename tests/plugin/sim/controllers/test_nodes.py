import pytest

from claimd.sim.controllers import nodes
from tests.support.planes import copies, node, pod

NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
OWN = {"key": "example.com/own", "effect": "NoSchedule"}
NOW = 1767225600.0


def taints(node_):
    """Returns the wanted taints without their times, or None if nothing must change."""
    calls = list(nodes.sync(copies(nodes=[node_]), NOW))
    if not calls:
        return None
    taints_ = calls[0].body["spec"].get("taints", [])
    return [{key: value for key, value in node_.items() if key != "timeAdded"} for node_ in taints_]


def condition(type_, status):
    return {"type": type_, "status": status}


def test_a_node_that_is_ready_loses_its_taint_and_keeps_others():
    assert taints(node("n")) is None
    assert taints(node("n", taints=[OWN])) is None
    assert taints(node("n", taints=[NOT_READY, OWN])) == [OWN]
    assert taints(node("n", taints=[NOT_READY | {"effect": "NoExecute"}, OWN])) == [OWN]
    assert taints(node("n", taints=[NOT_READY | {"effect": "PreferNoSchedule"}])) is None


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ([], "not-ready"),
        ([condition("Ready", "False")], "not-ready"),
        ([condition("Ready", "Unknown")], "unreachable"),
        ([condition("Ready", "True"), condition("DiskPressure", "True")], "disk-pressure"),
        ([condition("Ready", "True"), condition("DiskPressure", "False")], None),
    ],
)
def test_a_node_is_tainted_by_its_conditions(conditions, expected):
    node_ = node("n", taints=[OWN])
    node_["status"]["conditions"] = conditions
    keys = taints(node_)
    new = {"key": f"node.kubernetes.io/{expected}", "effect": "NoSchedule"}
    evicting = {"key": f"node.kubernetes.io/{expected}", "effect": "NoExecute"}
    added = [evicting, new] if expected in ("not-ready", "unreachable") and conditions else [new]
    assert keys == ([OWN, *added] if expected else None)
    if keys:
        node_["spec"]["taints"] = keys
        assert taints(node_) is None


def test_a_node_that_is_cordoned_says_so():
    unschedulable = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    assert taints(node("n", unschedulable=True)) == [unschedulable]
    assert taints(node("n", taints=[unschedulable])) == []


def test_a_taint_says_since_when():
    node_ = node("n")
    node_["status"]["conditions"] = [condition("Ready", "Unknown")]
    (call,) = nodes.sync(copies(nodes=[node_]), NOW)
    assert {taint["timeAdded"] for taint in call.body["spec"]["taints"]} == {"2026-01-01T00:00:00Z"}


def lease(name, renewed):
    return {
        "metadata": {"name": name, "namespace": "kube-node-lease"},
        "spec": {"renewTime": renewed},
    }


def test_a_kubelet_is_silent_for_as_long_as_somebody_watched():
    objects = copies(nodes=[node("a"), node("b"), node("own")])
    objects["leases"] = {f"kube-node-lease/{name}": lease(name, "1") for name in "ab"}
    silences = nodes.silences(objects, {}, 5)
    assert silences == {"a": ("1", 0.0), "b": ("1", 0.0)}  # one without a lease is nobody's

    objects["leases"]["kube-node-lease/b"] = lease("b", "2")
    silences = nodes.silences(objects, silences, 5)
    assert silences == {"a": ("1", 5.0), "b": ("2", 0.0)}

    # This machine has slept for an hour.
    assert nodes.silences(objects, silences, 3600)["a"] == ("1", 15.0)


def test_of_a_silent_node_nothing_is_known_and_that_is_said_once():
    node_ = node("n")
    node_["status"]["conditions"].append(condition("NetworkUnavailable", "False"))
    objects = copies(nodes=[node_])
    assert list(nodes.sync_silent(objects, [], NOW)) == []
    (call,) = nodes.sync_silent(objects, ["n"], NOW)
    (changed,) = call.body["status"]["conditions"]
    assert (changed["type"], changed["status"]) == ("Ready", "Unknown")
    assert changed["message"] == "Kubelet stopped posting node status."
    node_["status"]["conditions"] = [changed]
    assert list(nodes.sync_silent(objects, ["n"], NOW)) == []


def test_no_pod_is_ready_on_a_node_that_is_not():
    away, ready = node("away"), node("ready")
    away["status"]["conditions"] = [condition("Ready", "Unknown")]
    pods = [pod("p", on="away"), pod("q", on="ready"), pod("r", on="away")]
    for each in pods[:2]:
        each["status"]["conditions"] = [condition("Ready", "True")]
    patch, event = nodes.sync_pods(copies(nodes=[away, ready], pods=pods), NOW)
    assert (patch.name, patch.body["status"]["conditions"][0]["status"]) == ("p", "False")
    assert (event.body["reason"], event.body["note"]) == ("NodeNotReady", "Node is not ready")
