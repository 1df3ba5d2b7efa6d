"""Detects other software that hands out this node's GPUs, so that two pods could get one GPU.

The other software is a DRA driver that publishes the same PCI address, or a device plugin whose
resources are in the node's capacity. Conflicts appear in the log, in Events and as a condition in
the status of claims. People must decide which of the two has to yield.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field

from claimd.common import pacing, timestamps
from claimd.kubernetes.api.document import Document
from claimd.kubernetes.api.meta import Condition
from claimd.kubernetes.api.resource import STANDARD
from claimd.kubernetes.kube import errors as kube_errors
from claimd.kubernetes.kube import resources
from claimd_devices import values, vendors
from claimd_devices.gpu import Inventory

log = logging.getLogger(__name__)

CONDITION = "Exclusive"  # the type of the condition in a claim's status

# Seconds until the first check, and between two checks, each from the first number to the second.
# The requests of a start go first, and each node asks at a different time.
FIRST, PERIOD = (5.0, 60.0), (480.0, 720.0)
MESSAGE_LIMIT = 1024  # characters


@values.dataclass(frozen=True, slots=True, kw_only=True)
class Rival:
    """A device of another driver that is one of our GPUs."""

    address: str
    driver: str
    slice_name: str
    device: str


def rivals(inventory: Inventory, slices: Iterable[Document], driver: str) -> dict[str, Rival]:
    """Returns the first rival of each GPU that has one, by the GPU's name."""
    ours = {gpu.address: gpu.name for gpu in inventory.gpus}
    found: dict[str, Rival] = {}
    for slice_ in slices:
        spec = slice_["spec"]
        if spec.get("driver") == driver:
            continue
        for device in spec.get("devices") or ():
            attributes = device.get("attributes") or {}
            address = attributes.get(f"{STANDARD}pciBusID", {}).get("string")
            if address in ours and ours[address] not in found:
                found[ours[address]] = Rival(
                    address=address,
                    driver=str(spec.get("driver")),
                    slice_name=str((slice_.get("metadata") or {}).get("name")),
                    device=str(device.get("name")),
                )
    return found


def with_drivers(inventory: Inventory, slices: Iterable[Document], driver: str) -> dict[str, str]:
    """Returns a sentence for each GPU that another driver also publishes, by the GPU's name."""
    return {
        name: f"{rival.address} is published by the driver {rival.driver} as well, "
        f"as {rival.device}: it could be given to two pods; "
        f"to leave it to that driver, set exclude={rival.address} here"
        for name, rival in rivals(inventory, slices, driver).items()
    }


def with_device_plugins(inventory: Inventory, capacity: Mapping[str, str]) -> dict[str, str]:
    """Returns a sentence for each GPU that a device plugin hands out, by the GPU's name."""
    conflicts: dict[str, str] = {}
    for vendor in vendors.VENDORS:
        # The kubelet keeps the resource of a plugin that is gone, with a count of 0.
        offered = [
            name
            for name, count in sorted(capacity.items())
            if name.startswith(vendor.DEVICE_PLUGIN_RESOURCES) and count != "0"
        ]
        if not offered:
            continue

        sentence = (
            f"a device plugin hands out this node's GPUs of {vendor.NAME} "
            f"as {', '.join(offered)}: one could be given to two pods; "
            f"to leave them to it, set exclude={vendor.NAME} here, "
            "or take the device plugin off this node"
        )
        for gpu in inventory.gpus:
            if gpu.vendor == vendor.NAME:
                conflicts[gpu.name] = sentence
    return conflicts


@values.dataclass(slots=True, kw_only=True, eq=False, repr=False)
class ConflictDetector:
    """Checks from time to time while `run` runs. `check` may also be called alone."""

    resources: resources.Resources
    driver: str
    node: str
    inventory: Callable[[], Inventory | None]  # None until the first scan
    may_check: Callable[[], bool]  # only one of several instances needs to check

    # Replaces all conditions of the type CONDITION, given by the device's name.
    set_conditions: Callable[[Mapping[str, Condition]], object]
    record_event: Callable[[str, str], None]  # about the node: reason and note

    # When each conflict was first seen, by its sentence, in seconds since 1970.
    _since: dict[str, int] = field(default_factory=dict)

    async def run(self) -> None:
        """Checks about every ten minutes, until cancelled. A failed check is only skipped."""
        await asyncio.sleep(pacing.between(*FIRST))
        while True:
            # Our own slices are more urgent for the API server.
            if not self.resources.slices.synced:
                await asyncio.sleep(FIRST[0])
                continue

            try:
                await self.check()
            except kube_errors.ApiError as error:
                log.debug("cannot look for others that hand out GPUs, trying again: %s", error)
            await asyncio.sleep(pacing.between(*PERIOD))

    async def check(self) -> None:
        """Asks the API server once, and reports conflicts. Raises ApiError if it does not answer."""
        if self.inventory() is None or not self.may_check():
            return
        slices = await self.resources.all_slices(self.node)
        capacity = await self.resources.node_capacity(self.node)

        # The inventory may have changed during the requests.
        inventory = self.inventory() or Inventory()
        by_driver = with_drivers(inventory, slices, self.driver)
        by_plugin = with_device_plugins(inventory, capacity)

        # Only new conflicts are logged.
        now = int(time.time())
        sentences = sorted({*by_driver.values(), *by_plugin.values()})
        for sentence in sentences:
            if sentence not in self._since:
                log.warning("%s", sentence)
                self.record_event("GpuHandedOutTwice", sentence)
        self._since = {sentence: self._since.get(sentence, now) for sentence in sentences}

        # A device has only one condition. A driver that publishes the device is the clearer conflict.
        conflicts = by_plugin | by_driver
        self.set_conditions(
            {device: self._condition(sentence) for device, sentence in conflicts.items()}
        )

    def _condition(self, sentence: str) -> Condition:
        return Condition(
            type=CONDITION,
            status="False",
            reason="HandedOutTwice",
            message=sentence[:MESSAGE_LIMIT],
            last_transition_time=timestamps.rfc3339(self._since[sentence]),
        )
