"""The scheduler loop: decides for all pending pods after each change, and writes the decisions.

The writes run in parallel. A decision takes effect in the next snapshot before the API server has
it, so that no device is allocated twice.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from claimd.kubernetes.api.document import Document
from claimd.kubernetes.kube import client as kube_client
from claimd.kubernetes.kube import errors
from claimd.kubernetes.scheduling import binding_conditions, neighbours, preemption
from claimd.kubernetes.scheduling.objects import Pod

from ..assume_cache import key_of
from ..client import MAX_IN_FLIGHT, RETRY_PERIOD, ApiClient
from ..work_loop import WorkLoop
from . import binding, group_cycle, prebind, scheduling_cycle
from .cluster_cache import ClusterCache
from .snapshot import Snapshot

log = logging.getLogger(__name__)

Work = Callable[[], Awaitable[None]]

NAME = "default-scheduler"
SEARCH_LIMIT = 2.0  # seconds of search per pod, during which the whole control plane waits
CONFLICT_PAUSE = 0.05  # seconds after losing a race
BACKOFF = 1.0  # seconds until a pod whose devices have failed is tried again

Decision = scheduling_cycle.Decision | prebind.GiveUp


@dataclasses.dataclass
class _Assumed:
    """A decision that is being written."""

    pod: Pod
    decision: Decision


class Scheduler:
    """The scheduler, which decides for one pod after the other."""

    def __init__(
        self,
        client_: kube_client.Client,
        clock: Callable[[], float] = time.time,
        binding_timeout: float = binding_conditions.TIMEOUT,
    ) -> None:
        """Creates the scheduler. `binding_timeout` is the time in seconds that allocated devices
        have to become ready.
        """
        self._api = ApiClient(client_)
        self._cluster = ClusterCache(self._api)
        self._clock = clock
        self._binding_timeout = binding_timeout
        self._loop = WorkLoop(NAME, self._api, self._cluster.caches)
        self._binder = binding.Binder(self._loop, NAME, clock)

        # By uid: everything that an unschedulable pod's decision depends on. The decision stays the
        # same until this changes.
        self._unschedulable: dict[str, object] = {}
        # Decisions that are being written, and nodes of bound pods that the caches do not show yet;
        # both by uid of the pod.
        self._assumed: dict[str, _Assumed] = {}
        self._bound: dict[str, str] = {}
        # Pods that wait on their nodes for their devices, by uid.
        self._waiting: dict[str, prebind.Wait] = {}

        # Writes run in parallel, so that the first of many pods does not wait for the last.
        self._writes = asyncio.Semaphore(MAX_IN_FLIGHT)
        self._tasks = asyncio.TaskGroup()

    async def run(self) -> None:
        """Runs until cancelled."""
        self._cluster.set_release(await self._api.minor_release())
        async with asyncio.TaskGroup() as self._tasks:
            for cache in self._loop.caches.values():
                self._tasks.create_task(cache.run())
            self._tasks.create_task(self._loop.run(self._reconcile))

    async def _reconcile(self) -> float | None:
        """Decides for every pending pod, each on top of the decisions before."""
        self._refresh()
        snapshot = self._snapshot()
        wait = self._look_at_waiting(snapshot)
        pending = snapshot.pending_pods()
        seen = set()
        for pod in pending:
            if pod.group:
                name = pod.metadata.namespace, pod.group
                if name not in seen:
                    seen.add(name)
                    pods = [each for each in pending if _group_name(each) == name]
                    snapshot = await self._reconcile_group(snapshot, pods)
                continue

            uid = pod.metadata.uid
            if uid in self._assumed:
                continue
            basis = self._basis(snapshot, pod)
            if self._unschedulable.get(uid) == basis:
                continue

            decision = self._decide(snapshot, pod)
            if isinstance(decision, scheduling_cycle.Bind):
                snapshot = snapshot.with_decision(pod, decision.claims, decision.node)
            if isinstance(decision, scheduling_cycle.Unschedulable):
                snapshot = _with_promise(snapshot, pod, decision)
                self._unschedulable[uid] = basis
            else:
                self._unschedulable.pop(uid, None)

            if isinstance(decision, scheduling_cycle.Pending):
                if pod.status.resource_claim_statuses:
                    wait = RETRY_PERIOD if wait is None else min(wait, RETRY_PERIOD)
                continue
            self._start_write(snapshot, pod, decision)
            # Let the write start while the next decisions are made.
            await asyncio.sleep(0)
        return wait

    def _look_at_waiting(self, snapshot: Snapshot) -> float | None:
        """Binds the pods whose devices are ready, and gives up those whose devices are not.

        Returns the seconds until the next look that is needed without a change.
        """
        now, pauses = self._clock(), []
        for uid, wait in self._waiting.items():
            if uid in self._assumed:
                continue
            pod = snapshot.pods[uid]
            decision = prebind.decide(snapshot, pod, wait, now, self._binding_timeout)
            if isinstance(decision, float):
                pauses.append(decision - now)
            else:
                self._start_write(snapshot, pod, decision)
        return min(pauses, default=None)

    async def _reconcile_group(self, snapshot: Snapshot, pods: Sequence[Pod]) -> Snapshot:
        """Decides for the pending pods of a PodGroup. Returns the snapshot with those placed."""
        if any(pod.metadata.uid in self._assumed for pod in pods):
            return snapshot
        group = snapshot.group_of(pods[0])
        # The number of placed pods counts as well: it decides whether the gang is complete.
        placed = len(snapshot.members_of(group).placed) if group else 0
        basis = group and group.spec, placed, [self._basis(snapshot, pod) for pod in pods]
        if all(self._unschedulable.get(pod.metadata.uid) == basis for pod in pods):
            return snapshot

        decided = group_cycle.schedule_group(snapshot, group, pods, self._decide)
        written: asyncio.Task[bool] | None = None
        for pod in pods:
            uid = pod.metadata.uid
            decision = decided.decisions.get(uid, scheduling_cycle.Pending())
            if isinstance(decision, scheduling_cycle.Unschedulable):
                self._unschedulable[uid] = basis
            else:
                self._unschedulable.pop(uid, None)
            if not isinstance(decision, scheduling_cycle.Pending):
                # The first pods write the claims that the others share.
                written = self._start_write(decided.snapshot, pod, decision, after=written)
        if group and decided.status:
            document = self._cluster.groups.documents[group.key]
            self._tasks.create_task(self._binder.report_group(document, decided))
        await asyncio.sleep(0)
        return decided.snapshot

    def _refresh(self) -> None:
        """Takes over the caches' objects, and forgets state of pods that are gone."""
        self._cluster.refresh()
        pods = {pod.metadata.uid: pod for pod in self._cluster.pods.values.values()}
        for known in (self._bound, self._waiting):
            for uid in list(known):
                if uid not in pods or pods[uid].spec.node_name:
                    del known[uid]
        for uid in list(self._unschedulable):
            if uid not in pods:
                del self._unschedulable[uid]

    def _snapshot(self) -> Snapshot:
        """Returns the caches' objects together with the decisions that are not visible there yet."""
        snapshot = self._cluster.snapshot()
        waiting = {uid: wait.node for uid, wait in self._waiting.items()}
        for uid, node in (waiting | self._bound).items():
            snapshot = snapshot.with_decision(snapshot.pods[uid], (), node)
        for assumed in self._assumed.values():
            decision = assumed.decision
            if isinstance(decision, scheduling_cycle.Bind):
                snapshot = snapshot.with_decision(assumed.pod, decision.claims, decision.node)
            if isinstance(decision, scheduling_cycle.Unschedulable):
                snapshot = _with_promise(snapshot, assumed.pod, decision)
        return snapshot

    def _basis(self, snapshot: Snapshot, pod: Pod) -> object:
        """Returns everything that a decision about the pod depends on."""
        statuses = pod.status.resource_claim_statuses
        names = {entry.resource_claim_name for entry in pod.spec.resource_claims}
        names |= {status.resource_claim_name for status in statuses}
        claims = [
            snapshot.claims.get(key_of(pod.metadata.namespace, name))
            for name in sorted(filter(None, names))
        ]
        neighbour = self._cluster.last_neighbour if neighbours.depends_on_others(pod) else None
        return self._cluster.last_help, neighbour, pod.spec, statuses, claims

    def _decide(self, snapshot: Snapshot, pod: Pod) -> scheduling_cycle.Decision:
        deadline = time.monotonic() + SEARCH_LIMIT
        decision = scheduling_cycle.schedule_pod(
            snapshot,
            pod,
            self._clock(),
            lambda: time.monotonic() > deadline,
            self._binding_timeout,
        )
        log.debug("pod %s: %s", pod.key, decision)
        return decision

    def _start_write(
        self,
        snapshot: Snapshot,
        pod: Pod,
        decision: scheduling_cycle.Bind
        | scheduling_cycle.Unschedulable
        | scheduling_cycle.Deallocate
        | prebind.GiveUp,
        after: asyncio.Task[bool] | None = None,
    ) -> asyncio.Task[bool]:
        """Starts to write the decision with its documents, when the write `after` has succeeded.

        The API server rejects outdated documents.
        """
        document = self._cluster.pods.documents[pod.key]
        work: Work
        if isinstance(decision, scheduling_cycle.Bind):
            documents = {}
            for claim in (*decision.claims, decision.extended_claim):
                if claim is not None and claim.metadata.uid:
                    documents[claim.key] = self._cluster.claims.documents[claim.key]
            work = partial(self._binder.bind, document, pod, decision, documents)
        elif isinstance(decision, scheduling_cycle.Unschedulable):
            work = self._report(snapshot, document, pod, decision)
        elif isinstance(decision, prebind.GiveUp):
            held = [self._cluster.claims.documents[claim.key] for claim in decision.claims]
            work = partial(self._binder.give_up, document, pod, decision, held)
        else:
            claim_document = self._cluster.claims.documents[decision.claim.key]
            work = partial(self._binder.deallocate, document, pod, decision, claim_document)

        uid = pod.metadata.uid
        self._assumed[uid] = _Assumed(pod, decision)
        return self._tasks.create_task(self._write(uid, decision, work, after))

    def _report(
        self,
        snapshot: Snapshot,
        document: Document,
        pod: Pod,
        decision: scheduling_cycle.Unschedulable,
    ) -> Work:
        """Returns the work that reports why the pod waits, and preempts pods if that was decided."""
        candidate = decision.preemption
        if candidate is None:
            return partial(self._binder.report, document, pod, decision)

        # Pods of lower priority that were nominated for the node look for another place.
        node, priority = candidate.node, preemption.priority_of(pod)
        promised = snapshot.nominated_pods.get(node, ())
        lower = [other for other in promised if preemption.priority_of(other) < priority]
        for other in lower:
            self._unschedulable.pop(other.metadata.uid, None)
        passed_over = [self._cluster.pods.documents[other.key] for other in lower]
        victims = [self._cluster.pods.documents[victim.key] for victim in candidate.victims]

        async def work() -> None:
            await self._binder.report(document, pod, decision)
            await self._binder.preempt(document, node, victims, passed_over)

        return work

    async def _write(
        self, uid: str, decision: Decision, work: Work, after: asyncio.Task[bool] | None
    ) -> bool:
        """Does the work after that of `after`; returns False if it failed."""
        pause, succeeded = 0.0, False
        try:
            if after is None or await after:
                async with self._writes:
                    await work()
                succeeded = True
            if succeeded and isinstance(decision, scheduling_cycle.Bind):
                self._note_node(uid, decision)
            elif succeeded and isinstance(decision, prebind.GiveUp):
                self._waiting.pop(uid, None)
                # The place on the node is free for others.
                self._cluster.last_help = object()
                pause = BACKOFF
        except (errors.Conflict, errors.NotFound) as error:
            log.debug("another client was faster: %s", error)
            pause = CONFLICT_PAUSE
        except errors.ApiError as error:
            log.warning("scheduling, again in %g s: %s", RETRY_PERIOD, error)
            pause = RETRY_PERIOD
            self._unschedulable.pop(uid, None)

        # The pod is not decided again until the pause is over.
        await asyncio.sleep(pause)
        del self._assumed[uid]
        self._loop.wake.set()
        return succeeded

    def _note_node(self, uid: str, decision: scheduling_cycle.Bind) -> None:
        """Remembers the node of a pod that is bound now, or waits there for its devices."""
        if decision.waits:
            self._waiting[uid] = prebind.Wait(node=decision.node, since=self._clock())
        else:
            self._waiting.pop(uid, None)
            self._bound[uid] = decision.node


def _group_name(pod: Pod) -> tuple[str, str]:
    return pod.metadata.namespace, pod.group


def _with_promise(
    snapshot: Snapshot, pod: Pod, decision: scheduling_cycle.Unschedulable
) -> Snapshot:
    """Returns the snapshot with the nomination that the decision adds or removes."""
    node = decision.nominated_node
    if node is None or node == pod.status.nominated_node_name:
        return snapshot
    return snapshot.with_nomination(pod, node)


async def run(
    client_: kube_client.Client, binding_timeout: float = binding_conditions.TIMEOUT
) -> None:
    """Runs the scheduler until cancelled.

    Allocated devices have `binding_timeout` seconds to become ready.
    """
    await Scheduler(client_, binding_timeout=binding_timeout).run()
