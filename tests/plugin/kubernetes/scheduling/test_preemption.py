"""The pods that preemption would end for another pod."""

import pytest

from claimd.kubernetes.scheduling import preemption
from claimd.kubernetes.scheduling.objects import DisruptionBudget
from tests.support.allocating import read
from tests.support.planes import parsed, pod

OLD, YOUNG = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"


def there(name, priority, cpu, on="node-1", since=OLD, **labels):
    pod_ = pod(name, on=on, requests={"cpu": str(cpu)}, priority=priority)
    pod_["metadata"]["labels"] = labels
    pod_["status"]["startTime"] = since
    return pod_


def budget(allowed, name="budget", disrupted=(), **labels):
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"matchLabels": labels}},
        "status": {
            "disruptionsAllowed": allowed,
            "disruptedPods": dict.fromkeys(disrupted, OLD),
        },
    }


class Nodes:
    """Nodes with this number of CPUs each. A pod fits if enough CPUs are left."""

    def __init__(self, *pods, cpus=8):
        self.cpus = cpus
        self.pods = {}
        for each in parsed(*pods):
            self.pods.setdefault(each.spec.node_name, []).append(each)

    def evaluate(self, priority, cpu, budgets=(), **spec):
        status = spec.pop("status", {})
        waiting = pod("new", requests={"cpu": str(cpu)}, priority=priority, **spec)
        waiting["status"] |= status
        (waiting,) = parsed(waiting)

        def reasons(node, gone):
            staying = [each for each in self.pods[node] if each.metadata.uid not in gone]
            used = sum(int(each.spec.containers[0].resources.requests["cpu"]) for each in staying)
            return ["Insufficient cpu"] if used + cpu > self.cpus else []

        return preemption.evaluate(
            waiting,
            sorted(self.pods),
            len(self.pods),
            self.pods,
            read(list(budgets), list[DisruptionBudget]),
            reasons,
        )

    def victims(self, *args, **more):
        candidate = self.evaluate(*args, **more).candidate
        return candidate.node, [each.metadata.name for each in candidate.victims]


def test_as_few_go_as_will_do_and_the_least_important_first():
    nodes = Nodes(there("a", 5, 2), there("b", 3, 2), there("c", 1, 2), there("d", 9, 2))
    assert nodes.victims(10, 2) == ("node-1", ["c"])
    assert nodes.victims(10, 4) == ("node-1", ["b", "c"])
    # Pods of the same or a higher priority stay.
    assert nodes.victims(5, 4) == ("node-1", ["b", "c"])
    assert nodes.evaluate(5, 6).message == "0/1 nodes are available: 1 Insufficient cpu."


def test_what_has_run_for_longest_stays():
    nodes = Nodes(there("young", 1, 4, since=YOUNG), there("old", 1, 4))
    assert nodes.victims(10, 4) == ("node-1", ["young"])
    # A pod that has not started counts as the youngest.
    waiting = there("waiting", 1, 4)
    del waiting["status"]["startTime"]
    assert Nodes(there("young", 1, 4, since=YOUNG), waiting).victims(2, 4)[1] == ["waiting"]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param([("a", 5, 8)], [("b", 4, 8)], id="lower priority"),
        pytest.param([("a", 5, 4), ("a2", 1, 4)], [("b", 5, 8)], id="lower sum, fewer pods"),
        pytest.param([("a", -5, 4), ("a2", -5, 4)], [("b", -5, 8)], id="also below zero"),
        pytest.param([("a", 5, 8)], [("b", 5, 8, YOUNG)], id="has run for a shorter time"),
    ],
)
def test_the_node_where_it_costs_least(first, second):
    def placed(node, pods):
        return [
            there(name, priority, cpu, on=node, since=(*since, OLD)[0])
            for name, priority, cpu, *since in pods
        ]

    assert Nodes(*placed("node-1", first), *placed("node-2", second)).victims(9, 8)[0] == "node-2"
    assert Nodes(*placed("node-2", first), *placed("node-1", second)).victims(9, 8)[0] == "node-1"


