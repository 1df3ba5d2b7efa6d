from claimd.sim.scheduler.scheduling_cycle import (
    Bind,
    Deallocate,
    Pending,
    Unschedulable,
    schedule_pod,
)
from tests.cluster.worlds import NODE, OTHER, WORLDS
from tests.support.planes import (
    claim,
    class_,
    node,
    parsed,
    pod,
    request,
    result,
    rule,
    slice_,
    snapshot,
)

HOT = {"key": "example.com/hot", "effect": "NoSchedule"}


def in_vain(message, nodes=1, why="Preemption is not helpful for scheduling"):
    """Builds the scheduler's message if no preemption helps."""
    return f"{message} preemption: 0/{nodes} nodes are available: {nodes} {why}."


def devices(decision):
    """Returns the devices that each claim gets."""
    return [
        [result.device for result in each.status.allocation.devices.results]
        for each in decision.claims
    ]


def three(*pods, **more):
    nodes = [node(f"node-{n}") for n in (1, 2, 3)]
    slices = [slice_(f"node-{n}") for n in (1, 2, 3)]
    return snapshot(**({"nodes": nodes, "slices": slices, "pods": pods} | more))


def decide(pod_, **more):
    (only,) = parsed(pod_)
    return schedule_pod(three(pod_, **more), only)


def test_a_pod_without_claims_goes_where_the_fewest_pods_are():
    there = [pod("a", on="node-1"), pod("b", on="node-2"), pod("c", on="node-2")]
    new = pod("new")
    assert schedule_pod(three(new, *there), *parsed(new)) == Bind(node="node-3")
    # None at all is fewer than one.
    assert schedule_pod(three(new, there[0]), *parsed(new)) == Bind(node="node-2")
    assert schedule_pod(three(new), *parsed(new)) == Bind(node="node-1")


def test_a_claim_is_allocated_and_reserved_where_most_devices_are_free():
    held = [claim("held-1", devices=["gpu-0"]), claim("held-3", devices=["gpu-1"], node="node-3")]
    decision = decide(pod("p", claims=["mine"]), claims=[claim("mine"), *held])
    assert decision.node == "node-2"
    assert devices(decision) == [["gpu-0"]]
    assert [consumer.uid for consumer in decision.claims[0].status.reserved_for] == ["uid-p"]
    assert not decision.waits


def test_devices_that_are_taken_are_not_given_again_before_the_api_server_knows():
    first, second, third = pod("a", claims=["a"]), pod("b", claims=["b"]), pod("c", claims=["c"])
    before = snapshot(
        nodes=[node("node-1")],
        slices=[slice_("node-1")],
        pods=[first, second, third],
        claims=[claim(name) for name in "abc"],
    )
    first_pod, second_pod, third_pod = parsed(first, second, third)
    decision = schedule_pod(before, first_pod)
    after = before.with_decision(first_pod, decision.claims, decision.node)
    again = schedule_pod(after, second_pod)
    assert (devices(decision), devices(again)) == ([["gpu-0"]], [["gpu-1"]])
    last = schedule_pod(after.with_decision(second_pod, again.claims, again.node), third_pod)
    assert last.message == in_vain(
        "0/1 nodes are available: 1 cannot allocate all claims "
        "(claim default/c: 1 GPU is needed, none is free)."
    )


def test_pods_take_turns_by_priority_and_then_by_age():
    pods = [
        pod("old"),
        pod("new"),
        pod("urgent", priority=7),
        pod("vital", priority=2_000_001_000),
    ]
    elsewhere = [
        pod("gated", schedulingGates=[{"name": "g"}]),
        pod("foreign", schedulerName="other"),
        pod("bound", on="node-1"),
    ]
    leaving = pod("leaving")
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:01:00Z"
    waiting = snapshot(pods=[*elsewhere, leaving, *pods]).pending_pods()
    assert [pod_.metadata.name for pod_ in waiting] == ["vital", "urgent", "old", "new"]


