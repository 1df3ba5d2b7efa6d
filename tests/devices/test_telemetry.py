"""Readings of sensors from trees of files."""

import pytest

from claimd_devices import nvml, telemetry
from claimd_devices.gpu import Gpu, Roots
from tests.devices.trees import Make
from tests.support import nvml_stub

ADDRESS = "0000:41:00.0"


@pytest.fixture
def folder(tmp_path):
    folder_ = tmp_path / "sys/bus/pci/devices" / ADDRESS
    folder_.mkdir(parents=True)
    return folder_


def gpu(**more):
    fixed = {"vendor": "amd", "vendor_id": 0x1002, "device_id": 1, "driver": "amdgpu"}
    return Gpu(name="gpu-0000-41-00-0", address=ADDRESS, **fixed, **more)


def readings(tmp_path, *gpus):
    roots = Roots(sys=str(tmp_path / "sys"), proc=str(tmp_path / "proc"), dev=str(tmp_path / "dev"))
    return telemetry.readings(roots, gpus or [gpu()])


def write(folder, **files):
    for name, content in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{content}\n")


def test_what_amdgpu_tells(folder, tmp_path):
    write(
        folder,
        hwmon__hwmon3__temp1_input=45000,
        hwmon__hwmon3__temp1_label="edge",
        hwmon__hwmon3__temp2_input=51500,
        hwmon__hwmon3__power1_average=123000000,
        hwmon__hwmon3__power1_input=150000000,
        gpu_busy_percent=37,
        mem_info_vram_used=1 << 30,
    )
    assert readings(tmp_path)["gpu-0000-41-00-0"] == (
        ("temperature", 45.0, "edge"),
        ("temperature", 51.5, "temp2"),
        ("power", 123.0, ""),
        ("busy", 0.37, ""),
        ("memory used", 1 << 30, ""),
    )


def test_power_of_a_chip_without_an_average(folder, tmp_path):
    write(folder, hwmon__hwmon0__power1_input=99500000)
    assert readings(tmp_path)["gpu-0000-41-00-0"] == (("power", 99.5, ""),)


def test_what_xe_tells(folder, tmp_path):
    write(folder, hwmon__hwmon2__temp2_input=40000, hwmon__hwmon2__temp2_label="pkg")
    write(folder, hwmon__hwmon2__energy1_input=7500000)
    assert readings(tmp_path)["gpu-0000-41-00-0"] == (
        ("temperature", 40.0, "pkg"),
        ("energy", 7.5, ""),
    )


def test_nothing_is_invented(folder, tmp_path):
    write(folder, gpu_busy_percent="busy", hwmon__hwmon0__temp1_input="", mem_info_vram_used="-")
    assert readings(tmp_path)["gpu-0000-41-00-0"] == ()


def test_one_that_sleeps_is_left_asleep(folder, tmp_path):
    write(folder, power__runtime_status="suspended", gpu_busy_percent=1)
    assert readings(tmp_path)["gpu-0000-41-00-0"] == ()


def test_parts_have_none_of_their_own(folder, tmp_path):
    write(folder, gpu_busy_percent=1)
    assert readings(tmp_path, gpu(parent="gpu-0000-41-00-0")) == {}


def test_what_nvidias_library_measures_is_in_the_same_kinds(make_tree: Make) -> None:
    """By a stub of the library. Parts have no readings of their own."""
    tree = make_tree("nvidia:a100,mig=1", "amd:mi210")
    nvml_stub.build(nvml_stub.place_in(tree.folder))
    inventory = tree.scan()
    measured = nvml.Sensors(tree.roots).measure(inventory)
    assert telemetry.nvidia_readings(inventory.gpus, measured) == {
        "gpu-0000-11-00-0": (
            telemetry.Reading("temperature", 61, "core"),
            telemetry.Reading("power", 412.5),
            telemetry.Reading("busy", 0.87),
            telemetry.Reading("memory used", 1 << 30),
        )
    }
