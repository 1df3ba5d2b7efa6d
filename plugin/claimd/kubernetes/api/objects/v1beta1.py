"""resource.k8s.io/v1beta1, as Kubernetes 1.37 serves it.

In contrast to v1, requests are flat, and devices nest their fields under `basic`.
"""

from __future__ import annotations

from typing import Annotated, Literal

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
)
from .model import Model
from .shapes import Most
from .v1 import (  # noqa: F401
    AllocatedDeviceStatus,
    AllocationResult,
    CapacityRequestPolicy,
    CapacityRequestPolicyRange,
    CapacityRequirements,
    CELDeviceSelector,
    Counter,
    CounterSet,
    DeviceAllocationConfiguration,
    DeviceAllocationResult,
    DeviceAttribute,
    DeviceCapacity,
    DeviceClaimConfiguration,
    DeviceClass,
    DeviceClassConfiguration,
    DeviceClassList,
    DeviceClassSpec,
    DeviceConstraint,
    DeviceCounterConsumption,
    DeviceDerivedAttribute,
    DeviceRequestAllocationResult,
    DeviceSelector,
    DeviceSubRequest,
    DeviceTaint,
    DeviceToleration,
    NetworkDeviceData,
    NodeAllocatableMapping,
    NodeAllocatableOverhead,
    NodeAllocatableResource,
    OpaqueDeviceConfiguration,
    Operations,
    ResourceClaimConsumerReference,
    ResourceClaimStatus,
    ResourcePool,
)


class DeviceRequest(Model, kw_only=True):
    name: str
    device_class_name: str | None = None
    selectors: Annotated[list[DeviceSelector], Most(limits.SELECTORS)] | None = None
    allocation_mode: Literal["ExactCount", "All"] | None = None
    count: int | None = None
    admin_access: bool | None = None
    first_available: Annotated[list[DeviceSubRequest], Most(limits.FIRST_AVAILABLE)] | None = None
    tolerations: Annotated[list[DeviceToleration], Most(limits.TOLERATIONS)] | None = None
    capacity: CapacityRequirements | None = None
    derived_attributes: (
        Annotated[list[DeviceDerivedAttribute], Most(limits.DERIVED_ATTRIBUTES)] | None
    ) = None
    one_of = (("deviceClassName", "firstAvailable"),)


class DeviceClaim(Model, kw_only=True):
    requests: Annotated[list[DeviceRequest], Most(limits.REQUESTS)] | None = None
    constraints: Annotated[list[DeviceConstraint], Most(limits.CONSTRAINTS)] | None = None
    config: Annotated[list[DeviceClaimConfiguration], Most(limits.CONFIGS)] | None = None


class ResourceClaimSpec(Model, kw_only=True):
    devices: DeviceClaim | None = None


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


class BasicDevice(Model, kw_only=True):
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
    shared_counters: Annotated[list[CounterSet], Most(limits.COUNTER_SETS)] | None = None
    partition_type_attribute: str | None = None
    skip_node_operations: Operations | None = None


class ResourceSlice(Object, kw_only=True):
    spec: ResourceSliceSpec


class ResourceSliceList(ObjectList, kw_only=True):
    items: list[ResourceSlice]


KINDS: tuple[type[Object], ...] = (ResourceClaim, ResourceClaimTemplate, DeviceClass, ResourceSlice)
LISTS: tuple[type[ObjectList], ...] = (
    ResourceClaimList,
    ResourceClaimTemplateList,
    DeviceClassList,
    ResourceSliceList,
)
