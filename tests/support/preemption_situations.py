"""Pods that could take the place of others: the objects of each situation, and what is seen of what
a scheduler has done. Plain data.

What Kubernetes' own scheduler did lies in `tests/cases/preemption` (`python -m
tests.cluster.preemption`).
"""

import json
from pathlib import Path

from tests.cluster.pending.documents import held, job, labelled, near, on, port, sized, with_
from tests.support.cluster_objects import claim, class_, gpu, name, slice_

CASES = Path(__file__).parents[1] / "cases" / "preemption"
SUBJECT = "job"
OLD, YOUNG = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"


def running(called, priority_class, cpu, place="node-1", since=OLD, **labels):
    pod = with_(
        job(called, requests={"cpu": str(cpu)}),
        priorityClassName=priority_class,
        terminationGracePeriodSeconds=600,
    )
    pod_ = on(place, labelled(pod, app=called, **labels) if labels else pod)
    pod_["status"]["startTime"] = since
    return pod_


def waiting(cpu, priority_class="high", **more):
    return with_(job(requests={"cpu": str(cpu)}), priorityClassName=priority_class, **more)


def node(called="node-1", cpu=8):
    node_ = sized(called, cpu=str(cpu))
    node_["metadata"].setdefault("labels", {})["kubernetes.io/hostname"] = called
    return node_


def budget(called, **labels):
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": called, "namespace": "default"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": labels}},
    }


def priority_class(called, value, **more):
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": called},
        "value": value,
        **more,
    }


PRIORITIES = (
    priority_class("high", 1000),
    priority_class("polite", 1000, preemptionPolicy="Never"),
    priority_class("middle", 100),
    priority_class("low", 10),
)
GPU = (class_(), slice_([gpu(0)]))

# By name, the objects that are there and the pod that comes.
ALL = {
    "as_few_as_will_do": (
        [
            node(),
            running("a", "low", 4),
            running("b", "low", 2),
            running("c", "low", 2, since=YOUNG),
        ],
        waiting(2),
    ),
    "the_lowest_priority_first": (
        [node(), running("a", "middle", 4, since=YOUNG), running("b", "low", 4)],
        waiting(4),
    ),
    "the_node_where_it_costs_least": (
        [
            *(node("node-1"), node("node-2"), node("node-3")),
            running("a", "middle", 8),
            running("b", "low", 4, "node-2"),
            running("c", "low", 4, "node-2"),
            running("d", "low", 8, "node-3"),
        ],
        waiting(8),
    ),
    "the_younger_of_equals": (
        [
            *(node("node-1"), node("node-2")),
            running("a", "low", 8),
            running("b", "low", 8, "node-2", since=YOUNG),
        ],
        waiting(8),
    ),
    "it_would_not_help": (
        [
            *(node("node-1"), node("node-2", cpu=4), node("node-3")),
            running("a", "high", 8),
            running("b", "low", 4, "node-2"),
            running("c", "high", 6, "node-3"),
            running("d", "low", 2, "node-3"),
        ],
        waiting(8),
    ),
    "it_never_preempts": ([node(), running("a", "low", 8)], waiting(4, "polite")),
    "devices_are_not_freed": (
        [
            *(node(), *GPU),
            held("held", name(0)),
            with_(running("a", "low", 1), resourceClaims=[]),
            claim("train"),
        ],
        with_(job(gpu="train"), priorityClassName="high"),
    ),
    "cpus_are_freed_and_devices_are_not": (
        [*(node(), *GPU), held("held", name(0)), running("a", "low", 8), claim("train")],
        with_(job(requests={"cpu": "4"}, gpu="train"), priorityClassName="high"),
    ),
    "cpus_are_freed_for_a_device_that_is_free": (
        [*(node(), *GPU), running("a", "low", 8), claim("train")],
        with_(job(requests={"cpu": "4"}, gpu="train"), priorityClassName="high"),
    ),
    "a_port_is_freed": (
        [
            *(node(), running("a", "low", 1)),
            with_(running("b", "low", 1), containers=job(ports=[port(8080)])["spec"]["containers"]),
        ],
        with_(job(ports=[port(8080)]), priorityClassName="high"),
    ),
    "who_keeps_it_away_goes": (
        [
            node(),
            running("a", "low", 1),
            with_(
                running("b", "low", 1, team="red"),
                affinity=near("podAntiAffinity", "kubernetes.io/hostname", team="blue"),
            ),
        ],
        with_(labelled(waiting(1), team="blue")),
    ),
    "a_budget_protects": (
        [
            *(node("node-1"), node("node-2")),
            running("a", "low", 8, team="red"),
            running("b", "middle", 8, "node-2"),
            budget("red", team="red"),
        ],
        waiting(8),
    ),
}


def load(situation):
    """What was recorded: objects, pod and what was seen."""
    return json.loads((CASES / f"{situation}.json").read_text())


def seen(pods, events):
    """What a scheduler has done, without what differs from time to time."""
    uids = {pod["metadata"]["uid"]: f"<{pod['metadata']['name']}>" for pod in pods}
    return {
        "pod": _waiting(next(pod for pod in pods if pod["metadata"]["name"] == SUBJECT)),
        "going": {
            pod["metadata"]["name"]: _why_it_goes(pod)
            for pod in sorted(pods, key=lambda pod: pod["metadata"]["name"])
            if "deletionTimestamp" in pod["metadata"]
        },
        "events": sorted(_event(event, uids) for event in events),
    }


def _waiting(pod):
    status = pod["status"]
    outcome = {"nominatedNodeName": status.get("nominatedNodeName", "")}
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled":
            outcome |= {name: condition.get(name, "") for name in ("reason", "message")}
    return outcome


def _why_it_goes(pod):
    return [
        f"{condition['type']}={condition['status']} {condition['reason']}: {condition['message']}"
        for condition in pod["status"].get("conditions") or ()
        if condition["type"] == "DisruptionTarget"
    ]


def _event(event, uids):
    note = event["note"]
    for uid, called in uids.items():
        note = note.replace(uid, called)
    return [event["regarding"]["name"], event["type"], event["reason"], event["action"], note]
