"""Small worlds for tests: GPUs, inventories and allocated claims, written out in one line each."""

from __future__ import annotations

from typing import Any

import msgspec

from claimd.kubernetes.api.resource import ResourceClaim
from claimd_devices.gpu import DeviceNode, Gpu, Inventory

DRIVER = "gpu.claimd.dev"
NODE = "node-1"


def gpu(index: int = 0, **changes: Any) -> Gpu:
    address = f"0000:{0x41 + index:02x}:00.0"
    facts: dict[str, Any] = {
        "name": "gpu-" + address.replace(":", "-").replace(".", "-"),
        "address": address,
        "vendor": "amd",
        "vendor_id": 0x1002,
        "device_id": 0x74A1,
        "driver": "amdgpu",
        "driver_version": "6.8.5",
        "product": "AMD Instinct MI300X",
        "uuid": f"{index:016x}",
        "memory": 192 << 30,
        "numa_node": 0,
        "pcie_root": "pci0000:40",
        "nodes": (
            DeviceNode(path=f"/dev/dri/card{index}", major=226, minor=index),
            DeviceNode(path=f"/dev/dri/renderD{128 + index}", major=226, minor=128 + index),
        ),
    }
    return Gpu(**{**facts, **changes})


def inventory(count: int = 4) -> Inventory:
    return Inventory.from_unsorted(gpu(index) for index in range(count))


def result(device: str, request: str = "gpu", **more: Any) -> dict[str, Any]:
    return {"request": request, "driver": DRIVER, "pool": NODE, "device": device, **more}


def claim_object(
    name: str = "c",
    *results: dict[str, Any],
    uid: str = "",
    config: list[dict[str, Any]] | None = None,
) -> dict[str, Any]:
    """A claim as the API server keeps it, allocated to the results (not allocated without any)."""
    status: dict[str, Any] = {}
    if results:
        status["allocation"] = {
            "devices": {"results": list(results), "config": config or []},
            "nodeSelector": {
                "nodeSelectorTerms": [
                    {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [NODE]}]}
                ]
            },
        }
        status["reservedFor"] = [
            {"resource": "pods", "name": f"pod-{name}", "uid": f"pod-uid-{name}"}
        ]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default", "uid": uid or f"uid-{name}"},
        "spec": {
            "devices": {
                "requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.claimd.dev"}}]
            }
        },
        "status": status,
    }


def claim(name: str = "c", *results: dict[str, Any], **more: Any) -> ResourceClaim:
    return msgspec.json.decode(
        msgspec.json.encode(claim_object(name, *results, **more)), type=ResourceClaim
    )


def opaque(
    parameters: Any, source: str = "FromClaim", requests: list[str] | None = None
) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "source": source,
        "opaque": {"driver": DRIVER, "parameters": parameters},
    }
    return {**entry, "requests": requests} if requests else entry


def gpu_config(**fields: Any) -> dict[str, Any]:
    return {"apiVersion": "claimd.dev/v1alpha1", "kind": "GpuConfig", **fields}
