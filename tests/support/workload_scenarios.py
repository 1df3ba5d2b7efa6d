"""What Jobs and Deployments do, told as scenarios that any cluster can go through.

Each gets a cluster (`tests.support.played_cluster`, or a real one by `tests.cluster.workloads`) and
leads it somewhere; `seen` says where that is, without times, uids and the letters of names.
"""

import re
from collections import Counter

from tests.support.workload_objects import conditions, deployment, has, job

_GENERATED = re.compile(r"demo(-\d+)?-[a-z0-9]{5,10}(-[a-z0-9]{5})?\b")
_STATUS = {
    "jobs": ("active", "ready", "succeeded", "failed", "terminating"),
    "deployments": (
        "replicas",
        "updatedReplicas",
        "readyReplicas",
        "availableReplicas",
        "unavailableReplicas",
    ),
}
REVISION = "deployment.kubernetes.io/revision"


def seen(cluster):
    """Of everything that a scenario made, in an order that does not depend on names."""
    seen_ = {}
    for resource, counts in _STATUS.items():
        for obj in cluster.list(resource):
            seen_[resource] = _workload(obj, counts)
    sets = [_replica_set(each) for each in cluster.list("replicasets")]
    if sets:
        seen_["replicasets"] = sorted(sets, key=lambda each: int(each["revision"]))
    seen_["pods"] = sorted((_pod(cluster, each) for each in cluster.list("pods")), key=str)
    seen_["events"] = _events(cluster)
    return seen_


def _workload(obj, counts):
    status = obj.get("status") or {}
    picture = {"conditions": [list(condition) for condition in conditions(obj)]}
    picture |= {name: status.get(name) or 0 for name in counts}
    for name in ("completedIndexes", "failedIndexes"):
        if name in status:
            picture[name] = status[name]
    picture["times"] = sorted({"startTime", "completionTime"} & status.keys())
    if revision := (obj["metadata"].get("annotations") or {}).get(REVISION):
        picture["revision"] = revision
    return picture


def _replica_set(obj):
    annotations = obj["metadata"].get("annotations") or {}
    status = obj.get("status") or {}
    return {
        "revision": annotations[REVISION],
        "history": annotations.get("deployment.kubernetes.io/revision-history", ""),
        "wanted": obj["spec"]["replicas"],
        "ready": status.get("readyReplicas") or 0,
        "available": status.get("availableReplicas") or 0,
    }


def _pod(cluster, pod):
    metadata = pod["metadata"]
    statuses = pod["status"].get("containerStatuses") or [{}]
    annotations = metadata.get("annotations") or {}
    return {
        "phases": cluster.phases[metadata["name"]],
        "restarts": statuses[0].get("restartCount", 0),
        "owned": bool(metadata.get("ownerReferences")),
        "finalizers": metadata.get("finalizers") or [],
        "hostname": pod["spec"].get("hostname", ""),
        "labels": sorted(metadata.get("labels") or {}),
        "indexed": {
            name.partition("/")[2]: value
            for name, value in sorted(annotations.items())
            if name.startswith("batch.kubernetes.io/")
        },
    }


def _events(cluster):
    """How often what was told of workloads; who is meant stays open."""
    told = Counter()
    for event in cluster.list("events"):
        kind = event["involvedObject"]["kind"]
        if kind in ("Job", "Deployment", "ReplicaSet"):
            namespace = event["metadata"]["namespace"]
            message = _GENERATED.sub("demo-…", event["message"].replace(f"{namespace}/", "…/"))
            told[f"{kind} {event['reason']}: {message}"] += event.get("count") or 1
    return dict(sorted(told.items()))


def _completes(cluster):
    cluster.until(lambda: has(cluster, "Complete"))


def _fails(cluster):
    cluster.until(lambda: has(cluster, "Failed"))


def _pods_are(cluster, count, phase="Running"):
    def holds():
        pods = cluster.list("pods")
        return len(pods) == count and all(pod["status"]["phase"] == phase for pod in pods)

    cluster.until(holds)


# ---------------------------------------------------------------- Jobs


def job_succeeds(cluster):
    cluster.create("jobs", job(command="sleep 2"))
    _completes(cluster)


def job_runs_two_at_a_time(cluster):
    cluster.create("jobs", job(command="sleep 2", completions=4, parallelism=2))
    _completes(cluster)


def job_takes_from_a_queue(cluster):
    cluster.create("jobs", job(command="sleep 2", parallelism=2))
    _completes(cluster)


