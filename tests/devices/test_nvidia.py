"""Tests with texts exactly as the driver prints them, with tabs and repeated blanks."""

from __future__ import annotations

import shutil

import pytest

from claimd_devices import nvidia_ids
from claimd_devices.gpu import DeviceNode, Setup
from tests.devices.trees import Make

ADDRESS = "0000:11:00.0"
INFORMATION = f"proc/driver/nvidia/gpus/{ADDRESS}/information"
VERSION = "proc/driver/nvidia/version"
UUID = "GPU-eaf23aa1-4d3d-596c-da66-b86b0e5db584"

RTX_3090 = f"""Model: \t\t NVIDIA GeForce RTX 3090
IRQ:   \t\t 77
GPU UUID: \t {UUID}
Video BIOS: \t 94.02.26.40.81
Bus Type: \t PCIe
DMA Size: \t 47 bits
DMA Mask: \t 0x7fffffffffff
Bus Location: \t 0000:01:00.0
Device Minor: \t 3
GPU Firmware: \t 590.48.01
GPU Excluded:\t No
"""


def edit(old: str, new: str) -> str:
    assert old in RTX_3090
    return RTX_3090.replace(old, new)


def test_a_gpu(make_tree: Make) -> None:
    tree = make_tree("nvidia:h100")
    tree.put(INFORMATION, RTX_3090)
    tree.put(
        "proc/devices",
        "Character devices:\n195 nvidia\n226 drm\n506 nvidia-uvm\n\nBlock devices:\n  7 loop\n",
    )
    gpu = tree.only()
    assert (gpu.vendor, gpu.product, gpu.uuid, gpu.driver) == (
        "nvidia",
        "NVIDIA GeForce RTX 3090",
        UUID,
        "nvidia",
    )
    assert gpu.environment == (("NVIDIA_VISIBLE_DEVICES", "void"),)
    assert gpu.notes == ()
    assert gpu.nodes == (
        DeviceNode(path="/dev/dri/card0", major=226, minor=0),
        DeviceNode(path="/dev/dri/renderD128", major=226, minor=128),
        DeviceNode(path="/dev/nvidia-modeset", major=195, minor=254),
        DeviceNode(path="/dev/nvidia-uvm", major=506, minor=0),
        DeviceNode(path="/dev/nvidia-uvm-tools", major=506, minor=1),
        DeviceNode(path="/dev/nvidia3", major=195, minor=3),
        DeviceNode(path="/dev/nvidiactl", major=195, minor=255),
    )


@pytest.mark.parametrize(
    ("line", "version"),
    [
        (
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024",
            "550.54.15",
        ),
        (
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104  Wed Aug 16 01:02:03 UTC 2023",
            "535.104",
        ),
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.15  Release Build  (b@h)  Tue",
            "550.54.15",
        ),
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  580.65.06  Release Build  (root@)",
            "580.65.06",
        ),
        ("NVRM version: something new", "580.95.05"),  # then the module's own file
        ("", "580.95.05"),
    ],
)
def test_driver_version(make_tree: Make, line: str, version: str) -> None:
    tree = make_tree("nvidia:h100")
    tree.put(VERSION, f"{line}\nGCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n")
    assert tree.only().driver_version == version


def test_a_driver_without_any_version(make_tree: Make) -> None:
    tree = make_tree("nvidia:h100")
    (tree.folder / VERSION).unlink()
    (tree.folder / "sys/module/nvidia/version").unlink()
    assert tree.only().driver_version is None


@pytest.mark.parametrize("value", ["GPU-????????-????-????-????-????????????", "??"])
def test_a_uuid_that_is_not_known_yet(make_tree: Make, value: str) -> None:
    tree = make_tree("nvidia:h100")
    tree.put(INFORMATION, edit(UUID, value))
    gpu = tree.only()
    assert gpu.uuid is None
    assert "not known until the GPU is first used" in " ".join(gpu.notes)


