from __future__ import annotations

import pytest

from claimd_devices import fake, scan
from claimd_devices.gpu import Inventory, Rules
from tests.devices.trees import Make, Tree


def look(made: Tree) -> Inventory:
    return scan.scan(made.roots, Rules(vfio=True))


def test_it_is_taken_with_the_rule_and_never_without(tree: Make) -> None:
    made = tree("nvidia:a100,driver=vfio-pci")
    assert made.refusal() == (
        "bound to the kernel driver vfio-pci, expected nvidia; the setting vfio publishes such GPUs"
    )
    (gpu,) = look(made).gpus
    assert (gpu.kind, gpu.driver, gpu.iommu_group, gpu.numa_node) == ("vfio", "vfio-pci", 20, 0)
    assert [(node.path, node.major, node.minor) for node in gpu.nodes] == [
        ("/dev/vfio/20", 240, 20),
        ("/dev/vfio/vfio", 10, 196),
    ]


@pytest.mark.parametrize("driver", ["nvgrace_gpu_vfio_pci", "xe-vfio-pci"])
def test_the_variants_of_vfio_pci_are_known(tree: Make, driver: str) -> None:
    made = tree("nvidia:a100,driver=vfio-pci")
    link = made.function("0000:11:00.0") / "driver"
    link.unlink()
    link.symlink_to(f"../../../../bus/pci/drivers/{driver}")
    (gpu,) = look(made).gpus
    assert (gpu.kind, gpu.driver) == ("vfio", driver)


def test_iommufd(tree: Make) -> None:
    made = tree("amd:mi210,driver=vfio-pci")
    (made.function("0000:13:00.0") / "vfio-dev/vfio0").mkdir(parents=True)
    (made.function("0000:13:00.0") / "vfio-dev/vfio0/dev").write_text("511:0\n")
    made.put("sys/class/misc/iommu/dev", "10:126\n")
    paths = [node.path for node in look(made).gpus[0].nodes]
    assert paths == ["/dev/iommu", "/dev/vfio/20", "/dev/vfio/devices/vfio0", "/dev/vfio/vfio"]


@pytest.mark.parametrize("has_iommu", [True, False])
@pytest.mark.parametrize("has_device", [True, False])
def test_without_the_group_s_nodes_iommufd_must_be_whole(
    tree: Make, has_iommu: bool, has_device: bool
) -> None:
    made = tree("amd:mi210,driver=vfio-pci")
    (made.folder / "sys/class/vfio/20").unlink()
    if has_device:
        made.put(f"{made.function('0000:13:00.0')}/vfio-dev/vfio0/dev", "511:0\n")
    if has_iommu:
        made.put("sys/class/misc/iommu/dev", "10:126\n")
    assert bool(look(made).gpus) is (has_iommu and has_device)


def test_what_is_no_device_of_iommufd_is_left_out(tree: Make) -> None:
    made = tree("amd:mi210,driver=vfio-pci")
    made.put(f"{made.function('0000:13:00.0')}/vfio-dev/other/dev", "511:1\n")
    paths = [node.path for node in look(made).gpus[0].nodes]
    assert paths == ["/dev/vfio/20", "/dev/vfio/vfio"]


def test_two_gpus_of_one_group_cannot_be_given_away_one_by_one(tree: Make) -> None:
    made = tree("nvidia:a100=2,driver=vfio-pci")
    link = made.function("0000:13:00.0") / "iommu_group"
    link.unlink()
    link.symlink_to("../../../../kernel/iommu_groups/20")
    inventory = look(made)
    assert inventory.gpus == ()
    assert all("shares IOMMU group 20" in skipped.reason for skipped in inventory.skipped)


def test_without_an_iommu(tree: Make) -> None:
    made = tree("nvidia:a100,driver=vfio-pci")
    (made.function("0000:11:00.0") / "iommu_group").unlink()
    assert "is in no IOMMU group" in look(made).skipped[0].reason


def test_before_its_nodes_are_there(tree: Make) -> None:
    made = tree("nvidia:a100,driver=vfio-pci")
    (made.folder / "sys/class/vfio/20").unlink()
    assert (
        look(made).skipped[0].reason
        == "not ready: the kernel has made no nodes for it in /dev/vfio"
    )


def test_a_group_is_told_of_every_gpu(tree: Make) -> None:
    assert [gpu.iommu_group for gpu in tree("nvidia:l4", "amd:mi210", "iommu=1").scan().gpus] == [
        20,
        21,
    ]


# ---------------------------------------------------------------- those that are bound on demand


def bindable(made: Tree, *rules: str) -> Inventory:
    return scan.scan(made.roots, Rules(vfio_bind=rules or ("*:*",)))


def test_the_rules_say_which(tree: Make) -> None:
    made = tree("nvidia:l4=2", "amd:mi210", "iommu=1")
    fake.load_vfio(made.folder)
    kinds = {gpu.address: gpu.kind for gpu in bindable(made, "0000:11:00.0", "amd").gpus}
    assert kinds == {"0000:11:00.0": "vfio", "0000:13:00.0": "gpu", "0000:17:00.0": "vfio"}


def test_one_that_vfio_pci_holds_anyway_is_the_same(tree: Make) -> None:
    made = tree("nvidia:l4,driver=vfio-pci", "nvidia:l4")
    first, second = bindable(made).gpus
    assert (first.nodes, second.nodes) == (look(made).gpus[0].nodes, ())
    assert (first.kind, first.driver) == (second.kind, second.driver) == ("vfio", "vfio-pci")


def test_without_the_module_it_is_left_alone(tree: Make) -> None:
    made = tree("nvidia:l4", "iommu=1")
    assert bindable(made).skipped[0].reason == (
        "it is for virtual machines, and vfio-pci is not loaded: run `modprobe vfio-pci` on the "
        "node, and name it in /etc/modules-load.d"
    )


def test_without_an_iommu_it_cannot_be_bound(tree: Make) -> None:
    made = tree("nvidia:l4")
    fake.load_vfio(made.folder)
    assert bindable(made).skipped[0].reason.endswith("in no IOMMU group: the IOMMU is off")


def test_virtual_functions_are_left_alone_and_their_gpu_is_not_bound(tree: Make) -> None:
    made = tree("intel:max1550,vfs=2", "iommu=1")
    fake.load_vfio(made.folder)
    inventory = bindable(made)
    assert {gpu.kind for gpu in inventory.gpus} == {"vf"}
    (skipped,) = inventory.skipped
    assert skipped.reason == "it is for virtual machines, but divided into 2 virtual functions"


def test_a_rule_of_no_form_is_refused() -> None:
    with pytest.raises(ValueError, match="'nvidea' is no rule for GPUs"):
        scan.check_rules(Rules(vfio_bind=("nvidea",)))
