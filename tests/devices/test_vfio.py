from __future__ import annotations

import errno

import pytest

from claimd_devices import fake, scan, vfio, vfio_aliases
from claimd_devices.gpu import Inventory, NotUsable, Rules
from tests.devices.trees import Make, Tree


def look(tree: Tree) -> Inventory:
    return scan.scan(tree.roots, Rules(vfio=True))


def test_it_is_taken_with_the_rule_and_never_without(make_tree: Make) -> None:
    tree = make_tree("nvidia:a100,driver=vfio-pci")
    assert tree.refusal() == (
        "bound to the kernel driver vfio-pci, expected nvidia; the setting vfio publishes such GPUs"
    )
    (gpu,) = look(tree).gpus
    assert (gpu.kind, gpu.driver, gpu.iommu_group, gpu.numa_node) == ("vfio", "vfio-pci", 20, 0)
    assert [(node.path, node.major, node.minor) for node in gpu.nodes] == [
        ("/dev/vfio/20", 240, 0),
        ("/dev/vfio/vfio", 10, 196),
    ]


def test_a_gpu_that_sleeps_under_vfio_pci_has_its_link(make_tree: Make) -> None:
    """What is published does not depend on whether a virtual machine had the GPU open."""
    tree = make_tree("nvidia:a100,driver=vfio-pci")
    (gpu,) = look(tree).gpus
    status = tree.function(gpu.address) / "power/runtime_status"
    status.write_text("active\n")
    (awake,) = look(tree).gpus
    status.write_text("suspended\n")
    (asleep,) = look(tree).gpus
    assert (awake.is_asleep, asleep.is_asleep) == (False, True)
    assert (awake.link_width, awake.link_speed) == (16, 16000)
    assert (asleep.link_width, asleep.link_speed) == (16, 16000)


@pytest.mark.parametrize("driver", ["nvgrace_gpu_vfio_pci", "xe-vfio-pci"])
def test_the_variants_of_vfio_pci_are_known(make_tree: Make, driver: str) -> None:
    tree = make_tree("nvidia:a100,driver=vfio-pci")
    link = tree.function("0000:11:00.0") / "driver"
    link.unlink()
    link.symlink_to(f"../../../../bus/pci/drivers/{driver}")
    (gpu,) = look(tree).gpus
    assert (gpu.kind, gpu.driver) == ("vfio", driver)


def test_iommufd(make_tree: Make) -> None:
    tree = make_tree("amd:mi210,driver=vfio-pci")
    (tree.function("0000:13:00.0") / "vfio-dev/vfio0").mkdir(parents=True)
    (tree.function("0000:13:00.0") / "vfio-dev/vfio0/dev").write_text("511:0\n")
    tree.put("sys/class/misc/iommu/dev", "10:126\n")
    paths = [node.path for node in look(tree).gpus[0].nodes]
    assert paths == ["/dev/iommu", "/dev/vfio/20", "/dev/vfio/devices/vfio0", "/dev/vfio/vfio"]


@pytest.mark.parametrize("has_iommu", [True, False])
@pytest.mark.parametrize("has_device", [True, False])
def test_without_the_group_s_nodes_iommufd_must_be_whole(
    make_tree: Make, has_iommu: bool, has_device: bool
) -> None:
    tree = make_tree("amd:mi210,driver=vfio-pci")
    (tree.folder / "sys/class/vfio/20").unlink()
    if has_device:
        tree.put(f"{tree.function('0000:13:00.0')}/vfio-dev/vfio0/dev", "511:0\n")
    if has_iommu:
        tree.put("sys/class/misc/iommu/dev", "10:126\n")
    assert bool(look(tree).gpus) is (has_iommu and has_device)


def test_what_is_no_device_of_iommufd_is_left_out(make_tree: Make) -> None:
    tree = make_tree("amd:mi210,driver=vfio-pci")
    tree.put(f"{tree.function('0000:13:00.0')}/vfio-dev/other/dev", "511:1\n")
    paths = [node.path for node in look(tree).gpus[0].nodes]
    assert paths == ["/dev/vfio/20", "/dev/vfio/vfio"]


