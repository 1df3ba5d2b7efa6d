"""An API server and processes that publish to it: what the tests of the publisher have in common."""

import asyncio
import contextlib
import json
from pathlib import Path
from typing import Any

from claimd.kubernetes.kube import auth, client, resources
from claimd.node.publish import publisher
from claimd_devices.gpu import Gpu, Inventory
from tests.support import apiserver

DRIVER, NODE = "gpu.claimd.dev", "node-a"
FIRST, SECOND = (f"{index:05x}-{DRIVER}-{NODE}" for index in range(2))
SLICES = "/resourceslices"


def gpus(count: int, **changed: str) -> Inventory:
    """So many GPUs; `changed` gives some of them, as in _7="X", another uuid."""
    return Inventory.from_unsorted(
        Gpu(
            name=f"gpu-{number:04x}-01-00-0",
            address=f"{number:04x}:01:00.0",
            vendor="nvidia",
            vendor_id=0x10DE,
            device_id=0x2330,
            driver="nvidia",
            uuid=changed.get(f"_{number}", f"GPU-{number}"),
            memory=80 << 30,
        )
        for number in range(count)
    )


class World:
    """An API server, and processes of the plugin that publish to it."""

    def __init__(self, api: apiserver.ApiServer, tmp_path: Path) -> None:
        self.api, self.tmp_path = api, tmp_path

    @contextlib.asynccontextmanager
    async def running(self, inventory: Inventory | None = None, **more: Any):
        """One process, as long as the block lasts."""
        kubeconfig = self.tmp_path / "kubeconfig"
        document = {
            "current-context": "t",
            "contexts": [{"name": "t", "context": {"cluster": "t", "user": "t"}}],
            "clusters": [{"name": "t", "cluster": {"server": self.api.url}}],
            "users": [{"name": "t", "user": {}}],
        }
        kubeconfig.write_text(json.dumps(document))
        client_ = client.Client(auth.client_config(str(kubeconfig), self.tmp_path), agent="test")
        resources_ = resources.Resources(client_, DRIVER, NODE)
        publisher_ = publisher.Publisher(resources_, DRIVER, NODE, **more)
        if inventory is not None:
            publisher_.set(inventory)
        tasks = [
            asyncio.create_task(resources_.slices.run()),
            asyncio.create_task(publisher_.run()),
        ]
        try:
            yield publisher_
        finally:
            failed = [task for task in tasks if task.done()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await client_.close()
            for task in failed:
                task.result()  # neither ever ends by itself

    def stored(self) -> dict[str, dict[str, Any]]:
        return {
            name: obj
            for (kind, _, name), obj in sorted(self.api.objects.items())
            if kind == "resourceslices"
        }

    def shape(self) -> list[tuple[str, int, int, int]]:
        """Of every slice its name, generation, count, and number of devices."""
        return [
            (
                name,
                spec["pool"]["generation"],
                spec["pool"]["resourceSliceCount"],
                len(spec.get("devices", [])),
            )
            for name, spec in ((name, obj["spec"]) for name, obj in self.stored().items())
        ]

    def uuids(self) -> set[str]:
        return {
            device["attributes"]["uuid"]["string"]
            for obj in self.stored().values()
            for device in obj["spec"].get("devices", [])
            if "uuid" in device["attributes"]
        }

    def writes(self) -> list[str]:
        """The writes so far, as in "PUT 00000"; a dry run is "ask 00000"."""
        contents = []
        for request in self.api.requests:
            if SLICES in request.path and request.method != "GET":
                name = request.path.rpartition("/")[2]
                if request.method == "POST":
                    name = json.loads(request.body)["metadata"]["name"]
                contents.append(
                    f"{'ask' if 'dryRun' in request.query else request.method} {name[:5]}"
                )
        return contents

    def edit(self, name: str, **fields: Any) -> None:
        """Somebody changes fields of the first device."""
        obj = json.loads(json.dumps(self.stored()[name]))
        obj["spec"]["devices"][0].update(fields)
        self.api.put("resourceslices", obj)

    def refuse(self, *fields: str, message: str = "no", **more: Any) -> None:
        """The next write of a slice is refused because of these fields."""
        causes = [
            {"reason": "FieldValueInvalid", "field": field, "message": message} for field in fields
        ]
        status = {
            "kind": "Status",
            "code": 422,
            "reason": "Invalid",
            "message": message,
            "details": {"causes": causes},
        }
        self.api.fail(422, body=json.dumps(status).encode(), path=SLICES, **more)


async def published(publisher_: publisher.Publisher) -> None:
    async with asyncio.timeout(30):
        await publisher_.published.wait()


def mirrored(publisher_: publisher.Publisher, name: str) -> str:
    """The version of the slice that this process has seen by its watch; empty if none."""
    slice_ = publisher_._resources.slices.objects.get(name)
    return str(slice_["metadata"]["resourceVersion"]) if slice_ else ""
