"""The hives of AMD's GPUs, as amdgpu shows them."""

from __future__ import annotations

import pytest

from claimd_devices.gpu import Fabric, Gpu
from tests.devices.trees import Make, Tree


def fabrics(gpus: tuple[Gpu, ...]) -> list[Fabric]:
    return [gpu.fabric for gpu in gpus if gpu.fabric is not None]


def test_all_gpus_of_a_machine_are_in_one_hive(make_tree: Make) -> None:
    found = fabrics(make_tree("machine:mi300x").scan().gpus)
    assert len({fabric.domain for fabric in found}) == 1
    assert found[0].domain.startswith("xgmi-0x")
    assert [fabric.position for fabric in found] == list(range(1, 9))
    assert {fabric.size for fabric in found} == {8}


def test_a_machine_of_two_hives(make_tree: Make) -> None:
    found = fabrics(make_tree("machine:two-hives").scan().gpus)
    domains = [fabric.domain for fabric in found]
    assert len(set(domains)) == 2
    assert domains[:4] == [domains[0]] * 4
    assert [fabric.position for fabric in found] == [1, 2, 3, 4] * 2


def test_the_parts_of_a_gpu_are_in_its_hive(make_tree: Make) -> None:
    gpus = make_tree("amd:mi300x=2,mode=dpx").scan().gpus
    assert len(gpus) == 6
    assert len({fabric.domain for fabric in fabrics(gpus)}) == 1
    assert len(fabrics(gpus)) == 6


@pytest.mark.parametrize("words", ["amd:mi300x", "amd:mi210=2", "amd:mi300x=2,hive=0"])
def test_a_gpu_that_is_joined_with_no_other(make_tree: Make, words: str) -> None:
    assert fabrics(make_tree(words).scan().gpus) == []


def hive(tree: Tree, name: str) -> str:
    first = tree.scan().gpus[0]
    return f"{tree.function(first.address).relative_to(tree.folder)}/xgmi_hive_info/{name}"


@pytest.mark.parametrize("value", ["0", "-1", "hive"])
def test_what_is_no_hive(make_tree: Make, value: str) -> None:
    tree = make_tree("amd:mi300x=2")
    tree.put(hive(tree, "xgmi_hive_id"), f"{value}\n")
    assert fabrics(tree.scan().gpus) == []


def test_a_link_that_is_missing_costs_a_position(make_tree: Make) -> None:
    tree = make_tree("amd:mi300x=2")
    (tree.folder / hive(tree, "node1")).unlink()
    first, second = fabrics(tree.scan().gpus)
    assert (first.position, second.position, first.size) == (None, 2, 1)


def test_a_hive_is_read_once(make_tree: Make) -> None:
    tree = make_tree("amd:mi300x=2")
    tree.put(hive(tree, "node7"), "no link\n")
    first, second = tree.scan().gpus
    assert first.notes == second.notes
    assert "node7: not a symbolic link" in first.notes[0]
    assert first.fabric
    assert first.fabric.size == 3
