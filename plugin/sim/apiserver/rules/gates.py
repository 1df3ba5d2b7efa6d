"""Fields of features that are off: they are dropped, unless the old object has them already."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....api.document import Document
from .profile import Profile

# Where a feature's fields are; [] goes into each item of a list, {} into each entry of a map.
SPEC = "spec.devices.requests[]"
EXACT = (f"{SPEC}.exactly", f"{SPEC}.firstAvailable[]")
RESULTS = "status.allocation.devices.results[]"
FIELDS: dict[str, dict[str, tuple[str, ...]]] = {
    "ResourceClaim": {
        "DRAPrioritizedList": (f"{SPEC}.firstAvailable",),
        "DRAAdminAccess": (f"{SPEC}.exactly.adminAccess", f"{SPEC}.adminAccess"),
        "DRAConsumableCapacity": (
            *(f"{place}.capacity" for place in EXACT),
            f"{RESULTS}.shareID",
            f"{RESULTS}.consumedCapacity",
            "status.devices[].shareID",
        ),
        "DRADerivedAttributes": tuple(f"{place}.derivedAttributes" for place in EXACT),
        "DRADeviceBindingConditions": (
            "status.allocation.allocationTimestamp",
            *(f"{RESULTS}.{name}" for name in ("bindingConditions", "bindingFailureConditions")),
        ),
        "DRAOptionalNodeOperations": (f"{RESULTS}.skipNodeOperations",),
    },
    "DeviceClass": {"DRAExtendedResource": ("spec.extendedResourceName",)},
    "ResourceSlice": {
        "DRADeviceTaints": ("spec.devices[].taints",),
        "DRAPartitionableDevices": (
            "spec.sharedCounters",
            "spec.perDeviceNodeSelection",
            *(
                f"spec.devices[].{name}"
                for name in ("consumesCounters", "nodeName", "nodeSelector", "allNodes")
            ),
        ),
        "DRADeviceBindingConditions": tuple(
            f"spec.devices[].{name}"
            for name in ("bindingConditions", "bindingFailureConditions", "bindsToNode")
        ),
        "DRAConsumableCapacity": (
            "spec.devices[].allowMultipleAllocations",
            "spec.devices[].capacity{}.requestPolicy",
        ),
        "DRADeviceCompatibilityGroups": ("spec.devices[].consumesCounters[].compatibilityGroups",),
        "DRANodeAllocatableResources": ("spec.devices[].nodeAllocatableResources",),
        "DRAListTypeAttributes": tuple(
            f"spec.devices[].attributes{{}}.{name}"
            for name in ("ints", "bools", "strings", "versions")
        ),
        "DRAPartitionableDevicesType": ("spec.partitionTypeAttribute",),
        "DRAOptionalNodeOperations": ("spec.skipNodeOperations",),
    },
    "ResourcePoolStatusRequest": {
        "DRAPartitionableDevicesType": ("spec.defaultPartitionTypeAttribute",)
    },
}
FIELDS["ResourceClaimTemplate"] = {
    gate: tuple(f"spec.{place}" for place in places if place.startswith("spec."))
    for gate, places in FIELDS["ResourceClaim"].items()
}


def without_disabled(kind: str, new: Document, old: Document | None, profile: Profile) -> Document:
    for gate, places in FIELDS.get(kind, {}).items():
        if gate in profile.gates or (old is not None and any(_has(old, place) for place in places)):
            continue
        for place in places:
            if _has(new, place, empty=True):
                new = _without(new, place.split("."))
    return new


def _has(value: Any, place: str, empty: bool = False) -> bool:
    """Something is there. `empty`: even if nothing is in it."""
    nothing: tuple[Any, ...] = (None,) if empty else (None, [], {})
    found = [value]
    for step in place.split("."):
        name = step.rstrip("[]{}")
        below = [
            one[name] for one in found if isinstance(one, dict) and one.get(name) not in nothing
        ]
        if step.endswith("[]"):
            below = [item for items in below for item in items]
        elif step.endswith("{}"):
            below = [item for items in below for item in items.values()]
        found = below
    return bool(found)


def _without(value: Any, way: list[str]) -> Any:
    step, *rest = way
    name = step.rstrip("[]{}")
    if not isinstance(value, dict) or value.get(name) is None:
        return value
    if not rest:
        return {key: below for key, below in value.items() if key != name}
    return value | {name: _each(step)(lambda below: _without(below, rest), value[name])}


def _each(step: str) -> Callable[[Callable[[Any], Any], Any], Any]:
    if step.endswith("[]"):
        return lambda change, items: [change(item) for item in items]
    if step.endswith("{}"):
        return lambda change, items: {name: change(item) for name, item in items.items()}
    return lambda change, item: change(item)
