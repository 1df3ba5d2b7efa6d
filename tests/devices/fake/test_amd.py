from __future__ import annotations

import pytest

from claimd_devices import fake
from claimd_devices.fake import layout
from claimd_devices.fake.amd import FakeAmd
from claimd_devices.fake.gpu import Entries, Function

VENDOR = FakeAmd()
KFD = "sys/devices/virtual/kfd/kfd"


def functions(*words: str) -> list[Function]:
    return layout.functions(fake.parse(words))


def own_files(function: Function) -> dict[str, str | bytes]:
    """Returns the files in the function's folder, by name."""
    files = VENDOR.function_entries(function).files
    head = f"{function.folder}/"
    return {
        name.removeprefix(head): value for name, value in files.items() if name.startswith(head)
    }


def properties(function: Function, node: int) -> dict[str, int]:
    text = str(VENDOR.function_entries(function).files[f"{KFD}/topology/nodes/{node}/properties"])
    rows = (line.split() for line in text.splitlines())
    return {name: int(value) for name, value in rows}


def test_what_a_data_centre_gpu_says() -> None:
    (function,) = functions("amd:mi300x,mode=qpx,memory_mode=nps4")
    files = own_files(function)
    assert files["mem_info_vram_total"] == "206141652992"
    assert files["product_name"] == "AMD Instinct MI300X OAM"
    assert files["ras/umc_err_count"] == "ue: 0\nce: 0"
    assert files["current_compute_partition"] == "QPX"
    assert files["current_memory_partition"] == "NPS4"
    assert len(str(files["unique_id"])) == 16


def test_a_radeon_has_no_product_name_and_no_modes() -> None:
    (function,) = functions("amd:radeon")
    files = own_files(function)
    assert not {"product_name", "ras/umc_err_count", "current_compute_partition"} & set(files)
    assert "unique_id" in files


def test_an_apu_has_no_id_of_its_own() -> None:
    (function,) = functions("amd:strix")
    assert "unique_id" not in own_files(function)
    assert properties(function, 1)["unique_id"] == 0


@pytest.mark.parametrize(
    ("model", "sensors"),
    [
        ("amd:mi300x", {2: ("junction", True), 3: ("mem", True)}),
        ("amd:mi210", {1: ("edge", True), 2: ("junction", True), 3: ("mem", True)}),
        ("amd:strix", {1: ("edge", False)}),
    ],
)
def test_sensors(model: str, sensors: dict[int, tuple[str, bool]]) -> None:
    (function,) = functions(model)
    files = own_files(function)
    readings = {}
    for number in range(1, 5):
        stem = f"hwmon/hwmon0/temp{number}"
        if f"{stem}_input" in files:
            readings[number] = (files[f"{stem}_label"], f"{stem}_crit" in files)
    assert readings == sensors


def test_kfd_counts_its_nodes_after_the_processors() -> None:
    layout = functions("amd:mi210", "amd:mi300x,mode=dpx", "amd:mi210", "numa=2")
    assert [function.numbers.index for function in layout] == [2, 3, 5]
    assert [function.numbers.first_part for function in layout] == [0, 0, 7]
    entries = VENDOR.machine_entries(layout, 2)
    assert entries.files[f"{KFD}/topology/nodes/1/gpu_id"] == "0"
    assert f"{KFD}/topology/nodes/2/gpu_id" not in entries.files
    assert entries.majors == {"kfd": 235}


def test_partitions_share_what_the_gpu_has() -> None:
    (function,) = functions("amd:mi300x,mode=cpx", "numa=1")
    first, last = properties(function, 1), properties(function, 8)
    assert (first["simd_count"], last["simd_count"]) == (152, 152)
    assert (first["num_xcc"], last["num_xcc"]) == (1, 1)
    assert (first["location_id"], last["location_id"]) == (0x1300, 7 << 28 | 0x1300)
    assert (first["drm_render_minor"], last["drm_render_minor"]) == (128, 135)
    entries = VENDOR.function_entries(function)
    bank = str(entries.files[f"{KFD}/topology/nodes/8/mem_banks/0/properties"])
    assert f"size_in_bytes {206141652992 // 8}" in bank.splitlines()


@pytest.mark.parametrize("mode", ["spx", "dpx", "cpx"])
def test_partitions_but_the_first_are_platform_devices(mode: str) -> None:
    """The driver makes devices for all possible partitions, whatever the mode."""
    function, other = functions(f"amd:mi300x=2,mode={mode}")
    entries = VENDOR.function_entries(other)
    device = "sys/devices/platform/amdgpu_xcp_7"
    assert other.numbers.more_drm[0] == (9, 137)
    assert entries.files[f"{device}/drm/renderD137/dev"] == "226:137"
    assert entries.links["sys/class/drm/renderD137"] == f"{device}/drm/renderD137"
    assert entries.nodes["dev/dri/renderD137"] == (226, 137)
    assert device in entries.folders
    assert VENDOR.count_more_drm(function) == 7


def test_cores_that_the_maker_has_turned_off_are_listed_as_such() -> None:
    (function,) = functions("amd:mi308x,mode=cpx")
    files = own_files(function)
    core = "ip_discovery/die/0/11"
    assert [files[f"{core}/{index}/harvest"] for index in range(8)] == ["0x0"] * 4 + ["0x1"] * 4
    assert [files[f"{core}/7/{name}"] for name in ("major", "minor", "revision")] == list("943")
    assert f"{core}/8/major" not in files
    (older,) = functions("amd:mi210")
    assert not any(name.startswith("ip_discovery") for name in own_files(older))


def test_kfd_can_be_closed() -> None:
    (function,) = functions("amd:mi300x,kfd=closed")
    entries = VENDOR.function_entries(function)
    assert set(entries.closed) == {
        f"{KFD}/topology/nodes/1/{name}"
        for name in ("gpu_id", "name", "properties", "mem_banks/0/properties")
    }
    assert not set(entries.closed) & set(entries.files)


def test_the_kernel_s_own_module_has_no_version() -> None:
    name = "sys/module/amdgpu/version"
    assert VENDOR.machine_entries(functions("amd:mi210", "amd:radeon"), 1).files[name] == "6.12.12"
    assert name not in VENDOR.machine_entries(functions("amd:radeon", "amd:strix"), 1).files


def test_without_its_driver_there_is_nothing() -> None:
    (function,) = functions("amd:radeon,driver=radeon")
    assert VENDOR.function_entries(function) == Entries()
    assert VENDOR.machine_entries([function], 1) == Entries()
    assert VENDOR.count_more_drm(function) == 0
