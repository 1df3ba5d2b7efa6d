"""The refusals of the API server, and the reaction to them.

A refusal usually names a field. The part of the device that has this field is left out from then
on, so that the rest of the slice is published. If the refusal names no field, or names a part that
is already left out, the slice is left alone for a while.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence

from claimd.kubernetes.api.document import Document
from claimd.kubernetes.api.resource import ResourceSlice
from claimd.kubernetes.kube import errors

from . import pool, rejected

log = logging.getLogger(__name__)

POSTPONEMENT = 30.0  # seconds until a slice that was refused as a whole is tried again


class Refusals:
    """The rejected parts of devices, and the writes that are postponed."""

    def __init__(self) -> None:
        self._parts: list[rejected.RejectedPart] = []
        # By the slice's name: the time until which to leave it alone, and the body that was
        # refused.
        self._postponed: dict[str, tuple[float, Document | None]] = {}

    def remove_rejected(self, desired: Sequence[ResourceSlice]) -> list[ResourceSlice]:
        """Returns the slices without the rejected parts."""
        return rejected.remove(desired, self._parts)

    def keep_only(self, devices: Collection[str]) -> None:
        """Forgets the rejected parts of all other devices."""
        self._parts = [part for part in self._parts if part.device in devices]

    def next_write(self, changes: pool.Changes) -> pool.Write | None:
        """Returns the first write that is not postponed."""
        # A slice whose content has changed since the refusal may be tried at once.
        now = asyncio.get_running_loop().time()
        bodies = changes.target.bodies
        for name, (until, body) in list(self._postponed.items()):
            if until <= now or bodies.get(name) != body:
                del self._postponed[name]

        for write in changes.writes():
            if pool.slice_name(write) not in self._postponed:
                return write
        return None

    def deadlines(self) -> list[float]:
        """Returns when each postponement ends, by the event loop's clock."""
        return [until for until, _ in self._postponed.values()]

    def add(self, write: pool.Write, bodies: Mapping[str, Document], error: errors.Invalid) -> None:
        """Handles a refusal: rejects the parts that it names, or postpones the write."""
        fresh: list[rejected.RejectedPart] = []
        if isinstance(write, ResourceSlice):
            for cause in error.causes:
                part = rejected.part_at(write, cause.field)
                if part is not None and part not in self._parts + fresh:
                    log.error(
                        "not published, since the API server refuses it: %s: %s",
                        part,
                        cause.message,
                    )
                    fresh.append(part)
        self._parts += fresh

        # The same write would be refused again, so it waits until a person changes something.
        if not fresh:
            name = pool.slice_name(write)
            now = asyncio.get_running_loop().time()
            self._postponed[name] = (now + POSTPONEMENT, bodies.get(name))
            log.error("slice %s refused, next attempt in %.0f s: %s", name, POSTPONEMENT, error)
