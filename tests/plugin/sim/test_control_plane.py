"""The scheduler and the controllers on the simulated API server: what comes of pods, claims, taints, nodes."""

import asyncio
import contextlib
import copy
import time

import pytest

from plugin.kube import auth, client, errors
from plugin.sim import controllers, scheduler
from plugin.sim.apiserver.server import Options, serve
from plugin.sim.client import Api, Call, Collection, delete, patch_status, put
from tests.support import planes

WEDGED = {"key": "claimd.dev/wedged", "effect": "NoExecute"}


class Plane:
    """The objects of the cluster as the test sees and writes them."""

    def __init__(self, api, folder):
        self.folder = folder
        self._server = api
        self.client = self.connect()
        self.api = Api(self.client)
        self.copies = {
            kind: Collection(self.api, kind)
            for kind in ("pods", "resourceclaims", "events", "namespaces", "nodes", "devicetaintrules")
        }
        self._changed = asyncio.Event()
        for each in self.copies.values():
            each.subscribe(self._changed.set)

    def connect(self):
        path = self._server.kubeconfig(self.folder / "kubeconfig")
        return client.Client(auth.connect(str(path), self.folder), agent="tester/1")

    async def make(self, *objects):
        for one in objects:
            plural = {"DeviceClass": "deviceclasses"}.get(one["kind"], one["kind"].lower() + "s")
            clean = {name: value for name, value in one.items() if name != "status"}
            kept = ("name", "namespace", "labels", "finalizers")
            clean["metadata"] = {name: one["metadata"][name] for name in kept if name in one["metadata"]}
            namespace = clean["metadata"].get("namespace", "")
            made = await self.api.send(Call(method="POST", kind=plural, namespace=namespace, body=clean))
            if one["kind"] == "Node":
                await self.api.send(put(plural, made | {"status": one["status"]}, "status"))

    async def until(self, holds, seconds=5.0):
        """What `holds` gives, as soon as it is something."""
        async with asyncio.timeout(seconds):
            while not (found := holds()):
                self._changed.clear()
                await self._changed.wait()
        return found

    def get(self, kind, name, namespace="default"):
        return self.copies[kind].objects.get(f"{namespace}/{name}")

    def pod(self, name):
        return self.get("pods", name)

    def place(self, name):
        return (self.pod(name) or {"spec": {}})["spec"].get("nodeName")

    def claims(self):
        return list(self.copies["resourceclaims"].objects.values())

    def devices(self):
        """Node and device of all that is allocated, in order."""
        return sorted(
            (one["pool"], one["device"])
            for claim in self.claims()
            for one in claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", [])
        )

    def told(self, name, reason):
        return [
            one["note"]
            for one in self.copies["events"].objects.values()
            if one["regarding"].get("name") == name and one["reason"] == reason
        ]

    async def ends(self, name):
        """The kubelet's part of a deletion."""
        await self.until(lambda: self.pod(name)["metadata"].get("deletionTimestamp"))
        await self.api.send(delete("pods", self.pod(name), gracePeriodSeconds=0))


