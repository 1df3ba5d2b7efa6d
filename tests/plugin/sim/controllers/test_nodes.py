import pytest

from plugin.sim.controllers import nodes
from tests.support.planes import copies, node

NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
OWN = {"key": "example.com/own", "effect": "NoSchedule"}


def taints(one):
    """As they are to be, or None where nothing is to be done."""
    calls = list(nodes.sync(copies(nodes=[one])))
    return calls[0].body["spec"].get("taints", []) if calls else None


def condition(type_, status):
    return {"type": type_, "status": status}


def test_a_node_that_is_ready_loses_its_taint_and_keeps_others():
    assert taints(node("n")) is None
    assert taints(node("n", taints=[OWN])) is None
    assert taints(node("n", taints=[NOT_READY, OWN])) == [OWN]
    evicts = NOT_READY | {"effect": "NoExecute"}
    assert taints(node("n", taints=[evicts])) is None


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
    one = node("n", taints=[OWN])
    one["status"]["conditions"] = conditions
    found = taints(one)
    new = {"key": f"node.kubernetes.io/{expected}", "effect": "NoSchedule"}
    assert found == ([OWN, new] if expected else None)
    if found:
        one["spec"]["taints"] = found
        assert taints(one) is None


def test_a_node_that_is_cordoned_says_so():
    unschedulable = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    assert taints(node("n", unschedulable=True)) == [unschedulable]
    assert taints(node("n", taints=[unschedulable])) == []
