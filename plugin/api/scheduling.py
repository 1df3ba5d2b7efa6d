"""resource.k8s.io in the shape of v1 as a scheduler reads it: whole claims, classes, slices and
taint rules.

The running plugin keeps to resource.py, which has what a driver needs and costs it a third of the
memory. No behaviour.
"""

from __future__ import annotations

import msgspec

from .core import NodeSelector
from .meta import ObjectMeta, Wire
from .resource import (
    Counter,
    CounterSet,
    DeviceAllocationConfiguration,
    DeviceTaint,
    OpaqueConfig,
    ResourcePool,
)


class DeviceToleration(Wire, frozen=True, kw_only=True):
    key: str = ""
    operator: str = ""  # Exists, Equal; empty is Equal
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class DeviceRequestAllocationResult(Wire, frozen=True, kw_only=True):
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


class DeviceAllocationResult(Wire, frozen=True, kw_only=True):
    results: list[DeviceRequestAllocationResult] = []
    config: list[DeviceAllocationConfiguration] = []


class AllocationResult(Wire, frozen=True, kw_only=True):
    devices: DeviceAllocationResult = DeviceAllocationResult()
    node_selector: NodeSelector | None = None


class ResourceClaimStatus(Wire, frozen=True, kw_only=True):
    allocation: AllocationResult | None = None


class CELDeviceSelector(Wire, frozen=True, kw_only=True):
    expression: str = ""


class DeviceSelector(Wire, frozen=True, kw_only=True):
    cel: CELDeviceSelector | None = None


class CapacityRequirements(Wire, frozen=True, kw_only=True):
    requests: dict[str, str] = {}


class DeviceDerivedAttribute(Wire, frozen=True, kw_only=True):
    name: str
    expression: str = ""


class ExactDeviceRequest(Wire, frozen=True, kw_only=True):
    device_class_name: str = ""
    selectors: list[DeviceSelector] = []
    allocation_mode: str = "ExactCount"
    count: int = 1
    admin_access: bool | None = None
    tolerations: list[DeviceToleration] = []
    capacity: CapacityRequirements | None = None
    derived_attributes: list[DeviceDerivedAttribute] = []


class DeviceSubRequest(Wire, frozen=True, kw_only=True):
    name: str
    device_class_name: str = ""
    selectors: list[DeviceSelector] = []
    allocation_mode: str = "ExactCount"
    count: int = 1
    tolerations: list[DeviceToleration] = []
    capacity: CapacityRequirements | None = None
    derived_attributes: list[DeviceDerivedAttribute] = []


class DeviceRequest(Wire, frozen=True, kw_only=True):
    name: str
    exactly: ExactDeviceRequest | None = None
    first_available: list[DeviceSubRequest] = []


class DeviceConstraint(Wire, frozen=True, kw_only=True):
    requests: list[str] = []  # empty: all
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class DeviceClaimConfiguration(Wire, frozen=True, kw_only=True):
    requests: list[str] = []
    opaque: OpaqueConfig | None = None


class DeviceClaim(Wire, frozen=True, kw_only=True):
    requests: list[DeviceRequest] | None = None  # the API server writes null where there are none
    constraints: list[DeviceConstraint] = []
    config: list[DeviceClaimConfiguration] = []


class ResourceClaimSpec(Wire, frozen=True, kw_only=True):
    devices: DeviceClaim = DeviceClaim()


class ResourceClaim(Wire, frozen=True, kw_only=True):
    metadata: ObjectMeta
    spec: ResourceClaimSpec = ResourceClaimSpec()
    status: ResourceClaimStatus = ResourceClaimStatus()


class DeviceClassConfiguration(Wire, frozen=True, kw_only=True):
    opaque: OpaqueConfig | None = None


class DeviceClassSpec(Wire, frozen=True, kw_only=True):
    selectors: list[DeviceSelector] = []
    config: list[DeviceClassConfiguration] = []
    extended_resource_name: str | None = None


class DeviceClass(Wire, frozen=True, kw_only=True):
    metadata: ObjectMeta
    spec: DeviceClassSpec = DeviceClassSpec()


class DeviceAttribute(Wire, frozen=True, kw_only=True):
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
        """The one value; None where there is a list of them."""
        return next(
            (v for v in (self.int_, self.bool_, self.string, self.version) if v is not None), None
        )


class CapacityRequestPolicyRange(Wire, frozen=True, kw_only=True):
    min: str | None = None
    max: str | None = None
    step: str | None = None


class CapacityRequestPolicy(Wire, frozen=True, kw_only=True):
    default: str | None = None
    valid_values: list[str] | None = None
    valid_range: CapacityRequestPolicyRange | None = None


class DeviceCapacity(Wire, frozen=True, kw_only=True):
    value: str  # a quantity in its canonical form
    request_policy: CapacityRequestPolicy | None = None


class DeviceCounterConsumption(Wire, frozen=True, kw_only=True):
    counter_set: str
    counters: dict[str, Counter] = {}
    compatibility_groups: list[str] = []


class Device(Wire, frozen=True, kw_only=True):
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


class ResourceSliceSpec(Wire, frozen=True, kw_only=True):
    driver: str
    pool: ResourcePool
    node_name: str = ""  # empty: another field says where the devices are
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    devices: list[Device] = []
    per_device_node_selection: bool | None = None
    shared_counters: list[CounterSet] = []
    skip_node_operations: list[str] = []


class ResourceSlice(Wire, frozen=True, kw_only=True):
    metadata: ObjectMeta
    spec: ResourceSliceSpec


class DeviceTaintSelector(Wire, frozen=True, kw_only=True):
    driver: str | None = None
    pool: str | None = None
    device: str | None = None


class DeviceTaintRuleSpec(Wire, frozen=True, kw_only=True):
    device_selector: DeviceTaintSelector | None = None
    taint: DeviceTaint


class DeviceTaintRule(Wire, frozen=True, kw_only=True):
    metadata: ObjectMeta
    spec: DeviceTaintRuleSpec
