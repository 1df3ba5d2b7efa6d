from __future__ import annotations

from pathlib import Path

import pytest

from claimd_devices import fake, nvidia_ids, scan
from claimd_devices.fake import layout
from claimd_devices.fake.gpu import Entries, Function
from claimd_devices.fake.nvidia import DRIVER_VERSION, FakeNvidia, NvidiaModel
from claimd_devices.gpu import Roots

VENDOR = FakeNvidia()
CARD = "proc/driver/nvidia/gpus/0000:11:00.0/information"


def functions(*words: str) -> list[Function]:
    return layout.functions(fake.parse(words))


def test_the_card_as_the_driver_prints_it() -> None:
    (function,) = functions("nvidia:h100")
    entries = VENDOR.function_entries(function)
    assert entries.files == {
        CARD: "Model: \t\t NVIDIA H100 80GB HBM3\n"
        "IRQ:   \t\t 64\n"
        "GPU UUID: \t GPU-546b7802-485b-53b6-b7f7-ec4afb29ec5c\n"
        "Video BIOS: \t 96.00.89.00.01\n"
        "Bus Type: \t PCIe\n"
        "DMA Size: \t 52 bits\n"
        "DMA Mask: \t 0xfffffffffffff\n"
        "Bus Location: \t 0000:11:00.0\n"
        "Device Minor: \t 0\n"
        f"GPU Firmware: \t {DRIVER_VERSION}\n"
        "GPU Excluded:\t No"
    }
    assert entries.nodes == {"dev/nvidia0": (195, 0)}
    assert entries.folders == [
        "proc/driver/nvidia/gpus/0000:11:00.0",
        "proc/driver/nvidia/capabilities/gpu0",
    ]


def test_instances_are_numbered_from_7_and_their_minors_by_nines() -> None:
    divided, _ = functions("nvidia:a100=2,mig=2")
    assert divided.numbers.index == 1
    entries = VENDOR.function_entries(divided)
    folder = "proc/driver/nvidia/capabilities/gpu1/mig"
    minors = {
        name.removeprefix(f"{folder}/"): text.splitlines()[0]
        for name, text in entries.files.items()
        if isinstance(text, str) and name.startswith(folder)
    }
    assert minors == {
        "gi7/access": "DeviceFileMinor: 201",
        "gi7/ci0/access": "DeviceFileMinor: 202",
        "gi8/access": "DeviceFileMinor: 210",
        "gi8/ci0/access": "DeviceFileMinor: 211",
    }
    assert entries.nodes["dev/nvidia-caps/nvidia-cap211"] == (508, 211)


def test_the_driver_counts_against_the_order_of_the_bus() -> None:
    layout = functions("nvidia:l4=2", "nvidia:l4,driver=nouveau", "amd:mi210", "nvidia:l4")
    ours = [function for function in layout if function.driver == "nvidia"]
    assert [function.numbers.index for function in ours] == [2, 1, 0]


def test_without_its_driver_there_is_nothing() -> None:
    layout = functions("nvidia:l4,driver=vfio-pci", "nvidia:l4,driver=none")
    assert [VENDOR.function_entries(function) for function in layout] == [Entries(), Entries()]
    assert VENDOR.machine_entries(layout, 1) == Entries()


def test_the_machine_s_own_files_and_nodes() -> None:
    entries = VENDOR.machine_entries(functions("nvidia:h100"), 1)
    assert entries.majors == {"nvidia": 195, "nvidia-uvm": 511, "nvidia-caps": 508}
    assert entries.nodes == {
        "dev/nvidiactl": (195, 255),
        "dev/nvidia-modeset": (195, 254),
        "dev/nvidia-uvm": (511, 0),
        "dev/nvidia-uvm-tools": (511, 1),
    }
    version = entries.files["proc/driver/nvidia/version"]
    assert f"Kernel Module for x86_64  {DRIVER_VERSION}  Release" in str(version)
    on_arm = VENDOR.machine_entries(functions("nvidia:gb10"), 1)
    assert "for aarch64 " in str(on_arm.files["proc/driver/nvidia/version"])


@pytest.mark.parametrize(
    ("words", "version", "module", "setup"),
    [
        (["nvidia:h100"], "580.95.05", "Open Kernel Module for x86_64  580.95.05  ", "open"),
        (["nvidia:l4"], "535.274.02", "x86_64 Kernel Module  535.274.02  ", "proprietary-gsp"),
        (["nvidia:rtx6000"], "550.90.07", "x86_64 Kernel Module  550.90.07  ", "proprietary"),
        (["nvidia:gtx1060"], "470.256.02", "x86_64 Kernel Module  470.256.02  ", "proprietary"),
        (["nvidia:rtx3070ti"], "565.77", "Open Kernel Module for x86_64  565.77  ", "open"),
        (["nvidia:l4", "nvidia:h100"], "580.95.05", "Open Kernel Module for x86_64  ", "open"),
        (["nvidia:gtx1060", "nvidia:rtx3080"], "570.153.02", "x86_64 Kernel Mod", "proprietary"),
    ],
)
def test_the_driver_of_a_machine(
    tmp_path: Path, words: list[str], version: str, module: str, setup: str
) -> None:
    fake.write(tmp_path, fake.parse(words))
    text = (tmp_path / "proc/driver/nvidia/version").read_text()
    assert text.startswith(f"NVRM version: NVIDIA UNIX {module}")
    for gpu in scan.scan(Roots.in_folder(tmp_path)).gpus:
        assert gpu.setup
        assert (gpu.driver_version, gpu.setup.kernel_module) == (version, setup)


def test_models_have_versions_of_many_branches_that_the_table_of_cuda_knows() -> None:
    versions = {model.driver_version for model in VENDOR.models if isinstance(model, NvidiaModel)}
    assert len({version.partition(".")[0] for version in versions}) >= 10
    assert [version for version in versions if nvidia_ids.cuda(version) is None] == []


@pytest.mark.parametrize(
    ("wanted", "numbers"),
    [
        ("0", []),
        ("1", [7]),
        ("7", [7, 8, 9, 10, 11, 12, 13]),
        ("7g.80gb", [0]),
        ("3g.40gb:4g.40gb", [1, 2]),
        ("1g.20gb:2g.20gb:1g.10gb", [3, 4, 7]),
    ],
)
def test_the_number_of_an_instance_follows_its_size(wanted: str, numbers: list[int]) -> None:
    (function,) = functions(f"nvidia:h100,mig={wanted}")
    folder = "proc/driver/nvidia/capabilities/gpu0/mig"
    names = sorted(
        name for name in VENDOR.function_entries(function).files if name.startswith(f"{folder}/")
    )
    seen = {int(name.split("/")[6].removeprefix("gi")) for name in names}
    assert sorted(seen) == numbers


@pytest.mark.parametrize(
    "word",
    [
        "nvidia:h100,mig=8",
        "nvidia:h100,mig=4g.40gb:4g.40gb",
        "nvidia:h100,mig=3g.40gb:3g.40gb:1g.10gb",
        "nvidia:h100,mig=1g.11gb",
        "nvidia:h100,mig=1g.0gb",
        "nvidia:h100,mig=1g",
        "nvidia:l4,mig=1",
        "nvidia:l4,mig=1g.10gb",
        "nvidia:rtxpro6000,mig=5",
        "nvidia:rtxpro6000,mig=1g.12gb",
    ],
)
def test_instances_for_which_there_is_no_room(word: str) -> None:
    with pytest.raises(ValueError, match=r"^mig: "):
        fake.parse([word])
