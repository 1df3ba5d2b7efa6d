"""Attributes, capacities and configurations in the words of NVIDIA's driver."""

import dataclasses

import pytest

from claimd.common import errors
from claimd.node import dialects
from claimd.node.dialects import nvidia
from claimd.node.publish import device
from claimd_devices.gpu import DeviceNode, Engines, Fabric, Setup
from tests.support import worlds


def gpu(**changes):
    facts = {
        "vendor": "nvidia",
        "vendor_id": 0x10DE,
        "device_id": 0x2330,
        "driver": "nvidia",
        "driver_version": "580.95.05",
        "product": "NVIDIA H100 80GB HBM3",
        "uuid": "GPU-1",
        "family": "Hopper",
        "architecture": "sm_90",
        "setup": Setup(cuda="13.0"),
        "nodes": (
            DeviceNode(path="/dev/nvidia-uvm", major=500, minor=0),
            DeviceNode(path="/dev/nvidia3", major=195, minor=3),
            DeviceNode(path="/dev/nvidiactl", major=195, minor=255),
        ),
    }
    return worlds.gpu(**facts | changes)


def part(**changes):
    whole = gpu()
    more = {"name": f"{whole.name}-mig-1-0", "kind": "partition", "parent": whole.name}
    return dataclasses.replace(whole, uuid=None, **more | changes)


def attributes(gpu_, whole=None):
    words = nvidia.attributes(device.of_gpu(gpu_, []).attributes, gpu_, whole)
    return {name: attribute.value for name, attribute in words.items()}


def test_whose_words_a_name_stands_for():
    assert dialects.of_driver("gpu.nvidia.com") is nvidia
    assert dialects.of_driver("gpu.claimd.dev") is None


def test_a_whole_gpu():
    described = attributes(gpu())
    expected = {
        "type": "gpu",
        "architecture": "Hopper",
        "brand": "Nvidia",
        "cudaComputeCapability": "9.0.0",
        "cudaDriverVersion": "13.0.0",
        "driverVersion": "580.95.5",
        "productName": "NVIDIA H100 80GB HBM3",
        "uuid": "GPU-1",
        "minor": 3,
        "family": "Hopper",
        "vendor": "nvidia",
    }
    assert {name: described.get(name) for name in expected} == expected
    assert "parentUUID" not in described
    assert list(described) == sorted(described)


def test_a_mig_instance_has_its_gpus_uuid_and_no_number_of_its_own():
    described = attributes(part(profile="2g.20gb"), gpu())
    assert (described["type"], described["profile"], described["parentUUID"]) == (
        "mig",
        "2g.20gb",
        "GPU-1",
    )
    assert "minor" not in described


def test_instances_of_two_gpus_do_not_match_by_a_uuid_that_is_not_known():
    assert "parentUUID" not in attributes(part(), gpu(uuid=None))


def test_a_divided_gpu_is_no_gpu_and_no_instance():
    assert attributes(gpu(kind="divided"))["type"] == "divided"
    assert attributes(gpu(kind="vfio"))["type"] == "vfio"


@pytest.mark.parametrize(
    ("changes", "name", "expected"),
    [
        ({"architecture": "sm_120"}, "cudaComputeCapability", "12.0.0"),
        ({"architecture": "sm_89"}, "cudaComputeCapability", "8.9.0"),
        ({"architecture": None}, "cudaComputeCapability", "0.0.0"),
        ({"setup": Setup(cuda="12.2")}, "cudaDriverVersion", "12.2.0"),
        ({"setup": Setup()}, "cudaDriverVersion", "0.0.0"),
        ({"setup": None}, "cudaDriverVersion", "0.0.0"),
        ({"product": "NVIDIA GeForce RTX 3080"}, "brand", "GeForce"),
        ({"product": "GeForce GTX 780"}, "brand", "GeForce"),
        ({"product": "NVIDIA L40S"}, "brand", "Nvidia"),
        ({"product": "NVIDIA GB200"}, "brand", "Nvidia"),
        ({"product": "Tesla T4"}, "brand", "unknown"),
        ({"product": "NVIDIA RTX A6000"}, "brand", "unknown"),
        ({"product": None}, "brand", "unknown"),
        ({"family": None}, "architecture", "unknown"),
        ({"nodes": ()}, "minor", None),
    ],
)
def test_what_is_not_known_is_not_guessed(changes, name, expected):
    assert attributes(gpu(**changes)).get(name) == expected


