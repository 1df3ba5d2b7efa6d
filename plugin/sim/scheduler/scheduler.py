"""The scheduler at work: looks at all pending pods whenever something changed, and makes decisions
so, side by side.

A decision counts from the moment it is made, before the API server knows of it: no device is given
twice.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
from collections.abc import Awaitable, Callable
from functools import partial

from ...kube import client as kube_client
from ...kube import errors
from .. import client
from . import binding, decide, views
from .objects import Claim, Class, Node, Pod, Rule, Slice
from .world import Published, World

log = logging.getLogger(__name__)

Work = Callable[[], Awaitable[None]]

NAME = "default-scheduler"
PATIENCE = 2.0  # seconds of search for one pod: the whole control plane waits meanwhile
KINDS = ("nodes", "pods", "resourceclaims", "deviceclasses", "resourceslices", "devicetaintrules")


@dataclasses.dataclass
class _Made:
    """A decision that is being written."""

    pod: Pod
    decision: decide.Decision


class Scheduler:
    def __init__(self, client_: kube_client.Client, clock: Callable[[], float] = time.time) -> None:
        api = client.Api(client_)
        self._clock = clock
        collections = {kind: client.Collection(api, kind) for kind in KINDS}
        self._worker = client.WorkLoop(NAME, api, collections.values())
        self._binder = binding.Binder(self._worker, NAME, clock)
        self._nodes = views.View(collections["nodes"], Node, views.node_changed)
        self._pods = views.View(collections["pods"], Pod, views.pod_left)
        self._claims = views.View(collections["resourceclaims"], Claim, views.claim_freed)
        self._classes = views.View(collections["deviceclasses"], Class, views.new_spec)
        self._slices = views.View(collections["resourceslices"], Slice, views.new_spec)
        self._rules = views.View(collections["devicetaintrules"], Rule, views.new_spec)
        self._published = Published()
        self._tasks = asyncio.TaskGroup()
        self._epoch = 0  # counts what may help a pod that found no place
        self._refused: dict[str, object] = {}  # by the pod's uid: all that the refusal depended on
        self._made: dict[str, _Made] = {}  # by the pod's uid
        self._turns = asyncio.Semaphore(
            client.AT_ONCE
        )  # so that the first pods of many do not wait for the last
        self._bound: dict[
            str, str
        ] = {}  # uid and node of pods whose binding no watch has shown yet

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as self._tasks:
            for collection in self._worker.collections.values():
                self._tasks.create_task(collection.run())
            self._tasks.create_task(self._worker.run(self._look))

    async def _look(self) -> float | None:
        self._refresh()
        world = self._world()
        again: float | None = None
        for pod in world.pending():
            uid = pod.metadata.uid
            if uid in self._made:
                continue
            depends = self._depends(world, pod)
            if self._refused.get(uid) == depends:
                continue
            decision = self._decide(world, pod)
            if isinstance(decision, decide.Bind):
                world = world.after(pod, decision.claims, decision.node)
            if isinstance(decision, decide.Refuse):
                self._refused[uid] = depends
            else:
                self._refused.pop(uid, None)
            self._start(pod, decision)
            if isinstance(decision, decide.Wait):
                again = client.RETRY if pod.status.resource_claim_statuses else again
            else:
                await asyncio.sleep(
                    0
                )  # what is decided is written while others are still being decided
        return again

    def _refresh(self) -> None:
        """The views, and all that follows from what has changed in them."""
        published = [view.refresh() for view in (self._classes, self._slices, self._rules)]
        if any(published):
            self._published = Published(
                list(self._slices.values.values()),
                list(self._rules.values.values()),
                list(self._classes.values.values()),
            )
        changed = [view.refresh() for view in (self._nodes, self._pods, self._claims)]
        self._epoch += any(published) or any(changed)
        pods = {pod.metadata.uid: pod for pod in self._pods.values.values()}
        for uid in [uid for uid in self._bound if uid not in pods or pods[uid].spec.node_name]:
            del self._bound[uid]
        for uid in [uid for uid in self._refused if uid not in pods]:
            del self._refused[uid]

    def _world(self) -> World:
        """As the copies show it, with what is decided already."""
        world = World.of(
            self._nodes.values.values(),
            self._pods.values.values(),
            self._claims.values.values(),
            self._published,
        )
        for uid, node in self._bound.items():
            world = world.after(world.pods[uid], (), node)
        for made in self._made.values():
            if isinstance(made.decision, decide.Bind):
                world = world.after(made.pod, made.decision.claims, made.decision.node)
        return world

    def _depends(self, world: World, pod: Pod) -> object:
        names = {entry.resource_claim_name for entry in pod.spec.resource_claims}
        names |= {entry.resource_claim_name for entry in pod.status.resource_claim_statuses}
        claims = [
            world.claims.get(f"{pod.metadata.namespace}/{name}")
            for name in sorted(filter(None, names))
        ]
        return self._epoch, pod.spec, pod.status.resource_claim_statuses, claims

    def _decide(self, world: World, pod: Pod) -> decide.Decision:
        until = time.monotonic() + PATIENCE
        decision = decide.decide(world, pod, self._clock(), lambda: time.monotonic() > until)
        log.debug("pod %s/%s: %s", pod.metadata.namespace, pod.metadata.name, decision)
        return decision

    def _start(self, pod: Pod, decision: decide.Decision) -> None:
        document = self._pods.documents[client.key(pod.metadata.namespace, pod.metadata.name)]
        if isinstance(decision, decide.Bind):
            needed = [
                claim
                for claim in (*decision.claims, decision.extended)
                if claim and claim.metadata.uid
            ]
            claims = {claim.key: self._claims.documents[claim.key] for claim in needed}
            work: Work = partial(self._binder.bind, document, pod, decision, claims)
        elif isinstance(decision, decide.Refuse):
            work = partial(self._binder.refuse, document, pod, decision)
        elif isinstance(decision, decide.Release):
            work = partial(self._binder.release, self._claims.documents[decision.claim.key])
        else:
            return
        uid = pod.metadata.uid
        self._made[uid] = _Made(pod, decision)
        self._tasks.create_task(self._write(uid, decision, work))

    async def _write(self, uid: str, decision: decide.Decision, work: Work) -> None:
        pause = 0.0
        try:
            async with self._turns:
                await work()
            if isinstance(decision, decide.Bind) and decision.ready:
                self._bound[uid] = decision.node
        except (errors.Conflict, errors.NotFound) as error:
            log.debug("somebody was faster: %s", error)
            pause = client.FIRST
        except errors.ApiError as error:
            log.warning("scheduling, again in %g s: %s", client.RETRY, error)
            pause = client.RETRY
            self._refused.pop(uid, None)
        await asyncio.sleep(pause)  # the pod's turn is over only then
        del self._made[uid]
        self._worker.wake.set()


async def run(client_: kube_client.Client) -> None:
    """The scheduler, until cancelled."""
    await Scheduler(client_).run()
