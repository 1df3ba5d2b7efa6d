"""The controllers' loops: each looks whenever what it reads has changed, and sends what is wanted.

What is wanted is decided in the modules beside this one, by functions that see one moment and
nothing else. Here are the looks, the order of writes and the waiting.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Mapping

from claimd.kubernetes.allocator import features
from claimd.kubernetes.api.document import Document
from claimd.kubernetes.kube import client as kube_client

from .. import client, requests
from ..assume_cache import AssumeCache
from ..client import ApiClient
from ..requests import Request
from ..work_loop import WorkLoop
from . import (
    claims,
    cron_jobs,
    evictions,
    jobs,
    namespaces,
    nodes,
    not_simulated,
    pod_gc,
    taint_evictions,
    ttl_after_finished,
    workloads,
)
from .job_failures import Backoff

NAME = "kube-controller-manager"
Clock = Callable[[], float]  # seconds since 1970


def _snapshot(loop: WorkLoop) -> dict[str, dict[str, Document]]:
    """As it is now: what changes while a look waits for answers is for the next one."""
    return {resource: dict(cache.objects) for resource, cache in loop.caches.items()}


def _soonest(waits: Iterable[float | None]) -> float | None:
    return min((wait for wait in waits if wait is not None), default=None)


class Claims:
    RESOURCES = ("pods", "resourceclaims", "resourceclaimtemplates")

    def __init__(self, loop: WorkLoop, clock: Clock) -> None:
        del clock
        self._loop = loop
        self._reported: set[tuple[str, str]] = set()  # a pod's uid and the note of an event

    async def reconcile(self) -> float | None:
        # A pod that our copy does not have may be younger than the copy. Only the API server knows
        # that it is gone, and only then its claims are released.
        gone = set()
        for namespace, name, uid in set(claims.unseen_consumers(_snapshot(self._loop))):
            pod = await self._loop.api.find("pods", namespace, name)
            if pod is None or pod["metadata"]["uid"] != uid:
                gone.add(uid)

        wanted = claims.sync(_snapshot(self._loop), frozenset(gone))
        return await self._loop.send_all([request for request in wanted if self._is_new(request)])

    def _is_new(self, request: Request) -> bool:
        """The same sentence about a pod is said once."""
        if request.resource != "events":
            return True
        event = request.body["regarding"]["uid"], request.body["note"]
        new = event not in self._reported
        self._reported.add(event)
        return new


class Evictions:
    RESOURCES = ("pods", "resourceclaims", "resourceslices", "devicetaintrules")

    def __init__(self, loop: WorkLoop, clock: Clock) -> None:
        self._loop = loop
        self._clock = clock
        self._evicted: dict[str, set[str]] = {}  # by a rule's uid the uids of pods

    async def reconcile(self) -> float | None:
        objects, now = _snapshot(self._loop), self._clock()
        pending = evictions.find_evictions(objects)

        # A pod is marked before it is deleted: whoever sees it go can read why.
        marks, deletes, next_eviction = evictions.sync(pending, now)
        waits = [next_eviction]
        waits.append(await self._loop.send_all(marks))
        waits.append(await self._loop.send_all(deletes))

        # The rules are those of the look: one may have gone while the pods were deleted.
        uids = {name: rule["metadata"]["uid"] for name, rule in objects["devicetaintrules"].items()}
        for eviction in pending:
            if eviction.at <= now:
                for name in eviction.rules:
                    pods = self._evicted.setdefault(uids[name], set())
                    pods.add(eviction.pod["metadata"]["uid"])

        counts = {uid: len(pods) for uid, pods in self._evicted.items()}
        statuses, next_status = evictions.sync_rules(_snapshot(self._loop), pending, counts, now)
        waits.append(next_status)
        waits.append(await self._loop.send_all(statuses))
        return _soonest(waits)


class PodGC:
    RESOURCES = ("pods", "nodes")

    def __init__(self, loop: WorkLoop, clock: Clock) -> None:
        self._loop = loop
        self._clock = clock
        self._missing_since: dict[str, float] = {}  # by the node's name

    async def reconcile(self) -> float | None:
        now = self._clock()
        missing = set()
        for name in pod_gc.missing_nodes(_snapshot(self._loop)):
            if await self._loop.api.find("nodes", "", name) is None:
                missing.add(name)
        self._missing_since = {name: self._missing_since.get(name, now) for name in missing}

        gone = frozenset(
            name
            for name, since in self._missing_since.items()
            if now - since >= pod_gc.ORPHAN_GRACE
        )
        marks, deletes = pod_gc.sync(_snapshot(self._loop), gone, now)
        waits = [await self._loop.send_all(marks), await self._loop.send_all(deletes)]
        if missing - gone:
            waits.append(pod_gc.ORPHAN_GRACE)
        return _soonest(waits)


class Nodes:
    RESOURCES = ("nodes", "leases", "pods")

    def __init__(self, loop: WorkLoop, clock: Clock) -> None:
        self._loop = loop
        self._clock = clock
        self._silences: dict[str, tuple[object, float]] = {}  # as `nodes.silences` has them
        self._looked = clock()

    async def reconcile(self) -> float | None:
        objects, now = _snapshot(self._loop), self._clock()
        self._silences = nodes.silences(objects, self._silences, now - self._looked)
        self._looked = now

        silent = [name for name, (_, silent) in self._silences.items() if silent > nodes.GRACE]
        waits = [
            await self._loop.send_all(list(nodes.sync_silent(objects, silent, now))),
            await self._loop.send_all(list(nodes.sync(_snapshot(self._loop), now))),
            await self._loop.send_all(list(nodes.sync_pods(_snapshot(self._loop), now))),
        ]
        if self._silences:
            waits.append(nodes.MONITOR_PERIOD)
        return _soonest(waits)


class TaintEvictions:
    RESOURCES = ("pods", "nodes")

    def __init__(self, loop: WorkLoop, clock: Clock) -> None:
        self._loop = loop
        self._clock = clock
        self._due: Mapping[str, float] = {}  # by a pod's uid

    async def reconcile(self) -> float | None:
        found = taint_evictions.review(_snapshot(self._loop), self._due, self._clock())
        self._due = found.due

        # A pod is marked before it is deleted: whoever sees it go can read why.
        waits = [found.next_look]
        waits.append(await self._loop.send_all(found.marks))
        waits.append(await self._loop.send_all(found.deletes))
        return _soonest(waits)


class Namespaces:
    # Pods and claims end in their own time: their end is a reason to look again.
    RESOURCES = ("namespaces", "pods", "resourceclaims")

    def __init__(self, loop: WorkLoop, clock: Clock) -> None:
        del clock
        self._loop = loop

    async def reconcile(self) -> float | None:
        wait: float | None = None
        paths: list[str] = []
        for namespace in list(namespaces.terminating(self._loop.objects("namespaces"))):
            paths = paths or await namespaces.deletable_collections(self._loop.api)
            name = namespace["metadata"]["name"]
            if await namespaces.delete_content(self._loop.api, paths, name):
                await self._loop.try_send(namespaces.finalize(namespace))
            else:
                wait = client.RETRY_PERIOD
        return wait


class Workloads:
    RESOURCES = (
        "pods",
        "nodes",
        "deployments",
        "replicasets",
        "daemonsets",
        "statefulsets",
        "controllerrevisions",
    )

    def __init__(self, loop: WorkLoop, clock: Clock) -> None:
        self._loop = loop
        self._clock = clock

    async def reconcile(self) -> float | None:
        wanted = workloads.sync(_snapshot(self._loop), self._clock())
        waits = [await self._loop.send_all(wanted)]
        waits.append(workloads.next_look(_snapshot(self._loop), self._clock()))
        return _soonest(waits)


class Jobs:
    RESOURCES = ("pods", "jobs")

    def __init__(self, loop: WorkLoop, clock: Clock) -> None:
        self._loop = loop
        self._clock = clock
        self._backoffs: dict[str, Backoff] = {}  # by a Job's uid

    async def reconcile(self) -> float | None:
        objects, now = _snapshot(self._loop), self._clock()
        self._backoffs = jobs.backoffs(objects, self._backoffs)
        wanted, next_look = jobs.sync(objects, self._backoffs, now)
        expired, next_expiry = ttl_after_finished.sync(objects, now)
        wait = await self._loop.send_all([*wanted, *expired])
        return _soonest([wait, next_look, next_expiry])


class CronJobs:
    RESOURCES = ("jobs", "cronjobs")

    def __init__(self, loop: WorkLoop, clock: Clock) -> None:
        self._loop = loop
        self._clock = clock
        self._told: set[tuple[str, str]] = set()  # a CronJob's uid and the note of an Event

    async def reconcile(self) -> float | None:
        wanted, next_look = cron_jobs.sync(_snapshot(self._loop), self._clock())
        fresh, self._told = requests.news(wanted, self._told)
        return _soonest([await self._loop.send_all(fresh), next_look])


class NotSimulated:
    RESOURCES = not_simulated.RESOURCES

    def __init__(self, loop: WorkLoop, clock: Clock) -> None:
        del clock
        self._loop = loop
        self._told: set[tuple[str, str]] = set()  # an object's uid and a sentence

    async def reconcile(self) -> float | None:
        found = {}
        for event in not_simulated.sync(_snapshot(self._loop)):
            found[event.body["regarding"]["uid"], event.body["note"]] = event

        told = self._told
        self._told = set(found)
        return await self._loop.send_all(
            [event for identity, event in found.items() if identity not in told]
        )


ALL = (
    Claims,
    Evictions,
    TaintEvictions,
    PodGC,
    Nodes,
    Namespaces,
    Workloads,
    Jobs,
    CronJobs,
    NotSimulated,
)


async def run(
    client_: kube_client.Client,
    clock: Clock = time.time,
    without: Collection[object] = (),
) -> None:
    """All controllers but those, with one cache of each resource between them, until cancelled."""
    api = ApiClient(client_)
    enabled = features.of_release(await api.minor_release())
    chosen = [controller for controller in ALL if controller not in without]
    resources = dict.fromkeys(name for controller in chosen for name in controller.RESOURCES)
    caches = {resource: AssumeCache(api, resource) for resource in resources}
    async with asyncio.TaskGroup() as tasks:
        for cache in caches.values():
            tasks.create_task(cache.run())
        for controller in chosen:
            if controller is Evictions and features.DEVICE_TAINTS not in enabled:
                continue
            loop = WorkLoop(
                controller.__name__.lower(),
                api,
                [caches[resource] for resource in controller.RESOURCES],
            )
            tasks.create_task(loop.run(controller(loop, clock).reconcile))
