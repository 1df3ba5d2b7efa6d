from __future__ import annotations

import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from claimd_devices import fake
from claimd_devices.gpu import Gpu, Inventory, Roots, Rules
from claimd_devices.scan import scan
from tests.devices.trees import Make, Tree

WORDS = (
    "nvidia:h100=2",
    "nvidia:rtx4090",
    "amd:mi300x=2",
    "intel:max1550",
    "bmc:aspeed",
    "roots=2",
    "numa=2",
)


def contents(folder: Path) -> dict[str, str]:
    """Returns the bytes, the target or the numbers of each path in the tree."""
    files = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            files[name] = f"-> {path.readlink()}"
        elif path.is_char_device():
            files[name] = f"node {path.stat().st_rdev}"
        elif path.is_file():
            files[name] = path.read_bytes().decode("latin-1")
    return files


def test_the_same_words_give_the_same_tree(tmp_path: Path) -> None:
    for name in ("one", "two"):
        fake.write(tmp_path / name, fake.parse(WORDS))
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


def test_words_and_mappings_mean_the_same(tmp_path: Path) -> None:
    description = {
        "roots": 2,
        "devices": [
            {"model": "nvidia:l4", "count": 2, "driver": "nouveau"},
            {"model": "amd:radeon", "console": True, "domain": 1},
        ],
    }
    fake.write(tmp_path / "one", description)
    fake.write(
        tmp_path / "two",
        fake.parse(["roots=2", "nvidia:l4=2,driver=nouveau", "amd:radeon,console,domain=1"]),
    )
    trees = [contents(tmp_path / name) for name in ("one", "two")]
    assert [tree.pop(fake.MARKER) != "" for tree in trees] == [True, True]
    assert trees[0] == trees[1]


@pytest.mark.parametrize("model", fake.MODELS)
def test_every_model_is_found_as_what_it_is(make_tree: Make, model: str) -> None:
    tree = make_tree(f"{model}=2")
    inventory = tree.scan()
    vendor = model.partition(":")[0]
    if vendor in ("bmc", "virtual"):
        assert inventory.gpus == ()
        assert [skipped.expected for skipped in inventory.skipped] == [True, True]
    else:
        assert [gpu.vendor for gpu in inventory.gpus] == [vendor, vendor]
        assert [gpu.notes for gpu in inventory.gpus] == [(), ()]
        assert all(
            f"{gpu.vendor_id:04x}:{gpu.device_id:04x}" == fake.MODELS[model].ids
            for gpu in inventory.gpus
        )


def test_files_end_with_a_newline_and_links_are_relative(make_tree: Make) -> None:
    tree = make_tree(*WORDS)
    for path in tree.folder.rglob("*"):
        if path.is_symlink():
            assert not path.readlink().is_absolute()
            assert path.exists(), f"{path} dangles"
        elif (
            path.is_file()
            and path.name != "config"
            and path.relative_to(tree.folder).parts[0] != "dev"
        ):
            assert path.read_bytes().endswith(b"\n")


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("sys/bus/pci/devices/0000:11:00.0/class", "0x030200\n"),
        ("sys/bus/pci/devices/0000:11:00.0/numa_node", "0\n"),
        (
            "sys/bus/pci/devices/0000:11:00.0/uevent",
            "DRIVER=nvidia\nPCI_CLASS=30200\nPCI_ID=10DE:2330\nPCI_SUBSYS_ID=10DE:16C1\nPCI_SLOT_NAME=0000:11:00.0\n"
            "MODALIAS=pci:v000010DEd00002330sv000010DEsd000016C1bc03sc02i00\n",
        ),
        ("sys/bus/pci/devices/0000:17:00.0/class", "0x120000\n"),
        ("sys/bus/pci/devices/0000:17:00.0/mem_info_vram_total", "206141652992\n"),
        ("sys/bus/pci/devices/0000:14:00.1/class", "0x040300\n"),  # the sound of the RTX 4090
        ("sys/bus/pci/devices/0000:10:01.0/class", "0x060400\n"),  # a root port
        ("sys/class/kfd/kfd/dev", "235:0\n"),
    ],
)
def test_what_it_prints(make_tree: Make, path: str, content: str) -> None:
    assert (make_tree(*WORDS).folder / path).read_text() == content


def test_links_are_as_the_kernel_makes_them(make_tree: Make) -> None:
    sys = make_tree(*WORDS).folder / "sys"
    function = sys / "devices/pci0000:10/0000:10:01.0/0000:11:00.0"
    assert (sys / "bus/pci/devices/0000:11:00.0").readlink() == Path(
        "../../../devices/pci0000:10/0000:10:01.0/0000:11:00.0"
    )
    assert (function / "driver").readlink() == Path("../../../../bus/pci/drivers/nvidia")
    assert (sys / "bus/pci/drivers/nvidia/0000:11:00.0").readlink() == Path(
        "../../../../devices/pci0000:10/0000:10:01.0/0000:11:00.0"
    )
    assert (sys / "class/drm/card1").readlink() == Path(
        "../../devices/pci0000:10/0000:10:01.0/0000:11:00.0/drm/card1"
    )
    assert (function / "drm/card1/device").readlink() == Path("../../../0000:11:00.0")


