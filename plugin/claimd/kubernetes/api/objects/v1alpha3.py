"""resource.k8s.io/v1alpha3, as Kubernetes 1.33 served it, with the kinds of newer releases.

Kubernetes 1.32 lacks some of the fields (taints, counters, alternatives of a request).
`v1alpha3_31` has the form of 1.31.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from .. import limits

# Every class of this version can be imported from here, also if nothing below uses it.
from .meta import (  # noqa: F401
    Condition,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    Object,
    ObjectList,
    ObjectMeta,
    Quantity,
)
from .model import Model
from .shapes import Keys, Most
from .v1 import (  # noqa: F401
    AttributeText,
    CELDeviceSelector,
    Counter,
    CounterSet,
    DeviceAllocationConfiguration,
    DeviceClaimConfiguration,
    DeviceClassConfiguration,
    DeviceSelector,
    DeviceTaint,
    DeviceTaintRuleStatus,
    DeviceToleration,
    NetworkDeviceData,
    OpaqueDeviceConfiguration,
    RequestNames,
    ResourceClaimConsumerReference,
    ResourcePool,
)

# ---------------------------------------------------------------- claims


class DeviceSubRequest(Model, kw_only=True):
    name: str
    device_class_name: str
    selectors: Annotated[list[DeviceSelector], Most(limits.SELECTORS)] | None = None
    allocation_mode: Literal["ExactCount", "All"] | None = None
    count: int | None = None
    tolerations: Annotated[list[DeviceToleration], Most(limits.TOLERATIONS)] | None = None


class DeviceRequest(Model, kw_only=True):
    name: str
    device_class_name: str | None = None
    selectors: Annotated[list[DeviceSelector], Most(limits.SELECTORS)] | None = None
    allocation_mode: Literal["ExactCount", "All"] | None = None
    count: int | None = None
    admin_access: bool | None = None
    first_available: Annotated[list[DeviceSubRequest], Most(limits.FIRST_AVAILABLE)] | None = None
    tolerations: Annotated[list[DeviceToleration], Most(limits.TOLERATIONS)] | None = None
    one_of = (("deviceClassName", "firstAvailable"),)


class DeviceConstraint(Model, kw_only=True):
    requests: RequestNames | None = None
    match_attribute: str | None = None
    one_of = (("matchAttribute",),)


class DeviceClaim(Model, kw_only=True):
    requests: Annotated[list[DeviceRequest], Most(limits.REQUESTS)] | None = None
    constraints: Annotated[list[DeviceConstraint], Most(limits.CONSTRAINTS)] | None = None
    config: Annotated[list[DeviceClaimConfiguration], Most(limits.CONFIGS)] | None = None


class ResourceClaimSpec(Model, kw_only=True):
    devices: DeviceClaim | None = None


class DeviceRequestAllocationResult(Model, kw_only=True):
    request: str
    driver: Annotated[str, Most(limits.DRIVER_NAME)]
    pool: Annotated[str, Most(limits.POOL_NAME)]
    device: str
    admin_access: bool | None = None
    tolerations: Annotated[list[DeviceToleration], Most(limits.TOLERATIONS)] | None = None


class DeviceAllocationResult(Model, kw_only=True):
    results: Annotated[list[DeviceRequestAllocationResult], Most(limits.RESULTS)] | None = None
    config: (
        Annotated[list[DeviceAllocationConfiguration], Most(limits.ALLOCATION_CONFIGS)] | None
    ) = None


class AllocationResult(Model, kw_only=True):
    devices: DeviceAllocationResult | None = None
    node_selector: NodeSelector | None = None


class AllocatedDeviceStatus(Model, kw_only=True):
    driver: Annotated[str, Most(limits.DRIVER_NAME)]
    pool: Annotated[str, Most(limits.POOL_NAME)]
    device: str
    conditions: Annotated[list[Condition], Keys("type"), Most(limits.CONDITIONS)] | None = None
    data: Annotated[Any, Most(limits.DEVICE_DATA)] = None
    network_data: NetworkDeviceData | None = None


class ResourceClaimStatus(Model, kw_only=True):
    allocation: AllocationResult | None = None
    devices: Annotated[list[AllocatedDeviceStatus], Keys("driver", "pool", "device")] | None = None
    reserved_for: (
        Annotated[list[ResourceClaimConsumerReference], Keys("uid"), Most(limits.RESERVED_FOR)]
        | None
    ) = None


class ResourceClaim(Object, kw_only=True):
    spec: ResourceClaimSpec
    status: ResourceClaimStatus | None = None


class ResourceClaimList(ObjectList, kw_only=True):
    items: list[ResourceClaim]


class ResourceClaimTemplateSpec(Model, kw_only=True):
    metadata: ObjectMeta | None = None
    spec: ResourceClaimSpec


class ResourceClaimTemplate(Object, kw_only=True):
    spec: ResourceClaimTemplateSpec


class ResourceClaimTemplateList(ObjectList, kw_only=True):
    items: list[ResourceClaimTemplate]


# ---------------------------------------------------------------- classes, slices


class DeviceClassSpec(Model, kw_only=True):
    selectors: Annotated[list[DeviceSelector], Most(limits.SELECTORS)] | None = None
    config: Annotated[list[DeviceClassConfiguration], Most(limits.CONFIGS)] | None = None


class DeviceClass(Object, kw_only=True):
    spec: DeviceClassSpec


class DeviceClassList(ObjectList, kw_only=True):
    items: list[DeviceClass]


class DeviceAttribute(Model, kw_only=True):
    int_: int | None = msgspec.field(name="int", default=None)
    bool_: bool | None = msgspec.field(name="bool", default=None)
    string: AttributeText | None = None
    version: AttributeText | None = None
    one_of = (("int", "bool", "string", "version"),)


class DeviceCounterConsumption(Model, kw_only=True):
    counter_set: str
    counters: Annotated[dict[str, Counter], Most(limits.COUNTERS)]


class BasicDevice(Model, kw_only=True):
    attributes: dict[str, DeviceAttribute] | None = None
    capacity: dict[str, Quantity] | None = None
    consumes_counters: list[DeviceCounterConsumption] | None = None
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    taints: Annotated[list[DeviceTaint], Most(limits.TAINTS_EARLY)] | None = None


class Device(Model, kw_only=True):
    name: str
    basic: BasicDevice | None = None
    one_of = (("basic",),)


class ResourceSliceSpec(Model, kw_only=True):
    # No `one_of`: in this version an empty nodeName and a false allNodes count as absent, so that
    # several of these fields may be there.
    driver: Annotated[str, Most(limits.DRIVER_NAME)]
    pool: ResourcePool
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    devices: Annotated[list[Device], Most(limits.DEVICES)] | None = None
    per_device_node_selection: bool | None = None
    shared_counters: list[CounterSet] | None = None


class ResourceSlice(Object, kw_only=True):
    spec: ResourceSliceSpec


class ResourceSliceList(ObjectList, kw_only=True):
    items: list[ResourceSlice]


# ---------------------------------------------------------------- still served by 1.37


class DeviceTaintSelector(Model, kw_only=True):
    device_class_name: str | None = None  # until 1.35
    driver: Annotated[str, Most(limits.DRIVER_NAME)] | None = None
    pool: Annotated[str, Most(limits.POOL_NAME)] | None = None
    device: str | None = None
    selectors: Annotated[list[DeviceSelector], Most(limits.SELECTORS)] | None = None  # until 1.35


class DeviceTaintRuleSpec(Model, kw_only=True):
    device_selector: DeviceTaintSelector | None = None
    taint: DeviceTaint


class DeviceTaintRule(Object, kw_only=True):
    spec: DeviceTaintRuleSpec
    status: DeviceTaintRuleStatus | None = None  # since 1.35


class DeviceTaintRuleList(ObjectList, kw_only=True):
    items: list[DeviceTaintRule]


class ResourcePoolStatusRequestSpec(Model, kw_only=True):
    driver: Annotated[str, Most(limits.DRIVER_NAME)]
    pool_name: Annotated[str, Most(limits.POOL_NAME)] | None = None
    limit: int | None = None
    default_partition_type_attribute: str | None = None


class ShareableCapacityStatus(Model, kw_only=True):
    name: str
    total: Quantity
    consumed: Quantity
    available: Quantity


class ShareableSummaryStatus(Model, kw_only=True):
    fully_available_devices: int
    partially_available_devices: int
    capacity: Annotated[list[ShareableCapacityStatus], Most(limits.POOL_CAPACITIES)] | None = None


class PartitionTypeStatus(Model, kw_only=True):
    attribute: str
    type: str
    total: int
    allocatable: int


class PoolStatus(Model, kw_only=True):
    driver: str
    pool_name: str
    generation: int
    resource_slice_count: int | None = None
    total_devices: int | None = None
    allocated_devices: int | None = None
    available_devices: int | None = None
    unavailable_devices: int | None = None
    node_name: str | None = None
    validation_error: Annotated[str, Most(limits.POOL_VALIDATION_ERROR)] | None = None
    partition_summary: (
        Annotated[list[PartitionTypeStatus], Most(limits.POOL_PARTITION_TYPES)] | None
    ) = None
    shareable_summary: ShareableSummaryStatus | None = None


class ResourcePoolStatusRequestStatus(Model, kw_only=True):
    pool_count: int
    pools: Annotated[list[PoolStatus], Most(limits.POOLS)] | None = None
    conditions: (
        Annotated[list[Condition], Keys("type"), Most(limits.POOL_STATUS_CONDITIONS)] | None
    ) = None


class ResourcePoolStatusRequest(Object, kw_only=True):
    metadata: ObjectMeta  # required in this kind only
    spec: ResourcePoolStatusRequestSpec
    status: ResourcePoolStatusRequestStatus | None = None


class ResourcePoolStatusRequestList(ObjectList, kw_only=True):
    items: list[ResourcePoolStatusRequest]


KINDS: tuple[type[Object], ...] = (
    ResourceClaim,
    ResourceClaimTemplate,
    DeviceClass,
    ResourceSlice,
    DeviceTaintRule,
    ResourcePoolStatusRequest,
)
LISTS: tuple[type[ObjectList], ...] = (
    ResourceClaimList,
    ResourceClaimTemplateList,
    DeviceClassList,
    ResourceSliceList,
    DeviceTaintRuleList,
    ResourcePoolStatusRequestList,
)
