"""The feature gates that change what an allocator decides, and the sets of them that people have."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ..api.scheduling import ResourceClaim, ResourceSlice

ADMIN_ACCESS: Final = "DRAAdminAccess"
BINDING_CONDITIONS: Final = "DRADeviceBindingConditions"
COMPATIBILITY_GROUPS: Final = "DRADeviceCompatibilityGroups"
CONSUMABLE_CAPACITY: Final = "DRAConsumableCapacity"
DERIVED_ATTRIBUTES: Final = "DRADerivedAttributes"
DEVICE_TAINTS: Final = "DRADeviceTaints"
FRACTIONAL_CAPACITY_RANGE: Final = "DRAFractionalCapacityRange"
LIST_TYPE_ATTRIBUTES: Final = "DRAListTypeAttributes"
OPTIONAL_NODE_OPERATIONS: Final = "DRAOptionalNodeOperations"
PARTITIONABLE_DEVICES: Final = "DRAPartitionableDevices"
PRIORITIZED_LIST: Final = "DRAPrioritizedList"

Features = frozenset[str]

DEFAULT: Final[Features] = frozenset(  # what Kubernetes 1.37 enables by itself
    (
        ADMIN_ACCESS,
        BINDING_CONDITIONS,
        CONSUMABLE_CAPACITY,
        DEVICE_TAINTS,
        FRACTIONAL_CAPACITY_RANGE,
        PARTITIONABLE_DEVICES,
        PRIORITIZED_LIST,
    )
)
ALL: Final[Features] = DEFAULT | {
    COMPATIBILITY_GROUPS,
    DERIVED_ATTRIBUTES,
    LIST_TYPE_ATTRIBUTES,
    OPTIONAL_NODE_OPERATIONS,
}


def in_use(slices: Iterable[ResourceSlice], claims: Iterable[ResourceClaim]) -> Features:
    """The default ones and those whose fields are there: an API server drops the fields of a
    feature that is off.
    """
    found = set(DEFAULT)
    for slice_ in slices:
        if slice_.spec.skip_node_operations:
            found.add(OPTIONAL_NODE_OPERATIONS)
        for device in slice_.spec.devices:
            if any(used.compatibility_groups for used in device.consumes_counters):
                found.add(COMPATIBILITY_GROUPS)
            if any(attribute.value is None for attribute in device.attributes.values()):
                found.add(LIST_TYPE_ATTRIBUTES)
    for claim in claims:
        for request in claim.spec.devices.requests or ():
            if any(
                asked.derived_attributes
                for asked in (request.exactly, *request.first_available)
                if asked
            ):
                found.add(DERIVED_ATTRIBUTES)
    return frozenset(found)


def knows_node_operations(enabled: Features) -> bool:
    """Whether what a slice skips on the node counts at all.

    Kubernetes 1.37 has several allocators and takes the oldest that has all features which are on.
    The one for the default features has never heard of skipped operations: it allocates such
    devices and says nothing of it.
    """
    return not enabled <= DEFAULT
