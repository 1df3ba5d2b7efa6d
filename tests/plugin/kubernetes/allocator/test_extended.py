"""Tests of the implicit claim of a pod that requests devices as extended resources."""

import pytest

from claimd.kubernetes.allocator import extended
from claimd.kubernetes.api.core import Node, Pod
from claimd.kubernetes.api.scheduling import DeviceClass
from tests.support import allocating

GPU, NIC = "example.com/gpu", "example.com/nic"


def class_(name, resource=None):
    spec = {"extendedResourceName": resource} if resource else {}
    return {"metadata": {"name": name}, "spec": spec}


CLASSES = [class_("gpus", GPU), class_("nics", NIC), class_("plain")]


def asking(*containers, init=(), offered=None, classes=CLASSES):
    """Returns class and count of the claim's requests by name; None without a claim."""

    def make_containers(requests):
        return [
            {"name": f"c{number}"}
            | ({"restartPolicy": "Always"} if sidecar else {})
            | {"resources": {"requests": amounts}}
            for number, (amounts, sidecar) in enumerate(requests)
        ]

    pod = {
        "metadata": {"name": "p", "namespace": "team"},
        "spec": {
            "containers": make_containers((amounts, False) for amounts in containers),
            "initContainers": make_containers(
                amounts if isinstance(amounts, tuple) else (amounts, False) for amounts in init
            ),
        },
    }
    claim = extended.implicit_claim(
        allocating.read(pod, Pod),
        allocating.read(
            {"metadata": {"name": "n"}, "status": {"allocatable": offered or {}}}, Node
        ),
        allocating.read(classes, list[DeviceClass]),
    )
    if claim is None:
        return None
    assert (claim.metadata.name, claim.metadata.namespace) == (extended.CLAIM_NAME, "team")
    return {
        request.name: (request.exactly.device_class_name, request.exactly.count)
        for request in claim.spec.devices.requests
    }


def lasting(amount):
    return ({GPU: amount}, True)


def test_a_container_has_a_request_for_each_class():
    assert asking({GPU: "2", "cpu": "1", NIC: "1"}, {GPU: "1"}) == {
        "container-0-request-1": ("gpus", 2),
        "container-0-request-2": ("nics", 1),
        "container-1-request-0": ("gpus", 1),
    }


@pytest.mark.parametrize("amount", ["0", "500m"])
def test_nothing_and_parts_of_a_device_are_no_request(amount):
    assert asking({GPU: amount}) is None


def test_a_pod_without_extended_resources_needs_no_claim():
    assert asking({"cpu": "1"}, {}) is None


def test_resources_of_device_plugins_are_not_claimed():
    assert asking({GPU: "1"}, offered={GPU: "4"}) is None
    assert asking({GPU: "1"}, offered={GPU: "0"}) == {"container-0-request-0": ("gpus", 1)}
    assert asking({GPU: "1", NIC: "1"}, offered={NIC: "4"}) == {
        "container-0-request-0": ("gpus", 1)
    }


def test_a_class_may_be_requested_by_its_name():
    for name in ("plain", "gpus"):
        assert asking({extended.PREFIX + name: "1"}) == {"container-0-request-0": (name, 1)}


def test_of_two_classes_with_one_resource_the_lesser_name_counts():
    classes = [class_("b", GPU), class_("a", GPU)]
    assert asking({GPU: "1"}, classes=classes) == {"container-0-request-0": ("a", 1)}


@pytest.mark.parametrize(
    ("init", "requests"),
    [
        # What an init container that ends has had, the containers after it take over.
        ([{GPU: "2"}], {1: 2}),
        ([{GPU: "1"}], {1: 2}),
        # What goes beyond that is asked for once, by the one that lacks most.
        ([{GPU: "3"}], {0: 1, 1: 2}),
        ([{GPU: "3"}, {GPU: "5"}, {GPU: "4"}], {1: 3, 3: 2}),
        ([{GPU: "5"}, {GPU: "5"}], {0: 3, 2: 2}),
        # One that lives on keeps its own, from when it has begun.
        ([lasting("1")], {0: 1, 1: 2}),
        ([lasting("1"), {GPU: "3"}], {0: 1, 1: 1, 2: 2}),
        ([{GPU: "3"}, lasting("1")], {1: 1, 2: 2}),
    ],
)
def test_init_containers(init, requests):
    assert asking({GPU: "2"}, init=init) == {
        f"container-{index}-request-0": ("gpus", count) for index, count in requests.items()
    }


# ---------------------------------------------------------------- which container has what


def map_requests(*containers, init=()):
    """Returns the claim's requests for GPUs that each container uses."""
    names = [f"i{number}" for number in range(len(init))]
    pod = {
        "metadata": {"name": "p", "namespace": "team"},
        "spec": {
            "initContainers": [
                {"name": name, "resources": {"requests": amounts}}
                | ({"restartPolicy": "Always"} if sidecar else {})
                for name, (amounts, sidecar) in zip(names, init, strict=True)
            ],
            "containers": [
                {"name": f"c{number}", "resources": {"requests": amounts}}
                for number, amounts in enumerate(containers)
            ],
        },
    }
    read = allocating.read(pod, Pod)
    node = allocating.read({"metadata": {"name": "n"}}, Node)
    claim = extended.implicit_claim(read, node, allocating.read(CLASSES, list[DeviceClass]))
    counts = {request.name: request.exactly.count for request in claim.spec.devices.requests}
    by_container = {}
    for mapping in extended.mappings(read, counts):
        by_container.setdefault(mapping.container, []).append(mapping.request)
        assert mapping.resource in (GPU, NIC)
    return by_container


def ending(amount):
    return ({GPU: amount}, False)


def test_each_container_has_its_own_requests():
    assert map_requests({GPU: "1", NIC: "1"}, {}, {GPU: "2"}) == {
        "c0": ["container-0-request-0", "container-0-request-1"],
        "c2": ["container-2-request-0"],
    }


@pytest.mark.parametrize(
    ("init", "has"),
    [
        ([ending("1")], ["container-1-request-0"]),
        ([ending("2")], ["container-1-request-0", "container-2-request-0"]),
        ([ending("0")], None),
        (
            [ending("4")],
            ["container-1-request-0", "container-2-request-0", "container-0-request-0"],
        ),
    ],
)
def test_an_init_container_reuses_the_devices_of_later_containers(init, has):
    assert map_requests({GPU: "1"}, {GPU: "2"}, init=init).get("i0") == has


def test_two_init_containers_share_one_additional_request():
    by_container = map_requests({GPU: "1"}, init=[ending("2"), ending("3")])
    assert (
        by_container["i0"]
        == by_container["i1"]
        == ["container-2-request-0", "container-1-request-0"]
    )
    assert by_container["c0"] == ["container-2-request-0"]


def test_an_init_container_with_enough_reused_devices_has_no_additional_request():
    by_container = map_requests({GPU: "1"}, init=[ending("1"), ending("3")])
    assert by_container["i0"] == ["container-2-request-0"]
    assert by_container["i1"] == ["container-2-request-0", "container-1-request-0"]


def test_a_sidecar_keeps_its_own_and_lends_it_to_those_before_it_alone():
    by_container = map_requests({GPU: "1"}, init=[ending("1"), lasting("1"), ending("1")])
    assert by_container == {
        "i0": ["container-1-request-0"],
        "i1": ["container-1-request-0"],
        "i2": ["container-3-request-0"],
        "c0": ["container-3-request-0"],
    }
