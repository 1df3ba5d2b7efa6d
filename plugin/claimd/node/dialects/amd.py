"""The dialect of `gpu.amd.com`, AMD's driver, with the older names of attributes as well."""

from __future__ import annotations

import re
from collections.abc import Mapping

from claimd.kubernetes.api.resource import DeviceAttribute, DeviceCapacity
from claimd_devices.gpu import Gpu

from . import documents, values

VENDOR = "amd"
_API_VERSION = "gpu.resource.amd.com/v1alpha1"

_TYPES = {"gpu": "amdgpu", "vf": "amdgpu", "partition": "amdgpu-partition"}
_PROFILE = re.compile(r"([a-z]+)_(nps\d+)")
_NO_PROFILE = "none"
_CARD, _RENDER = re.compile(r"/dev/dri/card(\d+)"), re.compile(r"/dev/dri/renderD(\d+)")
_WAVE64 = re.compile(r"gfx9[0-9a-f]{2}")  # GCN and CDNA
_WAVE32 = re.compile(r"gfx1[0-2][0-9a-f]{2}")  # RDNA


def attributes(
    published: Mapping[str, DeviceAttribute], gpu: Gpu, whole: Gpu | None
) -> dict[str, DeviceAttribute]:
    words = dict(published)
    words["type"] = DeviceAttribute(string=_TYPES.get(gpu.kind, gpu.kind))
    words["pciAddr"] = DeviceAttribute(string=gpu.address)

    profile = _PROFILE.fullmatch(gpu.profile or "")
    words["partitionProfile"] = DeviceAttribute(string=profile[0] if profile else _NO_PROFILE)
    words["computePartition"] = DeviceAttribute(string=profile[1] if profile else _NO_PROFILE)
    words["memoryPartition"] = DeviceAttribute(string=profile[2] if profile else _NO_PROFILE)

    numbers = {
        "cardIndex": _number(gpu, _CARD),
        "renderIndex": _number(gpu, _RENDER),
        "numaNode": gpu.numa_node if gpu.numa_node != -1 else None,
    }
    for name, number in numbers.items():
        if number is not None:
            words[name] = DeviceAttribute(int_=number)
    return dict(sorted(words.items()))


def capacities(published: Mapping[str, DeviceCapacity], gpu: Gpu) -> dict[str, DeviceCapacity]:
    """Adds AMD's capacities. Unknown compute units are 0, and each device counts as one partition."""
    words = dict(published)
    words.setdefault("computeUnits", values.capacity_beside(published, "0"))
    words["simdUnits"] = values.capacity_beside(published, str(_simd_units(gpu)))
    words["partitions"] = values.capacity_beside(published, "1")
    return words


def check_config(document: Mapping[str, object]) -> None:
    kinds = {"GpuConfig": documents.Config, "VfioDeviceConfig": documents.VfioDeviceConfig}
    documents.parse(document, _API_VERSION, kinds)


def _number(gpu: Gpu, form: re.Pattern[str]) -> int | None:
    for node in gpu.nodes:
        match = form.fullmatch(node.path)
        if match is not None:
            return int(match[1])
    return None


def _simd_units(gpu: Gpu) -> int:
    """Returns the SIMD units: four in a compute unit with 64 lanes, two in one with 32 lanes."""
    if _WAVE64.fullmatch(gpu.architecture or ""):
        return 4 * (gpu.compute_units or 0)
    if _WAVE32.fullmatch(gpu.architecture or ""):
        return 2 * (gpu.compute_units or 0)
    return 0
