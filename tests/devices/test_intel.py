from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from claimd_devices import intel, scan
from claimd_devices.gpu import DeviceNode, Rules
from tests.devices.trees import Make

ADDRESS = "0000:13:00.0"  # of a board with a switch before the GPU


def test_a_gpu(make_tree: Make) -> None:
    gpu = make_tree("intel:max1550").only()
    assert (gpu.vendor, gpu.driver, gpu.driver_version) == ("intel", "i915", None)
    assert (gpu.product, gpu.uuid) == ("Data Center GPU Max 1550", None)
    assert gpu.memory == 128 << 30
    assert (gpu.environment, gpu.notes) == ((), ())
    assert gpu.nodes == (
        DeviceNode(path="/dev/dri/by-path/pci-0000:11:00.0-card", major=226, minor=0),
        DeviceNode(path="/dev/dri/by-path/pci-0000:11:00.0-render", major=226, minor=128),
        DeviceNode(path="/dev/dri/card0", major=226, minor=0),
        DeviceNode(path="/dev/dri/renderD128", major=226, minor=128),
    )


@pytest.mark.parametrize(
    ("model", "product", "driver"),
    [
        ("intel:flex170", "Data Center GPU Flex 170", "i915"),
        ("intel:arc", "Arc A770", "i915"),
        ("intel:b580", "Arc B580", "xe"),
        ("intel:uhd770", "UHD Graphics 770", "i915"),
    ],
)
def test_products_come_from_the_table(
    make_tree: Make, model: str, product: str, driver: str
) -> None:
    gpu = make_tree(model).only()
    assert (gpu.product, gpu.driver) == (product, driver)


def test_a_product_beyond_the_table_is_unknown(make_tree: Make) -> None:
    tree = make_tree("intel:arc")
    (tree.function(ADDRESS) / "device").write_text("0xffff\n")
    gpu = tree.only()
    assert (gpu.product, gpu.family, gpu.integrated, gpu.memory) == (None, "unknown", None, None)


def test_where_the_driver_does_not_tell_the_memory_the_board_may(make_tree: Make) -> None:
    """The A770 has two sizes, the B580 has one, and the UHD 770 has no memory of its own."""
    memory = {
        gpu.product: gpu.memory
        for gpu in make_tree("intel:arc", "intel:b580", "intel:uhd770").scan().gpus
    }
    assert memory == {"Arc A770": None, "Arc B580": 12 << 30, "UHD Graphics 770": None}


def test_i915_may_tell_it_beside_the_card(make_tree: Make) -> None:
    tree = make_tree("intel:arc")
    (tree.function(ADDRESS) / "lmem_total_bytes").write_text("17079205888\n")
    assert tree.only().memory == 17079205888


def test_xe_tells_it_by_tile(make_tree: Make) -> None:
    tree = make_tree("intel:b580")
    for tile in (0, 1):
        folder = tree.function(ADDRESS) / f"tile{tile}"
        folder.mkdir(exist_ok=True)
        (folder / "physical_vram_size_bytes").write_text("12884901888\n")
    assert tree.only().memory == 24 << 30


def test_half_a_sum_is_none(make_tree: Make) -> None:
    tree = make_tree("intel:arc,driver=xe")
    (tree.function(ADDRESS) / "tile1").mkdir()
    (tree.function(ADDRESS) / "tile0/physical_vram_size_bytes").write_text("12884901888\n")
    assert tree.only().memory is None


def test_a_neural_processor_is_no_gpu(make_tree: Make) -> None:
    """Intel's NPUs have the class of accelerators, 0x12."""
    tree = make_tree("intel:max1550,driver=intel_vpu")
    (tree.function("0000:11:00.0") / "class").write_text("0x120000\n")
    assert tree.refusal() == "an accelerator that is no GPU (8086:0bd5)"


def test_bound_before_its_nodes_are_there(make_tree: Make) -> None:
    tree = make_tree("intel:b580")
    (tree.function(ADDRESS) / "drm").rename(tree.folder / "drm")
    assert tree.refusal().startswith("not ready: ")


def test_virtual_functions_and_the_physical_one_exclude_each_other(make_tree: Make) -> None:
    whole, *parts = make_tree("intel:flex170,vfs=3").scan().gpus
    assert (whole.kind, whole.memory, whole.counters) == ("divided", None, (("vfs", 3),))
    assert [part.address for part in parts] == ["0000:13:00.1", "0000:13:00.2", "0000:13:00.3"]
    for part in parts:
        assert (part.kind, part.parent, part.counters, part.memory) == (
            "vf",
            whole.name,
            (("vfs", 1),),
            None,
        )
        assert (part.link_width, part.link_speed) == (16, 16000)
        assert not set(part.nodes) & set(whole.nodes)


