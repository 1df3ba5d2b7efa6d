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

# What the oldest of Kubernetes' allocators supports.
STABLE: Final[Features] = frozenset(
    (ADMIN_ACCESS, DEVICE_TAINTS, PARTITIONABLE_DEVICES, PRIORITIZED_LIST)
)
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


def of_release(minor: int) -> Features:
    """What Kubernetes 1.<minor> enables by itself, in the releases that the simulator knows."""
    if minor >= 37:
        return DEFAULT
    return frozenset((ADMIN_ACCESS, PRIORITIZED_LIST))


def in_use(
    slices: Iterable[ResourceSlice],
    claims: Iterable[ResourceClaim],
    of_itself: Features = DEFAULT,
) -> Features:
    """What a release enables `of_itself`, and the features of later ones whose fields are there.

    An API server drops the fields of a feature that is off, so what is there was on.
    """
    enabled = set(of_itself)
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


# Kubernetes has several allocators and takes the oldest that has all features which are on. What an
# allocator has never heard of it neither keeps nor refuses.


def knows_node_operations(enabled: Features) -> bool:
    """Whether what a slice skips on the node counts at all.

    The allocator for the default features allocates such devices and says nothing of it.
    """
    return not enabled <= DEFAULT


def takes_oldest(enabled: Features) -> bool:
    """Whether Kubernetes takes its oldest allocator.

    That one passes over requests of capacity and devices that bind to a node, takes an attribute
    that has to differ for an empty constraint, and a slice with shared counters belongs to every
    node: who asks one for all devices waits for pools of others, too.
    """
    return enabled <= STABLE