def test_multiprocessors_are_an_instances_and_0_where_they_are_not_known():
    def capacities(gpu_):
        return nvidia.capacities(device.of_gpu(gpu_, []).capacity, gpu_)

    assert capacities(part(compute_units=14))["multiprocessors"].value == "14"
    assert capacities(part())["multiprocessors"].value == "0"
    assert "multiprocessors" not in capacities(gpu(compute_units=132))


def test_engines_are_an_instances_and_0_where_they_are_not_known():
    def numbers(gpu_):
        known = nvidia.capacities(device.of_gpu(gpu_, []).capacity, gpu_)
        names = ("copyEngines", "decoders", "encoders", "jpegEngines", "ofaEngines")
        return [known[name].value for name in names if name in known]

    assert numbers(part(engines=Engines(copy=1, decoders=1, jpeg=1))) == ["1", "1", "0", "1", "0"]
    assert numbers(part()) == ["0"] * 5
    full = part(
        engines=Engines(copy=8, decoders=7, encoders=1, jpeg=7, optical_flow=1),
        compute_units=144,
        memory=1 << 37,
        numa_node=0,
        pcie_root="pci0000:01",
        profile="7g.180gb",
        fabric=Fabric(domain="nvlink-1", state="completed"),
        driver_version="580.95.05",
        architecture="sm_100",
    )
    assert "ofaEngines" not in device.of_gpu(full, []).capacity
    assert numbers(full) == ["8", "7", "1", "7", "1"]
    assert numbers(gpu()) == []


# ---------------------------------------------------------------- configurations


def config(kind="GpuConfig", **fields):
    return {"apiVersion": "resource.nvidia.com/v1beta1", "kind": kind, **fields}


@pytest.mark.parametrize(
    "document",
    [
        config(),
        config(sharing={"strategy": "TimeSlicing"}),
        config(sharing={"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Default"}}),
        config("MigDeviceConfig", sharing={"strategy": "TimeSlicing"}),
        config("VfioDeviceConfig"),
        config("VfioDeviceConfig", iommu={"backendPolicy": "PreferIommuFD"}),
        config("VfioDeviceConfig", iommu={"backendPolicy": "LegacyOnly", "enableAPIDevice": True}),
    ],
)
def test_what_asks_for_what_a_gpu_has_anyway_is_taken(document):
    nvidia.check_config(document)


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (config(sharing={"strategy": "MPS", "mpsConfig": {}}), "MPS daemon, which claimd does not"),
        (config("MigDeviceConfig", sharing={"strategy": "MPS"}), "the setting share"),
        (config(sharing={"strategy": "MPS"}), "where one runs, a class .*`mps: FOLDER`"),
        (
            config(sharing={"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Long"}}),
            "the interval Long",
        ),
        (
            config(sharing={"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Ever"}}),
            "GpuConfig of resource.nvidia.com/v1beta1: .*'Ever'",
        ),
        (config("MigDeviceConfig", sharing={"timeSlicingConfig": {}}), "timeSlicingConfig"),
        (config("VfioDeviceConfig", iommu={"backendPolicy": "Any"}), "'Any'"),
        (config(shares=1), "unknown field `shares`"),
        (config("ComputeDomainChannelConfig"), "this driver takes GpuConfig, MigDeviceConfig"),
        (config() | {"apiVersion": "resource.nvidia.com/v9"}, "of resource.nvidia.com/v9"),
        ({}, "it is None of None"),
        ({"apiVersion": [], "kind": {}}, "this driver takes"),
    ],
)
def test_what_would_be_ours_to_do_is_refused_with_the_reason(document, reason):
    with pytest.raises(errors.ClaimError, match=reason):
        nvidia.check_config(document)
