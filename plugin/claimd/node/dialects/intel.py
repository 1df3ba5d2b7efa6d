"""The dialect of `gpu.intel.com`, Intel's driver."""

from __future__ import annotations

from collections.abc import Mapping

from claimd.common import errors
from claimd.common.names import CONFIG_API_VERSION
from claimd.kubernetes.api.resource import DeviceAttribute, DeviceCapacity
from claimd_devices.gpu import UNKNOWN, Gpu

from . import values

VENDOR = "intel"

# Intel's driver names a family by its series, with other names for professional boards. The model is
# named without the series.
_SERIES = {
    "Arc A": "Arc A-Series",
    "Arc B": "Arc B-Series",
    "Data Center GPU Flex": "Data Center Flex",
    "Data Center GPU Max": "Data Center Max",
}
_PROFESSIONAL = "Arc Pro "
_PREFIXES = ("Intel ", "Data Center GPU ", _PROFESSIONAL, "Arc ")

_WHOLE = "1k"  # thousandths of a device


def attributes(
    published: Mapping[str, DeviceAttribute], gpu: Gpu, whole: Gpu | None
) -> dict[str, DeviceAttribute]:
    words = dict(published)
    words["family"] = DeviceAttribute(string=_family(gpu))
    words["model"] = DeviceAttribute(string=_model(gpu.product))
    words["pciId"] = published["deviceID"]
    words["pciAddress"] = DeviceAttribute(string=gpu.address)
    if gpu.pcie_root is not None:
        words["pciRoot"] = DeviceAttribute(string=gpu.pcie_root.rpartition(":")[2])
    return dict(sorted(words.items()))


def capacities(published: Mapping[str, DeviceCapacity], gpu: Gpu) -> dict[str, DeviceCapacity]:
    return {**published, "millicores": values.capacity_beside(published, _WHOLE)}


def check_config(document: Mapping[str, object]) -> None:
    raise errors.ClaimError(
        f"Intel's driver has no configurations of its own; this one takes GpuConfig of {CONFIG_API_VERSION}"
    )


def _family(gpu: Gpu) -> str:
    """Returns Intel's name of the family; claimd's name if Intel has none."""
    series = _SERIES.get(gpu.family or "")
    if series is None:
        return gpu.family or UNKNOWN
    if (gpu.product or "").removeprefix("Intel ").startswith(_PROFESSIONAL):
        return series.replace("Arc ", _PROFESSIONAL)
    return series


def _model(product: str | None) -> str:
    model = product or UNKNOWN
    for prefix in _PREFIXES:
        model = model.removeprefix(prefix)
    return model
