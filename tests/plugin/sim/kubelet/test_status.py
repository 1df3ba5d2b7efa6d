"""The pod's status that the kubelet computes from its containers."""

from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from claimd.sim.kubelet import status
from claimd.sim.kubelet.pod_actions import FAILED, PENDING, RUNNING, SUCCEEDED, PodActions

START = datetime(2026, 1, 1, 10, 0, 0, tzinfo=UTC)
END = datetime(2026, 1, 1, 11, 0, 0, tzinfo=UTC)
TIMES = {"startedAt": "2026-01-01T10:00:00Z", "finishedAt": "2026-01-01T11:00:00Z"}


def attempt(exit_code=None, start_error="", started=True):
    """Builds an attempt of a container; without an exit code it runs."""
    return SimpleNamespace(
        running=started and exit_code is None and not start_error,
        exit_code=exit_code,
        start_error=start_error,
        started_at=START if started else None,
        finished_at=END if exit_code is not None and started else None,
    )


def sandbox(earlier=0, **containers):
    starts = dict.fromkeys(containers, earlier) if earlier else {}
    return SimpleNamespace(
        address="10.0.0.7",
        containers=containers,
        earlier_starts=starts,
        starting=set(),
        unready=set(),
    )


def pod(init=(), **known):
    containers = [{"name": "a", "image": "img"}]
    spec = {"containers": containers, "initContainers": [{"name": name} for name in init]}
    return {"metadata": {"uid": "u"}, "spec": spec, "status": known}


def generate(box=None, *, of=None, phase=RUNNING, initialized=True, waiting=None, resources=()):
    actions = PodActions(phase=phase, initialized=initialized)
    return status.generate_pod_status(
        of or pod(), box, actions, waiting or {}, lambda _: list(resources), "10.0.0.1"
    )


def container(box=None, **more):
    return generate(box, **more)["containerStatuses"][0]


def conditions(status_):
    return {each["type"]: (each["status"], each.get("reason")) for each in status_["conditions"]}


# ---------------------------------------------------------------- the pod


def test_a_pod_that_runs():
    status_ = generate(sandbox(a=[attempt()]))
    assert (status_["phase"], status_["podIP"], status_["podIPs"]) == (
        "Running",
        "10.0.0.7",
        [{"ip": "10.0.0.7"}],
    )
    assert (status_["hostIP"], status_["hostIPs"]) == ("10.0.0.1", [{"ip": "10.0.0.1"}])
    assert status_["qosClass"] == "BestEffort"
    assert "initContainerStatuses" not in status_
    assert conditions(status_) == {
        "PodReadyToStartContainers": ("True", None),
        "Initialized": ("True", None),
        "Ready": ("True", None),
        "ContainersReady": ("True", None),
    }


@pytest.mark.parametrize(
    ("phase", "box", "network", "ready"),
    [
        (PENDING, None, "False", ("False", "ContainersNotReady")),
        (PENDING, sandbox(a=[]), "True", ("False", "ContainersNotReady")),
        (RUNNING, sandbox(a=[attempt(1)]), "True", ("False", "ContainersNotReady")),
        (SUCCEEDED, sandbox(a=[attempt(0)]), "False", ("False", "PodCompleted")),
        (FAILED, sandbox(a=[attempt(1)]), "False", ("False", "PodFailed")),
    ],
)
def test_conditions_of_a_pod_that_does_not(phase, box, network, ready):
    status_ = generate(box, phase=phase, initialized=False)
    assert conditions(status_) == {
        "PodReadyToStartContainers": (network, None),
        "Initialized": ("False", "ContainersNotInitialized"),
        "Ready": ready,
        "ContainersReady": ready,
    }


def messages(status_):
    return {each["type"]: each.get("message") for each in status_["conditions"]}


def test_conditions_name_the_containers_that_are_waited_for():
    about = pod(init=["i", "s"])
    about["spec"]["initContainers"][1]["restartPolicy"] = "Always"
    status_ = generate(sandbox(i=[attempt(0)], s=[]), of=about, phase=PENDING, initialized=False)
    assert messages(status_)["Initialized"] == "containers with incomplete status: [s]"
    assert messages(status_)["Ready"] == "containers with unready status: [a s]"

    status_ = generate(sandbox(i=[attempt(0)], s=[attempt()], a=[attempt()]), of=about)
    assert conditions(status_)["Ready"] == ("True", None)
    status_ = generate(sandbox(i=[attempt(0)], s=[attempt(1)], a=[attempt()]), of=about)
    assert messages(status_)["Ready"] == "containers with unready status: [s]"
    status_ = generate(sandbox(a=[attempt(0)]), phase=SUCCEEDED)
    assert conditions(status_)["Initialized"] == ("True", "PodCompleted")


def test_a_pod_says_why_it_has_ended():
    actions = PodActions(phase=FAILED, reason="DeadlineExceeded", message="too long")
    status_ = status.generate_pod_status(pod(), None, actions, {}, lambda _: [], "10.0.0.1")
    assert (status_["reason"], status_["message"]) == ("DeadlineExceeded", "too long")
    assert "reason" not in generate(sandbox(a=[attempt(1)]), phase=FAILED)


