"""What taints of a node do to pods, told as scenarios that any cluster of one node can go through.

Each gets a cluster (`tests.support.played_taints`, or a real one by `tests.cluster.taints`) and
leads it somewhere; `seen` says where that is, without times, uids and the names of namespaces. A
finalizer keeps the pods that are deleted: what was said of them can be read then.
"""

import re

from tests.support.workload_objects import pod_spec

FINALIZER = "recorded.example.com/kept"
KEY = "recorded.example.com/a"
OTHER = "recorded.example.com/b"
_NAMESPACE = re.compile(r"\b[\w-]+/(?=(p|q)\b)")
_TOLD = ("TaintManagerEviction", "FailedScheduling")


def taint(effect, key=KEY, value="yes"):
    return {"key": key, "value": value, "effect": effect}


def pod(name="p", *tolerations):
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "finalizers": [FINALIZER]},
        "spec": pod_spec("sleep 100000") | {"tolerations": list(tolerations)},
    }


def tolerating(key=KEY, **more):
    """For so many seconds, where they are said, which go with one effect alone."""
    effect = {"effect": "NoExecute"} if "tolerationSeconds" in more else {}
    return {"key": key, "operator": "Exists"} | effect | more


def seen(cluster):
    """Of every pod where it is, and what was said of it; of the Events that are about taints."""
    pods = {each["metadata"]["name"]: _pod(each) for each in cluster.list("pods")}
    told = {name: set() for name in pods}
    for event in cluster.list("events"):
        name = (event.get("involvedObject") or event["regarding"])["name"]
        if event["reason"] in _TOLD and name in told:
            message = _first_sentence(event.get("message") or event["note"])
            told[name].add(f"{event['type']} {event['reason']}: {message}")
    return {name: pod | {"events": sorted(told[name])} for name, pod in sorted(pods.items())}


def _pod(pod):
    conditions = {each["type"]: each for each in pod["status"].get("conditions") or ()}
    said = {}
    for type_ in ("PodScheduled", "DisruptionTarget"):
        if type_ in conditions:
            condition = conditions[type_]
            said[type_] = [
                condition["status"],
                condition.get("reason", ""),
                _first_sentence(condition.get("message", "")),
            ]
    return {
        "placed": "nodeName" in pod["spec"],
        "deleted": "deletionTimestamp" in pod["metadata"],
        "tolerations": pod["spec"].get("tolerations") or [],
        "conditions": said,
    }


def _first_sentence(message):
    """Of several: what else a scheduler tried says nothing about taints."""
    return _NAMESPACE.sub("…/", message.partition(". ")[0].removesuffix("."))


def _runs(cluster, name="p"):
    def holds():
        pod = cluster.find("pods", name)
        return pod["status"].get("phase") == "Running" and not _is_deleted(pod)

    cluster.until(holds)


def _waits(cluster, name="p"):
    def holds():
        conditions = cluster.find("pods", name)["status"].get("conditions") or ()
        return any(each.get("reason") == "Unschedulable" for each in conditions)

    cluster.until(holds)


def _leaves(cluster, name="p"):
    cluster.until(lambda: _is_deleted(cluster.find("pods", name)))


def _is_deleted(pod):
    return "deletionTimestamp" in pod["metadata"]


# ---------------------------------------------------------------- where pods go


def no_schedule_keeps_a_pod_waiting(cluster):
    cluster.taint(taint("NoSchedule"))
    cluster.create("pods", pod())
    _waits(cluster)


def no_schedule_lets_stay_what_is_there(cluster):
    cluster.create("pods", pod())
    _runs(cluster)
    cluster.taint(taint("NoSchedule"))
    cluster.create("pods", pod("q"))
    _waits(cluster, "q")
    _runs(cluster)


def no_schedule_that_goes_lets_a_pod_come(cluster):
    cluster.taint(taint("NoSchedule"))
    cluster.create("pods", pod())
    _waits(cluster)
    cluster.taint()
    _runs(cluster)


def prefer_no_schedule_is_only_a_preference(cluster):
    cluster.taint(taint("PreferNoSchedule"))
    cluster.create("pods", pod())
    _runs(cluster)


def toleration_with_the_value(cluster):
    cluster.taint(taint("NoSchedule"))
    equal = {"key": KEY, "operator": "Equal", "effect": "NoSchedule"}
    cluster.create("pods", pod("p", equal | {"value": "yes"}))
    cluster.create("pods", pod("q", equal | {"value": "no"}))
    _runs(cluster)
    _waits(cluster, "q")


def toleration_of_everything(cluster):
    cluster.taint(taint("NoSchedule"), taint("NoExecute", OTHER))
    cluster.create("pods", pod("p", {"operator": "Exists"}))
    cluster.create("pods", pod("q", tolerating()))
    _runs(cluster)
    _waits(cluster, "q")


def toleration_of_another_effect(cluster):
    cluster.taint(taint("NoExecute"))
    cluster.create("pods", pod("p", tolerating(effect="NoSchedule")))
    cluster.create("pods", pod("q", tolerating(effect="NoExecute")))
    _waits(cluster)
    _runs(cluster, "q")


def cordon_keeps_a_pod_waiting(cluster):
    cluster.cordon()
    cluster.create("pods", pod())
    _waits(cluster)


# ---------------------------------------------------------------- which pods stay


def no_execute_ends_a_pod(cluster):
    cluster.create("pods", pod())
    cluster.create("pods", pod("q", tolerating()))
    _runs(cluster)
    _runs(cluster, "q")
    cluster.taint(taint("NoExecute"))
    _leaves(cluster)
    _runs(cluster, "q")


def no_execute_ends_a_pod_after_a_while(cluster):
    cluster.create("pods", pod("p", tolerating(tolerationSeconds=4)))
    cluster.create("pods", pod("q", tolerating(tolerationSeconds=3600)))
    _runs(cluster)
    _runs(cluster, "q")
    cluster.taint(taint("NoExecute"))
    _leaves(cluster)
    _runs(cluster, "q")


def no_execute_that_goes_in_time(cluster):
    cluster.create("pods", pod("p", tolerating(tolerationSeconds=3600)))
    cluster.create("pods", pod("q"))
    _runs(cluster)
    _runs(cluster, "q")
    cluster.taint(taint("NoExecute"))
    _leaves(cluster, "q")
    cluster.taint()
    told = "Cancelling deletion of Pod"
    cluster.until(lambda: any(told in each for each in seen(cluster)["p"]["events"]))


def no_execute_and_one_of_two_is_not_tolerated(cluster):
    cluster.create("pods", pod("p", tolerating(tolerationSeconds=3600)))
    cluster.create("pods", pod("q", tolerating(), tolerating(OTHER)))
    _runs(cluster)
    _runs(cluster, "q")
    cluster.taint(taint("NoExecute"), taint("NoExecute", OTHER))
    _leaves(cluster)
    _runs(cluster, "q")


def no_execute_and_the_first_toleration_counts(cluster):
    cluster.create("pods", pod("p", tolerating(tolerationSeconds=4), tolerating()))
    cluster.create("pods", pod("q", {"operator": "Exists"}, tolerating(tolerationSeconds=4)))
    _runs(cluster)
    _runs(cluster, "q")
    cluster.taint(taint("NoExecute"))
    _leaves(cluster)
    _runs(cluster, "q")


ALL = {
    name: value
    for name, value in sorted(globals().items())
    if name.startswith(("no_", "prefer_", "toleration_", "cordon_"))
}