@pytest.mark.parametrize(
    "text", [edit(f"GPU UUID: \t {UUID}\n", ""), edit(UUID, "GPU-1234"), edit(UUID, "\x07")]
)
def test_a_uuid_that_is_none(make_tree: Make, text: str) -> None:
    tree = make_tree("nvidia:h100")
    tree.put(INFORMATION, text)
    gpu = tree.only()
    assert gpu.uuid is None
    assert gpu.product == "NVIDIA GeForce RTX 3090"
    assert "is none" in " ".join(gpu.notes)


@pytest.mark.parametrize("line", ["GPU Excluded:\t Yes", "Blacklisted:\t Yes"])
def test_an_excluded_gpu(make_tree: Make, line: str) -> None:
    tree = make_tree("nvidia:h100")
    tree.put(INFORMATION, edit("GPU Excluded:\t No", line))
    assert tree.refusal() == "the NVIDIA driver was told to leave it alone (GPU Excluded: Yes)"


@pytest.mark.parametrize("value", ["", "?", "-1", "255", "254", "1.0"])
def test_without_its_minor_there_is_no_gpu(make_tree: Make, value: str) -> None:
    tree = make_tree("nvidia:h100")
    tree.put(INFORMATION, edit("Device Minor: \t 3", f"Device Minor: \t {value}"))
    assert f"Device Minor {value!r} is not a number below 254" in tree.refusal()


def test_before_the_driver_has_taken_it_up_it_is_not_ready(make_tree: Make) -> None:
    tree = make_tree("nvidia:h100")
    (tree.folder / INFORMATION).unlink()
    assert tree.refusal().startswith("not ready: ")


def test_a_model_that_is_none(make_tree: Make) -> None:
    tree = make_tree("nvidia:h100")
    tree.put(INFORMATION, edit("NVIDIA GeForce RTX 3090", "??"))
    gpu = tree.only()
    assert gpu.product is None
    assert "Model '??' is no name" in " ".join(gpu.notes)


@pytest.mark.parametrize(
    ("model", "gib"),
    [
        ("nvidia:h100", 80),
        ("nvidia:a100", 80),
        ("nvidia:l4", 22.5),
        ("nvidia:l40s", 45),
        ("nvidia:t4", 15),
        ("nvidia:rtx4090", 24),
        ("nvidia:gtx1650-laptop", 4),
        ("nvidia:rtx3060", 12),
    ],
)
def test_memory_of_known_boards(make_tree: Make, model: str, gib: float) -> None:
    assert make_tree(model).only().memory == int(gib * (1 << 30))


def test_a_gpu_in_the_processors_package_has_the_machines_memory(make_tree: Make) -> None:
    tree = make_tree("machine:gb10")
    tree.put("proc/meminfo", "MemTotal:       125513088 kB\nMemFree:         1024 kB\n")
    assert tree.only().memory == 125513088 << 10
    tree.put("proc/meminfo", "MemFree:         1024 kB\n")
    assert tree.only().memory is None


def test_memory_of_an_unknown_board_is_unknown(make_tree: Make) -> None:
    tree = make_tree("nvidia:h100")
    (tree.function(ADDRESS) / "device").write_text("0x2924\n")  # nobody has told its size
    assert tree.only().memory is None


@pytest.mark.parametrize(
    ("board", "model", "gib"),
    [
        ("nvidia:l4", "NVIDIA L4-4Q", 4),
        ("nvidia:l4", "NVIDIA L4-0B", 0.5),
        ("nvidia:l4", "NVIDIA L4-1B4", 1),
        ("nvidia:l4", "NVIDIA L4-24C", 22.5),
        ("nvidia:a100", "GRID A100D-20C", 20),
        ("nvidia:a100", "GRID A100D-1-10C", 10),
        ("nvidia:rtxpro6000", "NVIDIA RTX Pro 6000 Blackwell DC-24Q", 24),
    ],
)
def test_the_name_of_a_share_says_its_memory(
    make_tree: Make, board: str, model: str, gib: float
) -> None:
    """In a virtual machine, the share has the PCI id of the whole board, but not all its memory."""
    tree = make_tree(board)
    tree.put(INFORMATION, edit("NVIDIA GeForce RTX 3090", model))
    gpu = tree.only()
    assert (gpu.product, gpu.memory) == (model, int(gib * (1 << 30)))


