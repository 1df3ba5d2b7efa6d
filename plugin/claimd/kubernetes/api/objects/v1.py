"""resource.k8s.io/v1, as Kubernetes 1.37 serves it. v1beta2 has the same fields."""

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
from .shapes import Keys, Most, Unique

RequestNames = Annotated[list[str], Most(limits.REQUESTS)]
Effect = Literal["None", "NoSchedule", "NoExecute"]
AttributeText = Annotated[str, Most(limits.ATTRIBUTE_VALUE)]
Operations = Annotated[
    list[Literal["NodePrepareResources", "NodeUnprepareResources", "*"]], Unique()
]

# ---------------------------------------------------------------- selectors, configuration, taints


class CELDeviceSelector(Model, kw_only=True):
    expression: Annotated[str, Most(limits.EXPRESSION)]


class DeviceSelector(Model, kw_only=True):
    cel: CELDeviceSelector | None = None
    one_of = (("cel",),)


class OpaqueDeviceConfiguration(Model, kw_only=True):
    driver: Annotated[str, Most(limits.DRIVER_NAME)]
    parameters: Annotated[Any, Most(limits.PARAMETERS)]


class DeviceClaimConfiguration(Model, kw_only=True):
    requests: RequestNames | None = None
    opaque: OpaqueDeviceConfiguration | None = None
    one_of = (("opaque",),)


class DeviceClassConfiguration(Model, kw_only=True):
    opaque: OpaqueDeviceConfiguration | None = None
    one_of = (("opaque",),)


class DeviceAllocationConfiguration(Model, kw_only=True):
    source: Literal["FromClass", "FromClaim"]
    requests: RequestNames | None = None
    opaque: OpaqueDeviceConfiguration | None = None
    one_of = (("opaque",),)


class DeviceTaint(Model, kw_only=True):
    key: str
    value: str | None = None
    effect: Effect
    time_added: str | None = None


class DeviceToleration(Model, kw_only=True):
    key: str | None = None
    operator: Literal["Exists", "Equal"] | None = None
    value: str | None = None
    effect: Effect | None = None
    toleration_seconds: int | None = None


# ---------------------------------------------------------------- claims


class CapacityRequirements(Model, kw_only=True):
    requests: dict[str, Quantity] | None = None


class DeviceDerivedAttribute(Model, kw_only=True):
    name: str
    expression: Annotated[str, Most(limits.EXPRESSION)]


class ExactDeviceRequest(Model, kw_only=True):
    device_class_name: str
    selectors: Annotated[list[DeviceSelector], Most(limits.SELECTORS)] | None = None
    allocation_mode: Literal["ExactCount", "All"] | None = None
    count: int | None = None
    admin_access: bool | None = None
    tolerations: Annotated[list[DeviceToleration], Most(limits.TOLERATIONS)] | None = None
    capacity: CapacityRequirements | None = None
    derived_attributes: (
        Annotated[list[DeviceDerivedAttribute], Most(limits.DERIVED_ATTRIBUTES)] | None
    ) = None


class DeviceSubRequest(Model, kw_only=True):
    name: str
    device_class_name: str
    selectors: Annotated[list[DeviceSelector], Most(limits.SELECTORS)] | None = None
    allocation_mode: Literal["ExactCount", "All"] | None = None
    count: int | None = None
    tolerations: Annotated[list[DeviceToleration], Most(limits.TOLERATIONS)] | None = None
    capacity: CapacityRequirements | None = None
    derived_attributes: (
        Annotated[list[DeviceDerivedAttribute], Most(limits.DERIVED_ATTRIBUTES)] | None
    ) = None


class DeviceRequest(Model, kw_only=True):
    name: str
    exactly: ExactDeviceRequest | None = None
    first_available: Annotated[list[DeviceSubRequest], Most(limits.FIRST_AVAILABLE)] | None = None
    one_of = (("exactly", "firstAvailable"),)


