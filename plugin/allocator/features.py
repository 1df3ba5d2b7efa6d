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

# What Kubernetes 1.37 enables by itself.
DEFAULT: Final[Features] = frozenset(
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
    """The default features, and those whose fields are there.

    An API server drops the fields of a feature that is off, so what is there was on.
    """
    enabled = set(DEFAULT)
    for slice_ in slices:
        enabled |= _of_slice(slice_)
    for claim in claims:
        for request in claim.spec.devices.requests or ():
            for spec in (request.exactly, *request.first_available):
                if spec and spec.derived_attributes:
                    enabled.add(DERIVED_ATTRIBUTES)
    return frozenset(enabled)


def _of_slice(slice_: ResourceSlice) -> set[str]:
    enabled: set[str] = set()
    if slice_.spec.skip_node_operations:
        enabled.add(OPTIONAL_NODE_OPERATIONS)
    for device in slice_.spec.devices:
        if any(consumed.compatibility_groups for consumed in device.consumes_counters):
            enabled.add(COMPATIBILITY_GROUPS)
        # An attribute without a scalar is a list.
        if any(attribute.value is None for attribute in device.attributes.values()):
            enabled.add(LIST_TYPE_ATTRIBUTES)
    return enabled


def knows_node_operations(enabled: Features) -> bool:
    """Whether what a slice skips on the node counts at all.

    Kubernetes 1.37 has several allocators and takes the oldest that has all features which are on.
    The one for the default features has never heard of skipped operations: it allocates such
    devices and says nothing of it.
    """
    return not enabled <= DEFAULT
