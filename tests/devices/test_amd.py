from __future__ import annotations

import errno
import shutil

import pytest

from claimd_devices import scan, sysfs
from claimd_devices.gpu import DeviceNode, Setup
from tests.devices.trees import Make, Tree

ADDRESS = "0000:13:00.0"
KFD = "sys/devices/virtual/kfd/kfd/topology/nodes"


def test_a_gpu(make_tree: Make) -> None:
    tree = make_tree("amd:mi300x")
    (tree.function(ADDRESS) / "unique_id").write_text("6c62a5a6f4f1b3c7\n")
    gpu = tree.only()
    assert (gpu.vendor, gpu.driver, gpu.driver_version) == ("amd", "amdgpu", "6.12.12")
    assert (gpu.product, gpu.uuid) == ("AMD Instinct MI300X OAM", "6c62a5a6f4f1b3c7")
    assert gpu.memory == 206141652992
    assert gpu.environment == (("AMD_VISIBLE_DEVICES", "void"),)
    assert gpu.notes == ()
    assert (gpu.family, gpu.architecture, gpu.compute_units, gpu.integrated) == (
        "CDNA 3",
        "gfx942",
        304,
        False,
    )
    assert (gpu.profile, gpu.counters) == ("spx_nps1", ())
    assert gpu.nodes == (
        DeviceNode(path="/dev/dri/card0", major=226, minor=0),
        DeviceNode(path="/dev/dri/renderD128", major=226, minor=128),
        DeviceNode(path="/dev/kfd", major=235, minor=0),
    )


NAME_BY_ID = "AMD Radeon RX 7900 XTX"


def test_a_radeon_has_its_name_from_the_table(make_tree: Make) -> None:
    tree = make_tree("amd:radeon")
    assert (tree.only().product, tree.only().notes) == (NAME_BY_ID, ())
    (tree.function(ADDRESS) / "device").write_text("0x67df\n")
    (tree.function(ADDRESS) / "revision").write_text("0xe7\n")
    assert tree.only().product == "AMD Radeon RX 580 Series"


def test_the_module_of_the_kernels_own_tree_has_no_version(make_tree: Make) -> None:
    tree = make_tree("amd:mi210")
    (tree.folder / "sys/module/amdgpu/version").unlink()
    gpu = tree.only()
    assert (gpu.driver_version, gpu.notes) == (None, ())


def test_a_version_of_four_parts_is_kept_as_printed(make_tree: Make) -> None:
    tree = make_tree("amd:mi210")
    tree.put("sys/module/amdgpu/version", "6.19.14.31400000\n")
    assert tree.only().driver_version == "6.19.14.31400000"


@pytest.mark.parametrize(
    "value", ["0000000000000000", "0x6c62a5a6f4f1b3c7", "7809984429061111111", "none"]
)
def test_a_unique_id_that_is_none(make_tree: Make, value: str) -> None:
    tree = make_tree("amd:mi210")
    (tree.function(ADDRESS) / "unique_id").write_text(f"{value}\n")
    gpu = tree.only()
    assert gpu.uuid is None
    assert "is not a unique id" in " ".join(gpu.notes)


@pytest.mark.parametrize("value", ["0", "-1", "64 GiB"])
def test_memory_that_is_none(make_tree: Make, value: str) -> None:
    tree = make_tree("amd:mi210")
    (tree.function(ADDRESS) / "mem_info_vram_total").write_text(f"{value}\n")
    assert tree.only().memory is None


def test_without_kfd_it_is_a_gpu_with_a_note(make_tree: Make) -> None:
    tree = make_tree("amd:radeon")
    (tree.folder / "sys/class/kfd/kfd").unlink()
    gpu = tree.only()
    assert [node.path for node in gpu.nodes] == ["/dev/dri/card0", "/dev/dri/renderD128"]
    (note,) = gpu.notes
    assert note.startswith("no /dev/kfd: ROCm will not work")