def job_reaches_its_backoff_limit(cluster):
    cluster.create("jobs", job(command="sleep 2; exit 3", backoffLimit=1))
    _fails(cluster)


def job_restarts_containers_in_vain(cluster):
    spec = {"restartPolicy": "OnFailure", "backoffLimit": 1}
    cluster.create("jobs", job(command="sleep 2; exit 3", **spec))
    _fails(cluster)


def job_is_out_of_time(cluster):
    cluster.create("jobs", job(command="sleep 1000", parallelism=2, activeDeadlineSeconds=6))
    _fails(cluster)


def job_is_suspended_and_resumed(cluster):
    cluster.create("jobs", job(command="sleep 4", suspend=True))
    cluster.until(lambda: has(cluster, "Suspended"))
    cluster.patch("jobs", "demo", {"spec": {"suspend": False}})
    _pods_are(cluster, 1)
    cluster.patch("jobs", "demo", {"spec": {"suspend": True}})
    cluster.until(lambda: has(cluster, "Suspended") and not cluster.list("pods"))
    cluster.patch("jobs", "demo", {"spec": {"suspend": False}})
    _completes(cluster)


def job_has_indexes(cluster):
    spec = {"completionMode": "Indexed", "completions": 3, "parallelism": 3}
    cluster.create("jobs", job(command="sleep 2", **spec))
    _completes(cluster)


def job_fails_index_by_index(cluster):
    spec = {"completionMode": "Indexed", "completions": 2, "parallelism": 2, "perIndex": 1}
    command = 'sleep 2; [ "$JOB_COMPLETION_INDEX" = 0 ] || exit 3'
    cluster.create("jobs", job(command=command, **spec))
    _fails(cluster)


def job_succeeds_by_one_index(cluster):
    spec = {"completionMode": "Indexed", "completions": 3, "parallelism": 1}
    policy = {"rules": [{"succeededIndexes": "0"}]}
    cluster.create("jobs", job(command="sleep 2", successPolicy=policy, **spec))
    _completes(cluster)


def job_loses_a_pod(cluster):
    cluster.create("jobs", job(command="sleep 4"))
    _pods_are(cluster, 1)
    (pod,) = cluster.list("pods")
    cluster.delete("pods", pod["metadata"]["name"])
    _completes(cluster)


def job_ends_by_an_exit_code(cluster):
    rule = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}
    spec = {"podFailurePolicy": {"rules": [rule]}}
    cluster.create("jobs", job(command="sleep 2; exit 42", **spec))
    _fails(cluster)


def job_goes_after_its_time(cluster):
    cluster.create("jobs", job(command="sleep 2", ttlSecondsAfterFinished=3))
    cluster.until(lambda: not cluster.list("jobs") and not cluster.list("pods"))


def job_leaves_its_pods_behind(cluster):
    cluster.create("jobs", job(command="sleep 1000"))
    _pods_are(cluster, 1)
    cluster.delete("jobs", "demo", "Orphan")
    cluster.until(lambda: not cluster.list("jobs"))

    def is_free():
        (pod,) = cluster.list("pods")
        return not (pod["metadata"].get("ownerReferences") or pod["metadata"].get("finalizers"))

    cluster.until(is_free)


def job_becomes_smaller(cluster):
    cluster.create("jobs", job(command="sleep 1000", completions=3, parallelism=3))
    _pods_are(cluster, 3)
    cluster.patch("jobs", "demo", {"spec": {"parallelism": 1}})
    cluster.until(lambda: len(cluster.list("pods")) == 1)


# ---------------------------------------------------------------- Deployments


def _rolled_out(cluster, replicas):
    """All that is wanted is there, and nothing of before."""

    def holds():
        deployment = cluster.find("deployments", "demo")
        status = deployment.get("status") or {}
        counts = [status.get(name) or 0 for name in ("replicas", "updatedReplicas")]
        counts.append(status.get("availableReplicas") or 0)
        current = status.get("observedGeneration") == deployment["metadata"]["generation"]
        reasons = {reason for _, _, reason in conditions(deployment)}
        done = "NewReplicaSetAvailable" in reasons or deployment["spec"].get("paused")
        return current and counts == [replicas] * 3 and done and _settled(cluster, replicas)

    cluster.until(holds)


def _settled(cluster, pods):
    there = cluster.list("pods")
    return len(there) == pods and not any("deletionTimestamp" in pod["metadata"] for pod in there)


def _set_version(cluster, version):
    """A template that is another, of the one image that every cluster has."""
    labels = {"app": "demo", "version": version}
    spec = {"template": {"metadata": {"labels": labels}}}
    cluster.patch("deployments", "demo", {"spec": spec})


