"""Pods whose devices must become ready before they are bound: what happens in each situation, and
what is seen of the scheduler's work.

What Kubernetes' own scheduler did lies in `tests/cases/binding` (`python -m tests.cluster.binding`).
"""

import asyncio
import json
import re
from pathlib import Path

from tests.cluster.pending.documents import SUBJECT, job
from tests.support.cluster_objects import DRIVER, claim, class_, gpu, name, node, slice_, taint

CASES = Path(__file__).parents[1] / "cases" / "binding"
READY, BROKEN = "example.com/Ready", "example.com/Broken"
SLOW = {"bindingConditions": [READY], "bindingFailureConditions": [BROKEN], "bindsToNode": True}
RESOURCE = "example.com/gpu"
PATIENCE = 60.0  # seconds until the scheduler has done something
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
GLANCE = 0.02
_RANDOM = re.compile(r"-extended-resources-\w+")
_BRACKETS = re.compile(r" \([^()]*(\([^()]*\)[^()]*)*\)")


class Stage:
    """A cluster in which a situation is played, with a driver that does what the situation says.

    `look` gets what is seen, once the scheduler has come to rest. `restart` ends the scheduler and
    starts another.
    """

    def __init__(self, cluster, look, restart):
        self.cluster, self._look, self.restart = cluster, look, restart

    async def make(self, *objects):
        for obj in objects:
            await self.cluster.make(obj)

    async def look(self):
        await self._look(self.seen)

    async def seen(self):
        pods, claims = await self.cluster.list("pods"), await self.cluster.list("resourceclaims")
        return seen(pods, claims, await self.cluster.events())

    async def until(self, fact):
        """Waits until the fact holds for what is seen."""
        async with asyncio.timeout(PATIENCE):
            while not fact(await self.seen()):
                await asyncio.sleep(GLANCE)

    async def waits_on(self, place, pod=SUBJECT):
        """Waits until the scheduler says that the pod waits for devices of this node."""
        note = f"waiting for binding conditions for device on node {place}"
        await self.until(lambda seen: any(e[0] == pod and e[4] == note for e in seen["events"]))

    async def bound(self, pod=SUBJECT):
        await self.until(lambda seen: seen["pods"][pod]["node"])

    async def report(self, type_, called="train", status="True", device=0, place="node-1"):
        """Reports a condition of a device as its driver does, and keeps those of other devices."""
        claim_ = json.loads(await self.cluster.request("GET", f"{CLAIMS}/{called}"))
        id_ = {"driver": DRIVER, "pool": place, "device": name(device)}
        others = [e for e in claim_["status"].get("devices") or () if e["device"] != id_["device"]]
        condition = {"type": type_, "status": status, "reason": "Played", "message": 'as "told"'}
        condition["lastTransitionTime"] = "2026-01-01T00:00:00Z"
        devices = {"devices": [*others, {**id_, "conditions": [condition]}]}
        await self.cluster.request("PATCH", f"{CLAIMS}/{called}/status", {"status": devices})

    async def taint(self, place="node-1", count=1):
        """Keeps further pods from the devices of the node."""
        devices = [gpu(index, **SLOW, taints=[taint("broken")]) for index in range(count)]
        path = f"/apis/resource.k8s.io/v1/resourceslices/{slice_([], place)['metadata']['name']}"
        await self.cluster.request("PATCH", path, {"spec": {"devices": devices}})


def seen(pods, claims, events):
    """Returns what a scheduler has done, without what differs from time to time."""
    names = {each["metadata"]["uid"]: each["metadata"]["name"] for each in pods}
    conditions = {pod["metadata"]["name"]: _pod(pod) for pod in pods}
    notes = []
    for event in events:
        note, called = _plain(event["note"]), event["regarding"]["name"]
        shown = [called, event["type"], event["reason"], event["action"], note]
        # A real scheduler may join the last Event with the one before it.
        is_told = note == conditions[called].get("message")
        if shown not in notes and not is_told:
            notes.append(shown)
    return {
        "pods": conditions,
        "claims": [_claim(each, names) for each in claims],
        "events": sorted(notes),
    }


def _pod(pod):
    status, outcome = pod["status"], {"node": pod["spec"].get("nodeName", "")}
    outcome["nominatedNodeName"] = status.get("nominatedNodeName", "")
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled":
            outcome |= {key: condition.get(key, "") for key in ("status", "reason")}
            outcome["message"] = _plain(condition.get("message", ""))
    return outcome


def _plain(message):
    """Returns the message without what the simulated scheduler adds in brackets to a reason, and
    without the random end of a name.
    """
    return _RANDOM.sub("-extended-resources-…", _BRACKETS.sub("", message))


