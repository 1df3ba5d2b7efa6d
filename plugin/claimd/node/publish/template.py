"""What a node that does not exist yet will publish, as autoscalers simulate it. Pure.

From the slices of a node of the same kind: without what only a node that runs can tell. What is the
same for some of its devices, whatever it will be, is told as a binding.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

Document = dict[str, Any]

# Another value on each node, so that none can be told beforehand.
OF_ONE_NODE = frozenset(["uuid", "vbios", "console", "resource.kubernetes.io/pciBusID"])
# Another value on each node, which some devices have in common: claims match by these.
IN_COMMON = ("resource.kubernetes.io/pcieRoot", "resource.kubernetes.io/numaNode")
_OF_A_DEVICE = ("attributes", "capacity", "consumesCounters", "allowMultipleAllocations")


def of(slices: Iterable[Document], pool: str) -> Document:
    """As Karpenter's cloud providers describe an instance type, with its pool called `pool`.

    The slices are as the API has them in v1. Fields are named as in Kubernetes' API.
    """
    templates: list[Document] = []
    common: dict[tuple[str, str, str], list[str]] = {}
    for slice_ in slices:
        spec = slice_["spec"]
        made: Document = {"driver": spec["driver"], "pool": {"name": pool}}
        if counters := spec.get("sharedCounters"):
            made["sharedCounters"] = counters
        if devices := spec.get("devices"):
            made["devices"] = [_device(device) for device in devices]
        templates.append(made)

        for device in spec.get("devices") or ():
            for name in IN_COMMON:
                value = (device.get("attributes") or {}).get(name)
                if value is not None:
                    key = name, spec["driver"], str(value)
                    common.setdefault(key, []).append(device["name"])

    bindings = [
        {
            "attribute": name,
            "devices": [{"driver": driver, "pool": pool, "device": device} for device in devices],
        }
        for (name, driver, _), devices in common.items()
        if len(devices) > 1
    ]
    return {"resourceSliceTemplates": templates, "attributeBindings": bindings}


def _device(device: Document) -> Document:
    """Without taints: those are of a node that lives."""
    made = {"name": device["name"]}
    made |= {field: device[field] for field in _OF_A_DEVICE if device.get(field)}
    if attributes := made.get("attributes"):
        left_out = OF_ONE_NODE | set(IN_COMMON)
        made["attributes"] = {
            name: value for name, value in attributes.items() if name not in left_out
        }
    return made


def cluster_api_annotations(template: Document) -> dict[str, str]:
    """What the Cluster API's provider of the cluster autoscaler reads of a node group.

    It knows one driver and a number of devices, all without attributes.
    """
    counts: dict[str, int] = {}
    for slice_ in template["resourceSliceTemplates"]:
        # Parts of a device come and go with how it is divided.
        whole = [
            device
            for device in slice_.get("devices", ())
            if "parent" not in device.get("attributes", {})
        ]
        counts[slice_["driver"]] = counts.get(slice_["driver"], 0) + len(whole)
    if not counts:
        return {}
    driver = max(counts, key=lambda name: counts[name])
    prefix = "capacity.cluster-autoscaler.kubernetes.io"
    return {f"{prefix}/dra-driver": driver, f"{prefix}/gpu-count": str(counts[driver])}
