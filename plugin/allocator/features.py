"""The feature gates that change what an allocator decides, and the sets of them that people have. Only names."""

from __future__ import annotations

from typing import Final

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


def knows_node_operations(enabled: Features) -> bool:
    """Whether what a slice skips on the node counts at all.

    Kubernetes 1.37 has several allocators and takes the oldest that has all features which are on. The one for the
    default features has never heard of skipped operations: it allocates such devices and says nothing of it.
    """
    return not enabled <= DEFAULT
