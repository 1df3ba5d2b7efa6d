"""claimd in the place of a vendor's driver: claims that select as people's do get what they mean.

One spec of each kind that the vendors' demos and tests have, in our own words, put to the slices and the classes
of the components. Their own, on a simulated cluster: tests/support/vendor_specs.py.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from claimd.kubernetes import allocator
from claimd.kubernetes.api.core import Node
from claimd.kubernetes.api.scheduling import DeviceClass, ResourceClaim, ResourceSlice
from claimd.node.publish import sharing, slices
from claimd_devices import fake, scan
from claimd_devices.gpu import Gpu, Inventory, Roots, Rules
from tests.support import manifests
from tests.support.allocating import read

DEPLOY = Path(__file__).resolve().parent.parent / "deploy"
NODE = "node-1"


def seen(words: Iterable[str], vendor: str) -> Inventory:
    """A machine's GPUs, of which the component takes the vendor's."""
    with tempfile.TemporaryDirectory(prefix="claimd-test-") as folder:
        fake.write(Path(folder), fake.parse(words))
        return scan.scan(Roots.in_folder(Path(folder)), Rules(include=(vendor,), vfio=True))


class Driver:
    """A vendor's, as the component has it, on one node."""

    def __init__(self, vendor: str, inventory: Inventory, share: tuple[str, ...] = ()) -> None:
        self.name = f"gpu.{vendor}.com"
        options = slices.Options(sharing=sharing.parse(share))
        built, self.problems = slices.build(inventory, self.name, NODE, options)
        self.devices = {device.name: device for slice_ in built for device in slice_.spec.devices}
        text = (DEPLOY / f"components/as-{vendor}/deviceclasses.yaml").read_text()
        self._allocator = allocator.Allocator(
            class_lister=allocator.Classes(read(manifests.read(text), list[DeviceClass])),
            slices=tuple(read(built, list[ResourceSlice])),
        )

    def given(
        self, requests: dict[str, dict[str, Any]], **devices: Any
    ) -> dict[str, list[str]] | None:
        """The devices of each request; None if the claim gets none. An error of a selector is raised."""
        exactly = {"allocationMode": "ExactCount", "count": 1}
        asked = [{"name": name, "exactly": exactly | request} for name, request in requests.items()]
        claim = {
            "metadata": {"name": "c", "namespace": "default"},
            "spec": {"devices": {"requests": asked, **devices}},
        }
        node = read({"metadata": {"name": NODE}}, Node)
        results = self._allocator.allocate(node, [read(claim, ResourceClaim)])
        if results is None:
            return None
        given_devices: dict[str, list[str]] = {}
        for result in results[0].devices.results:
            given_devices.setdefault(result.request, []).append(result.device)
        return given_devices


def asks(class_: str, *expressions: str, **more: Any) -> dict[str, Any]:
    selectors = [{"cel": {"expression": expression}} for expression in expressions]
    return {"deviceClassName": class_, "selectors": selectors, **more}


def with_parts(inventory: Inventory, change: Callable[[Gpu], dict[str, Any]]) -> Inventory:
    """Adds what only a vendor's library tells of parts, as the setting nvml does."""
    return Inventory.from_unsorted(
        dataclasses.replace(gpu, **change(gpu)) if gpu.parent else gpu for gpu in inventory.gpus
    )


# ---------------------------------------------------------------- NVIDIA

ON_NVIDIA = (
    "nvidia:a100=2",
    "nvidia:l4",
    "nvidia:a100,mig=7",
    "amd:mi300x",
    "nvidia:l4,driver=vfio-pci",
)
MINE, HAS = 'device.attributes["gpu.nvidia.com"]', 'device.capacity["gpu.nvidia.com"]'


@pytest.fixture(scope="module")
def nvidia() -> Driver:
    return Driver("nvidia", seen(ON_NVIDIA, "nvidia"))


def test_no_other_vendors_gpu_is_published(nvidia: Driver) -> None:
    assert {device.attributes["vendor"].string for device in nvidia.devices.values()} == {"nvidia"}
    assert nvidia.problems == []


@pytest.mark.parametrize(
    ("class_", "type_", "count"),
    [
        ("gpu.nvidia.com", "gpu", 3),
        ("mig.nvidia.com", "mig", 7),
        ("vfio.gpu.nvidia.com", "vfio", 1),
    ],
)
def test_a_class_of_nvidias_has_all_of_its_kind_and_no_others(
    nvidia: Driver, class_: str, type_: str, count: int
) -> None:
    given_ = nvidia.given({"all": asks(class_, allocationMode="All", count=0)})
    assert given_ is not None
    assert len(given_["all"]) == count
    assert {nvidia.devices[name].attributes["type"].string for name in given_["all"]} == {type_}
    assert nvidia.given({"too-many": asks(class_, count=count + 1)}) is None