@pytest.mark.parametrize("file", ["sys/class/vfio/20/dev", "sys/class/misc/vfio/dev"])
def test_nodes_that_cannot_be_read_are_unread(make_tree: Make, errors_of, file: str) -> None:
    tree = make_tree("amd:mi210,driver=vfio-pci")
    errors_of({f"{tree.folder}/{file}": errno.EIO})
    (skipped,) = look(tree).skipped
    assert skipped.is_unread
    assert skipped.reason == f"{tree.folder}/{file}: Input/output error"


def test_two_gpus_of_one_group_cannot_be_given_away_one_by_one(make_tree: Make) -> None:
    tree = make_tree("nvidia:a100=2,driver=vfio-pci")
    link = tree.function("0000:13:00.0") / "iommu_group"
    link.unlink()
    link.symlink_to("../../../../kernel/iommu_groups/20")
    inventory = look(tree)
    assert inventory.gpus == ()
    assert all("shares IOMMU group 20" in skipped.reason for skipped in inventory.skipped)


def test_without_an_iommu(make_tree: Make) -> None:
    tree = make_tree("nvidia:a100,driver=vfio-pci")
    (tree.function("0000:11:00.0") / "iommu_group").unlink()
    assert "is in no IOMMU group" in look(tree).skipped[0].reason


def test_before_its_nodes_are_there(make_tree: Make) -> None:
    tree = make_tree("nvidia:a100,driver=vfio-pci")
    (tree.folder / "sys/class/vfio/20").unlink()
    assert (
        look(tree).skipped[0].reason
        == "not ready: the kernel has made no nodes for it in /dev/vfio"
    )


def test_a_group_is_told_of_every_gpu(make_tree: Make) -> None:
    assert [
        gpu.iommu_group for gpu in make_tree("nvidia:l4", "amd:mi210", "iommu=1").scan().gpus
    ] == [
        20,
        21,
    ]


# ---------------------------------------------------------------- those that are bound on demand


def bindable(tree: Tree, *rules: str) -> Inventory:
    return scan.scan(tree.roots, Rules(vfio_bind=rules or ("*:*",)))


def test_the_rules_say_which(make_tree: Make) -> None:
    tree = make_tree("nvidia:l4=2", "amd:mi210", "iommu=1")
    fake.load_vfio(tree.folder)
    kinds = {gpu.address: gpu.kind for gpu in bindable(tree, "0000:11:00.0", "amd").gpus}
    assert kinds == {"0000:11:00.0": "vfio", "0000:13:00.0": "gpu", "0000:17:00.0": "vfio"}


def test_one_that_vfio_pci_holds_anyway_is_the_same(make_tree: Make) -> None:
    tree = make_tree("nvidia:l4,driver=vfio-pci", "nvidia:l4")
    first, second = bindable(tree).gpus
    assert (first.nodes, second.nodes) == (look(tree).gpus[0].nodes, ())
    assert (first.kind, first.driver) == (second.kind, second.driver) == ("vfio", "vfio-pci")


def test_one_that_needs_a_variant_is_left_alone_without_it(make_tree: Make) -> None:
    tree = make_tree("nvidia:l4", "nvidia:a100", "iommu=1")
    fake.load_vfio(tree.folder)
    fake.add_vfio_variant(tree.folder, "10de:27b8", "xe_vfio_pci")
    found = bindable(tree, "10de:*")
    assert [gpu.driver for gpu in found.gpus] == ["vfio-pci"]
    assert found.skipped[0].reason == (
        "it is for virtual machines, and xe_vfio_pci is not loaded: run `modprobe xe_vfio_pci` on "
        "the node, and name it in /etc/modules-load.d"
    )

    # The driver is called otherwise than its module.
    (tree.folder / "sys/bus/pci/drivers/xe-vfio-pci").mkdir()
    assert [gpu.driver for gpu in bindable(tree, "10de:*").gpus] == ["xe-vfio-pci", "vfio-pci"]