def test_each_reason_is_told_with_its_number_of_nodes():
    nodes = [
        node("drained", unschedulable=True),
        node("tainted", taints=[{"key": "k", "effect": "NoSchedule"}]),
        node("other", labels={"disk": "hdd"}),
        node("small", labels={"disk": "ssd"}, cpu="1", memory="1Gi"),
        node("full", labels={"disk": "ssd"}, pods="0"),
        node("bare", labels={"disk": "ssd"}),
    ]
    new = pod(
        "p", claims=["mine"], requests={"cpu": "2", "memory": "2Gi"}, nodeSelector={"disk": "ssd"}
    )
    assert decide(new, nodes=nodes, claims=[claim("mine")]).message == (
        "0/6 nodes are available: 1 Insufficient cpu, 1 Insufficient memory, 1 Too many pods, "
        "1 cannot allocate all claims (no driver has devices here: "
        "no ResourceSlice is for this node), "
        "1 node(s) didn't match Pod's node affinity/selector, 1 node(s) had untolerated taint(s), "
        "1 node(s) were unschedulable. preemption: 0/6 nodes are available: "
        "1 No preemption victims found for incoming pod, 5 Preemption is not helpful for "
        "scheduling."
    )


def test_what_a_pod_tolerates_and_asks_of_a_node():
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
    required = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}
        }
    }
    nodes = [
        node(
            "a", labels={"zone": "a"}, taints=[{"key": "k", "value": "v", "effect": "NoSchedule"}]
        ),
        node("b"),
    ]
    kept = pod(
        "p", affinity=required, tolerations=[{"key": "k", "value": "v", "effect": "NoSchedule"}]
    )
    assert decide(kept, nodes=nodes) == Bind(node="a")
    assert isinstance(
        decide(pod("p", affinity=required, tolerations=[{"key": "k"}]), nodes=nodes), Unschedulable
    )
    everything = pod("p", affinity=required, tolerations=[{"operator": "Exists"}])
    assert decide(everything, nodes=nodes) == Bind(node="a")


def test_init_containers_need_what_they_need_beside_sidecars():
    nodes = [node("node-1", cpu="4")]
    init = [
        {"name": "side", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}},
        {"name": "init", "resources": {"requests": {"cpu": "3"}}},
    ]
    assert decide(pod("p", requests={"cpu": "3"}, initContainers=init), nodes=nodes) == Bind(
        node="node-1"
    )
    assert decide(
        pod("p", requests={"cpu": "4"}, initContainers=init), nodes=nodes
    ) == Unschedulable(message=in_vain("0/1 nodes are available: 1 Insufficient cpu."))


def test_a_claim_of_a_template_is_waited_for_in_silence():
    new = pod("p", templates=["gpu"])
    assert decide(new) == Pending()
    new["status"]["resourceClaimStatuses"] = [{"name": "gpu", "resourceClaimName": "p-gpu-x"}]
    assert decide(new) == Pending()
    owner = {"kind": "Pod", "name": "p", "uid": "uid-p", "controller": True}
    claim_ = claim("p-gpu-x", ownerReferences=[owner])
    assert devices(decide(new, claims=[claim_])) == [["gpu-0"]]
    assert decide(new, claims=[claim("p-gpu-x")]) == Pending()  # another's
    new["status"]["resourceClaimStatuses"] = [{"name": "gpu"}]  # none is needed
    assert isinstance(decide(new), Bind)


def test_a_claim_that_is_not_there_or_goes_is_waited_for_in_silence():
    """As recorded, a kube-scheduler does not even queue such a pod."""
    new = pod("p", claims=["mine"])
    assert decide(new) == Pending()
    leaving = claim("mine", deletionTimestamp="2026-01-01T00:01:00Z")
    assert decide(new, claims=[leaving]) == Pending()


