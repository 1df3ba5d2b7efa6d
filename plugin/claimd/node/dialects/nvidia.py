"""The dialect of `gpu.nvidia.com`, NVIDIA's driver, for its DeviceClasses and tools that read slices."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from claimd.common import errors, names
from claimd.kubernetes.api.resource import DeviceAttribute, DeviceCapacity
from claimd_devices.gpu import UNKNOWN, Engines, Gpu

from . import documents, values

VENDOR = "nvidia"
_API_VERSION = "resource.nvidia.com/v1beta1"

_NODE = re.compile(r"/dev/nvidia(\d+)")

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

    # An unknown uuid is left out, so that instances of different GPUs do not appear to match.
    if whole is not None and whole.uuid is not None:
        words["parentUUID"] = DeviceAttribute(string=whole.uuid)
    minor = _minor(gpu) if whole is None else None
    if minor is not None:
        words["minor"] = DeviceAttribute(int_=minor)
    return dict(sorted(words.items()))


def capacities(published: Mapping[str, DeviceCapacity], gpu: Gpu) -> dict[str, DeviceCapacity]:
    """Adds the multiprocessors and the engines of a MIG instance, which are 0 if unknown.

    A selector that reads a missing capacity would be an error. There is room for engines that were
    left out, because attributes of ours make room here.
    """
    words = dict(published)
    if gpu.kind == "partition":
        none = values.capacity_beside(published, "0")
        words["multiprocessors"] = words.get("computeUnits", none)
        for name, number in _engines(gpu.engines or Engines()).items():
            words.setdefault(name, values.capacity_beside(published, str(number)))
    return words


def _engines(engines: Engines) -> dict[str, int]:
    return {
        "copyEngines": engines.copy,
        "decoders": engines.decoders,
        "encoders": engines.encoders,
        "jpegEngines": engines.jpeg,
        "ofaEngines": engines.optical_flow,
    }


def _brand(product: str | None) -> str:
    for form, brand in _BRANDS:
        if form.match(product or ""):
            return brand
    return UNKNOWN


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
