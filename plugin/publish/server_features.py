"""Whether the API server keeps what the parts of a GPU share, without which parts must not be
published.

An API server that does not know counters, or whose gate is off, drops them without a word: then a
GPU and its parts could be given away at the same time. What the counters say is slices'.
"""

from __future__ import annotations

import asyncio
import logging
import math

from devices.gpu import Inventory

from ..kube import errors
from ..kube.resources import Resources
from . import slices

logger = logging.getLogger(__name__)
# seconds until a server that did not keep them is asked once more: it may have been upgraded
ASK_AGAIN = 3600.0


class CounterSupport:
    def __init__(self, resources: Resources, driver: str, node: str) -> None:
        self.kept = False
        self._resources, self._driver, self._node = resources, driver, node
        self._asked = -math.inf

    async def learn(self, inventory: Inventory) -> bool:
        """Asks, where that matters and is not known; says whether `kept` is another now."""
        now = asyncio.get_running_loop().time()
        if self.kept or now < self._asked + ASK_AGAIN or not slices.has_partitions(inventory):
            return False
        try:
            why_not = await self._resources.keeps_counters(
                slices.counters_probe(self._driver, self._node)
            )
        except (errors.Forbidden, errors.Invalid, errors.NotFound, errors.AlreadyExists) as error:
            why_not = f"asking the API server about counters failed: {error}"
        if why_not and self._asked == -math.inf:
            logger.warning("parts of GPUs are not published, only whole GPUs: %s", why_not)
        self._asked, self.kept = now, not why_not
        return self.kept

    def dropped(self) -> bool:
        """The server did not keep them after all; says whether that is news."""
        news, self.kept, self._asked = self.kept, False, asyncio.get_running_loop().time()
        return news