@pytest.mark.parametrize(
    ("class_", "expression", "suits"),
    [
        ("gpu.nvidia.com", f'{MINE}.productName.lowerAscii().matches("^.*a100.*$")', True),
        ("gpu.nvidia.com", f'{MINE}.productName.lowerAscii().matches("^.*h300.*$")', False),
        ("gpu.nvidia.com", f'{MINE}.driverVersion.compareTo(semver("550.0.0")) >= 0', True),
        ("gpu.nvidia.com", f'{MINE}.driverVersion.isGreaterThan(semver("999.0.0"))', False),
        ("gpu.nvidia.com", f'{HAS}.memory.compareTo(quantity("40Gi")) >= 0', True),
        ("gpu.nvidia.com", f'{HAS}.memory.isGreaterThan(quantity("200Gi"))', False),
        ("gpu.nvidia.com", f'{MINE}.architecture == "Ampere"', True),
        ("gpu.nvidia.com", f'{MINE}.architecture == "Hopper"', False),
        ("gpu.nvidia.com", f'{MINE}.brand == "Nvidia"', True),
        ("gpu.nvidia.com", f'{MINE}.cudaComputeCapability.isGreaterThan(semver("8.5.0"))', True),
        ("gpu.nvidia.com", f'{MINE}.cudaComputeCapability.compareTo(semver("9.0.0")) >= 0', False),
        ("gpu.nvidia.com", f'{MINE}.cudaDriverVersion.compareTo(semver("12.4.0")) >= 0', True),
        ("gpu.nvidia.com", f'{MINE}.uuid.startsWith("GPU-")', True),
        ("gpu.nvidia.com", f"{MINE}.minor == 1", True),
        ("mig.nvidia.com", f'{MINE}.profile == "1g.10gb"', True),
        ("mig.nvidia.com", f'{MINE}.profile == "3g.20gb"', False),
        ("mig.nvidia.com", f'{MINE}.productName.contains("A100")', True),
        # not known without NVIDIA's library, and no error all the same
        ("mig.nvidia.com", f'{HAS}.multiprocessors.isGreaterThan(quantity("10"))', False),
    ],
)
def test_selectors_as_nvidias_specs_have_them(
    nvidia: Driver, class_: str, expression: str, suits: bool
) -> None:
    assert (nvidia.given({"one": asks(class_, expression)}) is not None) is suits


def test_instances_of_several_profiles_on_one_gpu() -> None:
    """Checks what an instance has more than the smallest, which only NVIDIA's library tells."""
    words = ("nvidia:a100,mig=3g.40gb:2g.20gb:1g.10gb:1g.10gb", "nvidia:a100,mig=7")
    sizes = {1: ("3g.40gb", 42), 3: ("2g.20gb", 28)}

    def told(part: Gpu) -> dict[str, Any]:
        number = int(part.name.split("-")[-2])
        profile, processors = sizes.get(number, ("1g.10gb", 14))
        return {"profile": profile, "compute_units": processors}

    driver = Driver("nvidia", with_parts(seen(words, "nvidia"), told))
    of_profile = f'{MINE}.profile == "%s"'
    requests = {
        "small-0": asks("mig.nvidia.com", of_profile % "1g.10gb"),
        "small-1": asks("mig.nvidia.com", of_profile % "1g.10gb"),
        "middle": asks("mig.nvidia.com", of_profile % "2g.20gb"),
        "large": asks("mig.nvidia.com", f'{HAS}.multiprocessors.isGreaterThan(quantity("40"))'),
    }
    together = [{"requests": [], "matchAttribute": "gpu.nvidia.com/parentUUID"}]
    given_ = driver.given(requests, constraints=together)
    assert given_ is not None
    parents = {driver.devices[name].attributes["parentUUID"].string for (name,) in given_.values()}
    assert len(parents) == 1


def test_shares_are_asked_for_by_nvidias_names() -> None:
    for rule, capacity in (("*=memory", {"memory": "2Gi"}), ("*=shares:4", {"shares": "1"})):
        driver = Driver("nvidia", seen(("nvidia:l4",), "nvidia"), (rule,))
        asked = asks("gpu.nvidia.com", capacity={"requests": capacity})
        assert driver.given({"a": asked, "b": asked}) is not None


def test_instances_may_be_shared_as_well() -> None:
    driver = Driver("nvidia", seen(("nvidia:a100,mig=1g.10gb",), "nvidia"), ("parts=shares:3",))
    asked = asks("mig.nvidia.com")
    assert driver.given({"a": asked, "b": asked, "c": asked}) is not None
    assert driver.given({"a": asked, "b": asked, "c": asked, "d": asked}) is None


# ---------------------------------------------------------------- AMD

AMDS, AMD_HAS = 'device.attributes["gpu.amd.com"]', 'device.capacity["gpu.amd.com"]'


