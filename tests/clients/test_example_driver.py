"""The demos of Kubernetes' example driver, with device status, on clusters of two nodes that know
nothing of claimd: each has the devices that its README says, and no device is anybody else's.

Two of its demos are not here, as Kubernetes 1.37 has their features off: native resources of nodes,
and groups of pods.
"""

import contextlib
import json
import socket
import subprocess
from collections import Counter

import pytest

from tests.clients import example_driver
from tests.clients.example_driver import (
    claims,
    demo,
    devices,
    driven,
    gpus,
    kubectl,
    results,
    until,
    variables,
)
from tests.clients.toolchains import INSTALLING, RUNNING, newest

NODES = ["node-1", "node-2"]

# By demo: how many devices the containers of a group have, each the same.
GROUPS = {
    "basic-multiple-requests": [(2, "pod0/ctr0")],
    "basic-resourceclaim-opaque-config": [
        (1, "pod0/ts-ctr0", "pod0/ts-ctr1"),
        (1, "pod0/sp-ctr0", "pod0/sp-ctr1"),
    ],
    "basic-resourceclaimtemplate": [(1, "pod0/ctr0"), (1, "pod1/ctr0")],
    "basic-shared-claim-across-containers": [(1, "pod0/ctr0", "pod0/ctr1")],
    "basic-shared-claim-across-pods": [(1, "pod0/ctr0", "pod1/ctr0")],
    "cel-selector": [(1, "pod0/ctr0")],
    "extended-resource-request": [(1, "pod0/ctr0"), (1, "pod1/ctr0")],
    "initcontainer-shared-gpu": [(1, "pod0/init0", "pod0/ctr0")],
    "prioritized-alternatives": [(1, "pod0/ctr0"), (1, "pod1/ctr0")],
}
NAMESPACES = [*GROUPS, "admin-access"]
TOLD = ("uuid", "model", "driverVersion")  # by the status of a device

pytestmark = [pytest.mark.slow, pytest.mark.timeout(INSTALLING + RUNNING)]


@pytest.fixture(scope="module")
def cluster(claimd_cluster_factory):
    """All demos of the driver as it comes, side by side on two nodes of eight devices."""
    new_cluster = claimd_cluster_factory(nodes=NODES)
    with driven(new_cluster):
        for name in NAMESPACES:
            kubectl(new_cluster, "apply", "-f", demo(name))
        yield new_cluster


@pytest.fixture
def drive(claimd_cluster_factory):
    """A cluster with the driver by flags of its own."""
    with contextlib.ExitStack() as stack:

        def start(*flags, profile="gpu", nodes=NODES):
            new_cluster = claimd_cluster_factory(nodes=nodes)
            stack.callback(new_cluster.end)
            stack.enter_context(driven(new_cluster, *flags, profile=profile))
            return new_cluster

        yield start


def node_of(cluster, namespace, pod):
    return cluster.get(f"pod/{pod}", namespace)["spec"]["nodeName"]


def seen_by(cluster, namespace, place):
    """The devices of a container, which are named by node."""
    names = gpus(variables(cluster, namespace, place))
    return {(node_of(cluster, namespace, place.split("/")[0]), name) for name in names}


@pytest.mark.parametrize("name", GROUPS)
def test_a_demo_has_the_devices_that_its_page_says(name, cluster):
    taken = set()
    for count, *places in GROUPS[name]:
        first, *others = [seen_by(cluster, name, place) for place in places]
        assert len(first) == count
        assert all(seen == first for seen in others)
        assert taken.isdisjoint(first)
        taken |= first

    owned = [device[:2] for claim in claims(cluster, [name]) for device in devices(claim)]
    assert sorted(owned) == sorted(taken)


def test_how_devices_are_shared_is_told(cluster):
    name = "basic-resourceclaim-opaque-config"

    def told(place):
        variables_ = variables(cluster, name, place)
        (gpu,) = gpus(variables_)
        prefix = f"GPU_DEVICE_{gpu[4:]}_"
        return {
            key.removeprefix(prefix): variables_[key]
            for key in variables_
            if key.startswith(prefix)
        }

    assert told("pod0/ts-ctr0") == {"SHARING_STRATEGY": "TimeSlicing", "TIMESLICE_INTERVAL": "Long"}
    assert told("pod0/sp-ctr0") == {
        "SHARING_STRATEGY": "SpacePartitioning",
        "PARTITION_COUNT": "10",
    }


