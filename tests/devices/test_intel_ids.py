from __future__ import annotations

import dataclasses

import pytest

from claimd_devices import intel_ids
from claimd_devices.ids import Known


@pytest.mark.parametrize(
    ("device_id", "name", "family", "integrated", "architecture"),
    [
        (0x0BD5, "Data Center GPU Max 1550", "Data Center GPU Max", False, "xe-hpc"),
        (0x56C0, "Data Center GPU Flex 170", "Data Center GPU Flex", False, "xe-hpg"),
        (0x56A0, "Arc A770", "Arc A", False, "xe-hpg"),
        (0xE20B, "Arc B580", "Arc B", False, "xe2-hpg"),
        (0x4680, "UHD Graphics 770", "UHD and Iris Xe Graphics", True, "xe-lp"),
        (0x9A49, "Iris Xe Graphics", "UHD and Iris Xe Graphics", True, "xe-lp"),
        (0x9BC4, "UHD Graphics", "HD, UHD and Iris Graphics", True, "gen9.5"),
        (0x0001, None, "unknown", None, None),
    ],
)
def test_what_an_id_stands_for(
    device_id: int, name: str | None, family: str, integrated: bool | None, architecture: str | None
) -> None:
    known = intel_ids.product(device_id)
    assert dataclasses.replace(known, memory=None) == Known(name, family, architecture, integrated)


@pytest.mark.parametrize(
    ("device_id", "tiles"), [(0x0BD5, 2), (0x0BDA, 1), (0x56C0, 1), (0x0001, None)]
)
def test_tiles(device_id: int, tiles: int | None) -> None:
    assert intel_ids.tiles(device_id) == tiles


@pytest.mark.parametrize(
    ("device_id", "gib"), [(0x0BD5, 128), (0xE20B, 12), (0x56C0, 16), (0x56A0, None), (1, None)]
)
def test_memory_is_in_bytes(device_id: int, gib: int | None) -> None:
    assert intel_ids.memory(device_id) == (gib << 30 if gib else None)


def test_the_place_tells_of_what_the_table_does_not_have() -> None:
    assert intel_ids.is_integrated(0x0001, "0000:00:02.0") is True
    assert intel_ids.is_integrated(0x0001, "0000:03:00.0") is None
    assert intel_ids.is_integrated(0xE20B, "0000:00:02.0") is False