@pytest.fixture(scope="module")
def amd() -> Driver:
    words = ("amd:mi300x", "amd:mi210", "amd:mi300x=2,mode=cpx,memory_mode=nps4", "nvidia:l4")
    return Driver("amd", seen(words, "amd"))


def test_amds_class_has_whole_gpus_and_partitions_and_no_divided_gpu(amd: Driver) -> None:
    given_ = amd.given({"all": asks("gpu.amd.com", allocationMode="All", count=0)})
    assert given_ is not None
    types = [amd.devices[name].attributes["type"].string for name in given_["all"]]
    assert sorted(types) == ["amdgpu"] * 2 + ["amdgpu-partition"] * 16
    assert len(amd.devices) == 20


@pytest.mark.parametrize(
    ("expression", "count"),
    [
        (f'{AMDS}.type == "amdgpu"', 2),
        (f'{AMDS}.type == "amdgpu-partition"', 16),
        (f'{AMDS}.partitionProfile == "cpx_nps4"', 16),
        (f'{AMDS}.computePartition == "spx" && {AMDS}.memoryPartition == "nps1"', 1),
        (f'{AMDS}.productName.contains("MI210")', 1),
        (f'{AMDS}.driverVersion.compareTo(semver("6.0.0")) >= 0', 18),
        (f'{AMD_HAS}.memory.compareTo(quantity("128Gi")) >= 0', 1),
        (f'{AMD_HAS}.simdUnits.compareTo(quantity("1000")) >= 0', 1),
    ],
)
def test_selectors_as_amds_specs_have_them(amd: Driver, expression: str, count: int) -> None:
    assert amd.given({"one": asks("gpu.amd.com", expression, count=count)}) is not None
    assert amd.given({"one": asks("gpu.amd.com", expression, count=count + 1)}) is None


def test_a_partition_of_a_profile_is_asked_for_by_count(amd: Driver) -> None:
    of_profile = f'{AMDS}.computePartition == "cpx" && {AMDS}.memoryPartition == "nps4"'
    capacity = {"requests": {"partitions": "1"}}
    assert amd.given({"gpu": asks("gpu.amd.com", of_profile, capacity=capacity)}) is not None


def test_two_partitions_of_one_device_id(amd: Driver) -> None:
    part = asks("gpu.amd.com", f'{AMDS}.type == "amdgpu-partition"')
    same = [{"requests": ["p0", "p1"], "matchAttribute": "gpu.amd.com/deviceID"}]
    assert amd.given({"p0": part, "p1": part}, constraints=same) is not None


# ---------------------------------------------------------------- Intel

INTELS, INTEL_HAS = 'device.attributes["gpu.intel.com"]', 'device.capacity["gpu.intel.com"]'


@pytest.fixture(scope="module")
def intel() -> Driver:
    words = (
        "intel:flex170",
        "intel:arc",
        "intel:b580",
        "intel:flex170,vfs=2",
        "intel:b580,driver=vfio-pci",
        "amd:mi210",
    )
    return Driver("intel", seen(words, "intel"))


@pytest.mark.parametrize(
    ("class_", "expression", "count"),
    [
        ("gpu.intel.com", "true", 5),
        ("gpu-vfio.intel.com", "true", 1),
        ("gpu.intel.com", f'{INTELS}.type == "vf"', 2),
        ("gpu.intel.com", f'{INTELS}.family == "Data Center Flex"', 3),
        ("gpu.intel.com", f'{INTELS}.family.startsWith("Arc")', 2),
        ("gpu.intel.com", f'{INTELS}.model == "A770"', 1),
        ("gpu.intel.com", f'{INTELS}.driver == "i915"', 4),
        ("gpu.intel.com", f'{INTELS}.driver == "xe"', 1),
        ("gpu.intel.com", f'{INTELS}.pciId == "0xe20b"', 1),
        ("gpu.intel.com", f'{INTEL_HAS}.memory.compareTo(quantity("12Gi")) >= 0', 2),
        ("gpu.intel.com", f'{INTEL_HAS}.millicores.compareTo(quantity("1k")) >= 0', 5),
    ],
)
def test_selectors_as_intels_specs_have_them(
    intel: Driver, class_: str, expression: str, count: int
) -> None:
    assert intel.given({"one": asks(class_, expression, count=count)}) is not None
    assert intel.given({"one": asks(class_, expression, count=count + 1)}) is None


def test_gpus_below_one_root() -> None:
    driver = Driver("intel", seen(("intel:arc=4", "roots=2"), "intel"))
    below_one = [{"matchAttribute": "gpu.intel.com/pciRoot"}]
    two = {"gpu": asks("gpu.intel.com", count=2)}
    assert driver.given(two, constraints=below_one) is not None
    assert driver.given({"gpu": asks("gpu.intel.com", count=3)}, constraints=below_one) is None