def test_bound_before_its_nodes_are_there(make_tree: Make) -> None:
    tree = make_tree("amd:mi300x")
    (tree.function(ADDRESS) / "drm").rename(tree.folder / "drm")
    assert tree.refusal() == "not ready: the driver has made no drm/card* yet"
    (tree.folder / "drm").rename(tree.function(ADDRESS) / "drm")
    assert tree.only().address == ADDRESS


def test_another_driver(make_tree: Make) -> None:
    assert (
        make_tree("amd:radeon,driver=radeon").refusal()
        == "bound to the kernel driver radeon, expected amdgpu"
    )


@pytest.mark.parametrize(("mode", "count"), [("dpx", 2), ("qpx", 4), ("cpx", 8)])
def test_partitions(make_tree: Make, mode: str, count: int) -> None:
    whole, *parts = make_tree(f"amd:mi300x,mode={mode},memory_mode=nps4").scan().gpus
    assert (whole.kind, whole.profile, whole.counters) == (
        "divided",
        f"{mode}_nps4",
        (("partitions", count),),
    )
    assert (whole.memory, whole.compute_units) == (None, None)
    assert [part.name for part in parts] == [
        f"{whole.name}-xcp-{number}" for number in range(count)
    ]
    for part in parts:
        assert (part.kind, part.parent, part.counters) == (
            "partition",
            whole.name,
            (("partitions", 1),),
        )
        assert (part.memory, part.compute_units) == (206141652992 // count, 304 // count)
        assert [node.path.rpartition("/")[2][:7] for node in part.nodes] == ["renderD", "kfd"]
        assert set(part.nodes) <= set(whole.nodes)
    assert len({part.nodes for part in parts}) == count


def test_three_partitions_that_no_list_has(make_tree: Make) -> None:
    """TPX is a mode of the MI300A. Its partitions are found like those of other modes."""
    tree = make_tree("amd:mi300x,mode=qpx")
    (tree.function(ADDRESS) / "current_compute_partition").write_text("TPX\n")
    shutil.rmtree(tree.folder / KFD / "4")
    assert [gpu.profile for gpu in tree.scan().gpus] == ["tpx_nps1"] * 4


def test_an_unknown_mode_costs_that_gpu_alone(make_tree: Make) -> None:
    tree = make_tree("amd:mi300x=2,mode=dpx")
    (tree.function(ADDRESS) / "current_compute_partition").write_text("ZPX\n")
    inventory = tree.scan()
    assert {gpu.address for gpu in inventory.gpus} == {"0000:17:00.0"}
    assert len(inventory.gpus) == 3
    assert inventory.skipped[0].reason.startswith("its partition mode 'ZPX' is not known")


def test_a_mode_that_cannot_be_read_is_not_taken_for_none(make_tree: Make) -> None:
    tree = make_tree("amd:mi300x")
    path = tree.function(ADDRESS) / "current_compute_partition"
    path.unlink()
    path.mkdir()
    assert tree.refusal().startswith("how it is partitioned cannot be read: ")


def test_without_a_memory_mode_there_is_no_profile(make_tree: Make) -> None:
    tree = make_tree("amd:mi300x,mode=dpx")
    path = tree.function(ADDRESS) / "current_memory_partition"
    path.write_text("NPS X\n")
    whole, *parts = tree.scan().gpus
    assert [gpu.profile for gpu in (whole, *parts)] == [None] * 3
    assert any("'NPS X' is not a memory mode" in note for note in whole.notes)
    path.unlink()
    whole, *parts = tree.scan().gpus
    assert [gpu.profile for gpu in (whole, *parts)] == [None] * 3
    assert whole.notes == ()


@pytest.mark.parametrize(
    ("word", "file"),
    [
        ("amd:mi300x,mode=dpx", "sys/bus/pci/devices/0000:15:00.0/current_compute_partition"),
        ("amd:mi300x,mode=dpx", "sys/class/drm/renderD129/dev"),
        ("amd:mi300x,mode=dpx", "sys/class/drm/renderD129"),
        ("amd:mi300x,mode=dpx,kfd=closed", "sys/class/drm/renderD129/dev"),
    ],
)
def test_a_gpu_with_a_file_that_cannot_be_read_is_unread(
    make_tree: Make, errors_of, word: str, file: str
) -> None:
    tree = make_tree(word)
    file = file.replace("0000:15:00.0", ADDRESS)
    errors_of({f"{tree.folder}/{file}": errno.EIO})
    (skipped,) = tree.scan().skipped
    assert skipped.is_unread
    assert f"{file}: Input/output error" in skipped.reason


def test_a_mode_that_is_missing_though_there_are_partitions(make_tree: Make) -> None:
    tree = make_tree("amd:mi300x,mode=dpx")
    (tree.function(ADDRESS) / "current_compute_partition").unlink()
    assert tree.refusal() == "KFD tells of 2 partitions, current_compute_partition of none"


def test_a_partition_that_is_still_being_made(make_tree: Make) -> None:
    tree = make_tree("amd:mi300x,mode=cpx")
    shutil.rmtree(tree.folder / KFD / "8")
    assert tree.refusal() == "not ready: it is divided into 8 partitions, but KFD tells of 7"


def test_a_partition_whose_node_is_not_there_yet(make_tree: Make) -> None:
    tree = make_tree("amd:mi300x,mode=dpx")
    (tree.folder / "sys/class/drm/renderD129").unlink()
    assert tree.refusal() == "not ready: KFD tells of a partition at renderD129, which is not there"


def test_a_partition_never_gets_the_node_of_another_gpu(make_tree: Make) -> None:
    tree = make_tree("amd:mi300x,mode=dpx", "amd:mi210")
    edit(tree, 2, "drm_render_minor 129", "drm_render_minor 136")
    inventory = tree.scan()
    assert [gpu.address for gpu in inventory.gpus] == ["0000:17:00.0"]
    assert (
        inventory.skipped[0].reason
        == "KFD tells of a partition at renderD136, which is another device's"
    )


@pytest.mark.parametrize("word", ["location_id 1 the number", "drm_render_minor"])
def test_kfd_that_says_nothing_of_use_costs_what_it_would_tell(make_tree: Make, word: str) -> None:
    tree = make_tree("amd:radeon")
    path = tree.folder / KFD / "1/properties"
    path.write_text(path.read_text().replace("vendor_id ", f"{word}\nvendor_id_of "))
    gpu = tree.only()
    assert (gpu.architecture, gpu.compute_units, gpu.family) == ("gfx1100", None, "RDNA 3")
    assert "compute units are not known: " in " ".join(gpu.notes)


def test_what_neither_kfd_nor_the_chip_tells_is_said(make_tree: Make) -> None:
    tree = make_tree("amd:radeon,kfd=closed", "amd:mi300x,kfd=closed")
    for address in (ADDRESS, "0000:17:00.0"):
        shutil.rmtree(tree.function(address) / "ip_discovery")
    radeon, instinct = tree.scan().gpus
    assert (radeon.architecture, radeon.compute_units) == (None, None)
    assert "architecture and compute units are not known: " in " ".join(radeon.notes)
    assert (instinct.architecture, instinct.compute_units) == (None, 304)
    assert "the architecture is not known: " in " ".join(instinct.notes)


def test_kfd_and_the_bus_must_agree(make_tree: Make) -> None:
    tree = make_tree("amd:radeon")
    edit(tree, 1, "device_id 29772", "device_id 29857")
    gpu = tree.only()
    assert gpu.compute_units is None
    assert "KFD and the PCI bus do not agree" in " ".join(gpu.notes)


def test_the_function_bits_of_a_partition_do_not_matter(make_tree: Make) -> None:
    tree = make_tree("amd:mi300x,mode=dpx")
    edit(tree, 2, f"location_id {1 << 28 | 0x1300}", f"location_id {0x1301}")
    assert [gpu.compute_units for gpu in tree.scan().gpus] == [None, 152, 152]


# ---------------------------------------------------------------- without KFD

# Each model in each of its modes, with the number of its parts.
MODES = [
    ("mi300x", "spx", 1),
    ("mi300x", "dpx", 2),
    ("mi300x", "qpx", 4),
    ("mi300x", "cpx", 8),
    ("mi325x", "spx", 1),
    ("mi325x", "dpx", 2),
    ("mi325x", "qpx", 4),
    ("mi325x", "cpx", 8),
    ("mi308x", "spx", 1),
    ("mi308x", "dpx", 2),
    ("mi308x", "cpx", 4),
    ("mi300a", "spx", 1),
    ("mi300a", "tpx", 3),
    ("mi300a", "cpx", 6),
]


@pytest.mark.parametrize(("model", "mode", "count"), MODES)
def test_a_pod_without_privileges_sees_what_root_sees(
    make_tree: Make, model: str, mode: str, count: int
) -> None:
    """KFD fails with EPERM for GPUs that the device cgroup of the reader does not allow."""
    word = f"amd:{model}=2,mode={mode}"
    seen = make_tree(word, "amd:mi210").scan()
    assert seen.skipped == ()
    assert len(seen.gpus) == 2 * (1 + (count if count > 1 else 0)) + 1
    assert make_tree(f"{word},kfd=closed", "amd:mi210,kfd=closed").scan() == seen


def test_a_mode_that_no_list_of_the_model_has(make_tree: Make) -> None:
    tree = make_tree("amd:mi308x,mode=dpx,kfd=closed")
    (tree.function(ADDRESS) / "current_compute_partition").write_text("QPX\n")
    assert [gpu.profile for gpu in tree.scan().gpus] == ["qpx_nps1"] * 5


def test_dies_that_an_older_kernel_does_not_call_dead(make_tree: Make) -> None:
    """The kernel lists all eight dies of an MI308X; the id tells that only four compute."""
    for word in ("amd:mi308x,mode=cpx", "amd:mi308x,mode=cpx,kfd=closed"):
        tree = make_tree(word)
        for core in range(8):
            (tree.function(ADDRESS) / f"ip_discovery/die/0/11/{core}/harvest").unlink()
        assert len(tree.scan().gpus) == 1 + 4


def test_a_chip_that_no_table_has(make_tree: Make) -> None:
    def unknown(word: str) -> Tree:
        tree = make_tree(word)
        (tree.function(ADDRESS) / "device").write_text("0x7fff\n")
        return tree

    assert len(unknown("amd:mi308x,mode=cpx,kfd=closed").scan().gpus) == 1 + 4
    tree = unknown("amd:mi308x,mode=cpx,kfd=closed")
    shutil.rmtree(tree.function(ADDRESS) / "ip_discovery")
    assert tree.refusal().startswith("it is divided into its dies (CPX), but how many these are")

    tree = unknown("amd:mi308x,mode=cpx")
    shutil.rmtree(tree.function(ADDRESS) / "ip_discovery")
    for node in range(1, 5):
        edit(tree, node, "device_id 29858", "device_id 32767")
    assert len(tree.scan().gpus) == 1 + 4


def test_partitions_that_are_not_in_the_drivers_order_are_given_to_nobody(make_tree: Make) -> None:
    """The numbers of a GPU that was unbound may belong to another GPU now."""
    tree = make_tree("amd:mi300x=2,mode=dpx,kfd=closed")
    link = tree.folder / "sys/class/drm/renderD129"
    link.unlink()
    link.symlink_to("../../devices/platform/amdgpu_xcp_9/drm/renderD129")
    inventory = tree.scan()
    assert {gpu.address for gpu in inventory.gpus} == {"0000:17:00.0"}
    assert "is not certain: the driver has not taken up the GPUs one" in inventory.skipped[0].reason


def test_more_devices_behind_a_gpu_than_it_can_have(make_tree: Make) -> None:
    """Two GPUs were initialized at the same time, so the owners of the devices are unknown."""
    tree = make_tree("amd:mi300x=2,mode=dpx,kfd=closed")
    (tree.folder / "sys/class/drm/renderD136").unlink()  # the second GPU's own
    inventory = tree.scan()
    assert "is not certain" in inventory.skipped[0].reason
    assert "0 devices of amdgpu_xcp come after renderD136" in inventory.skipped[1].reason


def test_a_device_that_is_still_being_made(make_tree: Make) -> None:
    tree = make_tree("amd:mi300x,mode=cpx,kfd=closed")
    (tree.folder / "sys/class/drm/renderD135").unlink()
    assert tree.refusal() == (
        "not ready: it is divided into 8 partitions, but 6 devices of amdgpu_xcp come after renderD128"
    )


def test_the_names_of_older_kernels(make_tree: Make) -> None:
    tree = make_tree("amd:mi300x,mode=dpx,kfd=closed")
    for number in range(7):
        link = tree.folder / f"sys/class/drm/renderD{129 + number}"
        target = tree.folder / "sys/devices/platform" / f"amdgpu_xcp.{number}"
        target.with_name(f"amdgpu_xcp_{number}").rename(target)
        link.unlink()
        link.symlink_to(f"../../devices/platform/{target.name}/drm/{link.name}")
    assert [gpu.kind for gpu in tree.scan().gpus] == ["divided", "partition", "partition"]


def test_without_kfd_a_missing_mode_is_not_taken_for_none(make_tree: Make) -> None:
    tree = make_tree("amd:mi300x,mode=cpx,kfd=closed")
    (tree.function(ADDRESS) / "current_compute_partition").unlink()
    assert tree.refusal().startswith("how it is partitioned is not told: ")


def test_a_number_that_is_not_the_nodes(make_tree: Make) -> None:
    tree = make_tree("amd:mi300x,mode=dpx,kfd=closed")
    (tree.folder / "sys/class/drm/renderD129/dev").write_text("226:130\n")
    assert tree.refusal().endswith("not the numbers of renderD129")


def test_an_apu_is_told_apart(make_tree: Make) -> None:
    apu, card = sorted(
        make_tree("amd:strix", "amd:radeon").scan().gpus, key=lambda gpu: not gpu.integrated
    )
    assert (apu.integrated, apu.architecture, apu.memory, apu.uuid) == (
        True,
        "gfx1150",
        16428261376,
        None,
    )
    assert apu.carve_out == 512 << 20
    assert (apu.link_width, apu.link_speed) == (None, None)
    assert (card.integrated, card.architecture, card.compute_units) == (False, "gfx1100", 96)


def test_older_radeons_have_an_empty_product_name(make_tree: Make) -> None:
    tree = make_tree("amd:radeon")
    (tree.function(ADDRESS) / "product_name").write_text("\n")
    gpu = tree.only()
    assert (gpu.product, gpu.notes) == (NAME_BY_ID, ())
    (tree.function(ADDRESS) / "product_name").write_bytes(b"\xff\n")
    assert "product_name" in " ".join(tree.only().notes), "what is damaged is noted"
    assert tree.only().product is None


def edit(tree: Tree, node: int, old: str, new: str) -> None:
    path = tree.folder / KFD / f"{node}/properties"
    text = path.read_text()
    assert f"{old}\n" in text
    path.write_text(text.replace(f"{old}\n", f"{new}\n"))


# ---------------------------------------------------------------- the board's setup


def test_error_correction_retired_pages_and_the_limit_of_power(make_tree: Make) -> None:
    tree = make_tree("amd:mi300x")
    assert tree.only().setup == Setup(ecc=True, retired_pages=0, power_cap=750)
    folder = tree.function(tree.only().address)
    pages = "0x00000001 : 0x00001000 : R\n0x00000002 : 0x00001000 : P\n"
    tree.put(str(folder.relative_to(tree.folder) / "ras/gpu_vram_bad_pages"), pages)
    assert tree.only().setup == Setup(ecc=True, retired_pages=2, power_cap=750)


SELDOM = (
    "vbios_version",
    "product_name",
    "umc_err_count",
    "gpu_vram_bad_pages",
    "power1_cap",
    "hive_id",
)


def seldom_read(tree: Tree, kept: sysfs.Kept) -> list[str]:
    """Scans, and returns the accesses to files that a scan need not read again."""
    with sysfs.recording() as accesses:
        scan.scan(tree.roots, kept=kept)
    return sorted(path for path, _ in accesses if path.endswith(SELDOM))


def test_what_stays_the_same_while_a_driver_is_bound_is_read_once(make_tree: Make) -> None:
    tree = make_tree("amd:mi300x=2")
    now = [0.0]
    kept = sysfs.Kept(lambda: now[0])
    first, second = (gpu.address for gpu in tree.scan().gpus)
    everything = seldom_read(tree, kept)
    assert len(everything) == 2 * len(SELDOM)
    assert seldom_read(tree, kept) == []
    assert scan.scan(tree.roots, kept=kept) == scan.scan(tree.roots)

    # The driver of one GPU is bound again: it makes the folder of its nodes again.
    drm = tree.function(second) / "drm"
    shutil.copytree(drm, drm.with_name("new"), symlinks=True)
    drm.rename(drm.with_name("before"))
    assert {gpu.address for gpu in scan.scan(tree.roots, kept=kept).gpus} == {first}
    drm.with_name("new").rename(drm)
    again = seldom_read(tree, kept)
    assert again == [path for path in everything if second in path]

    now[0] = sysfs.KEEP
    assert seldom_read(tree, kept) == [path for path in everything if first in path] + again


def test_a_file_that_could_not_be_read_is_read_by_the_next_scan(make_tree: Make) -> None:
    tree = make_tree("amd:mi300x")
    kept = sysfs.Kept()
    pages = tree.function(tree.only().address).relative_to(tree.folder) / "ras/gpu_vram_bad_pages"
    tree.put(str(pages), "no page\n")
    (gpu,) = scan.scan(tree.roots, kept=kept).gpus
    assert gpu.notes == ("gpu_vram_bad_pages is no list of pages",)
    tree.put(str(pages), "")
    (gpu,) = scan.scan(tree.roots, kept=kept).gpus
    assert gpu.setup == Setup(ecc=True, retired_pages=0, power_cap=750)


def test_error_correction_that_could_not_be_looked_at_is_looked_at_again(make_tree: Make) -> None:
    tree = make_tree("amd:mi300x")
    kept = sysfs.Kept()
    count = tree.function(tree.only().address) / "ras/umc_err_count"
    count.rename(count.with_name("away"))
    count.symlink_to(count.name)  # every look fails, and not because nothing is there
    (gpu,) = scan.scan(tree.roots, kept=kept).gpus
    assert gpu.setup == Setup(ecc=None, power_cap=750)
    (note,) = gpu.notes
    assert note.endswith("/ras/umc_err_count: Too many levels of symbolic links")
    count.with_name("away").rename(count)
    (gpu,) = scan.scan(tree.roots, kept=kept).gpus
    assert gpu.setup == Setup(ecc=True, retired_pages=0, power_cap=750)


def test_a_gpu_that_wakes_is_read_although_it_was_read_asleep(make_tree: Make) -> None:
    tree = make_tree("amd:mi300x")
    kept = sysfs.Kept()
    status = tree.function(tree.only().address) / "power/runtime_status"
    status.chmod(0o644)
    caps = []
    for word in ("suspended", "active", "suspended"):
        status.write_text(f"{word}\n")
        (gpu,) = scan.scan(tree.roots, kept=kept).gpus
        assert gpu.setup
        caps.append(gpu.setup.power_cap)
    assert caps == [None, 750, None]


def test_a_board_that_shows_nothing_of_its_setup(make_tree: Make) -> None:
    assert make_tree("amd:radeon").only().setup == Setup()


def test_the_limit_of_power_of_a_sleeping_gpu_is_not_read(make_tree: Make) -> None:
    """The read would wake it. The limit stays the one that was read before."""
    tree = make_tree("amd:mi300x")
    awake = tree.scan()
    path = tree.function(awake.gpus[0].address) / "power/runtime_status"
    path.chmod(0o644)
    path.write_text("suspended\n")
    asleep = tree.scan()
    assert asleep.gpus[0].setup == Setup(ecc=True, retired_pages=0)
    assert scan.with_links_of(awake, asleep).gpus == awake.gpus
