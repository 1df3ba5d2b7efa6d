"""The most that a pod requests at one time, and the resources that a node lacks."""

import msgspec
import pytest

from claimd.kubernetes.scheduling import resources
from claimd.kubernetes.scheduling.objects import Node, Pod

WHOLE = 10**9


def read(document, kind):
    return msgspec.json.decode(msgspec.json.encode(document), type=kind)


def container(sidecar=False, **requests):
    policy = {"restartPolicy": "Always"} if sidecar else {}
    return {"name": "c", "resources": {"requests": requests}} | policy


def pod(*containers, init=(), **spec):
    spec |= {"containers": list(containers), "initContainers": list(init)}
    return read({"metadata": {"name": "p", "namespace": "n", "uid": "1"}, "spec": spec}, Pod)


def node(**allocatable):
    return read({"metadata": {"name": "node-1"}, "status": {"allocatable": allocatable}}, Node)


def requests_of(pod_):
    """Returns the requests in whole units, without the pod slot."""
    amounts = resources.pod_requests(pod_)
    assert amounts.pop("pods") == WHOLE
    return {name: amount / WHOLE for name, amount in amounts.items()}


@pytest.mark.parametrize(
    ("pod_", "cpu"),
    [
        (pod(container(cpu="1"), container(cpu="2")), 3),
        (pod(container(cpu="1"), init=[container(cpu="4"), container(cpu="2")]), 4),
        (pod(container(cpu="3"), init=[container(cpu="2")]), 3),
        (pod(container(cpu="1"), init=[container(True, cpu="2")]), 3),
        # An init container runs together with the sidecars before it, but not those after it.
        (pod(container(cpu="1"), init=[container(True, cpu="2"), container(cpu="5")]), 7),
        (pod(container(cpu="1"), init=[container(cpu="5"), container(True, cpu="2")]), 5),
    ],
)
def test_the_most_at_one_time(pod_, cpu):
    assert requests_of(pod_) == {"cpu": cpu}


def test_what_the_pod_requests_as_a_whole_counts_instead():
    pod_ = pod(
        container(**{"cpu": "8", "example.com/gpu": "2"}),
        resources={
            "requests": {"cpu": "4", "hugepages-2Mi": "2", "example.com/gpu": "9", "memory": "1"}
        },
    )
    assert requests_of(pod_) == {"cpu": 4, "example.com/gpu": 2, "hugepages-2Mi": 2, "memory": 1}


def test_the_overhead_comes_on_top():
    assert requests_of(pod(container(cpu="1"), overhead={"cpu": "1", "memory": "5"})) == {
        "cpu": 2,
        "memory": 5,
    }


def shortages(pod_, of, used=None, others=()):
    return [
        (shortage.resource, shortage.message, shortage.detail)
        for shortage in resources.shortages(pod_, of, used or {}, others)
    ]


def test_what_just_fits_is_no_shortage():
    full = node(cpu="4", pods="2")
    assert shortages(pod(container(cpu="4")), full) == []
    assert shortages(pod(container(cpu="2")), full, {"cpu": 2 * WHOLE, "pods": WHOLE}) == []


def test_each_shortage_says_how_much_there_is():
    used = {"cpu": 3 * WHOLE, "pods": 2 * WHOLE}
    pod_ = pod(container(**{"cpu": "2", "example.com/nic": "1"}))
    assert shortages(pod_, node(cpu="4", pods="2"), used) == [
        ("cpu", "Insufficient cpu", "cpu: the pod requests 2, 1 of 4 are left"),
        (
            "example.com/nic",
            "Insufficient example.com/nic",
            "it has no example.com/nic, the pod requests 1",
        ),
        ("pods", "Too many pods", "it runs 2 pods and may run 2"),
    ]


def test_the_init_container_that_needs_the_most_is_named():
    load = container(cpu="5") | {"name": "load"}
    sidecar = container(sidecar=True, cpu="2")
    late = container(cpu="1") | {"name": "late"}
    pod_ = pod(container(cpu="1"), init=[load, sidecar, late])
    detail = "cpu: the pod requests 5 while init container load runs, 4 of 4 are left"
    assert shortages(pod_, node(cpu="4", pods="9")) == [("cpu", "Insufficient cpu", detail)]
    pod_ = pod(container(cpu="3"), init=[load, sidecar])
    [(_, _, detail)] = shortages(pod_, node(cpu="4", pods="9"))
    assert detail == "cpu: the pod requests 5, 4 of 4 are left"
    whole = pod(container(cpu="1"), init=[load], resources={"requests": {"cpu": "6"}})
    [(_, _, detail)] = shortages(whole, node(cpu="4", pods="9"))
    assert detail == "cpu: the pod requests 6, 4 of 4 are left"


def test_a_single_pod_is_no_plural():
    [(_, _, detail)] = shortages(pod(), node(pods="1"), {"pods": WHOLE})
    assert detail == "it runs 1 pod and may run 1"


def test_a_node_that_has_given_too_much_has_nothing_left():
    [(_, _, detail)] = shortages(
        pod(container(cpu="1")), node(cpu="4", pods="9"), {"cpu": 6 * WHOLE}
    )
    assert detail == "cpu: the pod requests 1, 0 of 4 are left"


def test_what_is_not_the_nodes_to_give_is_not_asked_of_it():
    pod_ = pod(container(**{"example.com/gpu": "1", "cpu": "0"}))
    assert shortages(pod_, node(pods="1"), others=("example.com/gpu",)) == []
