from __future__ import annotations

import pytest

from claimd_devices import mig
from claimd_devices.gpu import Gpu
from claimd_devices.mig import Board
from tests.devices.trees import Make

MIG = "proc/driver/nvidia/capabilities/gpu0/mig"
ACCESS = "DeviceFileMinor: 68\nDeviceFileMode: 292\nDeviceFileModify: 1\n"
GIB = 1 << 30


def test_instances(make_tree: Make) -> None:
    whole, *parts = make_tree("nvidia:a100,mig=2").scan().gpus
    assert (whole.kind, whole.counters) == ("divided", (("instances", 2),))
    assert [(part.name, part.profile) for part in parts] == [
        (f"{whole.name}-mig-7-0", "1g.10gb"),
        (f"{whole.name}-mig-8-0", "1g.10gb"),
    ]
    for part, minors in zip(parts, [(66, 67), (75, 76)], strict=True):
        assert (part.kind, part.parent, part.counters) == (
            "partition",
            whole.name,
            (("instances", 1),),
        )
        assert (part.uuid, part.memory) == (None, 10 * GIB)
        nodes = {node.path: (node.major, node.minor) for node in part.nodes}
        caps = {path: numbers for path, numbers in nodes.items() if "caps" in path}
        assert caps == {f"/dev/nvidia-caps/nvidia-cap{minor}": (508, minor) for minor in minors}
        assert {"/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm"} <= nodes.keys()
        assert set(part.nodes) <= set(whole.nodes)


def test_the_gpu_itself_is_no_gpu_of_80_gib_any_more(make_tree: Make) -> None:
    """A program with the whole GPU sees only one of its instances in CUDA."""
    divided, whole = make_tree("nvidia:a100,mig=1", "nvidia:a100").scan().gpus[::2]
    assert (divided.kind, divided.memory) == ("divided", None)
    assert (whole.kind, whole.memory) == ("gpu", 80 * GIB)


def test_what_the_number_of_an_instance_tells(make_tree: Make) -> None:
    """It always tells the share of the memory, and the profile only for the smallest size."""
    _, *parts = make_tree("nvidia:h100,mig=3g.40gb:2g.20gb:1g.10gb:1g.10gb").scan().gpus
    seen = {part.name.partition("mig-")[2]: (part.profile, part.memory) for part in parts}
    assert seen == {
        "1-0": ("gi1/ci0", 40 * GIB),
        "3-0": ("gi3/ci0", 20 * GIB),
        "7-0": ("1g.10gb", 10 * GIB),
        "8-0": ("1g.10gb", 10 * GIB),
    }
    (all_of_it,) = make_tree("nvidia:h100,mig=7g.80gb").scan().gpus[1:]
    assert (all_of_it.profile, all_of_it.memory) == ("gi0/ci0", 80 * GIB)


def test_a_board_of_four_slices(make_tree: Make) -> None:
    _, *parts = make_tree("nvidia:rtxpro6000,mig=4").scan().gpus
    assert [(part.profile, part.memory) for part in parts] == [("1g.24gb", 24 * GIB)] * 4
    _, large, small = make_tree("nvidia:rtxpro6000,mig=2g.48gb:1g.24gb").scan().gpus
    assert [(part.profile, part.memory) for part in (large, small)] == [
        ("gi1/ci0", 48 * GIB),
        ("1g.24gb", 24 * GIB),
    ]


@pytest.mark.parametrize(
    ("device_id", "instance", "profile"),
    [
        ("0x20b0", 7, "1g.5gb"),  # A100 40GB
        ("0x2335", 14, "1g.18gb"),  # H200
        ("0x2321", 7, "1g.12gb"),  # H100 NVL
        ("0x2901", 7, "1g.23gb"),  # B200
        ("0x2941", 7, "1g.23gb"),  # GB200
        ("0x20b7", 3, "1g.6gb"),  # A30, which has four slices
        ("0x20b7", 1, "gi1/ci0"),
        ("0x20b2", 15, "gi15/ci0"),
        ("0x20b4", 7, "gi7/ci0"),  # a GA100, whose memory is in no table
    ],
)
def test_names_of_the_smallest(
    make_tree: Make, device_id: str, instance: int, profile: str
) -> None:
    tree = make_tree("nvidia:a100")
    (tree.function("0000:11:00.0") / "device").write_text(f"{device_id}\n")
    tree.put(f"{MIG}/gi{instance}/access", ACCESS)
    tree.put(f"{MIG}/gi{instance}/ci0/access", ACCESS)
    assert tree.scan().gpus[1].profile == profile


