"""Makes the node's ResourceSlices what the inventory says, and keeps them so: compares, writes,
watches.

What must be written is decided in `pool`; here is when: at once on a change, later after a failure,
never too often. Requests and the copy of what stands (the mirror) are kube's. Nothing here knows
hardware.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from devices.gpu import Inventory

from .. import metrics, pacing
from ..api.resource import ResourceSlice
from ..kube import errors
from ..kube.resources import Resources
from . import pool, server_features, slices
from .pool import Raw

logger = logging.getLogger(__name__)

FIRST_DELAY, LAST_DELAY = 0.1, 30.0  # seconds between two attempts that fail
LAG = 60.0  # seconds for which we believe our own write more than a mirror that does not show it
RATE, BURST = 5.0, 10  # writes a second for long, and at once, whatever others do to our slices


class Publisher:
    """`published` is set once everything stood as it should for the first time."""

    def __init__(
        self,
        resources: Resources,
        driver: str,
        node: str,
        may_publish: Callable[[], bool] = lambda: True,
        *,
        numa_list: bool = False,
    ) -> None:
        self.published = asyncio.Event()
        self._resources, self._driver, self._node, self._may_publish = (
            resources,
            driver,
            node,
            may_publish,
        )
        self._inventory = Inventory()
        self._taints: slices.Taints = {}
        self._counters = server_features.CounterSupport(resources, driver, node)
        self._numa_list = numa_list
        self._wanted: list[ResourceSlice] | None = None  # as built; no owner, nothing taken out
        self._problems: list[str] = []
        self._refusals: list[slices.RejectedPart] = []
        self._uid = ""  # of the Node
        self._last: pool.Published | None = None
        self._stored: dict[
            str, tuple[Raw, Raw]
        ] = {}  # by slice: a body, and the form that the API server keeps it in
        self._known: set[str] = (
            set()
        )  # slices of which we know that they stand in the form that the server gave them
        self._dropped: set[str] = set()  # paths already logged
        self._held: dict[
            str, tuple[float, Raw | None]
        ] = {}  # refused as they are: until when to leave which body alone
        self._own = _OwnWrites()
        self._bucket = pacing.TokenBucket(RATE, BURST)
        self._backoff = pacing.Backoff(FIRST_DELAY, LAST_DELAY, jitter=(0.5, 1.0))
        self._wake = asyncio.Event()  # something may have changed
        self._told = asyncio.Event()  # we were told to look, by set() or poke()

    def set(self, inventory: Inventory, taints: slices.Taints = MappingProxyType({})) -> None:
        """From now on this is what should be published."""
        self._inventory, self._taints = inventory, taints
        options = slices.Options(partitions=self._counters.kept, numa_list=self._numa_list)
        wanted, problems = slices.build(inventory, self._driver, self._node, options, taints)
        for problem in problems:
            if problem not in self._problems:
                logger.warning("not published as found: %s", problem)
        self._problems = problems
        if wanted != self._wanted:
            self._wanted = wanted
            present = {device.name for wish in wanted for device in wish.spec.devices}
            self._refusals = [refusal for refusal in self._refusals if refusal.device in present]
            self.resync()

    def resync(self) -> None:
        """Look again now, for instance because `may_publish` has changed."""
        self._told.set()
        self._wake.set()

    def _mirror_changed(self) -> None:
        self._own.seen(self._resources.slices.objects)
        self._wake.set()

    async def run(self) -> None:
        """Reconciles for ever."""
        self._resources.slices.subscribe(self._mirror_changed)
        again: float | None = None
        while True:
            await pacing.wait(self._wake, again)
            self._wake.clear()
            self._told.clear()
            try:
                again = await self._reconcile()
                self._backoff.reset()
            except errors.Conflict as error:
                # Someone else wrote, and the mirror will show it: until then there is nothing to be
                # done.
                delay = self._backoff.next_delay()
                level = logging.WARNING if self._backoff.failures > 3 else logging.INFO
                logger.log(level, "the slice is not what the watch says, looking again: %s", error)
                await pacing.wait(self._wake, delay)
                self._wake.set()
            except errors.ApiError as error:
                await self._wait_after(error)
                self._wake.set()

    async def _wait_after(self, error: errors.ApiError) -> None:
        delay = self._backoff.next_delay()
        if errors.is_transient(error) or isinstance(error, errors.NotFound | errors.Gone):
            delay = max(delay, error.retry_after or 0.0)
            logger.warning("slices not written, next attempt in %.1f s: %s", delay, error)
            await asyncio.sleep(delay)
        else:
            logger.error(
                "slices not written, next attempt in %.0f s: %s%s",
                LAST_DELAY,
                error,
                _advice(error),
            )
            await pacing.wait(self._told, LAST_DELAY)

    # ------------------------------------------------------------ one round

    async def _reconcile(self) -> float | None:
        """Writes one slice at a time and looks again before the next, so that nothing is decided on
        old facts. Returns after how many seconds it must look again even if nothing happens.
        """
        wrote = False
        while True:
            await self._bucket.ready()
            if (
                not self._uid
            ):  # even if we may not publish yet: then it is one request less when we may
                self._uid = await self._resources.node_uid(self._node)
            if self._wanted is None or not self._resources.slices.synced or not self._may_publish():
                return None
            if await self._counters.learn(self._inventory):
                self.set(self._inventory, self._taints)
            wanted = pool.owned(
                slices.without_rejected(self._wanted, self._refusals), self._node, self._uid
            )
            existing = self._existing()
            changes = pool.compare(wanted, existing, self._last, self._stored)
            target = pool.Published(
                generation=changes.generation,
                bodies={wish.metadata.name: pool.body(wish.spec) for wish in wanted},
            )
            step = self._next(changes, target)
            if step is None:
                break
            self._bucket.take()
            await self._write(step, existing, target)
            wrote = True
        self._settled(target, wrote)
        now = asyncio.get_running_loop().time()
        times = [until for until, _ in self._held.values()] + self._own.deadlines()
        return max(0.0, min(times) - now) if times else None

    def _existing(self) -> dict[str, Raw]:
        """Our slices as they stand: the mirror, but for what we know better. Others' are none of
        our business, even if the API server showed them.
        """
        now = asyncio.get_running_loop().time()
        return {
            name: found
            for name, found in self._own.over(self._resources.slices.objects, now).items()
            if found["spec"].get("driver") == self._driver
            and found["spec"].get("nodeName") == self._node
        }

    def _next(self, changes: pool.Changes, target: pool.Published) -> ResourceSlice | Raw | None:
        """The first thing to write that is not held back: an object to delete, or a slice to update
        or create.
        """
        now = asyncio.get_running_loop().time()
        self._held = {
            name: (until, body)
            for name, (until, body) in self._held.items()
            if until > now and target.bodies.get(name) == body
        }
        steps: list[ResourceSlice | Raw] = [*changes.delete, *changes.update, *changes.create]
        return next((step for step in steps if _name(step) not in self._held), None)

    async def _write(
        self, step: ResourceSlice | Raw, existing: Mapping[str, Raw], target: pool.Published
    ) -> None:
        name = _name(step)
        old, last = existing.get(name), self._last
        with self._own.writing(name, old, self._resources.slices.objects):
            try:
                if not isinstance(step, ResourceSlice):
                    await self._delete(name, step["metadata"], target)
                elif old is None:
                    await self._create(step, target)
                elif not await self._already_kept(step, old):
                    self._last = target
                    self._kept(step, await self._resources.update_slice(step))
                    metrics.SLICE_WRITES.add("update")
                    logger.info("slice updated", extra=_shown(step))
            except errors.NotFound:
                if old is None:
                    self._uid = ""  # a create names nothing that could be missing, but the Node
                    raise
                self._wrote(name, None)
            except errors.Invalid as error:
                self._last = (
                    last  # a write of which the outcome is unknown counts; this one did not happen
                )
                self._refused(step, target.bodies.get(name), error)

    async def _delete(self, name: str, metadata: Raw, target: pool.Published) -> None:
        self._last = target
        await self._resources.delete_slice(name, metadata["uid"], metadata["resourceVersion"])
        metrics.SLICE_WRITES.add("delete")
        self._wrote(name, None)
        logger.info("slice deleted: it is not one of those wanted", extra={"slice": name})

    async def _create(self, step: ResourceSlice, target: pool.Published) -> None:
        name = step.metadata.name
        if name in self._known:
            # It stood and is gone. If that is because its Node was replaced, the new Node must own
            # the next one.
            logger.info(
                "a slice that was published is gone, creating it again", extra={"slice": name}
            )
            self._known.discard(name)
            self._uid = ""
            return
        self._last = target
        self._kept(step, await self._resources.create_slice(step))
        metrics.SLICE_WRITES.add("create")
        logger.info("slice created", extra=_shown(step))

    def _wrote(self, name: str, result: Raw | None) -> None:
        now = asyncio.get_running_loop().time()
        self._own.wrote(name, result, now + LAG)
        if result is None:
            self._stored.pop(name, None)

    def _kept(self, sent: ResourceSlice, result: Raw) -> None:
        """Remembers what the API server made of a slice: what it drops we do not send again and
        again.
        """
        self._wrote(sent.metadata.name, result)
        self._learn(sent, result)

    def _learn(self, sent: ResourceSlice, result: Raw) -> None:
        name, wanted, seen = sent.metadata.name, pool.body(sent.spec), pool.body(result["spec"])
        self._known.add(name)
        self._stored.pop(name, None)
        if wanted == seen:
            return
        self._stored[name] = (wanted, seen)
        paths = [path for path in pool.differences(wanted, seen) if path not in self._dropped]
        self._dropped.update(paths)
        if "spec.sharedCounters" in paths and self._counters.dropped():
            self.set(self._inventory, self._taints)
        if paths:
            logger.warning(
                "the API server does not keep %s as sent, which is accepted: a feature gate of it may be off",
                ", ".join(paths),
                extra={"slice": name},
            )

    async def _already_kept(self, step: ResourceSlice, old: Raw) -> bool:
        """Whether what an earlier process wrote differs only by what the API server drops. It alone
        can tell.
        """
        wanted, seen = pool.body(step.spec), pool.body(old["spec"])
        if step.metadata.name in self._known or wanted == seen:
            return False
        if [d["name"] for d in seen.get("devices", [])] != [
            d["name"] for d in wanted.get("devices", [])
        ]:
            return False
        result = await self._resources.update_slice(step, dry_run=True)
        if pool.body(result["spec"]) != seen:
            self._known.add(step.metadata.name)
            return False
        self._learn(step, result)
        return True

    def _refused(self, sent: ResourceSlice | Raw, body: Raw | None, error: errors.Invalid) -> None:
        """Takes out what the API server will not have, so that the rest of the slice is published."""
        fresh: list[slices.RejectedPart] = []
        for cause in error.causes:
            found = (
                slices.rejected_part(sent, cause.field) if isinstance(sent, ResourceSlice) else None
            )
            if found is not None and found not in self._refusals + fresh:
                logger.error(
                    "not published, since the API server refuses it: %s: %s", found, cause.message
                )
                fresh.append(found)
        self._refusals += fresh
        if not fresh:
            self._held[_name(sent)] = (asyncio.get_running_loop().time() + LAST_DELAY, body)
            logger.error(
                "slice %s refused, next attempt in %.0f s: %s", _name(sent), LAST_DELAY, error
            )

    def _settled(self, target: pool.Published, wrote: bool) -> None:
        """All is written, but for what is held back."""
        if self._held:
            return
        self._last = target
        self._known.update(target.bodies)
        if wrote or not self.published.is_set():
            devices = sum(len(body.get("devices", ())) for body in target.bodies.values())
            counts = {
                "slices": len(target.bodies),
                "devices": devices,
                "generation": target.generation,
            }
            logger.info("published", extra=counts)
        self.published.set()


def _name(step: ResourceSlice | Raw) -> str:
    return step.metadata.name if isinstance(step, ResourceSlice) else str(step["metadata"]["name"])


def _shown(written: ResourceSlice) -> dict[str, object]:
    return {"slice": written.metadata.name, "generation": written.spec.pool.generation}


def _advice(error: errors.ApiError) -> str:
    if isinstance(error, errors.Forbidden):
        return (
            "; the service account needs get on nodes, and get, list, watch, create, update and delete on "
            "resourceslices, and an admission policy may allow the slices of its own node only: see deploy/"
        )
    return ""


@dataclass(frozen=True, slots=True)
class _Own:
    result: Raw | None  # None: deleted
    before: frozenset[
        str
    ]  # versions that were there before it, "" for none: a mirror that shows one of them lags
    until: float


class _OwnWrites:
    """Our own writes that the mirror does not show yet. A version is a resourceVersion, or "" for
    no object.
    """

    def __init__(self) -> None:
        self._writes: dict[str, _Own] = {}
        self._name = ""  # being written now
        self._shown: set[str] = (
            set()
        )  # versions of it that the mirror has shown since the write began
        self._before = ""  # the version that we write over

    @contextlib.contextmanager
    def writing(self, name: str, old: Raw | None, mirror: Mapping[str, Raw]) -> Iterator[None]:
        """While this slice is being written. `old` is what we take it to be."""
        self._name, self._shown, self._before = name, {_version(mirror.get(name))}, _version(old)
        try:
            yield
        finally:
            self._name = ""

    def seen(self, mirror: Mapping[str, Raw]) -> None:
        """The mirror has changed: this is the moment to see what it has caught up with, since the
        next change may be that somebody takes our write back. An event may overtake the answer to
        the request that caused it.
        """
        if self._name:
            self._shown.add(_version(mirror.get(self._name)))
        for name, own in list(self._writes.items()):
            if _version(mirror.get(name)) not in own.before:
                del self._writes[name]

    def wrote(self, name: str, result: Raw | None, until: float) -> None:
        earlier = self._writes.pop(name, None)
        if _version(result) not in self._shown:
            before = self._shown | {self._before} | (earlier.before if earlier else set())
            self._writes[name] = _Own(result, frozenset(before - {_version(result)}), until)

    def over(self, mirror: Mapping[str, Raw], now: float) -> dict[str, Raw]:
        """The mirror with our writes over it."""
        view = dict(mirror)
        for name, own in list(self._writes.items()):
            if now >= own.until:
                del self._writes[name]
            elif own.result is None:
                view.pop(name, None)
            else:
                view[name] = own.result
        return view

    def deadlines(self) -> list[float]:
        return [own.until for own in self._writes.values()]


def _version(found: Raw | None) -> str:
    return str(found["metadata"]["resourceVersion"]) if found else ""
