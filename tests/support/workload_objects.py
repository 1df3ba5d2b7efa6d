"""Workloads in a few words, and what is to be read of them. Values in, documents out."""

from collections import Counter


def job(name="demo", command="sleep 1", grace=1, restartPolicy="Never", perIndex=None, **spec):
    """`perIndex`: its backoffLimitPerIndex."""
    template = {"spec": pod_spec(command, grace) | {"restartPolicy": restartPolicy}}
    if perIndex is not None:
        spec["backoffLimitPerIndex"] = perIndex
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"template": template} | spec,
    }


def pod_spec(command, grace=1, image="busybox"):
    container = {
        "name": "main",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", command],
    }
    return {
        "terminationGracePeriodSeconds": grace,
        "automountServiceAccountToken": False,
        "containers": [container],
    }


def conditions(obj):
    listed = (obj.get("status") or {}).get("conditions") or ()
    return [(condition["type"], condition["status"], condition["reason"]) for condition in listed]


def has(cluster, type_, name="demo", resource="jobs"):
    """Whether the condition holds."""
    there = {kind: status for kind, status, _ in conditions(cluster.find(resource, name) or {})}
    return there.get(type_) == "True"


def reasons(cluster, kind="Job"):
    """How often each reason was told of objects of the kind."""
    told = Counter()
    for event in cluster.list("events"):
        if event["involvedObject"]["kind"] == kind:
            told[event["reason"]] += event.get("count") or 1
    return dict(told)


def deployment(name="demo", command="sleep 1000", **spec):
    template = {"metadata": {"labels": {"app": "demo", "version": "a"}}, "spec": pod_spec(command)}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": {"app": "demo"}}, "template": template} | spec,
    }