@pytest.fixture
async def plane(tmp_path):
    """Three nodes with two GPUs each, one class."""
    async with serve(Options()) as api:
        found = Plane(api, tmp_path)
        clients = [found.connect(), found.connect()]
        tasks = [asyncio.create_task(one.run()) for one in found.copies.values()]
        tasks.append(asyncio.create_task(scheduler.run(clients[0])))
        tasks.append(asyncio.create_task(controllers.run(clients[1])))
        await found.make(planes.class_(), planes.template("gpu"))
        for number in (1, 2, 3):
            await found.make(planes.node(f"node-{number}"), planes.slice_(f"node-{number}"))
        yield found
        assert not [task for task in tasks if task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for one in (*clients, found.client):
            await one.close()


async def test_a_pod_gets_its_claim_its_device_and_its_node(plane):
    began = time.perf_counter()
    await plane.make(planes.pod("p", templates=["gpu"]))
    assert await plane.until(lambda: plane.place("p")) == "node-1"
    took = time.perf_counter() - began
    (claim,) = plane.claims()
    pod = plane.pod("p")
    assert claim["metadata"]["annotations"] == {"resource.kubernetes.io/pod-claim-name": "gpu"}
    assert claim["metadata"]["finalizers"] == ["resource.kubernetes.io/delete-protection"]
    assert claim["metadata"]["ownerReferences"][0]["uid"] == pod["metadata"]["uid"]
    assert claim["status"]["reservedFor"] == [{"resource": "pods", "name": "p", "uid": pod["metadata"]["uid"]}]
    assert plane.devices() == [("node-1", "gpu-0")]
    statuses = [{"name": "gpu", "resourceClaimName": claim["metadata"]["name"]}]
    assert pod["status"]["resourceClaimStatuses"] == statuses
    assert {"type": "PodScheduled", "status": "True"}.items() <= pod["status"]["conditions"][0].items()
    await plane.until(lambda: plane.told("p", "Scheduled") == ["Successfully assigned default/p to node-1"])
    assert took < 2, f"{took:.3f} s"


async def test_a_pod_that_goes_gives_everything_back(plane):
    await plane.make(planes.pod("p", templates=["gpu"]), planes.claim("shared"), planes.pod("q", claims=["shared"]))
    await plane.until(lambda: plane.place("p") and plane.place("q"))
    await plane.api.send(delete("pods", plane.pod("p")))
    await plane.ends("p")
    await plane.until(lambda: len(plane.claims()) == 1)
    await plane.api.send(patch_status("pods", plane.pod("q"), {"phase": "Succeeded"}))
    await plane.until(lambda: plane.devices() == [])
    shared = await plane.until(lambda: (one := plane.claims()[0]) and not one["metadata"].get("finalizers") and one)
    assert shared["metadata"]["name"] == "shared"
    assert not shared["status"].get("reservedFor")


async def test_a_pod_waits_with_a_reason_until_there_is_a_device(plane):
    six = [planes.pod(f"p{number}", templates=["gpu"]) for number in range(6)]
    await plane.make(*six)
    await plane.until(lambda: all(plane.place(f"p{number}") for number in range(6)))
    assert plane.devices() == [(f"node-{node}", f"gpu-{gpu}") for node in (1, 2, 3) for gpu in (0, 1)]
    await plane.make(planes.pod("late", templates=["gpu"]))
    (note,) = await plane.until(lambda: plane.told("late", "FailedScheduling"))
    assert note.startswith("0/3 nodes are available: 3 cannot allocate all claims (claim default/late-gpu-")
    assert note.endswith(": request gpu needs 1, 0 of 2 devices suit).")
    (condition,) = plane.pod("late")["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("PodScheduled", "False")
    assert (condition["reason"], condition["message"]) == ("Unschedulable", note)
    await plane.make(planes.node("node-4"), planes.slice_("node-4"))
    assert await plane.until(lambda: plane.place("late")) == "node-4"
    assert len(plane.told("late", "FailedScheduling")) <= 2  # once more, when the node came without its slice


async def test_a_device_that_is_freed_goes_to_the_pod_that_waits(plane):
    await plane.make(*(planes.pod(f"p{number}", templates=["gpu"]) for number in range(7)))
    await plane.until(lambda: sum(bool(plane.place(f"p{number}")) for number in range(7)) == 6)
    (late,) = [f"p{number}" for number in range(7) if not plane.place(f"p{number}")]
    free = "p0" if late != "p0" else "p1"
    where = plane.place(free)
    await plane.api.send(delete("pods", plane.pod(free)))
    await plane.ends(free)
    assert await plane.until(lambda: plane.place(late)) == where


async def test_a_taint_moves_a_pod_of_a_deployment(plane):
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "work", "namespace": "default"},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": "work"}},
            "template": {
                "metadata": {"labels": {"app": "work"}},
                "spec": planes.pod("x", templates=["gpu"])["spec"],
            },
        },
    }
    await plane.make(deployment)

    def running():
        pods = plane.copies["pods"].objects.values()
        return [one for one in pods if one["spec"].get("nodeName") and not one["metadata"].get("deletionTimestamp")]

    (first,) = await plane.until(running)
    await plane.make(planes.rule("r", WEDGED, driver=planes.DRIVER, pool=first["spec"]["nodeName"], device="gpu-0"))
    name = first["metadata"]["name"]
    leaving = await plane.until(lambda: (one := plane.pod(name))["metadata"].get("deletionTimestamp") and one)
    assert {one["type"]: one["reason"] for one in leaving["status"]["conditions"] if "reason" in one} == {
        "DisruptionTarget": "DeletionByDeviceTaintManager"
    }
    assert plane.told(name, "DeviceTaintManagerEviction") == ["Marking for deletion"]
    await plane.ends(name)
    (second,) = await plane.until(running)
    assert second["metadata"]["name"] != name
    await plane.until(lambda: plane.devices() == [("node-2", "gpu-0")])
    rule = plane.copies["devicetaintrules"].objects["r"]
    assert rule["status"]["conditions"][0]["type"] == "EvictionInProgress"