def test_a_board_that_no_table_has() -> None:
    assert Board.from_ids(0x2330, "sm_90", None) == Board(memory=None, smallest=8)
    assert Board.from_ids(0x2684, "sm_89", 24 * GIB) == Board(memory=24 * GIB, smallest=None)
    assert Board.from_ids(0x0000, None, None) == Board(memory=None, smallest=None)


def test_two_computing_parts_of_one_instance_have_no_memory_of_their_own(make_tree: Make) -> None:
    tree = make_tree("nvidia:a100,mig=3g.40gb")
    tree.put(f"{MIG}/gi1/ci1/access", ACCESS)
    assert [(gpu.profile, gpu.memory) for gpu in tree.scan().gpus] == [
        (None, None),
        ("gi1/ci0", None),
        ("gi1/ci1", None),
    ]


def test_files_beside_the_instances_are_none(make_tree: Make) -> None:
    tree = make_tree("nvidia:a100")
    tree.put(f"{MIG}/config", "DeviceFileMinor: 1\nDeviceFileMode: 256\nDeviceFileModify: 1\n")
    gpu = tree.only()
    assert (gpu.kind, gpu.counters, gpu.notes) == ("gpu", (), ())


def test_an_instance_that_nothing_can_open_is_left_out(make_tree: Make) -> None:
    tree = make_tree("nvidia:a100,mig=2")
    (tree.folder / f"{MIG}/gi7/ci0/access").unlink()
    whole, *parts = tree.scan().gpus
    assert [part.name for part in parts] == [f"{whole.name}-mig-8-0"]
    assert "what opens it is not known" in " ".join(whole.notes)


def test_without_the_major_number_no_part_can_be_given(make_tree: Make) -> None:
    tree = make_tree("nvidia:a100,mig=2")
    path = tree.folder / "proc/devices"
    path.write_text(path.read_text().replace("508 nvidia-caps\n", ""))
    assert "nvidia-caps is not in /proc/devices" in tree.refusal()


@pytest.mark.parametrize("content", ["", "DeviceFileMinor: x\n", "DeviceFileMode: 292\n"])
def test_a_capability_that_makes_no_sense(make_tree: Make, content: str) -> None:
    tree = make_tree("nvidia:a100,mig=2")
    tree.put(f"{MIG}/gi8/access", content)
    assert [gpu.name[-7:] for gpu in tree.scan().gpus] == ["11-00-0", "mig-7-0"]


@pytest.mark.parametrize(
    ("facts", "divides"),
    [
        ({"architecture": "sm_90"}, True),
        ({"architecture": "sm_80"}, True),
        ({"architecture": "sm_89"}, False),
        ({}, False),
        ({"kind": "divided"}, True),
        ({"kind": "partition"}, True),
        ({"kind": "vf", "architecture": "sm_90"}, False),
        ({"vendor": "amd", "architecture": "sm_90"}, False),
        ({"vendor": "amd", "kind": "partition"}, False),
    ],
)
def test_what_mig_can_divide(facts: dict[str, str], divides: bool) -> None:
    known = {"name": "g", "address": "a", "vendor": "nvidia", "driver": "nvidia"} | facts
    assert mig.may_divide(Gpu(vendor_id=1, device_id=2, **known)) is divides  # type: ignore[arg-type]


def test_the_name_of_an_instance() -> None:
    assert mig.part_name("0000:11:00.0", 7, 1) == "gpu-0000-11-00-0-mig-7-1"
