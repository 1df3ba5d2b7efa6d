"""Templates of the slices that a node will publish, for autoscalers, which simulate new nodes.

This module is pure. A template is made from the slices of a node of the same kind. Values that
differ on each node are left out. A binding says which devices will have the same value.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

Document = dict[str, Any]

# Attributes whose values differ on each node, so that they cannot be predicted.
OF_ONE_NODE = frozenset(
    ["uuid", "vbios", "console", "fabricState", "retiredPages", "resource.kubernetes.io/pciBusID"]
)

# Attributes whose values differ on each node but are equal for some devices: claims match by these.
IN_COMMON = ("resource.kubernetes.io/pcieRoot", "resource.kubernetes.io/numaNode", "fabric")
_OF_A_DEVICE = ("attributes", "capacity", "consumesCounters", "allowMultipleAllocations")


def build(slices: Iterable[Document], pool: str) -> Document:
    """Returns the template of a node whose pool is called `pool`.

    It has the form in which Karpenter's cloud providers describe an instance type. The slices must
    be in the form of v1. Fields are named as in Kubernetes' API.
    """
    templates: list[Document] = []
    common: dict[tuple[str, str, str], list[str]] = {}
    for slice_ in slices:
        spec = slice_["spec"]
        template: Document = {"driver": spec["driver"], "pool": {"name": pool}}
        if counters := spec.get("sharedCounters"):
            template["sharedCounters"] = counters
        if devices := spec.get("devices"):
            template["devices"] = [_device(device) for device in devices]
        templates.append(template)

        # Note which devices have a value in common.
        for device in spec.get("devices") or ():
            for name in IN_COMMON:
                value = (device.get("attributes") or {}).get(name)
                if value is not None:
                    key = name, spec["driver"], str(value)
                    common.setdefault(key, []).append(device["name"])

    bindings = [
        {
            "attribute": name if "/" in name else f"{driver}/{name}",
            "devices": [{"driver": driver, "pool": pool, "device": device} for device in devices],
        }
        for (name, driver, _), devices in common.items()
        if len(devices) > 1
    ]
    return {"resourceSliceTemplates": templates, "attributeBindings": bindings}


def _device(device: Document) -> Document:
    """Returns the device without taints, which only a running node can have."""
    described = {"name": device["name"]}
    described |= {field: device[field] for field in _OF_A_DEVICE if device.get(field)}
    if attributes := described.get("attributes"):
        left_out = OF_ONE_NODE | set(IN_COMMON)
        described["attributes"] = {
            name: value for name, value in attributes.items() if name not in left_out
        }
    return described


def cluster_api_annotations(template: Document) -> dict[str, str]:
    """Returns the annotations of a node group for the Cluster API provider of the cluster autoscaler.

    This provider knows only one driver and a number of devices without attributes.
    """
    counts: dict[str, int] = {}
    for slice_ in template["resourceSliceTemplates"]:
        # The parts of a GPU depend on how it is divided at the time, so only whole GPUs count.
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
