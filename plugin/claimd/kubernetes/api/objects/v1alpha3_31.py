"""resource.k8s.io/v1alpha3, as Kubernetes 1.31 served it.

Structured parameters have their first form. The fields for allocation by the controller of a driver
are still there: deallocationRequested, controller, PodSchedulingContext.
"""

from __future__ import annotations

from typing import Annotated, Literal

from .. import limits

# Every class of this version can be imported from here, also if nothing below uses it.
from .meta import (  # noqa: F401
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
    CELDeviceSelector,
    DeviceAllocationConfiguration,
    DeviceClaimConfiguration,
    DeviceClassConfiguration,
    DeviceSelector,
    OpaqueDeviceConfiguration,
    ResourceClaimConsumerReference,
    ResourcePool,
)
from .v1alpha3 import DeviceAttribute, DeviceConstraint

# ---------------------------------------------------------------- claims


class DeviceRequest(Model, kw_only=True):
    name: str
    device_class_name: str
    selectors: Annotated[list[DeviceSelector], Most(limits.SELECTORS)] | None = None
    allocation_mode: Literal["ExactCount", "All"] | None = None
    count: int | None = None
    admin_access: bool | None = None


class DeviceClaim(Model, kw_only=True):
    requests: Annotated[list[DeviceRequest], Most(limits.REQUESTS)] | None = None
    constraints: Annotated[list[DeviceConstraint], Most(limits.CONSTRAINTS)] | None = None
    config: Annotated[list[DeviceClaimConfiguration], Most(limits.CONFIGS)] | None = None


class ResourceClaimSpec(Model, kw_only=True):
    devices: DeviceClaim | None = None
    controller: str | None = None


class DeviceRequestAllocationResult(Model, kw_only=True):
    request: str
    driver: Annotated[str, Most(limits.DRIVER_NAME)]
    pool: Annotated[str, Most(limits.POOL_NAME)]
    device: str


class DeviceAllocationResult(Model, kw_only=True):
    results: Annotated[list[DeviceRequestAllocationResult], Most(limits.RESULTS)] | None = None
    config: (
        Annotated[list[DeviceAllocationConfiguration], Most(limits.ALLOCATION_CONFIGS)] | None
    ) = None


class AllocationResult(Model, kw_only=True):
    devices: DeviceAllocationResult | None = None
    node_selector: NodeSelector | None = None
    controller: str | None = None


class ResourceClaimStatus(Model, kw_only=True):
    allocation: AllocationResult | None = None
    reserved_for: (
        Annotated[
            list[ResourceClaimConsumerReference], Keys("uid"), Most(limits.RESERVED_FOR_EARLY)
        ]
        | None
    ) = None
    deallocation_requested: bool | None = None


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
    suitable_nodes: NodeSelector | None = None


class DeviceClass(Object, kw_only=True):
    spec: DeviceClassSpec


class DeviceClassList(ObjectList, kw_only=True):
    items: list[DeviceClass]


class BasicDevice(Model, kw_only=True):
    attributes: dict[str, DeviceAttribute] | None = None
    capacity: dict[str, Quantity] | None = None


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


class ResourceSlice(Object, kw_only=True):
    spec: ResourceSliceSpec


class ResourceSliceList(ObjectList, kw_only=True):
    items: list[ResourceSlice]


# ---------------------------------------------------------------- negotiation of the scheduler
# with the controller of a driver


class ResourceClaimSchedulingStatus(Model, kw_only=True):
    name: str
    unsuitable_nodes: Annotated[list[str], Most(limits.UNSUITABLE_NODES)] | None = None


class PodSchedulingContextSpec(Model, kw_only=True):
    selected_node: str | None = None
    potential_nodes: Annotated[list[str], Most(limits.POTENTIAL_NODES)] | None = None


class PodSchedulingContextStatus(Model, kw_only=True):
    resource_claims: Annotated[list[ResourceClaimSchedulingStatus], Keys("name")] | None = None


class PodSchedulingContext(Object, kw_only=True):
    spec: PodSchedulingContextSpec
    status: PodSchedulingContextStatus | None = None


class PodSchedulingContextList(ObjectList, kw_only=True):
    items: list[PodSchedulingContext]


KINDS: tuple[type[Object], ...] = (
    ResourceClaim,
    ResourceClaimTemplate,
    DeviceClass,
    ResourceSlice,
    PodSchedulingContext,
)
LISTS: tuple[type[ObjectList], ...] = (
    ResourceClaimList,
    ResourceClaimTemplateList,
    DeviceClassList,
    ResourceSliceList,
    PodSchedulingContextList,
)
