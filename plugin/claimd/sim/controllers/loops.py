"""The loops of the controllers: each reconciles when something that it reads has changed.

The other modules of this package compute the requests, with functions that see one snapshot and
do no I/O. This module takes the snapshots, sends the requests in order, and waits.
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
    evictions,
    jobs,
    namespaces,
    nodes,
    not_simulated,
    pod_gc,
    pod_groups,
    taint_evictions,
    ttl_after_finished,
    workloads,
)
from .job_failures import Backoff

NAME = "kube-controller-manager"
Clock = Callable[[], float]  # seconds since 1970


def _snapshot(loop: WorkLoop) -> dict[str, dict[str, Document]]:
    """Returns the objects as they are now; later changes belong to the next round."""
    return {resource: dict(cache.objects) for resource, cache in loop.caches.items()}


def _soonest(waits: Iterable[float | None]) -> float | None:
    """Returns the shortest wait, or None if no controller waits for a time."""
    return min((wait for wait in waits if wait is not None), default=None)


class Claims:
    """Creates claims from templates, and releases and deletes claims whose users are gone."""

    RESOURCES = ("pods", "podgroups", "resourceclaims", "resourceclaimtemplates")

    def __init__(self, loop: WorkLoop, clock: Clock) -> None:
        del clock
        self._loop = loop
        self._reported: set[tuple[str, str]] = set()  # (pod's uid, note of the event)

    async def reconcile(self) -> float | None:
        # A pod that the cache does not have may be newer than the cache. Only the API server knows
        # that a pod is gone, and claims are released only then.
        gone = set()
        for consumer in set(claims.unseen_consumers(_snapshot(self._loop))):
            *place, uid = consumer
            user = await self._loop.api.find(*place)
            if user is None or user["metadata"]["uid"] != uid:
                gone.add(uid)

        wanted = claims.sync(_snapshot(self._loop), frozenset(gone))
        return await self._loop.send_all([request for request in wanted if self._is_new(request)])

    def _is_new(self, request: Request) -> bool:
        """Returns True unless the request repeats an event about the same pod."""
        if request.resource != "events":
            return True
        event = request.body["regarding"]["uid"], request.body["note"]
        new = event not in self._reported
        self._reported.add(event)
        return new


class Evictions:
    """Evicts pods that use tainted devices, and keeps the status of DeviceTaintRules current."""

    RESOURCES = ("pods", "resourceclaims", "resourceslices", "devicetaintrules")

    def __init__(self, loop: WorkLoop, clock: Clock) -> None:
        self._loop = loop
        self._clock = clock
        self._evicted: dict[str, set[str]] = {}  # uid of a rule: uids of pods

    async def reconcile(self) -> float | None:
        objects, now = _snapshot(self._loop), self._clock()
        pending = evictions.find_evictions(objects)

        # Pods are marked before they are deleted, so that clients can read the reason.
        marks, deletes, next_eviction = evictions.sync(pending, now)
        waits = [next_eviction]
        waits.append(await self._loop.send_all(marks))
        waits.append(await self._loop.send_all(deletes))

        # These rules come from the snapshot: a rule may have been deleted while the pods were.
        uids = {name: rule["metadata"]["uid"] for name, rule in objects["devicetaintrules"].items()}
        for eviction in pending:
            if eviction.at <= now:
                for name in eviction.rules:
                    pods = self._evicted.setdefault(uids[name], set())
                    pods.add(eviction.pod["metadata"]["uid"])

        # The status of a rule says how many pods it has evicted so far.
        counts = {uid: len(pods) for uid, pods in self._evicted.items()}
        statuses, next_status = evictions.sync_rules(_snapshot(self._loop), pending, counts, now)
        waits.append(next_status)
        waits.append(await self._loop.send_all(statuses))
        return _soonest(waits)


class PodGroups:
    """Lets PodGroups that are being deleted go once no pod of theirs runs."""

    RESOURCES = ("pods", "podgroups")

    def __init__(self, loop: WorkLoop, clock: Clock) -> None:
        del clock
        self._loop = loop

    async def reconcile(self) -> float | None:
        return await self._loop.send_all(list(pod_groups.sync(_snapshot(self._loop))))


class PodGC:
    """Deletes pods whose node no longer exists."""

    RESOURCES = ("pods", "nodes")

    def __init__(self, loop: WorkLoop, clock: Clock) -> None:
        self._loop = loop
        self._clock = clock
        self._missing_since: dict[str, float] = {}  # name of the node: time

    async def reconcile(self) -> float | None:
        now = self._clock()
        missing = set()
        # A node that the cache does not have may be newer than the cache, so ask the API server.
        for name in pod_gc.missing_nodes(_snapshot(self._loop)):
            if await self._loop.api.find("nodes", "", name) is None:
                missing.add(name)

        self._missing_since = {name: self._missing_since.get(name, now) for name in missing}

        # A missing node may come back: its pods are lost only after a grace period.
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
    """Taints nodes by their conditions, and marks nodes whose kubelet does not renew its lease."""

    RESOURCES = ("nodes", "leases", "pods")

    def __init__(self, loop: WorkLoop, clock: Clock) -> None:
        self._loop = loop
        self._clock = clock
        self._silences: dict[str, tuple[object, float]] = {}  # see `nodes.silences`
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
    """Evicts pods that do not tolerate a NoExecute taint of their node."""

    RESOURCES = ("pods", "nodes")

    def __init__(self, loop: WorkLoop, clock: Clock) -> None:
        self._loop = loop
        self._clock = clock
        self._due: Mapping[str, float] = {}  # uid of a pod: time

    async def reconcile(self) -> float | None:
        review = taint_evictions.review(_snapshot(self._loop), self._due, self._clock())
        self._due = review.due

        # Pods are marked before they are deleted, so that clients can read the reason.
        waits = [review.next_look]
        waits.append(await self._loop.send_all(review.marks))
        waits.append(await self._loop.send_all(review.deletes))
        return _soonest(waits)


class Namespaces:
    # Pods and claims take a while to end, and a namespace can be finalized only after that.
    """Empties namespaces that are being deleted, then removes their finalizer."""

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
    """Reconciles Deployments, ReplicaSets and DaemonSets."""

    RESOURCES = (
        "pods",
        "nodes",
        "deployments",
        "replicasets",
        "daemonsets",
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
    """Reconciles Jobs, and deletes finished ones after their time to live."""

    RESOURCES = ("pods", "jobs")

    def __init__(self, loop: WorkLoop, clock: Clock) -> None:
        self._loop = loop
        self._clock = clock
        self._backoffs: dict[str, Backoff] = {}  # by uid of the Job

    async def reconcile(self) -> float | None:
        objects, now = _snapshot(self._loop), self._clock()
        self._backoffs = jobs.backoffs(objects, self._backoffs)
        wanted, next_look = jobs.sync(objects, self._backoffs, now)
        expired, next_expiry = ttl_after_finished.sync(objects, now)
        wait = await self._loop.send_all([*wanted, *expired])
        return _soonest([wait, next_look, next_expiry])


class NotSimulated:
    """Warns about fields that this cluster ignores, once for each object and message."""

    RESOURCES = not_simulated.RESOURCES

    def __init__(self, loop: WorkLoop, clock: Clock) -> None:
        del clock
        self._loop = loop
        self._reported: set[tuple[str, str]] = set()  # (object's uid, sentence)

    async def reconcile(self) -> float | None:
        wanted = not_simulated.sync(_snapshot(self._loop))
        fresh, self._reported = requests.news(wanted, self._reported)
        return await self._loop.send_all(fresh)


ALL = (
    Claims,
    Evictions,
    TaintEvictions,
    PodGroups,
    PodGC,
    Nodes,
    Namespaces,
    Workloads,
    Jobs,
    NotSimulated,
)


async def run(
    client_: kube_client.Client,
    clock: Clock = time.time,
    without: Collection[object] = (),
) -> None:
    """Runs all controllers except those in `without` until cancelled. They share the caches."""
    api = ApiClient(client_)

    enabled = features.release_defaults(await api.minor_release())
    chosen = [controller for controller in ALL if controller not in without]
    resources = dict.fromkeys(name for controller in chosen for name in controller.RESOURCES)
    caches = {resource: AssumeCache(api, resource) for resource in resources}

    async with asyncio.TaskGroup() as tasks:
        # The caches start first; each loop waits until its own are filled.
        for cache in caches.values():
            tasks.create_task(cache.run())
        for controller in chosen:
            # Releases without device taints do not run this controller.
            if controller is Evictions and features.DEVICE_TAINTS not in enabled:
                continue
            loop = WorkLoop(
                controller.__name__.lower(),
                api,
                [caches[resource] for resource in controller.RESOURCES],
            )
            tasks.create_task(loop.run(controller(loop, clock).reconcile))