def test_who_administers_sees_all_devices_of_a_node(cluster):
    variables_ = variables(cluster, "admin-access", "pod0/ctr0")
    assert variables_["DRA_ADMIN_ACCESS"] == "true"
    assert gpus(variables_) == {f"gpu-{number}" for number in range(8)}


def test_a_claim_is_made_for_an_extended_resource(cluster):
    name = "extended-resource-request"
    resources = {
        "pod0": "deviceclass.resource.kubernetes.io/gpu.example.com",
        "pod1": "example.com/gpu",
    }
    for pod, resource in resources.items():
        running = cluster.wait(f"pod/{pod}", "Running", namespace=name)
        status = running["status"]["extendedResourceClaimStatus"]
        assert [mapping["resourceName"] for mapping in status["requestMappings"]] == [resource]
        cluster.get(f"resourceclaim/{status['resourceClaimName']}", name)


def test_the_first_alternative_that_there_is_counts(cluster):
    chosen = {}
    for pod in ("pod0", "pod1"):
        running = cluster.wait(f"pod/{pod}", "Running", namespace="prioritized-alternatives")
        (claim,) = running["status"]["resourceClaimStatuses"]
        claim_ = cluster.get(
            f"resourceclaim/{claim['resourceClaimName']}", "prioritized-alternatives"
        )
        chosen[pod] = [result["request"] for result in results(claim_)]
    assert chosen == {"pod0": ["gpu/older-gpu"], "pod1": ["gpu/latest-gpu"]}


def test_each_device_has_the_driver_s_status(cluster):
    published = {}
    for piece in cluster.list("resourceslices"):
        for device in piece["spec"]["devices"]:
            attributes = {key: device["attributes"][key] for key in TOLD}
            published[piece["spec"]["pool"]["name"], device["name"]] = attributes

    wait_for_pods(cluster, NAMESPACES)
    for claim in claims(cluster, NAMESPACES):
        told = {
            (entry["pool"], entry["device"]): entry["data"] for entry in claim["status"]["devices"]
        }
        allocated = {(result["pool"], result["device"]) for result in results(claim)}
        assert allocated
        assert told == {device: published[device] for device in allocated}


def wait_for_pods(cluster, namespaces):
    for namespace in namespaces:
        for pod in cluster.list("pods", namespace):
            name = pod["metadata"]["name"]
            cluster.wait(f"pod/{name}", namespace=namespace, timeout=example_driver.SECONDS)


def test_no_device_of_any_demo_has_two_claims(cluster):
    wait_for_pods(cluster, NAMESPACES)
    held = [device for claim in claims(cluster, NAMESPACES) for device in devices(claim)]
    assert len(held) == sum(count for groups in GROUPS.values() for count, *_ in groups)
    assert len(set(held)) == len(held)


def test_no_device_has_two_claims_where_devices_are_scarce(drive, tmp_path):
    """Two nodes of four devices for demos that need thirteen: as pods end, others get theirs."""
    cluster = drive("--num-devices=4")
    with watched_claims(cluster, tmp_path / "claims") as history:
        for name in NAMESPACES:
            kubectl(cluster, "apply", "-f", demo(name))
        until(
            lambda: (
                len({entry for claim in claims(cluster, NAMESPACES) for entry in devices(claim)})
                == 8
            )
        )

        ran = set()
        while pods := pods_of(cluster):
            namespace, name = until(lambda: running(cluster, pods))
            ran.add((namespace, name))
            cluster.delete(f"pod/{name}", namespace)
            cluster.wait(f"pod/{name}", "gone", namespace=namespace)
        assert len(ran) == 14

    held = {}
    for event in history():
        claim = event["object"]
        key = claim["metadata"]["namespace"], claim["metadata"]["name"]
        held[key] = [] if event["type"] == "DELETED" else devices(claim)
        holders = Counter(device for owned in held.values() for device in owned)
        assert set(holders.values()) <= {1}, holders
    assert len(held) == 13


def pods_of(cluster):
    return [
        (name, pod["metadata"]["name"]) for name in NAMESPACES for pod in cluster.list("pods", name)
    ]


def running(cluster, pods):
    for namespace, name in pods:
        if cluster.get(f"pod/{name}", namespace)["status"].get("phase") == "Running":
            return namespace, name
    return None