def test_what_is_kept_and_what_is_added():
    resources = [{"name": "claim:gpu", "resources": []}]
    status_ = generate(
        sandbox(a=[attempt()], i=[attempt(0)]),
        of=pod(init=["i"], qosClass="Guaranteed"),
        resources=resources,
    )
    assert status_["qosClass"] == "Guaranteed"
    assert status_["containerStatuses"][0]["allocatedResourcesStatus"] == resources
    (init,) = status_["initContainerStatuses"]
    assert init["state"] == {"terminated": {"exitCode": 0, "reason": "Completed"} | TIMES}
    assert "allocatedResourcesStatus" not in init
    assert "podIP" not in generate(None)


# ---------------------------------------------------------------- its containers


def test_a_container_that_runs():
    assert container(sandbox(a=[attempt()])) == {
        "name": "a",
        "image": "img",
        "imageID": "sim://img",
        "restartCount": 0,
        "ready": True,
        "started": True,
        "state": {"running": {"startedAt": TIMES["startedAt"]}},
        "containerID": "sim://u/a/0",
    }


@pytest.mark.parametrize(
    ("box", "reason"), [(None, "ContainerCreating"), (sandbox(), "PodInitializing")]
)
def test_a_container_that_has_not_begun(box, reason):
    status_ = container(box)
    assert status_["state"] == {"waiting": {"reason": reason}}
    assert (status_["ready"], status_["restartCount"], "containerID" in status_) == (
        False,
        0,
        False,
    )


@pytest.mark.parametrize(
    ("last", "ended"),
    [
        (attempt(0), {"exitCode": 0, "reason": "Completed"} | TIMES),
        (attempt(3), {"exitCode": 3, "reason": "Error"} | TIMES),
        (
            attempt(128, "no such file", started=False),
            {"exitCode": 128, "reason": "StartError", "message": "no such file"},
        ),
    ],
)
def test_how_a_container_ended(last, ended):
    status_ = container(sandbox(a=[last]))
    assert status_["state"] == {"terminated": ended}
    assert "lastState" not in status_


def test_a_container_that_waits_for_its_next_start():
    waiting = {"a": ("CrashLoopBackOff", "back-off 10s")}
    status_ = container(sandbox(a=[attempt(0), attempt(3)]), waiting=waiting)
    assert status_["state"] == {
        "waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}
    }
    assert status_["lastState"]["terminated"]["exitCode"] == 3
    assert (status_["restartCount"], status_["containerID"]) == (1, "sim://u/a/1")


def test_a_container_that_runs_again():
    status_ = container(sandbox(earlier=2, a=[attempt(3), attempt()]))
    assert "running" in status_["state"]
    assert status_["lastState"]["terminated"]["exitCode"] == 3
    assert status_["restartCount"] == 3


def test_what_an_earlier_runtime_did_is_not_forgotten():
    known = {"name": "a", "containerID": "sim://u/a/4", "restartCount": 4, "ready": True}
    before = pod(containerStatuses=[{"name": "b"}, known])
    status_ = container(None, of=before)
    assert (status_["containerID"], status_["restartCount"], status_["ready"]) == (
        "sim://u/a/4",
        4,
        False,
    )
    assert container(sandbox(a=[]), of=before)["restartCount"] == 0


# ---------------------------------------------------------------- what the API server is told


NOW, BEFORE = "2026-01-01T12:00:00Z", "2026-01-01T09:00:00Z"


def test_a_patch_keeps_the_times_of_what_has_not_changed():
    status_ = {
        "conditions": [{"type": "Ready", "status": "True"}, {"type": "X", "status": "False"}]
    }
    known = [
        {"type": "Ready", "status": "True", "lastTransitionTime": BEFORE},
        {"type": "X", "status": "True", "lastTransitionTime": BEFORE},
    ]
    patch = status.generate_patch(status_, {"conditions": known, "startTime": BEFORE}, NOW)
    assert [each["lastTransitionTime"] for each in patch["conditions"]] == [BEFORE, NOW]
    assert patch["startTime"] == BEFORE
    assert status.generate_patch(status_, {}, NOW)["startTime"] == NOW
    assert "podIPs" not in patch


def test_a_patch_takes_old_addresses_out():
    status_ = {"conditions": [], "podIPs": [{"ip": "b"}]}
    patch = status.generate_patch(status_, {"podIPs": [{"ip": "a"}, {"ip": "b"}]}, NOW)
    assert patch["podIPs"] == [{"ip": "b"}, {"ip": "a", "$patch": "delete"}]


def test_nothing_is_told_twice():
    status_ = generate(sandbox(a=[attempt()]))
    stored = status.generate_patch(status_, {}, NOW)
    assert not status.differs(status_, stored)
    assert status.differs(status_, {})
    assert status.differs(status_, stored | {"phase": "Pending"})
    changed = [dict(each, status="Unknown") for each in stored["conditions"]]
    assert status.differs(status_, stored | {"conditions": changed})