def _claim(claim_, names):
    status = claim_.get("status") or {}
    allocation = status.get("allocation") or {}
    results = (allocation.get("devices") or {}).get("results") or ()
    shown = ("pool", "device", "bindingConditions", "bindingFailureConditions")
    return {
        "devices": [{key: result.get(key) for key in shown} for result in results],
        "nodeSelector": allocation.get("nodeSelector"),
        "hasTimestamp": "allocationTimestamp" in allocation,
        "reservedFor": sorted(names[each["uid"]] for each in status.get("reservedFor") or ()),
        "reported": len(status.get("devices") or ()),
    }


def _slow(place="node-1", count=1):
    return slice_([gpu(index, **SLOW) for index in range(count)], place)


NODES = (node("node-1"), node("node-2"))


async def it_is_bound_when_its_device_is_ready(stage):
    await stage.make(*NODES, class_(), _slow(), claim("train"), job(gpu="train"))
    await stage.waits_on("node-1")
    await stage.look()
    await stage.report(READY)
    await stage.bound()
    await stage.look()


async def it_goes_elsewhere_after_a_failure(stage):
    await stage.make(*NODES, class_(), _slow(), claim("train"), job(gpu="train"))
    await stage.waits_on("node-1")
    await stage.make(_slow("node-2"))
    await stage.taint()
    await stage.report(BROKEN)
    await stage.waits_on("node-2")
    await stage.look()
    await stage.report(READY, place="node-2")
    await stage.bound()
    await stage.look()


async def there_is_no_other_device_after_a_failure(stage):
    await stage.make(NODES[0], class_(), _slow(), claim("train"), job(gpu="train"))
    await stage.waits_on("node-1")
    await stage.taint()
    await stage.report(BROKEN)
    wanted = "cannot allocate all claims"
    await stage.until(lambda seen: wanted in seen["pods"][SUBJECT].get("message", ""))
    await stage.look()


async def it_goes_elsewhere_when_its_device_takes_too_long(stage):
    await stage.make(*NODES, class_(), _slow(), claim("train"), job(gpu="train"))
    await stage.waits_on("node-1")
    await stage.make(_slow("node-2"))
    await stage.taint()
    await stage.waits_on("node-2")
    await stage.look()


async def a_device_that_is_not_ready_hides_the_failure_of_the_next(stage):
    await stage.make(NODES[0], class_(), _slow(count=2), claim("train", count=2), job(gpu="train"))
    await stage.waits_on("node-1")
    await stage.taint(count=2)
    await stage.report(BROKEN, device=1)
    wanted = "cannot allocate all claims"
    await stage.until(lambda seen: wanted in seen["pods"][SUBJECT].get("message", ""))
    await stage.look()


async def another_pod_shares_the_claim(stage):
    await stage.make(*NODES, class_(), _slow(), claim("train"), job(gpu="train"))
    await stage.waits_on("node-1")
    await stage.make(job("other", gpu="train"))
    await stage.waits_on("node-1", "other")
    await stage.look()
    await stage.report(READY)
    await stage.bound()
    await stage.bound("other")
    await stage.look()


async def the_scheduler_is_restarted(stage):
    await stage.make(*NODES, class_(), _slow(), claim("train"), job(gpu="train"))
    await stage.waits_on("node-1")
    await stage.restart()
    await stage.look()
    await stage.report(READY)
    await stage.bound()
    await stage.look()


async def the_claim_is_for_an_extended_resource(stage):
    class__ = class_(extendedResourceName=RESOURCE)
    pod = job(requests={RESOURCE: "1"})
    await stage.make(*NODES, class__, _slow(), pod)
    await stage.waits_on("node-1")
    await stage.look()
    await stage.make(_slow("node-2"))
    await stage.taint()
    [claim_] = await stage.cluster.list("resourceclaims")
    await stage.report(BROKEN, claim_["metadata"]["name"])
    await stage.waits_on("node-2")
    await stage.look()


# By name, the situation and the seconds that devices have to become ready.
LONG, SHORT = 600, 7
ALL = {
    situation.__name__: (situation, seconds)
    for situation, seconds in (
        (it_is_bound_when_its_device_is_ready, LONG),
        (it_goes_elsewhere_after_a_failure, LONG),
        (there_is_no_other_device_after_a_failure, LONG),
        (it_goes_elsewhere_when_its_device_takes_too_long, SHORT),
        (a_device_that_is_not_ready_hides_the_failure_of_the_next, SHORT),
        (another_pod_shares_the_claim, LONG),
        (the_scheduler_is_restarted, LONG),
        (the_claim_is_for_an_extended_resource, LONG),
    )
}


def load(name_):
    return json.loads((CASES / f"{name_}.json").read_text())
