"""resource.k8s.io in the shape of v1, with the fields that a driver reads in claims and writes.

The names of the fields are those of the API, in snake case.
"""

from __future__ import annotations

from typing import Any

import msgspec

from .meta import ApiStruct, Condition, ObjectMeta

GROUP = "resource.k8s.io"
STANDARD = "resource.kubernetes.io/"  # the domain of the attributes that all drivers share


class OpaqueConfig(ApiStruct, frozen=True, kw_only=True):
    driver: str
    parameters: msgspec.Raw = msgspec.Raw(b"null")


class DeviceAllocationConfiguration(ApiStruct, frozen=True, kw_only=True):
    source: str = ""  # FromClass, FromClaim
    requests: list[str] = []
    opaque: OpaqueConfig | None = None


class DeviceRequestAllocationResult(ApiStruct, frozen=True, kw_only=True):
    request: str  # "req", or "req/sub" of a prioritised list
    driver: str
    pool: str
    device: str
    admin_access: bool | None = None
    share_id: str | None = msgspec.field(name="shareID", default=None)
    consumed_capacity: dict[str, str] | None = None  # quantities, by the capacity's name
    binding_conditions: list[str] | None = None  # must be true before the pod is bound
    tolerations: list[dict[str, Any]] | None = None


class DeviceAllocationResult(ApiStruct, frozen=True, kw_only=True):
    results: list[DeviceRequestAllocationResult] = []
    config: list[DeviceAllocationConfiguration] = []


class AllocationResult(ApiStruct, frozen=True, kw_only=True):
    devices: DeviceAllocationResult = DeviceAllocationResult()
    allocation_timestamp: str | None = None


class ResourceClaimConsumerReference(ApiStruct, frozen=True, kw_only=True):
    api_group: str = ""
    resource: str = ""
    name: str = ""
    uid: str = ""


class AllocatedDeviceStatus(ApiStruct, frozen=True, kw_only=True):
    driver: str
    pool: str
    device: str
    share_id: str | None = msgspec.field(name="shareID", default=None)
    conditions: list[Condition] | None = None  # null in the API server's answer if empty
    data: dict[str, Any] | None = None


class ResourceClaimStatus(ApiStruct, frozen=True, kw_only=True):
    allocation: AllocationResult | None = None
    reserved_for: list[ResourceClaimConsumerReference] = []
    devices: list[AllocatedDeviceStatus] = []


class ResourceClaim(ApiStruct, frozen=True, kw_only=True):
    metadata: ObjectMeta
    status: ResourceClaimStatus = ResourceClaimStatus()


class DeviceAttribute(ApiStruct, frozen=True, kw_only=True):
    """One typed value: exactly one field is set."""

    int_: int | None = msgspec.field(name="int", default=None)
    bool_: bool | None = msgspec.field(name="bool", default=None)
    string: str | None = None
    version: str | None = None
    # An API server whose gate for lists is off refuses the whole slice.
    ints: list[int] | None = None

    @property
    def value(self) -> int | bool | str | list[int] | None:
        """The value of the field that is set."""
        for value in (self.int_, self.bool_, self.string, self.version, self.ints):
            if value is not None:
                return value
        return None


class CapacityRequestPolicyRange(ApiStruct, frozen=True, kw_only=True):
    min: str | None = None
    max: str | None = None
    step: str | None = None


class CapacityRequestPolicy(ApiStruct, frozen=True, kw_only=True):
    """The amounts of a capacity that a claim may request, and the default without a request."""

    default: str | None = None
    valid_values: list[str] | None = None
    valid_range: CapacityRequestPolicyRange | None = None


class DeviceCapacity(ApiStruct, frozen=True, kw_only=True):
    value: str  # a quantity in its canonical form
    request_policy: CapacityRequestPolicy | None = None  # only where a device may be shared


class Counter(ApiStruct, frozen=True, kw_only=True):
    value: str  # a quantity


class CounterSet(ApiStruct, frozen=True, kw_only=True):
    """The resources that the devices of one GPU share."""

    name: str
    counters: dict[str, Counter] = {}


class DeviceCounterConsumption(ApiStruct, frozen=True, kw_only=True):
    counter_set: str
    counters: dict[str, Counter] = {}


class DeviceTaint(ApiStruct, frozen=True, kw_only=True):
    key: str
    value: str = ""
    effect: str
    time_added: str | None = None


class Device(ApiStruct, frozen=True, kw_only=True):
    name: str
    attributes: dict[str, DeviceAttribute] = {}
    capacity: dict[str, DeviceCapacity] = {}
    consumes_counters: list[DeviceCounterConsumption] = []
    taints: list[DeviceTaint] = []
    binding_conditions: list[str] = []
    binding_failure_conditions: list[str] = []
    allow_multiple_allocations: bool | None = None


class ResourcePool(ApiStruct, frozen=True, kw_only=True, omit_defaults=False):
    name: str
    generation: int
    resource_slice_count: int


class ResourceSliceSpec(ApiStruct, frozen=True, kw_only=True):
    driver: str
    pool: ResourcePool
    node_name: str
    devices: list[Device] = []
    shared_counters: list[CounterSet] = []  # a slice has these or devices


class ResourceSlice(ApiStruct, frozen=True, kw_only=True):
    metadata: ObjectMeta
    spec: ResourceSliceSpec