def test_reasons_that_no_node_can_help():
    new = pod("p", claims=["mine"])
    shared = claim("mine", devices=["gpu-0"], pods=[f"other-{n}" for n in range(256)])
    for claims, classes, why in (
        ([shared], None, "resourceclaim in use"),
        ([claim("mine")], [], "request gpu: device class gpu does not exist"),
    ):
        decision = decide(new, claims=claims, classes=classes)
        said = in_vain(f"0/3 nodes are available: {why}.", nodes=3)
        assert decision == Unschedulable(message=said)
    assert (
        decide(new, nodes=[], claims=[claim("mine")]).message
        == "no nodes available to schedule pods"
    )


def test_an_allocated_claim_decides_the_node_and_is_shared():
    shared = claim("mine", devices=["gpu-0"], node="node-3", pods=["other"])
    decision = decide(pod("p", claims=["mine"]), claims=[shared])
    assert decision.node == "node-3"
    assert [consumer.uid for consumer in decision.claims[0].status.reserved_for] == [
        "uid-other",
        "uid-p",
    ]


def test_a_claim_of_the_pod_that_is_stuck_elsewhere_is_freed():
    stuck = claim("mine", devices=["gpu-0"], node="gone", pods=["p"])
    assert isinstance(decide(pod("p", claims=["mine"]), claims=[stuck]), Deallocate)
    used = claim("mine", devices=["gpu-0"], node="gone", pods=["p", "other"])
    assert decide(pod("p", claims=["mine"]), claims=[used]).message == in_vain(
        "0/3 nodes are available: 3 resourceclaim not available on the node.", nodes=3
    )


def test_taints_of_slices_and_rules_keep_devices_away_unless_tolerated():
    mine = [claim("mine", request(count=2))]
    hot = [slice_("node-1", gpu_0={"taints": [HOT]})]
    new = pod("p", claims=["mine"])
    assert "2 GPUs are needed, 1 of 2 is usable" in decide(new, slices=hot, claims=mine).message
    rules = [rule("r", HOT, device="gpu-0")]
    assert isinstance(decide(new, claims=mine, rules=rules), Unschedulable)
    tolerant = [claim("mine", request(count=2, tolerations=[{"operator": "Exists"}]))]
    assert devices(decide(new, claims=tolerant, rules=rules)) == [["gpu-0", "gpu-1"]]


def test_the_first_alternative_anywhere_comes_before_a_nearer_node():
    alternatives = {
        "name": "gpu",
        "firstAvailable": [
            {"name": "three", "deviceClassName": "gpu", "count": 3},
            {"name": "one", "deviceClassName": "gpu", "count": 1},
        ],
    }
    nodes = [node(f"node-{n}") for n in (1, 2)]
    slices = [slice_("node-1", 8), slice_("node-2", 4)]
    held = claim("held", devices=[f"gpu-{n}" for n in range(6)])
    more = claim("more", devices=["gpu-0"], node="node-2")
    only_two_left = decide(
        pod("p", claims=["mine"]),
        nodes=nodes,
        slices=slices,
        claims=[claim("mine", alternatives), held, more],
    )
    assert only_two_left.node == "node-2"
    assert devices(only_two_left) == [["gpu-1", "gpu-2", "gpu-3"]]


def test_extended_resources_get_a_claim_of_their_own_where_the_node_has_none():
    classes = [class_(extendedResourceName="example.com/gpu")]
    new = pod("p", requests={"example.com/gpu": "2", "cpu": "1"})
    decision = decide(new, classes=classes)
    assert devices(decision) == [["gpu-0", "gpu-1"]]
    assert [request.name for request in decision.claims[0].spec.devices.requests] == [
        "container-0-request-1"
    ]
    assert not decision.claims[0].metadata.uid
    own = [node("plugin", **{"example.com/gpu": "2"})]
    assert decide(new, classes=classes, nodes=own) == Bind(node="plugin")
    assert decide(new, classes=[], nodes=[node("bare")]).message == in_vain(
        "0/1 nodes are available: 1 Insufficient example.com/gpu."
    )


