"""Tests of the status word of a pod."""

import pytest

from claimd.sim.apiserver.wire import pod_cells


def pod(phase="Running", first=(), deleted=False, **containers):
    metadata = {"name": "p"} | ({"deletionTimestamp": "x"} if deleted else {})
    statuses = [
        {"name": name, "state": state, "ready": "running" in state, "restartCount": 1}
        for name, state in containers.items()
    ]
    initial = [{"name": str(index), "state": state} for index, state in enumerate(first)]
    spec = {
        "containers": [{"name": name} for name in containers or ("c",)],
        "initContainers": [{"name": each["name"]} for each in initial],
    }
    status = {
        "phase": phase,
        "containerStatuses": statuses,
        "initContainerStatuses": initial,
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    return {"metadata": metadata, "spec": spec, "status": status}


RUNS, WAITS = {"running": {}}, {"waiting": {"reason": "ContainerCreating"}}
DONE, FAILED = (
    {"terminated": {"exitCode": 0, "reason": "Completed"}},
    {"terminated": {"exitCode": 3}},
)


@pytest.mark.parametrize(
    ("shown", "word"),
    [
        (pod("Pending"), "Pending"),
        (pod(a=RUNS), "Running"),
        (pod(a=WAITS), "ContainerCreating"),
        (pod("Succeeded", a=DONE), "Completed"),
        (pod(a=DONE, b=RUNS), "Running"),
        (pod("Failed", a=FAILED), "ExitCode:3"),
        (pod(a={"terminated": {"exitCode": 137, "signal": 9}}), "Signal:9"),
        (pod("Pending", first=[DONE, RUNS], a=WAITS), "Init:1/2"),
        (pod("Pending", first=[FAILED], a=WAITS), "Init:ExitCode:3"),
        (
            pod("Pending", first=[{"waiting": {"reason": "ErrImagePull"}}], a=WAITS),
            "Init:ErrImagePull",
        ),
        (pod(a=RUNS, deleted=True), "Terminating"),
        (pod("Succeeded", a=DONE, deleted=True), "Completed"),
    ],
)
def test_words_for_pods(shown, word):
    assert pod_cells.status(shown) == word


def test_counts():
    shown = pod(a=RUNS, b=WAITS)
    assert (pod_cells.ready(shown), pod_cells.restarts(shown)) == ("1/2", "2")
    assert (pod_cells.ready({}), pod_cells.restarts({})) == ("0/0", "0")


def test_what_else_there_is_to_say():
    gated = pod("Pending")
    gated["status"]["conditions"] = [{"type": "PodScheduled", "reason": "SchedulingGated"}]
    assert pod_cells.status(gated) == "SchedulingGated"
    gated["status"]["conditions"] = [{"type": "PodScheduled", "reason": "Unschedulable"}]
    assert pod_cells.status(gated) == "Pending"
    lost = pod(deleted=True)
    lost["status"]["reason"] = "NodeLost"
    assert pod_cells.status(lost) == "Unknown"
    evicted = pod("Failed")
    evicted["status"]["reason"] = "Evicted"
    assert pod_cells.status(evicted) == "Evicted"
    waits = {"waiting": {"reason": "PodInitializing"}}
    assert pod_cells.status(pod("Pending", first=[waits], a=WAITS)) == "Init:0/1"
    assert pod_cells.status(pod("Pending", first=[DONE, DONE], a=WAITS)) == "ContainerCreating"
    assert pod_cells.status(pod(a=WAITS, b=FAILED)) == "ContainerCreating"
    reasoned = {"terminated": {"exitCode": 1, "reason": "OOMKilled", "signal": 9}}
    assert pod_cells.status(pod("Failed", a=reasoned)) == "OOMKilled"
    not_ready = pod(a=DONE, b=RUNS)
    not_ready["status"]["conditions"] = []
    assert pod_cells.status(not_ready) == "NotReady"
    not_ready["status"]["containerStatuses"][1]["ready"] = False
    assert pod_cells.status(not_ready) == "Completed"
    assert pod_cells.status(pod("Failed", a=DONE, b=FAILED)) == "ExitCode:3"
    assert pod_cells.status({"metadata": {}}) == ""


def with_sidecar(shown, state, started=True, initialized=True):
    sidecar = {"name": "s", "restartPolicy": "Always"}
    shown["spec"]["initContainers"] = [sidecar]
    status = {"name": "s", "state": state, "started": started, "restartCount": 2}
    shown["status"]["initContainerStatuses"] = [status | {"ready": "running" in state}]
    shown["status"]["conditions"].append({"type": "Initialized", "status": str(initialized)})
    return shown


KILLED = {"terminated": {"exitCode": 143, "reason": "Error"}}


@pytest.mark.parametrize(
    ("shown", "ready", "word", "restarts"),
    [
        (with_sidecar(pod(a=RUNS), RUNS), "2/2", "Running", "3"),
        (with_sidecar(pod("Succeeded", a=DONE), KILLED, started=False), "0/2", "Completed", "3"),
        (
            with_sidecar(pod("Pending", a=WAITS), WAITS, started=False, initialized=False),
            "0/2",
            "Init:ContainerCreating",
            "2",
        ),
        (
            with_sidecar(pod("Pending", a=WAITS), RUNS, started=False, initialized=False),
            "1/2",
            "Init:0/1",
            "2",
        ),
    ],
)
def test_sidecars(shown, ready, word, restarts):
    assert pod_cells.ready(shown) == ready
    assert pod_cells.status(shown) == word
    assert pod_cells.restarts(shown) == restarts
