from __future__ import annotations

import pytest

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
def test_the_node_and_its_nearest(tree: Make, word: str, near: tuple[int, ...]) -> None:
    assert tree("amd:mi210", word).only().numa_nodes == near


def test_the_least_distance_counts(tree: Make) -> None:
    made = tree("amd:mi210=4", "numa=4")
    made.put(f"{NODES}/node0/distance", "10 12 11 32\n")
    assert made.scan().gpus[0].numa_nodes == (0,)  # node 2 is the nearest, on another socket
    made.put(f"{NODES}/node0/distance", "10 11 11 32\n")
    assert made.scan().gpus[0].numa_nodes == (0, 1)


def test_nodes_that_are_not_counted_through(tree: Make) -> None:
    made = tree("amd:mi210=4", "numa=4")
    made.put(f"{NODES}/online", "0,3\n")
    made.put(f"{NODES}/node0/distance", "10 12\n")
    assert made.scan().gpus[0].numa_nodes == (0,)


@pytest.mark.parametrize("row", ["", "10 12", "10 x 12 12", "10 12 12 12 12"])
def test_a_row_that_makes_no_sense(tree: Make, row: str) -> None:
    made = tree("amd:mi210=4", "numa=4")
    made.put(f"{NODES}/node0/distance", f"{row}\n")
    assert made.scan().gpus[0].numa_nodes == (0,)