def test_devices_that_have_to_get_ready_hold_the_pod_back():
    slow = {
        "bindingConditions": ["ready"],
        "bindingFailureConditions": ["broken"],
        "bindsToNode": True,
    }
    new = pod("p", claims=["mine"])
    decision = decide(new, slices=[slice_("node-1", 1, gpu_0=slow)], claims=[claim("mine")])
    assert (devices(decision), decision.waits) == ([["gpu-0"]], True)
    waiting = claim("mine", devices=[result("gpu-0", **slow)], pods=["p"])
    waiting["status"]["allocation"]["allocationTimestamp"] = "2026-01-01T00:00:00Z"
    (only,) = parsed(new)
    start = 1767225600.0  # 2026-01-01

    def again(now, *true):
        entry = {"driver": "gpu.example.com", "pool": "node-1", "device": "gpu-0"}
        entry["conditions"] = [{"type": type_, "status": "True"} for type_ in true]
        told = {**waiting, "status": waiting["status"] | {"devices": [entry]}}
        return schedule_pod(three(new, claims=[told]), only, now)

    # The scheduler waits on, also after a restart.
    assert again(start + 599) == Bind(node="node-1", waits=True)
    assert again(start + 9999, "ready") == Bind(node="node-1", waits=True)
    for decision in (again(start + 601), again(start, "broken")):
        assert isinstance(decision, Deallocate)
        assert "3 resourceclaim not available on the node" in decision.report.message


def test_an_expression_that_fails_is_the_schedulers_error():
    bad = request(
        selectors=[{"cel": {"expression": 'device.attributes["gpu.example.com"].no == 1'}}]
    )
    decision = decide(pod("p", claims=["mine"]), claims=[claim("mine", bad)])
    assert decision.reason == "SchedulerError"
    assert decision.message.startswith(
        'running "DynamicResources" filter plugin: claim default/mine'
    )


def test_it_decides_on_the_worlds_of_the_real_scheduler_as_that_does():
    """Decides all of them, as in tests/cluster/test_13_scheduler.py."""
    nodes = [node(NODE, cpu="64"), node(OTHER, cpu="64")]
    classes, slices = (
        [obj for each in WORLDS for obj in getattr(each, kind)] for kind in ("classes", "slices")
    )
    claims, pods = [], []
    for each in WORLDS:
        claims += [
            {**obj, "metadata": {**claim(obj["metadata"]["name"])["metadata"]}}
            for obj in each.claims
        ]
        names = [obj["metadata"]["name"] for obj in each.claims]
        pods.append(
            pod(each.name, claims=names, nodeSelector={"kubernetes.io/hostname": each.node})
        )
    there = snapshot(nodes=nodes, pods=pods, claims=claims, slices=slices, classes=classes)
    for each, new in zip(WORLDS, parsed(*pods), strict=True):
        decision = schedule_pod(there, new)
        assert isinstance(decision, Bind) == each.fits, (each.name, decision)
        if each.fits:
            assert decision.node == each.node
            there = there.with_decision(new, decision.claims, decision.node)


def test_a_port_of_the_node_is_given_once():
    ports = [{"name": "main", "ports": [{"containerPort": 80, "hostPort": 80}]}]
    first, second = (pod(name) | {} for name in ("a", "b"))
    for pod_ in (first, second):
        pod_["spec"]["containers"] = ports
    before = snapshot(nodes=[node("node-1")], pods=[first, second])
    decision = schedule_pod(before, *parsed(first))
    assert decision == Bind(node="node-1")
    after = before.with_decision(*parsed(first), (), "node-1")
    expected = in_vain(
        "0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports.",
        why="No preemption victims found for incoming pod",
    )
    assert schedule_pod(after, *parsed(second)) == Unschedulable(message=expected)


