"""Manifests as people write them: numbers as quantities, limits as requests, and workloads."""

import copy

import pytest

from claimd.tools.explain import manifests


def pod(**resources):
    return {"kind": "Pod", "spec": {"containers": [{"name": "main", "resources": resources}]}}


def requests(document):
    return manifests.with_defaults(document)["spec"]["containers"][0]["resources"]["requests"]


@pytest.mark.parametrize(
    ("written", "read"),
    [(4, "4"), (0.5, "0.5"), (1e30, "1000000000000000000000000000000"), ("4", "4"), (1e-7, "0.0000001")],
)  # fmt: skip
def test_numbers_are_quantities(written, read):
    assert requests(pod(requests={"cpu": written})) == {"cpu": read}


def test_only_quantities_become_texts():
    """A count stays a number, and other values stay as they are."""
    claim = {
        "kind": "ResourceClaim",
        "spec": {
            "devices": {
                "requests": [
                    {
                        "name": "r",
                        "exactly": {"count": 2, "capacity": {"requests": {"memory": 10}}},
                    }
                ]
            }
        },
    }
    before = copy.deepcopy(claim)
    [request] = manifests.with_defaults(claim)["spec"]["devices"]["requests"]
    assert request["exactly"] == {"count": 2, "capacity": {"requests": {"memory": "10"}}}
    assert claim == before


def test_the_quantities_of_a_slice():
    policy = {"default": 1, "validValues": [1, 2], "validRange": {"min": 1}}
    device = {
        "name": "d",
        "capacity": {"memory": {"value": 80, "requestPolicy": policy}},
        "allowMultipleAllocations": True,
        "consumesCounters": [{"counterSet": "s", "counters": {"c": {"value": 3}}}],
    }
    completed = manifests.with_defaults({"kind": "ResourceSlice", "spec": {"devices": [device]}})
    [device] = completed["spec"]["devices"]
    assert device["capacity"]["memory"] == {
        "value": "80",
        "requestPolicy": {"default": "1", "validValues": ["1", "2"], "validRange": {"min": "1"}},
    }
    assert device["consumesCounters"][0]["counters"] == {"c": {"value": "3"}}
    assert device["allowMultipleAllocations"] is True


def test_limits_are_requests_unless_there_are_others():
    document = pod(limits={"cpu": 4, "nvidia.com/gpu": "1"}, requests={"cpu": "2"})
    assert requests(document) == {"cpu": "2", "nvidia.com/gpu": "1"}
    init = {"kind": "Pod", "spec": {"initContainers": [{"resources": {"limits": {"cpu": 1}}}]}}
    [container] = manifests.with_defaults(init)["spec"]["initContainers"]
    assert container["resources"]["requests"] == {"cpu": "1"}


@pytest.mark.parametrize("spec", [None, 5, [], {"containers": 5}, {"containers": [5]}])
def test_a_wrong_shape_is_left_alone(spec):
    assert manifests.with_defaults({"kind": "Pod", "spec": spec})["spec"] == spec


TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "main"}]}}


def workload(kind, **spec):
    metadata = {"name": "web", "namespace": "team"}
    return manifests.parse_workload({"kind": kind, "metadata": metadata, "spec": spec})


@pytest.mark.parametrize(
    ("kind", "spec", "count"),
    [
        ("Deployment", {"template": TEMPLATE, "replicas": 3}, 3),
        ("Deployment", {"template": TEMPLATE}, 1),
        ("ReplicaSet", {"template": TEMPLATE, "replicas": 2}, 2),
        ("StatefulSet", {"template": TEMPLATE}, 1),
        ("Job", {"template": TEMPLATE, "parallelism": 4}, 4),
        ("CronJob", {"jobTemplate": {"spec": {"template": TEMPLATE, "parallelism": 2}}}, 2),
        ("ReplicationController", {"template": TEMPLATE}, 1),
    ],
)
def test_what_makes_pods(kind, spec, count):
    workload_ = workload(kind, **spec)
    assert (workload_.kind, workload_.name, workload_.count) == (kind, "web", count)
    assert workload_.pod["metadata"] == {"labels": {"a": "b"}, "name": "web-…", "namespace": "team"}
    assert workload_.pod["spec"] == TEMPLATE["spec"]


def test_the_pods_of_a_daemon_set_run_where_others_may_not():
    workload_ = workload("DaemonSet", template=TEMPLATE)
    keys = {toleration["key"] for toleration in workload_.pod["spec"]["tolerations"]}
    assert {"node.kubernetes.io/unschedulable", "node.kubernetes.io/not-ready"} < keys
    assert "tolerations" not in TEMPLATE["spec"]


def test_other_objects_make_no_pods():
    assert manifests.parse_workload({"kind": "Service"}) is None


def test_a_broken_one_is_told():
    with pytest.raises(TypeError, match="template is no map"):
        workload("Deployment", template=5)


def test_what_the_pod_may_use_as_a_whole_is_its_request():
    limited = pod() | {"spec": {"resources": {"limits": {"cpu": 2}, "requests": {"memory": "1Gi"}}}}
    spec = manifests.with_defaults(limited)["spec"]
    assert spec["resources"]["requests"] == {"cpu": "2", "memory": "1Gi"}


def test_in_the_nodes_network_each_port_is_one_of_the_node():
    ports = [{"containerPort": 80}, {"containerPort": 1, "hostPort": 2}, 5]
    document = {"kind": "Pod", "spec": {"hostNetwork": True, "containers": [{"ports": ports}]}}
    [container] = manifests.with_defaults(document)["spec"]["containers"]
    assert container["ports"] == [
        {"hostPort": 80, "containerPort": 80},
        {"hostPort": 2, "containerPort": 1},
        5,
    ]
