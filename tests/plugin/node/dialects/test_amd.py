"""Attributes, capacities and configurations in the words of AMD's driver."""

import dataclasses

import pytest

from claimd.common import errors
from claimd.node import dialects
from claimd.node.dialects import amd
from claimd.node.publish import device, sharing
from claimd_devices.gpu import DeviceNode
from tests.support import worlds


def gpu(**changes):
    facts = {"architecture": "gfx942", "compute_units": 304, "profile": "spx_nps1"}
    return worlds.gpu(**facts | changes)


def part(**changes):
    more = {
        "name": f"{gpu().name}-xcp-1",
        "kind": "partition",
        "parent": gpu().name,
        "profile": "cpx_nps4",
        "compute_units": 38,
        "nodes": (DeviceNode(path="/dev/dri/renderD137", major=226, minor=137),),
    }
    return dataclasses.replace(gpu(), **more | changes)


def attributes(gpu_):
    words = amd.attributes(device.of_gpu(gpu_, []).attributes, gpu_, None)
    return {name: attribute.value for name, attribute in words.items()}


def capacities(gpu_, **options):
    return amd.capacities(device.of_gpu(gpu_, [], **options).capacity, gpu_)


def test_whose_words_a_name_stands_for():
    assert dialects.of_driver("gpu.amd.com") is amd


def test_a_whole_gpu():
    described = attributes(gpu())
    expected = {
        "type": "amdgpu",
        "productName": "AMD Instinct MI300X",
        "partitionProfile": "spx_nps1",
        "computePartition": "spx",
        "memoryPartition": "nps1",
        "pciAddr": "0000:41:00.0",
        "cardIndex": 0,
        "renderIndex": 128,
        "numaNode": 0,
        "deviceID": "0x74a1",
        "driverVersion": "6.8.5",
    }
    assert {name: described.get(name) for name in expected} == expected
    assert list(described) == sorted(described)


def test_a_partition():
    described = attributes(part())
    assert (described["type"], described["partitionProfile"]) == ("amdgpu-partition", "cpx_nps4")
    assert (described["computePartition"], described["memoryPartition"]) == ("cpx", "nps4")
    assert described["renderIndex"] == 137
    assert "cardIndex" not in described


@pytest.mark.parametrize(
    ("changes", "name", "expected"),
    [
        ({"kind": "vf"}, "type", "amdgpu"),
        ({"kind": "vfio"}, "type", "vfio"),
        ({"kind": "divided"}, "type", "divided"),
        ({"profile": None}, "partitionProfile", "none"),
        ({"profile": "odd"}, "computePartition", "none"),
        ({"numa_node": None}, "numaNode", None),
        ({"numa_node": -1}, "numaNode", None),
        ({"nodes": ()}, "renderIndex", None),
    ],
)
def test_what_is_not_known_is_not_guessed(changes, name, expected):
    assert attributes(gpu(**changes)).get(name) == expected


@pytest.mark.parametrize(
    ("changes", "compute", "simd"),
    [
        ({}, "304", "1216"),
        ({"architecture": "gfx90a", "compute_units": 104}, "104", "416"),
        ({"architecture": "gfx1100", "compute_units": 96}, "96", "192"),
        ({"architecture": "gfx803", "compute_units": 36}, "36", "0"),
        ({"architecture": None}, "304", "0"),
        ({"compute_units": None}, "0", "0"),
    ],
)
def test_capacities_are_there_and_0_where_they_are_not_known(changes, compute, simd):
    described = capacities(gpu(**changes))
    assert (described["computeUnits"].value, described["simdUnits"].value) == (compute, simd)
    assert described["partitions"].value == "1"
    assert described["simdUnits"].request_policy is None


def test_of_a_shared_gpu_nobody_takes_all_of_them():
    (rule,) = sharing.parse(["*=shares:4"])
    described = capacities(gpu(compute_units=None), shared=rule.sharing)
    for name in ("computeUnits", "simdUnits", "partitions"):
        assert described[name].request_policy.default == "0"


def config(kind="GpuConfig", **fields):
    return {"apiVersion": "gpu.resource.amd.com/v1alpha1", "kind": kind, **fields}


@pytest.mark.parametrize(
    "document",
    [config(), config("VfioDeviceConfig", iommu={"backendPolicy": "PreferIommuFD"})],
)
def test_its_configurations_are_taken(document):
    amd.check_config(document)


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (config(sharing={}), "GpuConfig of gpu.resource.amd.com/v1alpha1: .*`sharing`"),
        (config("MigDeviceConfig"), "this driver takes GpuConfig, VfioDeviceConfig"),
        (config() | {"apiVersion": "resource.nvidia.com/v1beta1"}, "of resource.nvidia.com"),
    ],
)
def test_others_are_refused(document, reason):
    with pytest.raises(errors.ClaimError, match=reason):
        amd.check_config(document)