def test_a_boards_name_that_ends_like_a_share_does_not_lose_its_memory(make_tree: Make) -> None:
    assert make_tree("nvidia:a100").only().product == "NVIDIA A100-SXM4-80GB"


def test_without_the_uvm_module_it_is_not_ready(make_tree: Make) -> None:
    tree = make_tree("nvidia:h100")
    tree.put(
        "proc/devices",
        "Character devices:\n195 nvidia-frontend\n\nBlock devices:\n511 nvidia-uvm\n",
    )
    assert tree.refusal() == (
        "not ready: the module nvidia-uvm is not loaded, and CUDA needs it: "
        "`modprobe nvidia-uvm` on the host loads it"
    )
    (tree.folder / "proc/devices").unlink()
    (tree.folder / "proc/devices").mkdir()
    assert tree.refusal().endswith("proc/devices: Is a directory")


def test_what_else_cannot_be_read_is_not_why_the_uvm_module_is_missing(make_tree: Make) -> None:
    tree = make_tree("nvidia:h100")
    tree.put("proc/devices", "Character devices:\n195 nvidia-frontend\n")
    (tree.folder / "proc/driver/nvidia/version").unlink()
    (tree.folder / "proc/driver/nvidia/version").mkdir()
    assert tree.refusal().endswith("`modprobe nvidia-uvm` on the host loads it")


def test_numbers_that_the_kernel_has_not_are_none(make_tree: Make) -> None:
    tree = make_tree("nvidia:h100")
    tree.put(
        "proc/devices",
        "Character devices:\n9999999999 nvidia-uvm\nx nvidia-uvm\n"
        "510 nvidia-uvm\n511 nvidia-uvm\n195 nvidia-frontend\n",
    )
    numbers = {node.path: node.major for node in tree.only().nodes}
    assert numbers["/dev/nvidia-uvm"] == 510


def test_without_modeset_and_drm_it_is_a_gpu_for_computing(make_tree: Make) -> None:
    tree = make_tree("nvidia:h100")
    for path in (tree.folder / "sys/module/nvidia_modeset", tree.function(ADDRESS) / "drm"):
        path.rename(tree.folder / path.name)
    gpu = tree.only()
    assert [node.path for node in gpu.nodes] == [
        "/dev/nvidia-uvm",
        "/dev/nvidia-uvm-tools",
        "/dev/nvidia0",
        "/dev/nvidiactl",
    ]
    assert gpu.notes == ()


def test_another_driver(make_tree: Make) -> None:
    assert (
        make_tree("nvidia:h100,driver=nouveau").refusal()
        == "bound to the kernel driver nouveau, expected nvidia"
    )


def test_it_is_told_which_numbers_nodes_have_that_nobody_has_made_yet(make_tree: Make) -> None:
    tree = make_tree("nvidia:h100")
    before = tree.only()
    for path in (tree.folder / "dev").glob("nvidia*"):
        path.unlink()
    assert tree.only() == before


@pytest.mark.parametrize(
    ("device_id", "family", "architecture"),
    [
        ("0x15f8", "Pascal", "sm_60"),
        ("0x1db6", "Volta", "sm_70"),
        ("0x1eb8", "Turing", "sm_75"),
        ("0x20b2", "Ampere", "sm_80"),
        ("0x2236", "Ampere", "sm_86"),
        ("0x2330", "Hopper", "sm_90"),
        ("0x27b8", "Ada Lovelace", "sm_89"),
        ("0x2941", "Blackwell", "sm_100"),
        ("0x2e12", "Blackwell", "sm_121"),
        ("0x0fff", "Kepler", "sm_30"),
        ("0xffff", "unknown", None),
    ],
)
def test_its_generation_is_that_of_its_id(
    make_tree: Make, device_id: str, family: str, architecture: str | None
) -> None:
    tree = make_tree("nvidia:h100")
    path = tree.function(ADDRESS) / "device"
    path.write_text(f"{device_id}\n")
    gpu = tree.only()
    assert (gpu.family, gpu.architecture) == (family, architecture)