@contextlib.contextmanager
def watched_claims(cluster, path):
    """What a watch tells of all claims until the context ends, one event after the other."""
    words = ["get", "resourceclaims", "-A", "--watch", "--output-watch-events", "-o", "json"]
    with (
        path.open("wb") as out,
        subprocess.Popen([newest("kubectl"), *words], env=cluster.environ, stdout=out) as process,
    ):
        try:
            yield lambda: documents(path.read_text())
        finally:
            process.terminate()


def documents(text):
    """JSON documents one after the other."""
    decoder, place = json.JSONDecoder(), 0
    while place < len(text.rstrip()):
        document, place = decoder.raw_decode(text, place)
        yield document
        while place < len(text) and text[place].isspace():
            place += 1


# ---------------------------------------------------------------- parts and shares of devices


def test_partitions_of_devices(drive):
    name = "partitionable-devices"
    cluster = drive("--gpu-partitions=4", "--num-devices=2")
    kubectl(cluster, "apply", "-f", demo(name))
    assert len(seen_by(cluster, name, "pod0/ctr0")) == 2
    (claim,) = claims(cluster, [name])
    assert len(claim["status"]["devices"]) == 2


@pytest.mark.parametrize(
    ("name", "flags", "memory", "compute"),
    [
        ("gpu-allow-multiple-allocations", [], "16Gi", "20"),
        ("gpu-allow-multiple-allocations-partitionable", ["--gpu-partitions=4"], "8Gi", "10"),
    ],
)
def test_shares_of_a_device(name, flags, memory, compute, drive):
    cluster = drive("--gpu-allow-multiple-allocations", *flags, nodes=NODES[:1])
    kubectl(cluster, "apply", "-f", demo(name))
    seen = [seen_by(cluster, name, f"{pod}/ctr0") for pod in ("pod0", "pod1")]
    assert seen[0] == seen[1]
    ((_, gpu),) = seen[0]
    variables_ = variables(cluster, name, "pod0/ctr0")
    prefix = f"GPU_DEVICE_{gpu[4:].upper().replace('-', '_')}"
    assert (variables_[f"{prefix}_MEMORY"], variables_[f"{prefix}_COMPUTE"]) == (memory, compute)

    shares = [result["shareID"] for claim in claims(cluster, [name]) for result in results(claim)]
    assert len(set(shares)) == 2
    for claim in claims(cluster, [name]):
        assert results(claim)[0]["consumedCapacity"] == {"memory": memory, "compute": compute}

    # Its status names no share, which Kubernetes refuses, as it is no device of the claim.
    node = cluster.nodes[node_of(cluster, name, "pod0")]
    assert "must be an allocated device in the claim" in example_driver.log_of(node).read_text()


def test_bandwidth_of_a_network_device(drive):
    name = "net-consumable-capacity"
    cluster = drive("--num-devices=1", profile="net")
    kubectl(cluster, "apply", "-f", demo(name))
    rates = {"pod0": ("10000000000", "5000000000"), "pod1": ("5000000000", "5000000000")}
    for pod, (ingress, egress) in rates.items():
        variables_ = variables(cluster, name, f"{pod}/ctr0")
        assert variables_["NET_DEVICE_0_INGRESS_RATE"] == ingress
        assert variables_["NET_DEVICE_0_EGRESS_RATE"] == egress


# ---------------------------------------------------------------- devices that get ready, or sick


def test_a_device_is_waited_for(drive, tmp_path):
    """A pod is bound when the driver's controller says that its device is ready."""
    with socket.socket() as metrics:
        if metrics.connect_ex(("127.0.0.1", 8080)) == 0:
            pytest.skip("port 8080 is taken, on which the driver's controller has its metrics")

    name = "binding-conditions"
    cluster = drive("--binding-conditions")
    kubectl(cluster, "apply", "-f", demo(name))
    (claim,) = until(lambda: [each for each in claims(cluster, [name]) if results(each)])
    assert results(claim)[0]["bindingConditions"] == ["BindingConditions"]
    assert "nodeName" not in cluster.get("pod/pod0", name)["spec"]

    flags = ("--enable-plugin=BindingConditions", "--driver-name=gpu.example.com")
    log = cluster.folder / "controller.log"
    with example_driver.program("dra-example-controller", cluster, log, *flags):
        assert len(seen_by(cluster, name, "pod0/ctr0")) == 1

        def ready():
            (claim,) = claims(cluster, [name])
            (status,) = claim["status"]["devices"]
            true = [each for each in status.get("conditions") or [] if each["status"] == "True"]
            return "data" in status and [each["type"] for each in true] == ["BindingConditions"]

        until(ready)


