"""The controllers at work: each looks whenever something changed in what it reads, and sends what
is due.

What is due is decided in the modules beside this one; here are the looks, the order of writes and
the waiting.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from ...api.document import Document
from ...kube import client as kube_client
from .. import client
from ..client import Api, Collection, WorkLoop
from . import claims, evictions, namespaces, nodes, orphans, workloads

log = logging.getLogger(__name__)

NAME = "kube-controller-manager"
Clock = Callable[[], float]


def _world(worker: WorkLoop) -> dict[str, dict[str, Document]]:
    """As it is now: what changes while a look waits for answers is for the next one."""
    return {kind: dict(collection.objects) for kind, collection in worker.collections.items()}


class Claims:
    KINDS = ("pods", "resourceclaims", "resourceclaimtemplates")

    def __init__(self, worker: WorkLoop, clock: Clock) -> None:
        del clock
        self._worker = worker
        self._told: set[tuple[str, str]] = set()  # pods and what was said of them as events

    async def look(self) -> float | None:
        world = _world(self._worker)
        gone = set()
        for namespace, name, uid in set(claims.doubtful(world)):
            pod = await self._worker.api.find("pods", namespace, name)
            if pod is None or pod["metadata"]["uid"] != uid:
                gone.add(uid)
        calls = [
            call
            for call in claims.decide(_world(self._worker), frozenset(gone))
            if self._is_news(call)
        ]
        return await self._worker.send_all(calls)

    def _is_news(self, call: client.Call) -> bool:
        """The same sentence about a pod is said once."""
        if call.kind != "events":
            return True
        said = call.body["regarding"]["uid"], call.body["note"]
        new = said not in self._told
        self._told.add(said)
        return new


class Evictions:
    KINDS = ("pods", "resourceclaims", "resourceslices", "devicetaintrules")

    def __init__(self, worker: WorkLoop, clock: Clock) -> None:
        self._worker = worker
        self._clock = clock
        self._evicted: dict[str, set[str]] = {}  # by a rule's uid those of pods

    async def look(self) -> float | None:
        world, now = _world(self._worker), self._clock()
        dues = evictions.due(world)
        marks, deletes, later = evictions.decide(dues, now)
        again = [later, await self._worker.send_all(marks), await self._worker.send_all(deletes)]
        rules = {name: rule["metadata"]["uid"] for name, rule in world["devicetaintrules"].items()}
        for one in dues:
            if one.at <= now:
                for name in one.rules:
                    self._evicted.setdefault(rules[name], set()).add(one.pod["metadata"]["uid"])
        counts = {uid: len(pods) for uid, pods in self._evicted.items()}
        calls, later = evictions.tell(_world(self._worker), dues, counts, now)
        again += [later, await self._worker.send_all(calls)]
        return min((one for one in again if one is not None), default=None)


class Orphans:
    KINDS = ("pods", "nodes")

    def __init__(self, worker: WorkLoop, clock: Clock) -> None:
        self._worker = worker
        self._clock = clock
        self._since: dict[str, float] = {}  # nodes that are away

    async def look(self) -> float | None:
        now = self._clock()
        away = {
            name
            for name in orphans.homeless(_world(self._worker))
            if not await self._is_there(name)
        }
        self._since = {name: self._since.get(name, now) for name in away}
        gone = frozenset(
            name for name, since in self._since.items() if now - since >= orphans.PATIENCE
        )
        marks, deletes = orphans.decide(_world(self._worker), gone, now)
        again = [await self._worker.send_all(marks), await self._worker.send_all(deletes)]
        again += [orphans.PATIENCE if away - gone else None]
        return min((one for one in again if one is not None), default=None)

    async def _is_there(self, name: str) -> bool:
        return await self._worker.api.find("nodes", "", name) is not None


class Nodes:
    KINDS = ("nodes",)

    def __init__(self, worker: WorkLoop, clock: Clock) -> None:
        del clock
        self._worker = worker

    async def look(self) -> float | None:
        return await self._worker.send_all(list(nodes.decide(_world(self._worker))))


class Namespaces:
    KINDS = ("namespaces", "pods", "resourceclaims")  # the latter two end in their own time

    def __init__(self, worker: WorkLoop, clock: Clock) -> None:
        del clock
        self._worker = worker

    async def look(self) -> float | None:
        again: float | None = None
        paths: list[str] = []
        for namespace in list(namespaces.leaving(self._worker.objects("namespaces"))):
            paths = paths or await namespaces.kinds(self._worker.api)
            if await namespaces.emptied(self._worker.api, paths, namespace["metadata"]["name"]):
                await self._worker.try_(namespaces.released(namespace))
            else:
                again = client.RETRY
        return again


class Workloads:
    KINDS = ("pods", "nodes", "deployments", "daemonsets")

    def __init__(self, worker: WorkLoop, clock: Clock) -> None:
        self._worker = worker
        self._clock = clock

    async def look(self) -> float | None:
        return await self._worker.send_all(workloads.decide(_world(self._worker), self._clock()))


ALL = (Claims, Evictions, Orphans, Nodes, Namespaces, Workloads)


async def run(client_: kube_client.Client, clock: Clock = time.time) -> None:
    """All controllers, with one copy of each kind between them, until cancelled."""
    api = Api(client_)
    collections = {kind: Collection(api, kind) for one in ALL for kind in one.KINDS}
    async with asyncio.TaskGroup() as tasks:
        for collection in collections.values():
            tasks.create_task(collection.run())
        for one in ALL:
            worker = WorkLoop(one.__name__.lower(), api, [collections[kind] for kind in one.KINDS])
            tasks.create_task(worker.run(one(worker, clock).look))
