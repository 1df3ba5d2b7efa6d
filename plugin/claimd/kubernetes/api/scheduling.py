"""resource.k8s.io in the shape of v1, with the fields that a scheduler reads.

These are whole claims, classes, slices and taint rules. The running plugin uses resource.py
instead, which has what a driver needs and takes a third of the memory.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from .core import NodeSelector
from .meta import ApiStruct, ObjectMeta
from .resource import (
    Counter,
    CounterSet,
    DeviceAllocationConfiguration,
    DeviceCapacity,
    DeviceTaint,
    OpaqueConfig,
    ResourcePool,
)


class DeviceToleration(ApiStruct, frozen=True, kw_only=True):
    key: str = ""
    operator: str = ""  # Exists, Equal; empty is Equal
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class DeviceRequestAllocationResult(ApiStruct, frozen=True, kw_only=True):
    request: str  # "req", or "req/sub" of a prioritised list
    driver: str
    pool: str
    device: str
    admin_access: bool | None = None
    tolerations: list[DeviceToleration] = []
    binding_conditions: list[str] = []
    binding_failure_conditions: list[str] = []
    share_id: str | None = msgspec.field(name="shareID", default=None)
    consumed_capacity: dict[str, str] | None = None
    skip_node_operations: list[str] = []


class DeviceAllocationResult(ApiStruct, frozen=True, kw_only=True):
    results: list[DeviceRequestAllocationResult] = []
    config: list[DeviceAllocationConfiguration] = []


class AllocationResult(ApiStruct, frozen=True, kw_only=True):
    devices: DeviceAllocationResult = DeviceAllocationResult()
    node_selector: NodeSelector | None = None


class ResourceClaimStatus(ApiStruct, frozen=True, kw_only=True):
    allocation: AllocationResult | None = None


class CELDeviceSelector(ApiStruct, frozen=True, kw_only=True):
    expression: str = ""


class DeviceSelector(ApiStruct, frozen=True, kw_only=True):
    cel: CELDeviceSelector | None = None


class CapacityRequirements(ApiStruct, frozen=True, kw_only=True):
    requests: dict[str, str] = {}


class DeviceDerivedAttribute(ApiStruct, frozen=True, kw_only=True):
    name: str
    expression: str = ""


class ExactDeviceRequest(ApiStruct, frozen=True, kw_only=True):
    device_class_name: str = ""
    selectors: list[DeviceSelector] = []
    allocation_mode: str = "ExactCount"
    count: int = 1
    admin_access: bool | None = None
    tolerations: list[DeviceToleration] = []
    capacity: CapacityRequirements | None = None
    derived_attributes: list[DeviceDerivedAttribute] = []


class DeviceSubRequest(ApiStruct, frozen=True, kw_only=True):
    name: str
    device_class_name: str = ""
    selectors: list[DeviceSelector] = []
    allocation_mode: str = "ExactCount"
    count: int = 1
    tolerations: list[DeviceToleration] = []
    capacity: CapacityRequirements | None = None
    derived_attributes: list[DeviceDerivedAttribute] = []


class DeviceRequest(ApiStruct, frozen=True, kw_only=True):
    name: str
    exactly: ExactDeviceRequest | None = None
    first_available: list[DeviceSubRequest] = []


class DeviceConstraint(ApiStruct, frozen=True, kw_only=True):
    requests: list[str] = []  # empty: all
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class DeviceClaimConfiguration(ApiStruct, frozen=True, kw_only=True):
    requests: list[str] = []
    opaque: OpaqueConfig | None = None


class DeviceClaim(ApiStruct, frozen=True, kw_only=True):
    requests: list[DeviceRequest] | None = None  # null in the API server's answer if empty
    constraints: list[DeviceConstraint] = []
    config: list[DeviceClaimConfiguration] = []


class ResourceClaimSpec(ApiStruct, frozen=True, kw_only=True):
    devices: DeviceClaim = DeviceClaim()

    def alternatives(self) -> Iterator[tuple[str, ExactDeviceRequest | DeviceSubRequest]]:
        """Yields each request, or each of its alternatives, with its path: "gpu" or "gpu/large"."""
        for request in self.devices.requests or ():
            if request.exactly is not None:
                yield request.name, request.exactly
            for subrequest in request.first_available:
                yield f"{request.name}/{subrequest.name}", subrequest


class ResourceClaim(ApiStruct, frozen=True, kw_only=True):
    metadata: ObjectMeta
    spec: ResourceClaimSpec = ResourceClaimSpec()
    status: ResourceClaimStatus = ResourceClaimStatus()


class DeviceClassConfiguration(ApiStruct, frozen=True, kw_only=True):
    opaque: OpaqueConfig | None = None


class DeviceClassSpec(ApiStruct, frozen=True, kw_only=True):
    selectors: list[DeviceSelector] = []
    config: list[DeviceClassConfiguration] = []
    extended_resource_name: str | None = None


class DeviceClass(ApiStruct, frozen=True, kw_only=True):
    metadata: ObjectMeta
    spec: DeviceClassSpec = DeviceClassSpec()


class DeviceAttribute(ApiStruct, frozen=True, kw_only=True):
    """One typed value or a list of them: exactly one field is set."""

    int_: int | None = msgspec.field(name="int", default=None)
    bool_: bool | None = msgspec.field(name="bool", default=None)
    string: str | None = None
    version: str | None = None
    ints: list[int] | None = None
    bools: list[bool] | None = None
    strings: list[str] | None = None
    versions: list[str] | None = None

    @property
    def value(self) -> int | bool | str | None:
        """The single value, or None for a list of values."""
        for value in (self.int_, self.bool_, self.string, self.version):
            if value is not None:
                return value
        return None


class DeviceCounterConsumption(ApiStruct, frozen=True, kw_only=True):
    counter_set: str
    counters: dict[str, Counter] = {}
    compatibility_groups: list[str] = []


class Device(ApiStruct, frozen=True, kw_only=True):
    name: str
    attributes: dict[str, DeviceAttribute] = {}
    capacity: dict[str, DeviceCapacity] = {}
    consumes_counters: list[DeviceCounterConsumption] = []
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    taints: list[DeviceTaint] = []
    binds_to_node: bool | None = None
    binding_conditions: list[str] = []
    binding_failure_conditions: list[str] = []
    allow_multiple_allocations: bool | None = None


class ResourceSliceSpec(ApiStruct, frozen=True, kw_only=True):
    driver: str
    pool: ResourcePool
    node_name: str = ""  # empty: another field says where the devices are
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    devices: list[Device] = []
    per_device_node_selection: bool | None = None
    shared_counters: list[CounterSet] = []
    skip_node_operations: list[str] = []


class ResourceSlice(ApiStruct, frozen=True, kw_only=True):
    metadata: ObjectMeta
    spec: ResourceSliceSpec


class DeviceTaintSelector(ApiStruct, frozen=True, kw_only=True):
    driver: str | None = None
    pool: str | None = None
    device: str | None = None


class DeviceTaintRuleSpec(ApiStruct, frozen=True, kw_only=True):
    device_selector: DeviceTaintSelector | None = None
    taint: DeviceTaint


class DeviceTaintRule(ApiStruct, frozen=True, kw_only=True):
    metadata: ObjectMeta
    spec: DeviceTaintRuleSpec
