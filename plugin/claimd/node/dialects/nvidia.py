"""The dialect of `gpu.nvidia.com`, NVIDIA's driver, for its DeviceClasses and tools that read slices."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from claimd.common import errors, names
from claimd.kubernetes.api.resource import DeviceAttribute, DeviceCapacity
from claimd_devices.gpu import UNKNOWN, Gpu

from . import documents, values

VENDOR = "nvidia"
_API_VERSION = "resource.nvidia.com/v1beta1"

_NODE = re.compile(r"/dev/nvidia(\d+)")
_TARGET = re.compile(r"sm_(\d{1,2})(\d)")

# The CUDA version of each driver branch, as nvidia-smi prints it.
_CUDA = {
    450: "11.0.0",
    455: "11.1.0",
    460: "11.2.0",
    465: "11.3.0",
    470: "11.4.0",
    495: "11.5.0",
    510: "11.6.0",
    515: "11.7.0",
    520: "11.8.0",
    525: "12.0.0",
    530: "12.1.0",
    535: "12.2.0",
    545: "12.3.0",
    550: "12.4.0",
    555: "12.5.0",
    560: "12.6.0",
    565: "12.7.0",
    570: "12.8.0",
    575: "12.9.0",
    580: "13.0.0",
    590: "13.1.0",
    595: "13.2.0",
}

# NVIDIA's names of brands, for product names that leave no doubt. A Tesla V100 and a Tesla T4 have
# different brands, which only NVIDIA's library knows.
_BRANDS = (
    (re.compile(r"(NVIDIA )?GeForce "), "GeForce"),
    (re.compile(r"NVIDIA (A|B|H|L|GB|GH)\d+"), "Nvidia"),
)


def attributes(
    published: Mapping[str, DeviceAttribute], gpu: Gpu, whole: Gpu | None
) -> dict[str, DeviceAttribute]:
    words = dict(published)
    if gpu.kind == "partition":
        words["type"] = DeviceAttribute(string="mig")
    words["architecture"] = DeviceAttribute(string=gpu.family or UNKNOWN)
    words["brand"] = DeviceAttribute(string=_brand(gpu.product))
    words["cudaComputeCapability"] = DeviceAttribute(version=_compute_capability(gpu.architecture))
    words["cudaDriverVersion"] = DeviceAttribute(version=_cuda(gpu.driver_version))

    # An unknown uuid is left out, so that instances of different GPUs do not appear to match.
    if whole is not None and whole.uuid is not None:
        words["parentUUID"] = DeviceAttribute(string=whole.uuid)
    minor = _minor(gpu) if whole is None else None
    if minor is not None:
        words["minor"] = DeviceAttribute(int_=minor)
    return dict(sorted(words.items()))


def capacities(published: Mapping[str, DeviceCapacity], gpu: Gpu) -> dict[str, DeviceCapacity]:
    """Adds the multiprocessors of a MIG instance, which are 0 if unknown.

    A selector that reads a missing capacity would be an error.
    """
    words = dict(published)
    if gpu.kind == "partition":
        words["multiprocessors"] = words.get("computeUnits", values.capacity_beside(published, "0"))
    return words


def _brand(product: str | None) -> str:
    for form, brand in _BRANDS:
        if form.match(product or ""):
            return brand
    return UNKNOWN


def _compute_capability(architecture: str | None) -> str:
    """Returns 9.0.0 for sm_90 and 12.0.0 for sm_120."""
    target = _TARGET.fullmatch(architecture or "")
    return f"{int(target[1])}.{target[2]}.0" if target else values.NOT_KNOWN


def _cuda(driver_version: str | None) -> str:
    branch, _, _ = (driver_version or "").partition(".")
    return _CUDA.get(int(branch), values.NOT_KNOWN) if branch.isdecimal() else values.NOT_KNOWN


def _minor(gpu: Gpu) -> int | None:
    for node in gpu.nodes:
        match = _NODE.fullmatch(node.path)
        if match is not None:
            return int(match[1])
    return None


# ---------------------------------------------------------------------- configurations


class _TimeSlicing(documents.Strict, frozen=True, kw_only=True):
    interval: Literal["Default", "Short", "Medium", "Long"] = "Default"


class _Mps(documents.Strict, frozen=True, kw_only=True):
    default_active_thread_percentage: int | None = None
    default_pinned_device_memory_limit: str | int | None = None
    default_per_device_pinned_memory_limit: dict[str, str | int] | None = None
    multi_user: bool | None = None


class _MigSharing(documents.Strict, frozen=True, kw_only=True):
    strategy: Literal["TimeSlicing", "MPS"]
    mps_config: _Mps | None = None


class _Sharing(_MigSharing, frozen=True, kw_only=True):
    time_slicing_config: _TimeSlicing | None = None


class _GpuConfig(documents.Config, frozen=True, kw_only=True):
    sharing: _Sharing | None = None


class _MigDeviceConfig(documents.Config, frozen=True, kw_only=True):
    sharing: _MigSharing | None = None


_KINDS: dict[str, type[_GpuConfig | _MigDeviceConfig | documents.VfioDeviceConfig]] = {
    "GpuConfig": _GpuConfig,
    "MigDeviceConfig": _MigDeviceConfig,
    "VfioDeviceConfig": documents.VfioDeviceConfig,
}


def check_config(document: Mapping[str, object]) -> None:
    config = documents.parse(document, _API_VERSION, _KINDS)
    if not isinstance(config, documents.VfioDeviceConfig) and config.sharing is not None:
        _check_sharing(config.sharing)


def _check_sharing(sharing: _MigSharing) -> None:
    """Accepts only default time slices, which GPUs and MIG instances have anyway."""
    if sharing.strategy == "MPS":
        raise errors.ClaimError(
            "sharing by MPS needs NVIDIA's MPS daemon, which claimd does not start; where one runs, a "
            f"class makes containers its clients by `mps: FOLDER` in a GpuConfig of {names.CONFIG_API_VERSION}, "
            "and the setting share lets claims have a GPU by memory or by count"
        )
    slicing = sharing.time_slicing_config if isinstance(sharing, _Sharing) else None
    if slicing is not None and slicing.interval != "Default":
        raise errors.ClaimError(
            f"time slices of the interval {slicing.interval} are set by NVIDIA's tool alone, which claimd does "
            "not run; it takes the interval Default"
        )