def _rolling(surge, unavailable):
    amounts = {"maxSurge": surge, "maxUnavailable": unavailable}
    return {"strategy": {"type": "RollingUpdate", "rollingUpdate": amounts}}


def deployment_rolls_out(cluster):
    cluster.create("deployments", deployment(replicas=2))
    _rolled_out(cluster, 2)


def deployment_is_scaled(cluster):
    cluster.create("deployments", deployment(replicas=1))
    _rolled_out(cluster, 1)
    cluster.patch("deployments", "demo", {"spec": {"replicas": 3}})
    _rolled_out(cluster, 3)
    cluster.patch("deployments", "demo", {"spec": {"replicas": 2}})
    _rolled_out(cluster, 2)


def deployment_surges(cluster):
    cluster.create("deployments", deployment(replicas=2, **_rolling(1, 0)))
    _rolled_out(cluster, 2)
    _set_version(cluster, "b")
    _rolled_out(cluster, 2)


def deployment_takes_one_away_first(cluster):
    cluster.create("deployments", deployment(replicas=2, **_rolling(0, 1)))
    _rolled_out(cluster, 2)
    _set_version(cluster, "b")
    _rolled_out(cluster, 2)


def deployment_is_made_anew(cluster):
    cluster.create("deployments", deployment(replicas=2, strategy={"type": "Recreate"}))
    _rolled_out(cluster, 2)
    _set_version(cluster, "b")
    _rolled_out(cluster, 2)


def deployment_goes_back(cluster):
    cluster.create("deployments", deployment(replicas=1, **_rolling(1, 0)))
    _rolled_out(cluster, 1)
    for version in ("b", "a"):
        _set_version(cluster, version)
        _rolled_out(cluster, 1)


def deployment_is_paused(cluster):
    cluster.create("deployments", deployment(replicas=1, **_rolling(1, 0)))
    _rolled_out(cluster, 1)
    cluster.patch("deployments", "demo", {"spec": {"paused": True}})
    cluster.until(lambda: ("Progressing", "Unknown", "DeploymentPaused") in _told(cluster))
    _set_version(cluster, "b")
    cluster.patch("deployments", "demo", {"spec": {"replicas": 2}})
    cluster.until(lambda: _settled(cluster, 2))
    cluster.patch("deployments", "demo", {"spec": {"paused": False}})
    _rolled_out(cluster, 2)


def _told(cluster):
    return conditions(cluster.find("deployments", "demo") or {})


def deployment_is_stuck(cluster):
    cluster.create(
        "deployments", deployment(replicas=2, progressDeadlineSeconds=5, **_rolling(1, 0))
    )
    _rolled_out(cluster, 2)
    spec = {"template": {"spec": {"nodeSelector": {"kubernetes.io/hostname": "nowhere"}}}}
    cluster.patch("deployments", "demo", {"spec": spec})
    late = ("Progressing", "False", "ProgressDeadlineExceeded")
    cluster.until(lambda: late in _told(cluster) and _settled(cluster, 3))


def deployment_loses_a_pod(cluster):
    cluster.create("deployments", deployment(replicas=1))
    _rolled_out(cluster, 1)
    (pod,) = cluster.list("pods")
    cluster.delete("pods", pod["metadata"]["name"])
    cluster.until(lambda: cluster.find("pods", pod["metadata"]["name"]) is None)
    _rolled_out(cluster, 1)


def deployment_goes_with_all_it_has(cluster):
    cluster.create("deployments", deployment(replicas=2))
    _rolled_out(cluster, 2)
    cluster.delete("deployments", "demo", "Background")
    cluster.until(lambda: not cluster.list("replicasets") and not cluster.list("pods"))


def deployment_forgets_old_revisions(cluster):
    spec = {"replicas": 1, "revisionHistoryLimit": 1, **_rolling(1, 0)}
    cluster.create("deployments", deployment(**spec))
    _rolled_out(cluster, 1)
    for version in ("b", "c"):
        _set_version(cluster, version)
        _rolled_out(cluster, 1)
    cluster.until(lambda: len(cluster.list("replicasets")) == 2)


def deployment_waits_before_a_pod_counts(cluster):
    cluster.create("deployments", deployment(replicas=2, minReadySeconds=4))
    _rolled_out(cluster, 2)


ALL = {
    name: value
    for name, value in sorted(globals().items())
    if name.startswith(("job_", "deployment_"))
}