def test_nodes_carry_the_numbers_that_the_scan_tells(make_tree: Make) -> None:
    tree = make_tree(*WORDS)
    for gpu in tree.scan().gpus:
        for node in gpu.nodes:
            status = (tree.folder / node.path.lstrip("/")).stat()
            if os.geteuid() == 0:
                assert stat.S_ISCHR(status.st_mode)
                assert status.st_rdev == os.makedev(node.major, node.minor)


def test_drm_numbers_are_unique_across_vendors(make_tree: Make) -> None:
    inventory = make_tree("nvidia:h100=30", "amd:mi210=30", "intel:flex170=10", "bmc:aspeed").scan()
    nodes = [node for gpu in inventory.gpus for node in gpu.nodes if node.major == 226]
    nodes = [node for node in nodes if "by-path" not in node.path]
    assert len(inventory.gpus) == 70
    assert len({node.path for node in nodes}) == len({node.minor for node in nodes}) == 140


def test_nvidias_count_does_not_follow_the_bus(make_tree: Make) -> None:
    """The same is true on some real boards, so code must not use the index as the place."""
    paths = [
        [node.path for node in gpu.nodes if node.path[-1].isdigit()][-1]
        for gpu in make_tree("nvidia:h100=3").scan().gpus
    ]
    assert paths == ["/dev/nvidia2", "/dev/nvidia1", "/dev/nvidia0"]


@pytest.mark.parametrize(
    ("word", "roots"),
    [
        ("roots=1", ["pci0000:10", "pci0000:14", "pci0000:18", "pci0000:1c"]),
        ("roots=2", ["pci0000:10", "pci0000:10", "pci0000:17", "pci0000:17"]),
        ("roots=4", ["pci0000:10"] * 4),
        ("roots=0", ["pci0000:00"] * 4),
    ],
)
def test_gpus_on_one_root(make_tree: Make, word: str, roots: list[str]) -> None:
    assert [gpu.pcie_root for gpu in make_tree("amd:mi300x=4", word).scan().gpus] == roots


@pytest.mark.parametrize(
    ("word", "nodes"),
    [
        ("numa=1", [0] * 4),
        ("numa=2", [0, 0, 1, 1]),
        ("numa=4", [0, 1, 2, 3]),
        ("numa=0", [None] * 4),
    ],
)
def test_numa_nodes(make_tree: Make, word: str, nodes: list[int | None]) -> None:
    assert [gpu.numa_node for gpu in make_tree("amd:mi300x=4", word).scan().gpus] == nodes


def test_the_first_screen_is_the_console_unless_told_otherwise(make_tree: Make) -> None:
    def consoles(*words: str) -> list[str]:
        tree = make_tree(*words)
        return [
            path.parent.name
            for path in tree.folder.glob("sys/bus/pci/devices/*/boot_vga")
            if path.read_text() == "1\n"
        ]

    assert consoles("nvidia:h100", "amd:radeon", "bmc:aspeed") == ["0000:00:02.0"]
    assert consoles("nvidia:h100", "amd:radeon,console", "bmc:aspeed") == ["0000:15:00.0"]
    assert consoles("nvidia:h100") == []


def test_a_boot_id(make_tree: Make) -> None:
    path = "proc/sys/kernel/random/boot_id"
    first = (make_tree("nvidia:l4").folder / path).read_text()
    assert len(first) == 37
    assert (make_tree("nvidia:l4", "boot_id=another").folder / path).read_text() == "another\n"


def without_fabric(gpu: Gpu) -> Gpu:
    """Returns the GPU without its place among others, which changes when one of them goes."""
    return replace(gpu, fabric=None)


def test_unplug_and_plug(make_tree: Make) -> None:
    tree = make_tree(*WORDS)
    everything, before = contents(tree.folder), tree.scan()
    for gpu in before.gpus:
        fake.unplug(tree.folder, gpu.address)
        after = tree.scan()
        others = [other for other in before.gpus if other != gpu]
        assert [without_fabric(other) for other in after.gpus] == [
            without_fabric(other) for other in others
        ]
        assert not [name for name in contents(tree.folder) if gpu.address in name]
        with pytest.raises(FileNotFoundError):
            fake.unplug(tree.folder, gpu.address)
        fake.plug(tree.folder, gpu.address)
        assert contents(tree.folder) == everything
    assert tree.scan() == before
    with pytest.raises(ValueError, match="is plugged in already"):
        fake.plug(tree.folder, before.gpus[0].address)
    with pytest.raises(ValueError, match="no 0000:ff:00.0 in "):
        fake.unplug(tree.folder, "0000:ff:00.0")


