"""Fields of disabled features: they are dropped, unless the old object already uses them."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec

from claimd.kubernetes.api.document import Document

from .profile import Profile

# The fields of each feature by kind and gate. `[]` means each item of a list, and `{}` each entry
# of a map.
REQUEST = "spec.devices.requests[]"
EXACT, ALTERNATIVE = f"{REQUEST}.exactly", f"{REQUEST}.firstAvailable[]"
RESULT = "status.allocation.devices.results[]"
DEVICE = "spec.devices[]"
GATED_FIELDS: dict[str, dict[str, tuple[str, ...]]] = {
    "ResourceClaim": {
        "DRAPrioritizedList": (f"{REQUEST}.firstAvailable",),
        "DRAAdminAccess": (f"{EXACT}.adminAccess", f"{REQUEST}.adminAccess"),
        "DRAConsumableCapacity": (
            f"{EXACT}.capacity",
            f"{ALTERNATIVE}.capacity",
            f"{RESULT}.shareID",
            f"{RESULT}.consumedCapacity",
            "status.devices[].shareID",
        ),
        "DRADerivedAttributes": (f"{EXACT}.derivedAttributes", f"{ALTERNATIVE}.derivedAttributes"),
        "DRADeviceBindingConditions": (
            "status.allocation.allocationTimestamp",
            f"{RESULT}.bindingConditions",
            f"{RESULT}.bindingFailureConditions",
        ),
        "DRAOptionalNodeOperations": (f"{RESULT}.skipNodeOperations",),
    },
    "DeviceClass": {"DRAExtendedResource": ("spec.extendedResourceName",)},
    "ResourceSlice": {
        "DRADeviceTaints": (f"{DEVICE}.taints",),
        "DRAPartitionableDevices": (
            "spec.sharedCounters",
            "spec.perDeviceNodeSelection",
            f"{DEVICE}.consumesCounters",
            f"{DEVICE}.nodeName",
            f"{DEVICE}.nodeSelector",
            f"{DEVICE}.allNodes",
        ),
        "DRADeviceBindingConditions": (
            f"{DEVICE}.bindingConditions",
            f"{DEVICE}.bindingFailureConditions",
            f"{DEVICE}.bindsToNode",
        ),
        "DRAConsumableCapacity": (
            f"{DEVICE}.allowMultipleAllocations",
            f"{DEVICE}.capacity{{}}.requestPolicy",
        ),
        "DRADeviceCompatibilityGroups": (f"{DEVICE}.consumesCounters[].compatibilityGroups",),
        "DRANodeAllocatableResources": (f"{DEVICE}.nodeAllocatableResources",),
        "DRAListTypeAttributes": (
            f"{DEVICE}.attributes{{}}.ints",
            f"{DEVICE}.attributes{{}}.bools",
            f"{DEVICE}.attributes{{}}.strings",
            f"{DEVICE}.attributes{{}}.versions",
        ),
        "DRAPartitionableDevicesType": ("spec.partitionTypeAttribute",),
        "DRAOptionalNodeOperations": ("spec.skipNodeOperations",),
    },
    "Pod": {"GenericWorkload": ("spec.schedulingGroup",)},
    "ResourcePoolStatusRequest": {
        "DRAPartitionableDevicesType": ("spec.defaultPartitionTypeAttribute",)
    },
}

# The spec of a template contains the spec of a claim.
GATED_FIELDS["ResourceClaimTemplate"] = {}
for _gate, _paths in GATED_FIELDS["ResourceClaim"].items():
    _of_spec = tuple(f"spec.{path}" for path in _paths if path.startswith("spec."))
    GATED_FIELDS["ResourceClaimTemplate"][_gate] = _of_spec


def drop_disabled(kind: str, new: Document, old: Document | None, profile: Profile) -> Document:
    """Returns the object without the fields of disabled features.

    If the old object uses a feature, none of the feature's fields are dropped.
    """
    gated = GATED_FIELDS.get(kind, {})
    disabled = [gate for gate in gated if gate not in profile.gates]
    # A quick check: hardly any object contains the name of such a field.
    text = msgspec.json.encode(new) if disabled else b""
    for gate in disabled:
        paths = [path for path in gated[gate] if _last_name(path) in text]
        if not paths:
            continue
        if old is not None and any(_is_in_use(old, path) for path in gated[gate]):
            continue
        for path in paths:
            if _values_at(new, path):
                new = _drop_path(new, path.split("."))
    return new


@cache
def _last_name(path: str) -> bytes:
    return path.rpartition(".")[2].rstrip("[]{}").encode()


def _is_in_use(old: Document, path: str) -> bool:
    return any(value not in ([], {}) for value in _values_at(old, path))


def _values_at(value: Any, path: str) -> list[Any]:
    """Returns the values at the path, from each list item and map entry that it passes."""
    values = [value]
    for step in path.split("."):
        name = step.rstrip("[]{}")
        # Take the step from every value that the path has reached.
        below: list[Any] = []
        for holder in values:
            inside = holder.get(name) if isinstance(holder, dict) else None
            if inside is None:
                continue
            if step.endswith("[]"):
                below.extend(inside)
            elif step.endswith("{}"):
                below.extend(inside.values())
            else:
                below.append(inside)
        values = below
    return values


def _drop_path(value: Any, steps: list[str]) -> Any:
    """Returns a copy of the value without the path. Unchanged parts are shared."""
    step, *rest = steps
    name = step.rstrip("[]{}")
    inside = value.get(name) if isinstance(value, dict) else None
    if inside is None:
        return value
    if not rest:
        return {key: below for key, below in value.items() if key != name}
    # Each item, entry or struct below is copied only if it contains the path.
    if step.endswith("[]"):
        pruned: Any = [_drop_path(item, rest) for item in inside]
    elif step.endswith("{}"):
        pruned = {key: _drop_path(entry, rest) for key, entry in inside.items()}
    else:
        pruned = _drop_path(inside, rest)
    return value | {name: pruned}