async def test_a_namespace_goes_after_its_content(plane):
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}
    mine = planes.claim("mine")
    mine["metadata"]["namespace"] = "team"
    mine["metadata"]["finalizers"] = ["example.com/slow"]
    await plane.make(space, mine)
    await plane.until(lambda: plane.get("resourceclaims", "mine", "team"))
    await plane.api.send(Call(method="DELETE", kind="namespaces", name="team"))
    leaving = lambda: plane.get("resourceclaims", "mine", "team")["metadata"].get("deletionTimestamp")  # noqa: E731
    await plane.until(leaving)
    assert plane.copies["namespaces"].objects["team"]["status"]["phase"] == "Terminating"
    slow = copy.deepcopy(plane.get("resourceclaims", "mine", "team"))
    slow["metadata"]["finalizers"] = []
    await plane.api.send(put("resourceclaims", slow))
    await plane.until(lambda: "team" not in plane.copies["namespaces"].objects)
    assert plane.get("resourceclaims", "mine", "team") is None


async def test_extended_resources_become_a_claim(plane):
    await plane.make(planes.class_("ext", extendedResourceName="example.com/gpu"))
    new = planes.pod("p", requests={"example.com/gpu": "2"})
    new["spec"]["containers"][0]["resources"]["limits"] = {"example.com/gpu": "2"}
    await plane.make(new)
    await plane.until(lambda: plane.place("p") and plane.claims() and plane.devices())
    (claim,) = plane.claims()
    assert claim["metadata"]["annotations"] == {"resource.kubernetes.io/extended-resource-claim": "true"}
    told = plane.pod("p")["status"]["extendedResourceClaimStatus"]
    assert told["resourceClaimName"] == claim["metadata"]["name"]
    assert told["requestMappings"] == [
        {"containerName": "main", "resourceName": "example.com/gpu", "requestName": "container-0-request-0"}
    ]
    assert plane.devices() == [("node-1", "gpu-0"), ("node-1", "gpu-1")]


async def test_a_claim_that_is_taken_away_under_the_scheduler_is_made_again(plane):
    """Losing a race is nothing: the next look goes on from what is there."""
    await plane.make(planes.pod("p", templates=["gpu"], schedulingGates=[{"name": "wait"}]))
    (claim,) = await plane.until(plane.claims)
    with contextlib.suppress(errors.NotFound):
        await plane.api.send(delete("resourceclaims", claim))
    await plane.until(lambda: plane.claims() and plane.claims()[0]["metadata"]["uid"] != claim["metadata"]["uid"])
    await plane.until(lambda: plane.pod("p")["status"].get("resourceClaimStatuses"))
    open_ = copy.deepcopy(plane.pod("p"))
    del open_["spec"]["schedulingGates"]
    await plane.api.send(put("pods", open_))
    await plane.until(lambda: plane.place("p"))
