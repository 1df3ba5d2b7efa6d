"""The feature gates that change an allocator's decisions, and common sets of them."""

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

# No gate: the rules of Kubernetes 1.38's allocator. They are listed where they apply.
RULES_OF_1_38: Final = "Kubernetes 1.38"

Features = frozenset[str]

# The features that the oldest of Kubernetes' allocators supports.
STABLE: Final[Features] = frozenset(
    (ADMIN_ACCESS, DEVICE_TAINTS, PARTITIONABLE_DEVICES, PRIORITIZED_LIST)
)
# The minor release of Kubernetes from which each feature is enabled by default.
DEFAULT_SINCE: Final = {
    ADMIN_ACCESS: 34,
    PRIORITIZED_LIST: 34,
    BINDING_CONDITIONS: 36,
    CONSUMABLE_CAPACITY: 36,
    DEVICE_TAINTS: 36,
    PARTITIONABLE_DEVICES: 36,
    FRACTIONAL_CAPACITY_RANGE: 37,
    RULES_OF_1_38: 38,
}


def release_defaults(minor: int) -> Features:
    """Returns the features that Kubernetes 1.`minor` enables by default."""
    return frozenset(name for name, since in DEFAULT_SINCE.items() if since <= minor)


def release_rules(minor: int) -> Features:
    """Returns the rules of Kubernetes 1.`minor` that do not depend on a feature gate."""
    return release_defaults(minor) & {RULES_OF_1_38}


# The features that Kubernetes 1.37 enables by default.
DEFAULT: Final = release_defaults(37)
ALL: Final[Features] = DEFAULT | {
    COMPATIBILITY_GROUPS,
    DERIVED_ATTRIBUTES,
    LIST_TYPE_ATTRIBUTES,
    OPTIONAL_NODE_OPERATIONS,
}


def detect(
    slices: Iterable[ResourceSlice],
    claims: Iterable[ResourceClaim],
    of_itself: Features = DEFAULT,
) -> Features:
    """Returns the features in `of_itself`, and those whose fields appear in the objects.

    An API server drops the fields of a feature that is off. So a feature is on if one of its fields
    is there. `of_itself` are the features that a release enables by default.
    """
    enabled = set(of_itself)

    # Features of slices and devices, then those of requests and subrequests.
    for slice_ in slices:
        enabled |= _detect_in_slice(slice_)
    for claim in claims:
        for _, request in claim.spec.alternatives():
            if request.derived_attributes:
                enabled.add(DERIVED_ATTRIBUTES)
    return frozenset(enabled)


def _detect_in_slice(slice_: ResourceSlice) -> set[str]:
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


# Kubernetes has several allocators and uses the oldest that supports all enabled features. An
# allocator ignores the fields of features that it does not know.


def knows_node_operations(enabled: Features) -> bool:
    """Returns True if the allocator respects skipNodeOperations of a slice.

    The allocator for the default features ignores the field.
    """
    return not enabled - {RULES_OF_1_38} <= DEFAULT


def takes_oldest(enabled: Features) -> bool:
    """Returns True if Kubernetes uses its oldest allocator for these features.

    That allocator ignores capacity requests and bindsToNode. It treats a distinctAttribute as an
    empty constraint. A slice with shared counters belongs to every node there, so a request for all
    devices also waits for incomplete pools of other nodes. Kubernetes 1.38 no longer has it.
    """
    return enabled <= STABLE
