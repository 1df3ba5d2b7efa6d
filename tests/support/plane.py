"""A simulated control plane that runs, as a test sees it: its objects, and parts of it as clients
of the API server.
"""

import asyncio
import contextlib

from claimd.kubernetes.kube import auth, client
from claimd.sim.assume_cache import AssumeCache
from claimd.sim.client import ApiClient
from claimd.sim.requests import Request, delete, update
from tests.support import planes


def create(obj):
    """A request for an object of `planes`, without what the API server says of it."""
    body = {name: value for name, value in obj.items() if name != "status"}
    kept = ("name", "namespace", "labels", "finalizers")
    metadata = obj["metadata"]
    body["metadata"] = {name: metadata[name] for name in kept if name in metadata}
    resource = {"DeviceClass": "deviceclasses"}.get(obj["kind"], obj["kind"].lower() + "s")
    namespace = metadata.get("namespace", "")
    return Request(method="POST", resource=resource, namespace=namespace, body=body)


async def until(holds, seconds=60.0):
    """Returns as soon as the condition holds. Raises TimeoutError when it does not hold in time."""
    async with asyncio.timeout(seconds):
        while not holds():
            await asyncio.sleep(0.005)


class Plane:
    """The objects of the cluster as the test sees and writes them."""

    def __init__(self, api, folder):
        self.folder = folder
        self._server = api
        self.client = self.connect()
        self.api = ApiClient(self.client)
        self.copies = {
            kind: AssumeCache(self.api, kind)
            for kind in (
                "pods",
                "resourceclaims",
                "events",
                "namespaces",
                "nodes",
                "devicetaintrules",
            )
        }
        self._changed = asyncio.Event()
        for each in self.copies.values():
            each.subscribe(self._changed.set)

    def connect(self):
        path = self._server.kubeconfig(self.folder / "kubeconfig")
        return client.Client(auth.client_config(str(path), self.folder), agent="tester/1")

    async def make(self, *objects):
        for obj in objects:
            stored = await self.api.send(create(obj))
            if obj["kind"] == "Node":
                await self.api.send(update("nodes", stored | {"status": obj["status"]}, "status"))

    async def until(self, holds, seconds=60.0):
        """What `holds` gives, as soon as it is something."""
        async with asyncio.timeout(seconds):
            while not (fact := holds()):
                self._changed.clear()
                await self._changed.wait()
        return fact

    def get(self, kind, name, namespace="default"):
        return self.copies[kind].objects.get(f"{namespace}/{name}")

    def pod(self, name):
        return self.get("pods", name)

    def place(self, name):
        return (self.pod(name) or {"spec": {}})["spec"].get("nodeName")

    def claims(self):
        return list(self.copies["resourceclaims"].objects.values())

    def devices(self):
        """Returns node and device of everything that is allocated, in order."""
        return sorted(
            (result["pool"], result["device"])
            for claim in self.claims()
            for result in claim.get("status", {})
            .get("allocation", {})
            .get("devices", {})
            .get("results", [])
        )

    def told(self, name, reason):
        return [
            event["note"]
            for event in self.copies["events"].objects.values()
            if event["regarding"].get("name") == name and event["reason"] == reason
        ]

    async def ends(self, name):
        """The kubelet's part of a deletion."""
        await self.until(lambda: self.pod(name)["metadata"].get("deletionTimestamp"))
        await self.api.send(delete("pods", self.pod(name), gracePeriodSeconds=0))


@contextlib.asynccontextmanager
async def running(api, folder, *parts):
    """The API server's clients: the test's own, and these parts of the control plane."""
    plane_ = Plane(api, folder)
    clients = [plane_.connect() for _ in parts]
    theirs = [
        asyncio.create_task(run(client_)) for run, client_ in zip(parts, clients, strict=True)
    ]
    tasks = theirs + [asyncio.create_task(copy_.run()) for copy_ in plane_.copies.values()]
    try:
        yield plane_
    finally:
        failed = [task for task in theirs if task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for client_ in (*clients, plane_.client):
            await client_.close()
        for task in failed:
            task.result()


async def furnish(plane):
    """Three nodes with two GPUs each, a class and a template."""
    await plane.make(planes.class_(), planes.template("gpu"))
    for number in (1, 2, 3):
        await plane.make(planes.node(f"node-{number}"), planes.slice_(f"node-{number}"))
