from __future__ import annotations

import dataclasses

import pytest

from devices import intel_ids
from devices.intel_ids import Product


@pytest.mark.parametrize(
    ("device_id", "product"),
    [
        (0x0BD5, Product("Data Center GPU Max 1550", "Data Center GPU Max", False, "xe-hpc")),
        (0x56C0, Product("Data Center GPU Flex 170", "Data Center GPU Flex", False, "xe-hpg")),
        (0x56A0, Product("Arc A770", "Arc A", False, "xe-hpg")),
        (0xE20B, Product("Arc B580", "Arc B", False, "xe2-hpg")),
        (0x4680, Product("UHD Graphics 770", "UHD and Iris Xe Graphics", True, "xe-lp")),
        (0x0001, Product(None, "unknown", None, None)),
    ],
)
def test_what_an_id_stands_for(device_id: int, product: Product) -> None:
    assert intel_ids.product(device_id) == product


@pytest.mark.parametrize(
    ("device_id", "tiles"), [(0x0BD5, 2), (0x0BDA, 1), (0x56C0, 1), (0x0001, None)]
)
def test_tiles(device_id: int, tiles: int | None) -> None:
    assert intel_ids.tiles(device_id) == tiles


@pytest.mark.parametrize(
    ("device_id", "memory"),
    [(0x0BD5, 137438953472), (0xE20B, 12884901888), (0x56A0, None), (0x0001, None)],
)
def test_memory_is_in_bytes(device_id: int, memory: int | None) -> None:
    assert intel_ids.memory(device_id) == memory


def test_memory_is_told_only_of_what_has_a_name() -> None:
    for device_id in intel_ids._MEMORY:
        assert intel_ids.product(device_id).name


def test_what_is_shared_by_all_scans_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        intel_ids.product(0x0BD5).name = "x"  # type: ignore[misc]