def test_no_driver(make_tree: Make) -> None:
    assert (
        make_tree("nvidia:h100,driver=none").refusal()
        == "bound to no kernel driver, expected nvidia"
    )


def test_the_virtual_functions_of_a_host_of_vgpus_are_for_virtual_machines(make_tree: Make) -> None:
    """They are bound to the driver, which has no files in /proc for them."""
    tree = make_tree("nvidia:l4=2")
    first, second = (gpu.address for gpu in tree.scan().gpus)
    (tree.function(second) / "physfn").symlink_to(tree.function(first))
    shutil.rmtree(tree.folder / "proc/driver/nvidia/gpus" / second)
    inventory = tree.scan()
    assert [gpu.address for gpu in inventory.gpus] == [first]
    (skipped,) = inventory.skipped
    assert skipped.reason == "a virtual function, for virtual machines (vGPU)"
    assert skipped.expected


def test_what_the_driver_tells_of_a_gpu_cannot_be_read(make_tree: Make) -> None:
    """An unreadable file differs from a missing one, which means that the driver is not ready."""
    tree = make_tree("nvidia:l4")
    file = tree.folder / "proc/driver/nvidia/gpus/0000:11:00.0/information"
    file.unlink()
    assert tree.refusal().startswith("not ready: ")
    file.mkdir()
    assert "information: " in tree.refusal()
    assert not tree.refusal().startswith("not ready: ")


# ---------------------------------------------------------------- the driver's setup

PROPRIETARY = (
    "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC 2024"
)


def test_the_open_module_lets_network_cards_reach_the_memory(make_tree: Make) -> None:
    tree = make_tree("nvidia:h100")
    assert tree.only().setup == Setup(cuda="13.0", kernel_module="open", gpu_direct="dmabuf")
    (tree.folder / "sys/module/nvidia_peermem").mkdir()
    setup = tree.only().setup
    assert setup
    assert setup.gpu_direct == "dmabuf+peermem"
    tree.put(VERSION, f"{PROPRIETARY}\n")
    (tree.folder / "sys/module/nvidia_peermem").rmdir()
    setup = tree.only().setup
    assert setup
    assert setup.gpu_direct == "none"


@pytest.mark.parametrize(
    ("firmware", "kind"),
    [("N/A", "proprietary"), ("??", "proprietary"), ("535.183.01", "proprietary-gsp")],
)
def test_the_proprietary_module_with_and_without_the_gpus_own_firmware(
    make_tree: Make, firmware: str, kind: str
) -> None:
    tree = make_tree("nvidia:h100")
    tree.put(VERSION, f"{PROPRIETARY}\n")
    tree.put(INFORMATION, edit("590.48.01", firmware))
    (tree.folder / "sys/module/nvidia_peermem").mkdir()
    assert tree.only().setup == Setup(cuda="12.2", kernel_module=kind, gpu_direct="peermem")


def test_without_the_drivers_version_nothing_is_told_of_its_setup(make_tree: Make) -> None:
    tree = make_tree("nvidia:h100")
    (tree.folder / VERSION).unlink()
    assert tree.only().setup == Setup(cuda="13.0")


@pytest.mark.parametrize(
    ("version", "cuda"),
    [("535.183.01", "12.2"), ("595.71.05", "13.2"), ("999.1", None), (None, None), ("x", None)],
)
def test_the_cuda_version_of_a_driver(version: str | None, cuda: str | None) -> None:
    assert nvidia_ids.cuda(version) == cuda
