"""Finds out whether the API server keeps certain fields, where a wrong guess would be dangerous.

An API server silently drops fields that it does not know or whose feature gate is off. Without the
counters, the scheduler could allocate a GPU and its parts at the same time. Without the field that
makes a device shared, its other fields would be wrong. With binding conditions and without the
right to watch claims, pods would wait in vain. `slices` decides about the fields' content.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Sequence

from claimd.common import pacing
from claimd.kubernetes.kube import errors
from claimd.kubernetes.kube.resources import Resources
from claimd_devices.gpu import Inventory

from . import before_bind, sharing, slices

log = logging.getLogger(__name__)

# Seconds until a server that did not keep a feature's fields is asked again: it may have been
# upgraded.
ASK_AGAIN = 3600.0

# Seconds until a server that forbade the question is asked again, at first and in the long run: a
# person may soon correct a right or a policy, or may never do so.
ASK_AGAIN_AFTER_FORBIDDEN = (30.0, 600.0)


class Support:
    """One feature. `kept` is True once the API server is known to keep the feature's fields."""

    name = ""  # of the feature, for the log
    without = ""  # the consequence if the fields are not kept, for the log

    def __init__(self, resources: Resources, driver: str, node: str) -> None:
        self.kept = False
        self._resources, self._driver, self._node = resources, driver, node
        self._due = -math.inf  # when to ask, by the loop's clock
        self._reason = ""  # why the fields are not kept, by the last answer
        self._backoff = pacing.Backoff(*ASK_AGAIN_AFTER_FORBIDDEN, jitter=(0.67, 1.0))

    async def learn(self, inventory: Inventory) -> bool:
        """Asks the API server if the inventory needs the fields. Returns True if `kept` has
        changed.

        The question writes nothing. A refusal counts as no. If the question itself is forbidden, it
        is asked again soon, and less and less often. Raises ApiError if there was no answer: the
        caller should call this again.
        """
        now = asyncio.get_running_loop().time()
        if self.kept or now < self._due or not self._is_needed(inventory):
            return False

        delay = ASK_AGAIN
        try:
            reason = await self._reason_dropped()
        except (errors.Forbidden, errors.Invalid, errors.NotFound, errors.AlreadyExists) as error:
            reason = f"asking the API server about {self.name} failed: {error}"
            if isinstance(error, errors.Forbidden):
                delay = self._backoff.next_delay()
        else:
            self._backoff.reset()

        # Only changes are logged.
        was_asked = self._due > -math.inf
        if reason and reason != self._reason:
            log.warning("%s: %s", self.without, reason)
        elif was_asked and not reason:
            log.info("the API server keeps %s now", self.name)
        self._due, self._reason, self.kept = now + delay, reason, not reason
        return self.kept

    def deadlines(self, inventory: Inventory) -> list[float]:
        """Returns when `learn` must be called even if nothing happens, by the loop's clock."""
        return [] if self.kept or not self._is_needed(inventory) else [self._due]

    def withdraw(self) -> bool:
        """Notes that the API server has dropped the fields. Returns True if `kept` has changed."""
        news, self.kept = self.kept, False
        self._due = asyncio.get_running_loop().time() + ASK_AGAIN
        return news

    def _is_needed(self, inventory: Inventory) -> bool:
        raise NotImplementedError

    async def _reason_dropped(self) -> str:
        raise NotImplementedError


class CounterSupport(Support):
    """The counters, which keep the scheduler from allocating a GPU and its parts together."""

    name = "counters"
    without = "no GPU is published together with its parts"

    def _is_needed(self, inventory: Inventory) -> bool:
        return slices.has_partitions(inventory)

    async def _reason_dropped(self) -> str:
        probe = slices.counters_probe(self._driver, self._node)
        return await self._resources.check_counters(probe)


class SharingSupport(Support):
    """The field that lets several claims have one device."""

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
        return await self._resources.check_sharing(probe)


class BindingSupport(Support):
    """The conditions that the scheduler waits for before it binds a pod."""

    name = "binding conditions"
    without = "pods are bound before their claims are prepared"

    def __init__(
        self, resources: Resources, driver: str, node: str, rule: before_bind.Rule
    ) -> None:
        super().__init__(resources, driver, node)
        self._rule = rule

    def _is_needed(self, inventory: Inventory) -> bool:
        return self._rule.applies_to_any(inventory)

    async def _reason_dropped(self) -> str:
        probe = slices.binding_probe(self._driver, self._node)
        return await self._resources.check_binding(probe)