class DeviceConstraint(Model, kw_only=True):
    requests: RequestNames | None = None
    match_attribute: str | None = None
    distinct_attribute: str | None = None
    one_of = (("matchAttribute", "distinctAttribute"),)


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
    binding_conditions: Annotated[list[str], Most(limits.BINDING_CONDITIONS)] | None = None
    binding_failure_conditions: Annotated[list[str], Most(limits.BINDING_CONDITIONS)] | None = None
    share_id: str | None = msgspec.field(name="shareID", default=None)
    consumed_capacity: dict[str, Quantity] | None = None
    skip_node_operations: Operations | None = None


class DeviceAllocationResult(Model, kw_only=True):
    results: Annotated[list[DeviceRequestAllocationResult], Most(limits.RESULTS)] | None = None
    config: (
        Annotated[list[DeviceAllocationConfiguration], Most(limits.ALLOCATION_CONFIGS)] | None
    ) = None


class AllocationResult(Model, kw_only=True):
    devices: DeviceAllocationResult | None = None
    node_selector: NodeSelector | None = None
    allocation_timestamp: str | None = None


class NetworkDeviceData(Model, kw_only=True):
    interface_name: Annotated[str, Most(limits.INTERFACE_NAME)] | None = None
    ips: Annotated[list[str], Most(limits.IPS)] | None = None
    hardware_address: Annotated[str, Most(limits.HARDWARE_ADDRESS)] | None = None


class AllocatedDeviceStatus(Model, kw_only=True):
    driver: Annotated[str, Most(limits.DRIVER_NAME)]
    pool: Annotated[str, Most(limits.POOL_NAME)]
    device: str
    share_id: str | None = msgspec.field(name="shareID", default=None)
    conditions: Annotated[list[Condition], Keys("type"), Most(limits.CONDITIONS)] | None = None
    data: Annotated[Any, Most(limits.DEVICE_DATA)] = None
    network_data: NetworkDeviceData | None = None


class ResourceClaimConsumerReference(Model, kw_only=True):
    api_group: str | None = None
    resource: str
    name: str
    uid: str


class ResourceClaimStatus(Model, kw_only=True):
    allocation: AllocationResult | None = None
    devices: (
        Annotated[list[AllocatedDeviceStatus], Keys("driver", "pool", "device", "shareID")] | None
    ) = None
    reserved_for: (
        Annotated[list[ResourceClaimConsumerReference], Keys("uid"), Most(limits.RESERVED_FOR)]
        | None
    ) = None


class ResourceClaim(Object, kw_only=True):
    spec: ResourceClaimSpec | None = None
    status: ResourceClaimStatus | None = None


class ResourceClaimList(ObjectList, kw_only=True):
    items: list[ResourceClaim]


class ResourceClaimTemplateSpec(Model, kw_only=True):
    metadata: ObjectMeta | None = None
    spec: ResourceClaimSpec | None = None


class ResourceClaimTemplate(Object, kw_only=True):
    spec: ResourceClaimTemplateSpec | None = None


class ResourceClaimTemplateList(ObjectList, kw_only=True):
    items: list[ResourceClaimTemplate]


# ---------------------------------------------------------------- classes


class DeviceClassSpec(Model, kw_only=True):
    selectors: Annotated[list[DeviceSelector], Most(limits.SELECTORS)] | None = None
    config: Annotated[list[DeviceClassConfiguration], Most(limits.CONFIGS)] | None = None
    extended_resource_name: str | None = None


class DeviceClass(Object, kw_only=True):
    spec: DeviceClassSpec | None = None


class DeviceClassList(ObjectList, kw_only=True):
    items: list[DeviceClass]


# ---------------------------------------------------------------- slices


class CapacityRequestPolicyRange(Model, kw_only=True):
    min: Quantity
    max: Quantity | None = None
    step: Quantity | None = None


class CapacityRequestPolicy(Model, kw_only=True):
    default: Quantity | None = None
    valid_values: Annotated[list[Quantity], Most(limits.VALID_VALUES)] | None = None
    valid_range: CapacityRequestPolicyRange | None = None


class DeviceCapacity(Model, kw_only=True):
    value: Quantity
    request_policy: CapacityRequestPolicy | None = None