TAINTS = "device-taints-tolerations/device-taint"
NAMESPACE = "basic-resourceclaimtemplate"  # of all demos of taints


def test_a_taint_that_schedules_nothing(drive):
    cluster = drive()
    for step in ("1-basic-resourceclaimtemplate", "2-pod-keeps-running"):
        kubectl(cluster, "apply", "-f", demo(f"{TAINTS}-pod-noschedule/{step}.yaml"))
    cluster.wait("pod/pod-keeps-running", namespace=NAMESPACE)
    kubectl(cluster, "apply", "-f", demo(f"{TAINTS}-pod-noschedule/3-device-taint-rule.yaml"))

    # The demo's last file lacks its apiVersion.
    late = demo(f"{TAINTS}-pod-noschedule/4-pod-not-scheduled.yaml").read_text()
    cluster.apply(f"apiVersion: v1\n{late}", NAMESPACE)
    is_unschedulable(cluster, "pod-no-schedule")
    assert running(cluster, [(NAMESPACE, "pod-keeps-running")])


def is_unschedulable(cluster, pod):
    waiting = {"status.conditions[type=PodScheduled].reason": "Unschedulable"}
    cluster.wait(f"pod/{pod}", waiting, namespace=NAMESPACE)


def test_a_taint_that_ends_pods(drive):
    cluster = drive()
    steps = [
        "1-basic-resourceclaimtemplate",
        "2-pod-to-be-evicted",
        "3-device-taint-rule",
        "4-pod-no-execute",
    ]
    first, second, third, fourth = [demo(f"{TAINTS}-pod-noexecute/{step}.yaml") for step in steps]
    kubectl(cluster, "apply", "-f", first, "-f", second)
    cluster.wait("pod/pod-to-be-evicted", namespace=NAMESPACE)
    kubectl(cluster, "apply", "-f", third)
    cluster.wait("pod/pod-to-be-evicted", "gone", namespace=NAMESPACE)
    assert "pod-to-be-evicted" in evicted(cluster)

    # It never runs. Its page has seen it scheduled first: what is tainted so is not allocated.
    kubectl(cluster, "apply", "-f", fourth)
    is_unschedulable(cluster, "pod-no-execute")


def evicted(cluster):
    """The pods of which an Event says that a taint has ended them."""
    return [
        event["regarding"]["name"] if "regarding" in event else event["involvedObject"]["name"]
        for event in cluster.list("events", NAMESPACE)
        if event["reason"] == "DeviceTaintManagerEviction"
    ]


def test_a_taint_that_a_claim_tolerates(drive):
    cluster = drive()
    for step in ("1-device-taint-rule", "2-basic-resourceclaimtemplate"):
        kubectl(cluster, "apply", "-f", demo(f"{TAINTS}-pod-toleration/{step}.yaml"))
    cluster.wait("pod/pod-with-toleration", namespace=NAMESPACE)
    is_unschedulable(cluster, "pod-without-toleration")


def test_a_taint_that_is_tolerated_for_a_time(drive):
    """The five minutes that the third pod has are not waited for."""
    cluster = drive()
    folder = f"{TAINTS}-configurable-pod-eviction-time"
    kubectl(cluster, "create", "-f", demo(f"{folder}/1-basic-resourceclaimtemplate.yaml"))
    wait_for_pods(cluster, [NAMESPACE])
    kubectl(cluster, "create", "-f", demo(f"{folder}/2-device-taint-rule.yaml"))
    cluster.wait("pod/pod-no-toleration", "gone", namespace=NAMESPACE)

    progress = "status.conditions[type=EvictionInProgress]"
    told = "1 pod needs to be evicted in 1 namespace. 1 pod evicted since starting the controller."
    cluster.wait(
        "devicetaintrule/example",
        {f"{progress}.reason": "PodsPendingEviction", f"{progress}.message": told},
    )
    assert evicted(cluster) == ["pod-no-toleration"]
    left = {pod["metadata"]["name"] for pod in cluster.list("pods", NAMESPACE)}
    assert left == {"pod-with-toleration", "pod-with-300s-toleration"}