@pytest.mark.parametrize(
    "word", ["intel:flex170,driver=xe", "intel:max1550", "intel:max1550,driver=xe"]
)
def test_memory_of_a_divided_gpu_is_nobodys_whichever_driver_has_it(
    make_tree: Make, word: str
) -> None:
    """The kernel does not show what is left, so the slice has no amount."""
    tree = make_tree(f"{word},vfs=2", word)
    divided, *_, whole = tree.scan().gpus
    assert (divided.kind, divided.memory) == ("divided", None)
    assert whole.kind == "gpu"


def test_one_that_no_table_knows_is_taken_for_one_with_memory_of_its_own(make_tree: Make) -> None:
    tree = make_tree("intel:flex170,vfs=1")
    whole = next(gpu for gpu in tree.scan().gpus if gpu.parent is None)
    (tree.function(whole.address) / "device").write_text("0xffff\n")
    kinds = {gpu.address: gpu.kind for gpu in tree.scan().gpus}
    assert kinds[whole.address] == "divided"


def test_one_that_no_table_knows_is_the_processors_at_its_place(make_tree: Make) -> None:
    tree = make_tree("intel:uhd770,vfs=1")
    (tree.function("0000:00:02.0") / "device").write_text("0xffff\n")
    whole = next(gpu for gpu in tree.scan().gpus if gpu.parent is None)
    assert (whole.kind, whole.integrated, whole.product) == ("gpu", True, None)


def test_a_processors_own_gpu_loses_nothing_by_virtual_functions(make_tree: Make) -> None:
    """Its memory is that of the machine, which virtual functions do not reduce."""
    *parts, whole = make_tree("intel:uhd770,vfs=2").scan().gpus
    assert (whole.kind, whole.counters) == ("gpu", (("vfs", 2),))
    assert [part.kind for part in parts] == ["vf", "vf"]


def test_a_virtual_function_may_lack_a_render_node(make_tree: Make) -> None:
    tree = make_tree("intel:flex170,vfs=1")
    shutil.rmtree(tree.function("0000:13:00.1") / "drm/renderD129")
    assert [node.path for node in tree.scan().gpus[1].nodes] == [
        "/dev/dri/by-path/pci-0000:13:00.1-card",
        "/dev/dri/card1",
    ]


def test_virtual_functions_without_a_driver_are_no_surprise(make_tree: Make) -> None:
    tree = make_tree("intel:flex170,vfs=2")
    for number in (1, 2):
        (tree.function(f"0000:13:00.{number}") / "driver").unlink()
    inventory = tree.scan()
    assert [(gpu.kind, gpu.memory) for gpu in inventory.gpus] == [("divided", None)]
    assert all(
        skipped.expected and "a virtual function" in skipped.reason for skipped in inventory.skipped
    )


def test_virtual_functions_whose_physical_one_is_not_taken_exclude_nobody(make_tree: Make) -> None:
    tree = make_tree("intel:flex170,vfs=2")
    inventory = scan.scan(tree.roots, Rules(exclude=("0000:13:00.0",)))
    assert [(gpu.kind, gpu.counters) for gpu in inventory.gpus] == [("vf", ()), ("vf", ())]


def test_a_node_whose_number_is_anothers_is_none(make_tree: Make) -> None:
    """A card0 with the number of card1 would open another GPU."""
    tree = make_tree("intel:max1550=2")
    (tree.function("0000:11:00.0") / "drm/card0/dev").write_text("226:1\n")
    inventory = tree.scan()
    assert [gpu.address for gpu in inventory.gpus] == ["0000:13:00.0"]
    assert "1 is not the number of card0" in inventory.skipped[0].reason


def test_a_virtual_function_is_never_taken_for_a_whole_gpu(make_tree: Make) -> None:
    tree = make_tree("intel:flex170,vfs=1")
    path = tree.function("0000:13:00.1") / "physfn"
    path.unlink()
    path.write_text("not a link\n")
    inventory = tree.scan()
    assert [gpu.kind for gpu in inventory.gpus] == ["gpu"]
    assert inventory.skipped[0].reason.startswith(
        "what GPU it is a virtual function of cannot be read"
    )


@pytest.mark.parametrize(
    ("sizes", "memory"),
    [
        ({}, None),
        ({"tile0": "4096"}, 4096),
        ({"tile0": "4096", "tile1": "4096", "tile": "1", "gt0": "1"}, 8192),
        ({"tile0": "4096", "tile1": "0"}, None),
        ({"tile0": "4096", "tile1": "some"}, None),
        ({"tile0": ""}, None),
    ],
)
def test_tiles_of_xe_have_their_memory_together_or_none(
    tmp_path: Path, sizes: dict[str, str], memory: int | None
) -> None:
    for name, size in sizes.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "physical_vram_size_bytes").write_text(f"{size}\n")
    function = SimpleNamespace(folder=str(tmp_path))
    tiles = sum(name.startswith("tile") and name != "tile" for name in sizes)
    memory_and_tiles = intel._xe_memory_and_tiles(function, [])  # type: ignore[arg-type]
    assert memory_and_tiles == (memory, tiles or None)
