from __future__ import annotations

import pytest

from devices.gpu import DeviceNode
from tests.devices.trees import Make

ADDRESS = "0000:11:00.0"


def test_a_gpu(tree: Make) -> None:
    made = tree("amd:mi300x")
    (made.function(ADDRESS) / "unique_id").write_text("6c62a5a6f4f1b3c7\n")
    gpu = made.only()
    assert (gpu.vendor, gpu.driver, gpu.driver_version) == ("amd", "amdgpu", "6.12.12")
    assert (gpu.product, gpu.uuid) == ("AMD Instinct MI300X OAM", "6c62a5a6f4f1b3c7")
    assert gpu.memory == 206141652992
    assert (gpu.environment, gpu.notes) == ((), ())
    assert gpu.nodes == (
        DeviceNode(path="/dev/dri/card0", major=226, minor=0),
        DeviceNode(path="/dev/dri/renderD128", major=226, minor=128),
        DeviceNode(path="/dev/kfd", major=235, minor=0),
    )


def test_a_radeon_has_no_product_name(tree: Make) -> None:
    gpu = tree("amd:radeon").only()
    assert (gpu.product, gpu.notes) == (None, ())


def test_the_module_of_the_kernels_own_tree_has_no_version(tree: Make) -> None:
    made = tree("amd:mi210")
    (made.folder / "sys/module/amdgpu/version").unlink()
    gpu = made.only()
    assert (gpu.driver_version, gpu.notes) == (None, ())


def test_a_version_of_four_parts_is_kept_as_printed(tree: Make) -> None:
    made = tree("amd:mi210")
    made.put("sys/module/amdgpu/version", "6.19.14.31400000\n")
    assert made.only().driver_version == "6.19.14.31400000"


@pytest.mark.parametrize("value", ["0000000000000000", "0x6c62a5a6f4f1b3c7", "7809984429061111111", "none"])
def test_a_unique_id_that_is_none(tree: Make, value: str) -> None:
    made = tree("amd:mi210")
    (made.function(ADDRESS) / "unique_id").write_text(f"{value}\n")
    gpu = made.only()
    assert gpu.uuid is None
    assert "is not a unique id" in " ".join(gpu.notes)


@pytest.mark.parametrize("value", ["0", "-1", "64 GiB"])
def test_memory_that_is_none(tree: Make, value: str) -> None:
    made = tree("amd:mi210")
    (made.function(ADDRESS) / "mem_info_vram_total").write_text(f"{value}\n")
    assert made.only().memory is None


def test_without_kfd_it_is_a_gpu_with_a_note(tree: Make) -> None:
    made = tree("amd:radeon")
    (made.folder / "sys/class/kfd/kfd").unlink()
    gpu = made.only()
    assert [node.path for node in gpu.nodes] == ["/dev/dri/card0", "/dev/dri/renderD128"]
    (note,) = gpu.notes
    assert note.startswith("no /dev/kfd: ROCm will not work")


def test_bound_before_its_nodes_are_there(tree: Make) -> None:
    made = tree("amd:mi300x")
    (made.function(ADDRESS) / "drm").rename(made.folder / "drm")
    assert made.refusal() == "not ready: the driver has made no drm/card* yet"
    (made.folder / "drm").rename(made.function(ADDRESS) / "drm")
    assert made.only().address == ADDRESS


def test_another_driver(tree: Make) -> None:
    assert tree("amd:radeon,driver=radeon").refusal() == "bound to the kernel driver radeon, expected amdgpu"
