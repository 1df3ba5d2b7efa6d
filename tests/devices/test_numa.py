from __future__ import annotations

import pytest

from claimd_devices import numa
from tests.devices.trees import Make

NODES = "sys/devices/system/node"


@pytest.mark.parametrize(
    ("word", "near"),
    [
        ("numa=0", ()),
        ("numa=1", (0,)),
        ("numa=2", (0,)),  # the other node is on another socket
        ("numa=4", (0, 1)),
        ("numa=8", (0, 1, 2, 3)),
    ],
)
def test_the_node_and_its_nearest(make_tree: Make, word: str, near: tuple[int, ...]) -> None:
    assert make_tree("amd:mi210", word).only().numa_nodes == near


def test_the_least_distance_counts(make_tree: Make) -> None:
    tree = make_tree("amd:mi210=4", "numa=4")
    tree.put(f"{NODES}/node0/distance", "10 12 11 32\n")
    assert tree.scan().gpus[0].numa_nodes == (0,)  # node 2 is the nearest, on another socket
    tree.put(f"{NODES}/node0/distance", "10 11 11 32\n")
    assert tree.scan().gpus[0].numa_nodes == (0, 1)


def test_nodes_that_are_not_counted_through(make_tree: Make) -> None:
    tree = make_tree("amd:mi210=4", "numa=4")
    tree.put(f"{NODES}/online", "0,3\n")
    tree.put(f"{NODES}/node0/distance", "10 12\n")
    assert tree.scan().gpus[0].numa_nodes == (0,)


@pytest.mark.parametrize("row", ["", "10 12", "10 x 12 12", "10 12 12 12 12"])
def test_a_row_that_makes_no_sense(make_tree: Make, row: str) -> None:
    tree = make_tree("amd:mi210=4", "numa=4")
    tree.put(f"{NODES}/node0/distance", f"{row}\n")
    assert tree.scan().gpus[0].numa_nodes == (0,)


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("0", [0]),
        ("0-1,4", [0, 1, 4]),
        ("2-2, 7 ", [2, 7]),
        ("3-1", []),
        ("", []),
        ("0,", []),
        ("0-1-2", []),
        ("all", []),
    ],
)
def test_ranges_of_numbers(text: str, numbers: list[int]) -> None:
    assert numa._numbers(text) == numbers


def test_a_range_has_an_end() -> None:
    assert numa._numbers("7-99999") == list(range(7, 7 + 65536))
    assert len(numa._numbers("0-65535")) == 65536


@pytest.mark.parametrize(
    ("file", "content"),
    [
        (f"{NODES}/node0/cpulist", "\n"),
        (f"{NODES}/node0/cpulist", "some\n"),
        (f"{NODES}/online", "1-3\n"),
        (f"{NODES}/online", "0-2\n"),
        ("sys/devices/system/cpu/cpu0/topology/physical_package_id", "x\n"),
    ],
)
def test_where_the_firmware_tells_no_more_the_node_is_alone(
    make_tree: Make, file: str, content: str
) -> None:
    tree = make_tree("amd:mi210=4", "numa=4")
    tree.put(file, content)
    assert tree.scan().gpus[0].numa_nodes == (0,)


def test_a_neighbour_of_no_known_socket_is_none(make_tree: Make) -> None:
    tree = make_tree("amd:mi210=4", "numa=4")
    tree.put(f"{NODES}/node1/cpulist", "\n")
    assert tree.scan().gpus[0].numa_nodes == (0,)
    tree.put(f"{NODES}/node1/cpulist", "0-7\n")
    assert tree.scan().gpus[0].numa_nodes == (0, 1), "the first processor tells the socket"


def test_nodes_of_unknown_sockets_are_no_neighbours(make_tree: Make) -> None:
    tree = make_tree("amd:mi210=4", "numa=4")
    for cpu in (0, 8, 16, 24):
        (tree.folder / f"sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id").unlink()
    assert tree.scan().gpus[0].numa_nodes == (0,)
