"""Others that hand out the GPUs of this node as well: a DRA driver that publishes the same PCI
address, or a device plugin whose resources stand in the node's capacity. Two pods could be given
one GPU; we say so, and who is to yield is for people to decide.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from devices import vendors
from devices.gpu import Inventory

from .. import timestamps
from ..api.meta import Condition
from ..api.resource import STANDARD
from ..kube import errors as kube_errors
from ..kube import resources

log = logging.getLogger(__name__)

CONDITION = "Exclusive"  # the type of the condition in a claim's status
FIRST, PERIOD = 5.0, 600.0  # seconds until the first look, and between two
LONGEST = 1024  # bytes of a sentence


def with_drivers(
    inventory: Inventory, slices: Iterable[Mapping[str, Any]], driver: str
) -> dict[str, str]:
    """A sentence for each GPU of ours that another driver publishes, by its name."""
    ours = {gpu.address: gpu.name for gpu in inventory.gpus}
    found: dict[str, str] = {}
    for spec in (slice_["spec"] for slice_ in slices):
        if spec.get("driver") == driver:
            continue
        for device in spec.get("devices") or ():
            address = (device.get("attributes") or {}).get(f"{STANDARD}pciBusID", {}).get("string")
            if address in ours and ours[address] not in found:
                found[ours[address]] = (
                    f"{address} is published by the driver {spec.get('driver')} as well, as {device.get('name')}: it "
                    f"could be given to two pods; to leave it to that driver, set exclude={address} here"
                )
    return found


def with_device_plugins(inventory: Inventory, capacity: Mapping[str, str]) -> dict[str, str]:
    """The same for GPUs of a vendor whose device plugin has registered with the kubelet."""
    found: dict[str, str] = {}
    for vendor in vendors.VENDORS:
        there = [
            name
            for name, count in sorted(capacity.items())
            if name.startswith(vendor.DEVICE_PLUGIN_RESOURCES) and count != "0"
        ]
        if there:
            sentence = (
                f"a device plugin hands out this node's GPUs of {vendor.NAME} as {', '.join(there)}: one could be given "
                f"to two pods; to leave them to it, set exclude={vendor.NAME} here, or take the device plugin off this node"
            )
            found |= {gpu.name: sentence for gpu in inventory.gpus if gpu.vendor == vendor.NAME}
    return found


@dataclass(slots=True, kw_only=True)
class ConflictDetector:
    resources: resources.Resources
    driver: str
    node: str
    inventory: Callable[[], Inventory | None]
    may_check: Callable[[], bool]  # one of several instances is enough
    set_conditions: Callable[[Mapping[str, Condition]], object]
    record_event: Callable[[str, str], None]  # an Event about the node: reason and note
    _since: dict[str, int] = field(default_factory=dict)  # by sentence

    async def run(self) -> None:
        await asyncio.sleep(FIRST)
        while True:
            if not self.resources.slices.synced:  # the API server has more urgent things to tell us
                await asyncio.sleep(FIRST)
                continue
            try:
                await self.check()
            except kube_errors.ApiError as error:
                log.debug("cannot look for others that hand out GPUs, trying again: %s", error)
            await asyncio.sleep(PERIOD * random.uniform(0.8, 1.2))  # noqa: S311  # spreads the nodes of a cluster

    async def check(self) -> None:
        """Asks the API server once, and says what is new."""
        if self.inventory() is None or not self.may_check():
            return
        slices = await self.resources.all_slices(self.node)
        capacity = await self.resources.node_capacity(self.node)
        inventory = self.inventory() or Inventory()
        by_driver, by_plugin = (
            with_drivers(inventory, slices, self.driver),
            with_device_plugins(inventory, capacity),
        )
        now = int(time.time())
        sentences = sorted({*by_driver.values(), *by_plugin.values()})
        for sentence in sentences:
            if sentence not in self._since:
                log.warning("%s", sentence)
                self.record_event("GpuHandedOutTwice", sentence)
        self._since = {sentence: self._since.get(sentence, now) for sentence in sentences}
        self.set_conditions(
            {name: self._condition(sentence) for name, sentence in (by_plugin | by_driver).items()}
        )

    def _condition(self, sentence: str) -> Condition:
        return Condition(
            type=CONDITION,
            status="False",
            reason="HandedOutTwice",
            message=sentence[:LONGEST],
            last_transition_time=timestamps.rfc3339(self._since[sentence]),
        )