def test_a_claim_that_is_held_elsewhere_is_named_only_where_the_others_could_be_allocated():
    held = claim("held", devices=["gpu-0"], node="node-1", pods=["other"])
    both = pod("p", claims=["held", "mine"])
    large = claim("mine", request(count=3))
    assert "resourceclaim" not in decide(both, claims=[held, large]).message

    others = [node("node-2"), node("node-3")]
    decision = decide(both, nodes=others, claims=[held, claim("mine")])
    expected = in_vain(
        "0/2 nodes are available: 2 resourceclaim not available on the node.", nodes=2
    )
    assert decision == Unschedulable(message=expected)


# ---------------------------------------------------------------- preemption


def low(name, on="node-1", cpu=8, **more):
    return pod(name, on=on, requests={"cpu": str(cpu)}, priority=10, **more)


def test_a_pod_of_lower_priority_goes_and_its_node_is_promised():
    decision = decide(
        pod("p", requests={"cpu": "8"}, priority=20),
        nodes=[node("node-1")],
        pods=[low("a", cpu=4), low("b", cpu=4)],
    )
    assert [each.metadata.name for each in decision.preemption.victims] == ["a", "b"]
    assert (decision.nominated_node, decision.keeps_nomination) == ("node-1", False)


def test_what_is_promised_is_given_to_nobody_of_lower_priority():
    first, second = pod("p", requests={"cpu": "8"}, priority=20), pod("q", requests={"cpu": "1"})
    nodes = [node("node-1")]
    before = snapshot(nodes=nodes, pods=[first, second, low("a")])
    promised = before.with_nomination(*parsed(first), "node-1")
    gone = snapshot(nodes=nodes, pods=[first, second]).with_nomination(*parsed(first), "node-1")
    assert "Insufficient cpu" in schedule_pod(gone, *parsed(second)).message
    # The one that it is promised to gets it, also where another node would suit it better.
    assert schedule_pod(gone, gone.pods["uid-p"]) == Bind(node="node-1")
    assert schedule_pod(gone.with_nomination(*parsed(first), ""), *parsed(second)) == Bind(
        node="node-1"
    )

    # Who is more urgent takes it.
    (third,) = parsed(pod("r", requests={"cpu": "8"}, priority=30))
    decision = schedule_pod(promised, third)
    assert [each.metadata.name for each in decision.preemption.victims] == ["a"]
    assert schedule_pod(gone, third) == Bind(node="node-1")


def test_a_promise_is_looked_at_before_all_other_nodes():
    new = pod("p")
    world = three(new, pod("a", on="node-2"))
    assert schedule_pod(world, *parsed(new)) == Bind(node="node-1")
    promised = world.with_nomination(*parsed(new), "node-2")
    assert schedule_pod(promised, promised.pods["uid-p"]) == Bind(node="node-2")


def test_a_pod_that_is_refused_for_its_devices_ends_nobody():
    """There is no preemption, whether only devices are missing or also resources that could be
    freed."""
    held = claim("held", devices=["gpu-0", "gpu-1"], pods=["a"])
    for cpu, why in (
        ("1", "1 Preemption is not helpful for scheduling"),
        ("4", "1 cannot allocate all claims"),
    ):
        decision = decide(
            pod("p", claims=["mine"], requests={"cpu": cpu}, priority=20),
            nodes=[node("node-1")],
            pods=[low("a", cpu=7, claims=["held"])],
            claims=[held, claim("mine")],
        )
        assert decision.preemption is None
        assert decision.message.endswith(f"preemption: 0/1 nodes are available: {why}.")


def test_who_keeps_the_pod_away_may_have_to_go():
    selector = {"matchLabels": {"team": "blue"}}
    term = {"labelSelector": selector, "topologyKey": "kubernetes.io/hostname"}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    new = pod("p", priority=20)
    new["metadata"]["labels"] = {"team": "blue"}
    away = low("away", cpu=1, affinity={"podAntiAffinity": required})
    decision = decide(new, nodes=[node("node-1")], pods=[low("a", cpu=1), away])
    assert [each.metadata.name for each in decision.preemption.victims] == ["away"]
