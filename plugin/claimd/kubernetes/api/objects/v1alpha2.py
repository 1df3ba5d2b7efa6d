"""resource.k8s.io/v1alpha2, as Kubernetes 1.30 served it.

A class names its driver, parameters are objects of their own, and the controller of a driver
allocates. "Named resources" are the first form of structured parameters.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

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
from .v1 import ResourceClaimConsumerReference
from .v1alpha3_31 import PodSchedulingContextSpec

# ---------------------------------------------------------------- claims


class ResourceClaimParametersReference(Model, kw_only=True):
    api_group: str | None = None
    kind: str
    name: str


class ResourceClassParametersReference(Model, kw_only=True):
    api_group: str | None = None
    kind: str
    name: str
    namespace: str | None = None


class ResourceClaimSpec(Model, kw_only=True):
    resource_class_name: str
    parameters_ref: ResourceClaimParametersReference | None = None
    allocation_mode: Literal["WaitForFirstConsumer", "Immediate"] | None = None


class NamedResourcesAllocationResult(Model, kw_only=True):
    name: str


class DriverAllocationResult(Model, kw_only=True):
    vendor_request_parameters: Any = None
    named_resources: NamedResourcesAllocationResult | None = None


class StructuredResourceHandle(Model, kw_only=True):
    vendor_class_parameters: Any = None
    vendor_claim_parameters: Any = None
    node_name: str | None = None
    results: list[DriverAllocationResult]


class ResourceHandle(Model, kw_only=True):
    driver_name: str | None = None
    data: Annotated[str, Most(limits.HANDLE_DATA)] | None = None
    structured_data: StructuredResourceHandle | None = None


class AllocationResult(Model, kw_only=True):
    resource_handles: Annotated[list[ResourceHandle], Most(limits.RESOURCE_HANDLES)] | None = None
    available_on_nodes: NodeSelector | None = None
    shareable: bool | None = None


class ResourceClaimStatus(Model, kw_only=True):
    driver_name: str | None = None
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


# ---------------------------------------------------------------- classes and parameters


class ResourceClass(Object, kw_only=True):
    driver_name: str
    parameters_ref: ResourceClassParametersReference | None = None
    suitable_nodes: NodeSelector | None = None
    structured_parameters: bool | None = None


class ResourceClassList(ObjectList, kw_only=True):
    items: list[ResourceClass]


class NamedResourcesRequest(Model, kw_only=True):
    selector: str


class NamedResourcesFilter(Model, kw_only=True):
    selector: str


class ResourceRequest(Model, kw_only=True):
    vendor_parameters: Any = None
    named_resources: NamedResourcesRequest | None = None


class DriverRequests(Model, kw_only=True):
    driver_name: str | None = None
    vendor_parameters: Any = None
    requests: list[ResourceRequest] | None = None


class ResourceClaimParameters(Object, kw_only=True):
    generated_from: ResourceClaimParametersReference | None = None
    shareable: bool | None = None
    driver_requests: list[DriverRequests] | None = None


class ResourceClaimParametersList(ObjectList, kw_only=True):
    items: list[ResourceClaimParameters]


class VendorParameters(Model, kw_only=True):
    driver_name: str | None = None
    parameters: Any = None


class ResourceFilter(Model, kw_only=True):
    driver_name: str | None = None
    named_resources: NamedResourcesFilter | None = None


class ResourceClassParameters(Object, kw_only=True):
    generated_from: ResourceClassParametersReference | None = None
    vendor_parameters: list[VendorParameters] | None = None
    filters: list[ResourceFilter] | None = None


class ResourceClassParametersList(ObjectList, kw_only=True):
    items: list[ResourceClassParameters]


# ---------------------------------------------------------------- slices


class NamedResourcesIntSlice(Model, kw_only=True):
    ints: list[int]


class NamedResourcesStringSlice(Model, kw_only=True):
    strings: list[str]


class NamedResourcesAttribute(Model, kw_only=True):
    name: str
    quantity: Quantity | None = None
    bool_: bool | None = msgspec.field(name="bool", default=None)
    int_: int | None = msgspec.field(name="int", default=None)
    int_slice: NamedResourcesIntSlice | None = None
    string: str | None = None
    string_slice: NamedResourcesStringSlice | None = None
    version: str | None = None
    one_of = (("quantity", "bool", "int", "intSlice", "string", "stringSlice", "version"),)


class NamedResourcesInstance(Model, kw_only=True):
    name: str
    attributes: list[NamedResourcesAttribute] | None = None


class NamedResourcesResources(Model, kw_only=True):
    instances: list[NamedResourcesInstance]


class ResourceSlice(Object, kw_only=True):
    node_name: str | None = None
    driver_name: str
    named_resources: NamedResourcesResources | None = None


class ResourceSliceList(ObjectList, kw_only=True):
    items: list[ResourceSlice]


# ---------------------------------------------------------------- negotiation of the scheduler
# with the controller of a driver


class ResourceClaimSchedulingStatus(Model, kw_only=True):
    name: str | None = None
    unsuitable_nodes: Annotated[list[str], Most(limits.UNSUITABLE_NODES)] | None = None


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
    ResourceClass,
    ResourceClaimParameters,
    ResourceClassParameters,
    ResourceSlice,
    PodSchedulingContext,
)
LISTS: tuple[type[ObjectList], ...] = (
    ResourceClaimList,
    ResourceClaimTemplateList,
    ResourceClassList,
    ResourceClaimParametersList,
    ResourceClassParametersList,
    ResourceSliceList,
    PodSchedulingContextList,
)