def test_a_kernel_without_a_list_of_modules_is_noted(make_tree: Make) -> None:
    tree = make_tree("nvidia:l4", "iommu=1")
    fake.load_vfio(tree.folder)
    (tree.folder / "lib/modules/6.14.0/modules.alias").unlink()
    (gpu,) = bindable(tree).gpus
    assert gpu.driver == "vfio-pci"
    assert gpu.notes == (
        "vfio-pci is taken and no variant of it, because of "
        "/lib/modules/6.14.0/modules.alias: not there",
    )


def test_without_the_module_it_is_left_alone(make_tree: Make) -> None:
    tree = make_tree("nvidia:l4", "iommu=1")
    assert bindable(tree).skipped[0].reason == (
        "it is for virtual machines, and vfio-pci is not loaded: run `modprobe vfio-pci` on the "
        "node, and name it in /etc/modules-load.d"
    )


def test_without_an_iommu_it_cannot_be_bound(make_tree: Make) -> None:
    tree = make_tree("nvidia:l4")
    fake.load_vfio(tree.folder)
    assert bindable(tree).skipped[0].reason.endswith("in no IOMMU group: the IOMMU is off")


@pytest.mark.parametrize(
    ("gpu", "path"),
    [
        ("nvidia:l4,driver=vfio-pci", "bus/pci/devices/0000:11:00.0/iommu_group"),
        ("nvidia:l4", "bus/pci/drivers/vfio-pci"),
    ],
)
def test_what_cannot_be_read_is_not_taken_for_missing(make_tree: Make, gpu: str, path: str) -> None:
    tree = make_tree(gpu, "iommu=1")
    fake.load_vfio(tree.folder)
    place = tree.roots.sys / path
    place.rename(place.with_name("away"))
    place.write_text("neither a link nor a folder")
    (skipped,) = bindable(tree).skipped
    assert skipped.is_unread, skipped.reason


def test_without_its_ids_no_driver_is_chosen(make_tree: Make) -> None:
    """By empty ids, each function would be one for vfio-pci itself."""
    tree = make_tree("nvidia:l4", "iommu=1")
    modalias = tree.function("0000:11:00.0") / "modalias"
    modalias.unlink()
    modalias.mkdir()
    with pytest.raises(NotUsable, match=r"its ids cannot be read: .*/modalias: ") as caught:
        vfio.driver_for(tree.roots, "0000:11:00.0", ())
    assert caught.value.is_unread


def test_without_the_list_of_drivers_no_variant_counts_as_not_loaded(make_tree: Make) -> None:
    tree = make_tree("nvidia:l4", "iommu=1")
    variant = vfio_aliases.Alias("*", "nvgrace_gpu_vfio_pci")
    assert vfio.driver_for(tree.roots, "0000:11:00.0", [variant]) == "nvgrace_gpu_vfio_pci"

    drivers = tree.roots.sys / "bus/pci/drivers"
    drivers.rename(drivers.with_name("away"))
    drivers.write_text("no folder")
    with pytest.raises(NotUsable, match=r"the drivers cannot be read: .*/drivers: ") as caught:
        vfio.driver_for(tree.roots, "0000:11:00.0", [variant])
    assert caught.value.is_unread


def test_virtual_functions_are_left_alone_and_their_gpu_is_not_bound(make_tree: Make) -> None:
    tree = make_tree("intel:max1550,vfs=2", "iommu=1")
    fake.load_vfio(tree.folder)
    inventory = bindable(tree)
    assert {gpu.kind for gpu in inventory.gpus} == {"vf"}
    (skipped,) = inventory.skipped
    assert skipped.reason == "it is for virtual machines, but divided into 2 virtual functions"


def test_a_rule_of_no_form_is_refused() -> None:
    with pytest.raises(ValueError, match="'nvidea' is no rule for GPUs"):
        scan.check_rules(Rules(vfio_bind=("nvidea",)))
