"""The order in which containers start, and the end of a pod."""

import pytest

from claimd.sim.kubelet import container_config, pod_actions
from claimd.sim.kubelet.pod_actions import ContainerHistory
from claimd.sim.kubelet.timing import Timing

NOW = 1000.0
RUNS = ContainerHistory(started=900)
STARTS = ContainerHistory(started=900, is_starting=True)
DONE = ContainerHistory(exit_code=0, started=900, finished=990, exits=1)
FAILED = ContainerHistory(exit_code=3, started=900, finished=990, exits=1)
AGAIN = ContainerHistory(exit_code=3, started=990, finished=995, exits=2)  # due 10 s after its end
LATER = ContainerHistory(exit_code=3, started=990, finished=995, exits=3)
REFUSED = ContainerHistory(not_before=1002)
SIDECAR = {"name": "s", "restartPolicy": "Always"}


def pod(policy="Always", init=(), names=("a",)):
    return {
        "spec": {
            "restartPolicy": policy,
            "initContainers": [each if isinstance(each, dict) else {"name": each} for each in init],
            "containers": [{"name": name} for name in names],
        }
    }


CASES = {
    "all start at once": (pod(names="ab"), {}, ("Pending", "ab", None)),
    "one that runs is let alone": (pod(names="ab"), {"a": RUNS}, ("Running", "b", None)),
    "init containers one by one": (pod(init="ij"), {}, ("Pending", "i", None)),
    "the second waits for the first": (pod(init="ij"), {"i": RUNS}, ("Pending", "", None)),
    "the second after the first": (pod(init="ij"), {"i": DONE}, ("Pending", "j", None)),
    "the others after the last": (pod(init="ij"), {"i": DONE, "j": DONE}, ("Pending", "a", None)),
    "an init container that failed again": (pod(init="i"), {"i": AGAIN}, ("Pending", "", 5.0)),
    "an init container that failed for good": (
        pod("Never", init="i"),
        {"i": FAILED},
        ("Failed", "", None),
    ),
    "init containers are not looked at again": (
        pod(init="i"),
        {"i": FAILED, "a": RUNS},
        ("Running", "", None),
    ),
    "a sidecar runs first": (pod(init=[SIDECAR, "i"]), {}, ("Pending", "s", None)),
    "the next one needs a sidecar to run": (
        pod(init=[SIDECAR, "i"]),
        {"s": RUNS},
        ("Pending", "i", None),
    ),
    "the next one needs a sidecar to have started": (
        pod(init=[SIDECAR, "i"]),
        {"s": STARTS},
        ("Pending", "", None),
    ),
    "a sidecar starts again": (
        pod("Never", init=[SIDECAR]),
        {"s": DONE, "a": RUNS},
        ("Running", "s", None),
    ),
    "a pod does not wait for its sidecar's end": (
        pod("Never", init=[SIDECAR]),
        {"s": RUNS, "a": DONE},
        ("Succeeded", "", None),
    ),
    "the first end is followed by a start": (pod(), {"a": FAILED}, ("Running", "a", None)),
    "the second by a pause": (pod(), {"a": AGAIN}, ("Running", "", 5.0)),
    "a longer pause each time": (pod(), {"a": LATER}, ("Running", "", 15.0)),
    "success counts as an end, with Always": (pod(), {"a": DONE}, ("Running", "a", None)),
    "success is the end, with OnFailure": (pod("OnFailure"), {"a": DONE}, ("Succeeded", "", None)),
    "failure is none, with OnFailure": (pod("OnFailure"), {"a": FAILED}, ("Running", "a", None)),
    "any failure fails the pod, with Never": (
        pod("Never", names="ab"),
        {"a": FAILED, "b": DONE},
        ("Failed", "", None),
    ),
    "not before the last has ended": (
        pod("Never", names="ab"),
        {"a": FAILED, "b": RUNS},
        ("Running", "", None),
    ),
    "a container that could not be created waits": (
        pod("Never"),
        {"a": REFUSED},
        ("Pending", "", 2.0),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_plan(case):
    about, pasts, (phase, start, again) = CASES[case]
    plan = pod_actions.compute_pod_actions(about, pasts, NOW, Timing())
    assert (plan.phase, "".join(plan.start), plan.look_again) == (phase, start, again)


def test_the_pause_has_an_end():
    assert pod_actions.restart_backoff(ContainerHistory(exit_code=1, exits=50), Timing()) == 300


def test_the_time_of_a_pod_begins_when_the_kubelet_has_seen_it():
    about = pod()
    assert pod_actions.time_left(about, NOW) is None
    about["spec"]["activeDeadlineSeconds"] = 60
    assert pod_actions.time_left(about, NOW) == 60
    about["status"] = {"startTime": "1970-01-01T00:16:00Z"}
    assert pod_actions.time_left(about, NOW) == 20
    assert pod_actions.time_left(about, NOW + 30) == -10


@pytest.mark.parametrize(
    ("text", "becomes"),
    [("$(A)/x", "a/x"), ("$$(A)", "$(A)"), ("$(NO)", "$(NO)"), ("$A", "$A"), ("$(A)$(A)", "aa")],
)
def test_variables_in_commands(text, becomes):
    assert container_config.expand(text, {"A": "a"}) == becomes


def test_an_order():
    about = {
        "metadata": {"name": "p", "namespace": "ns", "uid": "u", "labels": {"x": "y"}},
        "spec": {"nodeName": "n"},
    }
    fields = {
        "NODE": "spec.nodeName",
        "IP": "status.podIP",
        "LABEL": "metadata.labels['x']",
        "NS": "metadata.namespace",
    }
    env = [
        {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
        for name, path in fields.items()
    ]
    env.append({"name": "BOTH", "value": "$(NS)/$(NODE)"})
    container = {"name": "c", "command": ["echo"], "args": ["$(BOTH)"], "env": env}
    order = container_config.generate(about, container, ("a/b=c",), "10.0.0.1", "127.0.0.1")
    assert order.command == ("echo", "ns/n")
    assert order.env == {"NODE": "n", "IP": "10.0.0.1", "LABEL": "y", "NS": "ns", "BOTH": "ns/n"}
    assert (order.hostname, order.cdi_devices) == ("p", ("a/b=c",))
    assert (
        container_config.generate(about, {"name": "c"}, (), "", "").command == container_config.IDLE
    )
