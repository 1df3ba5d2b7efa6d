"""A simulated control plane that runs, as a test sees it: its objects, and parts of it as clients
of the API server.
"""

import asyncio
import contextlib

from plugin.kube import auth, client
from plugin.sim.client import Api, Call, Collection, delete, put
from tests.support import planes


class Plane:
    """The objects of the cluster as the test sees and writes them."""

    def __init__(self, api, folder):
        self.folder = folder
        self._server = api
        self.client = self.connect()
        self.api = Api(self.client)
        self.copies = {
            kind: Collection(self.api, kind)
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
        for one in objects:
            plural = {"DeviceClass": "deviceclasses"}.get(one["kind"], one["kind"].lower() + "s")
            clean = {name: value for name, value in one.items() if name != "status"}
            kept = ("name", "namespace", "labels", "finalizers")
            clean["metadata"] = {
                name: one["metadata"][name] for name in kept if name in one["metadata"]
            }
            namespace = clean["metadata"].get("namespace", "")
            made = await self.api.send(
                Call(method="POST", kind=plural, namespace=namespace, body=clean)
            )
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
            for one in claim.get("status", {})
            .get("allocation", {})
            .get("devices", {})
            .get("results", [])
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


@contextlib.asynccontextmanager
async def running(api, folder, *parts):
    """The API server's clients: the test's own, and these parts of the control plane."""
    found = Plane(api, folder)
    clients = [found.connect() for _ in parts]
    theirs = [asyncio.create_task(run(one)) for run, one in zip(parts, clients, strict=True)]
    tasks = theirs + [asyncio.create_task(one.run()) for one in found.copies.values()]
    try:
        yield found
    finally:
        failed = [task for task in theirs if task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for one in (*clients, found.client):
            await one.close()
        for task in failed:
            task.result()


async def furnish(plane):
    """Three nodes with two GPUs each, a class and a template."""
    await plane.make(planes.class_(), planes.template("gpu"))
    for number in (1, 2, 3):
        await plane.make(planes.node(f"node-{number}"), planes.slice_(f"node-{number}"))