@pytest.mark.parametrize("model", ["nvidia:l4", "amd:mi210", "intel:max1550"])
def test_bound_to_another_driver_it_is_as_if_written_so(
    make_tree: Make, tmp_path: Path, model: str
) -> None:
    tree = make_tree(model, "iommu=1")
    before, written = tree.scan(), contents(tree.folder)
    fake.load_vfio(tree.folder)
    fake.bind(tree.folder, tree.only().address, "vfio-pci")
    (gpu,) = scan(tree.roots, Rules(vfio=True)).gpus

    fake.write(tmp_path / "other", fake.parse([f"{model},driver=vfio-pci", "iommu=1"]))
    (expected,) = scan(Roots.in_folder(tmp_path / "other"), Rules(vfio=True)).gpus
    assert gpu == expected

    fake.bind(tree.folder, gpu.address, "")
    assert tree.scan().skipped[0].reason.startswith("bound to no kernel driver")
    fake.bind(tree.folder, gpu.address, before.gpus[0].driver)
    assert tree.scan() == before
    assert set(written) <= set(contents(tree.folder))


def test_a_fake_tree_is_written_anew(tmp_path: Path) -> None:
    for words in (["nvidia:h100=4"], ["amd:mi210"]):
        fake.write(tmp_path / "tree", fake.parse(words))
    assert Tree(tmp_path / "tree").only().vendor == "amd"
    assert not (tmp_path / "tree/proc/driver").exists()


def test_a_folder_of_somebody_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "sys").mkdir()
    with pytest.raises(ValueError, match="is neither empty nor a fake tree"):
        fake.write(tmp_path, fake.parse(["nvidia:l4"]))
    assert scan(Roots.in_folder(tmp_path)).gpus == ()
    (tmp_path / "sys").rmdir()
    fake.write(tmp_path, fake.parse(["nvidia:l4"]))
    assert scan(Roots.in_folder(tmp_path)) != Inventory()


@pytest.mark.parametrize(
    "description", [{"devices": "nvidia:l4"}, {"devices": ["nvidia:l4"]}, {"gpus": []}]
)
def test_a_bad_mapping_is_refused(tmp_path: Path, description: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"is not (a list|a mapping|one of)"):
        fake.write(tmp_path / "tree", description)
    assert not (tmp_path / "tree").exists()


def test_a_tree_that_stands_is_left_to_its_readers(tmp_path):
    description = fake.parse(["nvidia:h100=2"])
    assert fake.write(tmp_path / "t", description)
    before = (tmp_path / "t" / "sys" / "bus").stat().st_ino
    assert not fake.write(tmp_path / "t", description)
    assert (tmp_path / "t" / "sys" / "bus").stat().st_ino == before
    assert fake.write(tmp_path / "t", fake.parse(["nvidia:h100=3"]))


def test_a_tree_that_was_never_finished_is_written_again(tmp_path):
    description = fake.parse(["nvidia:h100=2"])
    fake.write(tmp_path / "t", description)
    (tmp_path / "t" / fake.MARKER).write_text("not finished\n")
    assert fake.write(tmp_path / "t", description)


def test_gpus_are_told_from_screens(make_tree: Make) -> None:
    tree = make_tree("nvidia:l4", "intel:flex170,vfs=2", "bmc:aspeed", "virtual:bochs")
    addresses = [gpu.address for gpu in tree.scan().gpus]
    assert len(addresses) == 4
    assert fake.gpu_addresses(tree.folder) == addresses
    fake.unplug(tree.folder, addresses[0])
    assert fake.gpu_addresses(tree.folder) == addresses, "as when all are plugged in"


@pytest.mark.parametrize(("word", "online"), [("numa=0", "0"), ("numa=1", "0"), ("numa=4", "0-3")])
def test_nodes_of_processors(make_tree: Make, word: str, online: str) -> None:
    path = "sys/devices/system/node/online"
    assert (make_tree("nvidia:l4", word).folder / path).read_text() == f"{online}\n"


def test_a_change_of_the_driver_leaves_other_links_alone(make_tree: Make) -> None:
    """A scan at the same time must not take the GPU for one without an IOMMU group."""
    tree = make_tree("nvidia:l4", "iommu=1")
    address = tree.only().address
    link = tree.function(address) / "iommu_group"
    before = link.lstat().st_ino
    fake.bind(tree.folder, address, "vfio-pci")
    assert link.lstat().st_ino == before
