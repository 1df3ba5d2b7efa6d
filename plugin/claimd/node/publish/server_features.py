"""What the API server keeps of what it is sent, where to guess wrong would give a GPU away twice.

An API server that does not know a field, or whose feature gate is off, drops it without a word.
Without counters, a GPU and its parts could be given away at the same time; without what makes a
device a shared one, the rest of it would say what is not so. What the fields say is slices'.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Sequence

from claimd.kubernetes.kube import errors
from claimd.kubernetes.kube.resources import Resources
from claimd_devices.gpu import Inventory

from . import sharing, slices

log = logging.getLogger(__name__)

# Seconds until a server that did not keep a feature's fields is asked once more: it may have been
# upgraded.
ASK_AGAIN = 3600.0
# And until one that forbade the question is: a right or a policy is mended sooner.
ASK_AGAIN_AFTER_FORBIDDEN = 30.0


class Support:
    """`kept`: the API server keeps the fields, as far as we know. Until it was asked, it does not."""

    name = ""  # what it is asked about
    without = ""  # what is so where they are not kept

    def __init__(self, resources: Resources, driver: str, node: str) -> None:
        self.kept = False
        self._resources, self._driver, self._node = resources, driver, node
        self._asked_at = -math.inf  # by the loop's clock
        self._was_forbidden = False

    async def learn(self, inventory: Inventory) -> bool:
        """Asks the API server, if the inventory needs the fields; whether `kept` has changed.

        Asked is by a dry run, so nothing is written. A refusal is an answer, and means no, for a while
        only where the question itself is forbidden; an ApiError says that there was none, and that this has to be called again.
        """
        now = asyncio.get_running_loop().time()
        patience = ASK_AGAIN_AFTER_FORBIDDEN if self._was_forbidden else ASK_AGAIN
        is_due = now >= self._asked_at + patience
        if self.kept or not is_due or not self._is_needed(inventory):
            return False

        self._was_forbidden = False
        try:
            reason = await self._reason_dropped()
        except (errors.Forbidden, errors.Invalid, errors.NotFound, errors.AlreadyExists) as error:
            reason = f"asking the API server about {self.name} failed: {error}"
            self._was_forbidden = isinstance(error, errors.Forbidden)

        was_asked = self._asked_at > -math.inf
        if reason and not was_asked:
            log.warning("%s: %s", self.without, reason)
        elif was_asked and not reason:
            log.info("the API server keeps %s now", self.name)
        self._asked_at, self.kept = now, not reason
        return self.kept

    def withdraw(self) -> bool:
        """The API server did not keep them after all; whether that is news."""
        news, self.kept = self.kept, False
        self._asked_at = asyncio.get_running_loop().time()
        return news

    def _is_needed(self, inventory: Inventory) -> bool:
        raise NotImplementedError

    async def _reason_dropped(self) -> str:
        raise NotImplementedError


class CounterSupport(Support):
    """The counters that keep a GPU and its parts apart."""

    name = "counters"
    without = "no GPU is published together with its parts"

    def _is_needed(self, inventory: Inventory) -> bool:
        return slices.has_partitions(inventory)

    async def _reason_dropped(self) -> str:
        probe = slices.counters_probe(self._driver, self._node)
        return await self._resources.keeps_counters(probe)


class SharingSupport(Support):
    """What makes a device one that several claims may have."""

    name = "shared devices"
    without = "no GPU is shared, each is published as exclusive"

    def __init__(
        self, resources: Resources, driver: str, node: str, rules: Sequence[sharing.Rule]
    ) -> None:
        super().__init__(resources, driver, node)
        self._rules = rules

    def _is_needed(self, inventory: Inventory) -> bool:
        return sharing.is_any_shared(self._rules, inventory)

    async def _reason_dropped(self) -> str:
        probe = slices.sharing_probe(self._driver, self._node)
        return await self._resources.keeps_sharing(probe)
