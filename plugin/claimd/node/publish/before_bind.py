"""The devices that are published with binding conditions: those that are prepared before a pod is bound.

The scheduler waits for such a device, which costs a pod some seconds. If the device cannot be
prepared, the pod goes elsewhere. This module is pure. `prepare.early_claims` does the work.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from claimd.common import names
from claimd.kubernetes.api.document import Document
from claimd.kubernetes.api.resource import Device
from claimd_devices.gpu import NONE, Gpu, Inventory

from .. import config

OFF, SLOW, ALL = config.BEFORE_BIND


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """The setting `prepare-before-bind`, and the one that makes missing libraries a failure."""

    which: str = OFF
    requires_libraries: bool = False

    def applies_to(self, gpu: Gpu) -> bool:
        """Returns True if a pod must not be bound before its claim of this GPU is prepared."""
        if self.which != SLOW:
            return self.which == ALL
        lacks_libraries = gpu.libraries is not None and gpu.libraries.how == NONE
        return gpu.is_bound_on_demand or (self.requires_libraries and lacks_libraries)

    def applies_to_any(self, inventory: Inventory) -> bool:
        """Returns True if the rule applies to a GPU of the inventory."""
        return any(map(self.applies_to, inventory.gpus))


def with_conditions(described: Device) -> Device:
    """Returns the device with the binding conditions."""
    return msgspec.structs.replace(
        described,
        binding_conditions=[names.PREPARED_CONDITION],
        binding_failure_conditions=[names.PREPARE_FAILED_CONDITION],
    )


def is_published(stored: Mapping[str, Document]) -> bool:
    """Returns True if a device of these slices has the binding conditions.

    The slices are those that the API server has, in the shape of v1.
    """
    for slice_ in stored.values():
        for device in slice_["spec"].get("devices") or ():
            if names.PREPARED_CONDITION in (device.get("bindingConditions") or ()):
                return True
    return False