class DeviceAttribute(Model, kw_only=True):
    int_: int | None = msgspec.field(name="int", default=None)
    bool_: bool | None = msgspec.field(name="bool", default=None)
    string: AttributeText | None = None
    version: AttributeText | None = None
    ints: list[int] | None = None
    bools: list[bool] | None = None
    strings: list[AttributeText] | None = None
    versions: list[AttributeText] | None = None
    one_of = (("int", "bool", "string", "version", "ints", "bools", "strings", "versions"),)


class Counter(Model, kw_only=True):
    value: Quantity


class CounterSet(Model, kw_only=True):
    name: str
    counters: Annotated[dict[str, Counter], Most(limits.COUNTERS)]


class DeviceCounterConsumption(Model, kw_only=True):
    counter_set: str
    counters: Annotated[dict[str, Counter], Most(limits.COUNTERS)]
    compatibility_groups: Annotated[list[str], Most(limits.COMPATIBILITY_GROUPS)] | None = None


class NodeAllocatableMapping(Model, kw_only=True):
    capacity_key: str | None = None
    capacity_multiplier: Quantity | None = None
    device_multiplier: Quantity | None = None


class NodeAllocatableOverhead(Model, kw_only=True):
    per_pod: Quantity | None = None
    per_container: Quantity | None = None


class NodeAllocatableResource(Model, kw_only=True):
    mapping: NodeAllocatableMapping | None = None
    overhead: NodeAllocatableOverhead | None = None


class Device(Model, kw_only=True):
    name: str
    attributes: dict[str, DeviceAttribute] | None = None
    capacity: dict[str, DeviceCapacity] | None = None
    consumes_counters: (
        Annotated[list[DeviceCounterConsumption], Most(limits.CONSUMED_COUNTER_SETS)] | None
    ) = None
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    taints: Annotated[list[DeviceTaint], Most(limits.TAINTS)] | None = None
    binds_to_node: bool | None = None
    binding_conditions: Annotated[list[str], Most(limits.BINDING_CONDITIONS)] | None = None
    binding_failure_conditions: Annotated[list[str], Most(limits.BINDING_CONDITIONS)] | None = None
    allow_multiple_allocations: bool | None = None
    node_allocatable_resources: dict[str, NodeAllocatableResource] | None = None


class ResourcePool(Model, kw_only=True):
    name: Annotated[str, Most(limits.POOL_NAME)]
    generation: int
    resource_slice_count: int


class ResourceSliceSpec(Model, kw_only=True):
    driver: Annotated[str, Most(limits.DRIVER_NAME)]
    pool: ResourcePool
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    devices: Annotated[list[Device], Most(limits.DEVICES)] | None = None
    per_device_node_selection: bool | None = None
    shared_counters: Annotated[list[CounterSet], Most(limits.COUNTER_SETS)] | None = None
    partition_type_attribute: str | None = None
    skip_node_operations: Operations | None = None
    one_of = (("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection"),)


class ResourceSlice(Object, kw_only=True):
    spec: ResourceSliceSpec


class ResourceSliceList(ObjectList, kw_only=True):
    items: list[ResourceSlice]


# ---------------------------------------------------------------- taint rules


class DeviceTaintSelector(Model, kw_only=True):
    driver: Annotated[str, Most(limits.DRIVER_NAME)] | None = None
    pool: Annotated[str, Most(limits.POOL_NAME)] | None = None
    device: str | None = None


class DeviceTaintRuleSpec(Model, kw_only=True):
    device_selector: DeviceTaintSelector | None = None
    taint: DeviceTaint


class DeviceTaintRuleStatus(Model, kw_only=True):
    conditions: Annotated[list[Condition], Keys("type"), Most(limits.CONDITIONS)] | None = None


class DeviceTaintRule(Object, kw_only=True):
    spec: DeviceTaintRuleSpec
    status: DeviceTaintRuleStatus | None = None


class DeviceTaintRuleList(ObjectList, kw_only=True):
    items: list[DeviceTaintRule]


KINDS: tuple[type[Object], ...] = (
    ResourceClaim,
    ResourceClaimTemplate,
    DeviceClass,
    ResourceSlice,
    DeviceTaintRule,
)
LISTS: tuple[type[ObjectList], ...] = (
    ResourceClaimList,
    ResourceClaimTemplateList,
    DeviceClassList,
    ResourceSliceList,
    DeviceTaintRuleList,
)
