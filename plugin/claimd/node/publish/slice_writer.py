"""Writes one slice at a time, and learns from each answer of the API server.

The informer lags behind our own writes, so the writer also knows the slices that exist now
(`existing`). The publisher decides when to write, and what.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping

from claimd.common import metrics
from claimd.kubernetes.api.document import Document
from claimd.kubernetes.api.resource import ResourceSlice
from claimd.kubernetes.kube import errors
from claimd.kubernetes.kube.resources import Resources

from . import pool
from .mutation_cache import MutationCache
from .refusals import Refusals
from .stored_forms import StoredForms

log = logging.getLogger(__name__)

# Seconds for which we believe our own write more than an informer that does not show it.
MUTATION_TTL = 60.0


class OwningNode:
    """The Node object that owns the slices. `uid` is empty until it was looked up."""

    def __init__(self, resources: Resources, name: str) -> None:
        self.name = name
        self.uid = ""
        self._resources = resources

    async def look_up(self) -> None:
        """Asks the API server for the Node's uid, unless it is known."""
        if not self.uid:
            self.uid = await self._resources.node_uid(self.name)

    def forget(self) -> None:
        """Makes the next `look_up` ask again, since the Node may have been replaced."""
        self.uid = ""


class SliceWriter:
    """Writes the slices of one driver on one node.

    `last` has the slices that this process published last, or was about to write when it last
    tried.
    """

    def __init__(
        self,
        resources: Resources,
        driver: str,
        owner: OwningNode,
        refusals: Refusals,
        on_dropped: Callable[[Collection[str]], None],
    ) -> None:
        """Takes `on_dropped`, which gets the paths of fields that the API server has dropped."""
        self.last: pool.Published | None = None
        self.stored = StoredForms()
        self._resources = resources
        self._driver = driver
        self._owner = owner
        self._refusals = refusals
        self._on_dropped = on_dropped
        self._reported: set[str] = set()  # paths of dropped fields that were logged
        self._mutations = MutationCache()

    def on_informer_changed(self) -> None:
        """Compares the informer's objects with our own writes. Must be called at every change."""
        self._mutations.observe(self._resources.slices.objects)

    def existing(self) -> dict[str, Document]:
        """Returns our slices as they exist now: the informer's copy with our own recent writes.

        Slices of other drivers and nodes are left out, even if the API server shows them.
        """
        now = asyncio.get_running_loop().time()
        ours = {}
        for name, slice_ in self._mutations.overlay(self._resources.slices.objects, now).items():
            spec = slice_["spec"]
            if spec.get("driver") == self._driver and spec.get("nodeName") == self._owner.name:
                ours[name] = slice_
        return ours

    def deadlines(self) -> list[float]:
        """Returns when `existing` may change although the informer does not."""
        return self._mutations.deadlines()

    def settle(self, target: pool.Published) -> None:
        """Notes that everything in `target` exists."""
        self.last = target
        self.stored.verified.update(target.bodies)

    async def write(
        self, write: pool.Write, existing: Mapping[str, Document], target: pool.Published
    ) -> None:
        """Deletes, creates or updates one slice.

        `existing` has the slices that exist, `target` those after all writes of this round. A
        refusal of the content goes to `refusals`. Raises ApiError if the request failed for any
        other reason; the caller looks again and may repeat everything.
        """
        name = pool.slice_name(write)
        current, last = existing.get(name), self.last
        with self._mutations.writing(name, current, self._resources.slices.objects):
            try:
                if not isinstance(write, ResourceSlice):
                    await self._delete(name, write["metadata"], target)
                elif current is None:
                    await self._create(write, target)
                else:
                    await self._update(write, current, target)
            except errors.NotFound:
                # The only thing that a create can miss is the Node that owns the slice.
                if current is None:
                    self._owner.forget()
                    raise
                self._on_written(name, None)
            except errors.Invalid as error:
                # A write with an unknown outcome counts as published; this one did not happen.
                self.last = last
                self._refusals.add(write, target.bodies, error)

    async def _delete(self, name: str, metadata: Document, target: pool.Published) -> None:
        self.last = target
        await self._resources.delete_slice(name, metadata["uid"], metadata["resourceVersion"])
        metrics.SLICE_WRITES.add("delete")
        self._on_written(name, None)
        log.info("slice deleted: it is not one of those wanted", extra={"slice": name})

    async def _create(self, slice_: ResourceSlice, target: pool.Published) -> None:
        name = slice_.metadata.name
        if name in self.stored.verified:
            # The slice existed and is gone, perhaps because its Node was replaced. The new Node
            # must own the next slice, so the Node is looked up before the slice is created.
            log.info("a slice that was published is gone, creating it again", extra={"slice": name})
            self.stored.verified.discard(name)
            self._owner.forget()
            return

        self.last = target
        result = await self._resources.create_slice(slice_)
        self._on_stored(slice_, result)
        metrics.SLICE_WRITES.add("create")
        log.info("slice created", extra=_log_fields(slice_))

    async def _update(
        self, slice_: ResourceSlice, current: Document, target: pool.Published
    ) -> None:
        if await self._is_stored_form(slice_, current):
            return

        self.last = target
        result = await self._resources.update_slice(slice_)
        self._on_stored(slice_, result)
        metrics.SLICE_WRITES.add("update")
        log.info("slice updated", extra=_log_fields(slice_))

    async def _is_stored_form(self, slice_: ResourceSlice, current: Document) -> bool:
        """Returns True if `current` lacks only fields that the API server drops.

        An earlier process may have written it. A dry run asks the API server, once for each slice.
        Without that, every restart would write the dropped fields again.
        """
        if not self.stored.could_be_stored_form(slice_, current):
            return False

        result = await self._resources.update_slice(slice_, dry_run=True)
        if pool.body(result["spec"]) != pool.body(current["spec"]):
            self.stored.verified.add(slice_.metadata.name)
            return False
        self._learn(slice_, result)
        return True

    # ------------------------------------------------------------ answers

    def _on_stored(self, sent: ResourceSlice, result: Document) -> None:
        self._on_written(sent.metadata.name, result)
        self._learn(sent, result)

    def _on_written(self, name: str, result: Document | None) -> None:
        now = asyncio.get_running_loop().time()
        self._mutations.on_answer(name, result, now + MUTATION_TTL)

    def _learn(self, sent: ResourceSlice, result: Document) -> None:
        dropped = self.stored.learn(sent, result)
        if dropped:
            self._on_dropped(dropped)

        fresh = [path for path in dropped if path not in self._reported]
        self._reported.update(fresh)
        if fresh:
            log.warning(
                "the API server does not keep %s as sent, which is accepted: "
                "a feature gate of it may be off",
                ", ".join(fresh),
                extra={"slice": sent.metadata.name},
            )


def _log_fields(slice_: ResourceSlice) -> dict[str, object]:
    return {"slice": slice_.metadata.name, "generation": slice_.spec.pool.generation}
