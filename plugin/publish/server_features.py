"""Whether the API server keeps counters, without which no GPU may be published beside its parts.

An API server that does not know counters, or whose feature gate is off, drops them without a word:
then a GPU and its parts could be given away at the same time. What the counters say is slices'.
"""

from __future__ import annotations

import asyncio
import logging
import math

from devices.gpu import Inventory

from ..kube import errors
from ..kube.resources import Resources
from . import slices

log = logging.getLogger(__name__)

# Seconds until a server that did not keep counters is asked once more: it may have been upgraded.
ASK_AGAIN = 3600.0


class CounterSupport:
    """`kept`: the API server keeps counters, as far as we know. Until it was asked, it does not."""

    def __init__(self, resources: Resources, driver: str, node: str) -> None:
        self.kept = False
        self._resources, self._driver, self._node = resources, driver, node
        self._asked_at = -math.inf  # by the loop's clock

    async def learn(self, inventory: Inventory) -> bool:
        """Asks the API server, if the inventory needs counters; whether `kept` has changed.

        Asked is by a dry run, so nothing is written. A refusal is an answer, and means no; an
        ApiError says that there was none, and that this has to be called again.
        """
        now = asyncio.get_running_loop().time()
        is_due = now >= self._asked_at + ASK_AGAIN
        if self.kept or not is_due or not slices.has_partitions(inventory):
            return False

        try:
            reason = await self._resources.keeps_counters(
                slices.counters_probe(self._driver, self._node)
            )
        except (errors.Forbidden, errors.Invalid, errors.NotFound, errors.AlreadyExists) as error:
            reason = f"asking the API server about counters failed: {error}"

        was_asked = self._asked_at > -math.inf
        if reason and not was_asked:
            log.warning("no GPU is published together with its parts: %s", reason)
        self._asked_at, self.kept = now, not reason
        return self.kept

    def dropped(self) -> bool:
        """The API server did not keep counters after all; whether that is news."""
        news, self.kept = self.kept, False
        self._asked_at = asyncio.get_running_loop().time()
        return news
