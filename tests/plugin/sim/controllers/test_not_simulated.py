from types import SimpleNamespace

from claimd.sim.controllers import not_simulated
from claimd.sim.controllers.loops import NotSimulated

ALIASES = {"hostAliases": [{"ip": "10.0.0.1", "hostnames": ["a"]}]}


def pod(name="p", **metadata):
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"} | metadata,
        "spec": ALIASES,
    }


def objects(*pods):
    there = {resource: {} for resource in not_simulated.RESOURCES}
    return there | {"pods": {pod_["metadata"]["name"]: pod_ for pod_ in pods}}


def notes(there):
    return [event.body["note"] for event in not_simulated.sync(there)]


def test_an_event_says_what_is_not_done_of_an_object():
    (event,) = not_simulated.sync(objects(pod()))
    assert (event.body["reason"], event.body["type"]) == ("NotSimulated", "Warning")
    assert event.body["regarding"]["kind"] == "Pod"
    assert event.body["note"].startswith("not simulated: spec.hostAliases: ")


def test_pods_of_a_template_say_nothing_that_the_template_has_said():
    def owned_pod(kind):
        return pod(ownerReferences=[{"kind": kind, "name": "o", "uid": "u", "controller": True}])

    assert notes(objects(owned_pod("ReplicaSet"))) == []
    assert len(notes(objects(owned_pod("TrainingJob")))) == 1


def test_a_pod_that_goes_says_nothing():
    assert notes(objects(pod(deletionTimestamp="2026-01-01T00:00:00Z"))) == []


async def test_the_same_is_sent_once_an_object():
    sent = []

    async def send_all(wanted):
        sent.append([event.body["regarding"]["name"] for event in wanted])

    caches = {name: SimpleNamespace(objects=notes) for name, notes in objects(pod()).items()}
    loop = NotSimulated(SimpleNamespace(caches=caches, send_all=send_all), lambda: 0.0)
    await loop.reconcile()
    caches["pods"].objects["q"] = pod("q")
    await loop.reconcile()
    await loop.reconcile()
    assert sent == [["p"], ["q"], []]