def test_equal_nodes_are_taken_by_name():
    assert Nodes(there("b", 1, 8, on="node-2"), there("a", 1, 8)).victims(9, 8)[0] == "node-1"


def test_why_no_pod_goes():
    nodes = Nodes(there("a", 5, 8), there("b", 7, 8, on="node-2"))
    assert nodes.evaluate(5, 8).message == (
        "0/2 nodes are available: 2 No preemption victims found for incoming pod."
    )
    assert nodes.evaluate(6, 9).message == (
        "0/2 nodes are available: 1 Insufficient cpu, 1 No preemption victims found for incoming "
        "pod."
    )
    never = nodes.evaluate(9, 8, preemptionPolicy="Never")
    assert (never.message, never.keeps_nomination) == (
        "not eligible due to preemptionPolicy=Never.",
        True,
    )
    verdict = nodes.evaluate(9, 8)
    assert verdict.message == (
        "found a potential placement for pod on node node-1, preempting 1 victims"
    )
    (waiting,) = parsed(pod("new"))
    assert preemption.evaluate(waiting, (), 3, {}, (), None).message == (
        "0/3 nodes are available: 3 Preemption is not helpful for scheduling."
    )


def test_it_waits_for_those_that_go_already():
    going = there("going", 1, 8)
    going["metadata"]["deletionTimestamp"] = YOUNG
    going["status"]["conditions"] = [
        {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    ]
    promised = {"status": {"nominatedNodeName": "node-1"}}
    nodes = Nodes(going, there("other", 1, 8, on="node-2"))
    waits = nodes.evaluate(9, 8, **promised)
    assert (waits.candidate, waits.keeps_nomination, waits.message) == (
        None,
        True,
        "not eligible due to a terminating pod on the nominated node.",
    )

    # The pod does not wait for a pod that ends for another reason, or on another node.
    assert nodes.victims(9, 8)[0] == "node-1"
    going["status"]["conditions"][0]["reason"] = "DeletionByTaintManager"
    assert Nodes(going).evaluate(9, 8, **promised).candidate
    elsewhere = {"status": {"nominatedNodeName": "node-3"}}
    assert nodes.evaluate(9, 8, **elsewhere).candidate


def test_budgets_are_kept_where_that_is_possible():
    pods = there("a", 1, 4, app="web"), there("b", 1, 4, since=YOUNG, app="db")
    assert Nodes(*pods).victims(9, 4)[1] == ["b"]
    # An unprotected pod is ended instead.
    assert Nodes(*pods).victims(9, 4, budgets=[budget(0, app="db")])[1] == ["a"]
    # If both must end, the violated budget is counted.
    both = Nodes(*pods).evaluate(9, 8, budgets=[budget(0, app="db")]).candidate
    assert ([each.metadata.name for each in both.victims], both.violations) == (["a", "b"], 1)

    # A budget allows this number of pods, and also those that it counts as disrupted.
    assert Nodes(*pods).victims(9, 4, budgets=[budget(1, app="db")])[1] == ["b"]
    gone = budget(0, app="db", disrupted=["b"])
    assert Nodes(*pods).victims(9, 4, budgets=[gone])[1] == ["b"]
    # A budget with an empty selector protects no pod.
    assert Nodes(*pods).victims(9, 4, budgets=[budget(0)])[1] == ["b"]
    elsewhere = budget(0, app="db")
    elsewhere["metadata"]["namespace"] = "other"
    assert Nodes(*pods).victims(9, 4, budgets=[elsewhere])[1] == ["b"]


def test_a_node_whose_budgets_hold_costs_less():
    pods = there("a", 1, 8, app="db"), there("b", 5, 8, on="node-2")
    assert Nodes(*pods).victims(9, 8)[0] == "node-1"
    assert Nodes(*pods).victims(9, 8, budgets=[budget(0, app="db")])[0] == "node-2"
