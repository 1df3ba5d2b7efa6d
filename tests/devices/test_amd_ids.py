from __future__ import annotations

import pytest

from claimd_devices import amd_ids


@pytest.mark.parametrize(
    ("target", "device_id", "family"),
    [
        ("gfx942", 0x74A1, "CDNA 3"),
        ("gfx942", 0x0000, "CDNA 3"),
        ("gfx1100", 0x740F, "RDNA 3"),  # the driver's own word comes first
        (None, 0x740F, "CDNA 2"),
        ("", 0x740F, "CDNA 2"),
        ("gfx9999", 0x744C, "RDNA 3"),
        ("gfx9999", 0x0000, "unknown"),
        (None, 0x0000, "unknown"),
    ],
)
def test_the_generation_by_target_then_by_id(
    target: str | None, device_id: int, family: str
) -> None:
    assert amd_ids.family(target, device_id) == family


@pytest.mark.parametrize(
    ("target", "device_id", "expected"),
    [
        (None, 0x150E, True),
        ("gfx1150", 0x0000, True),
        ("gfx942", 0x74A0, True),
        ("gfx942", 0x74A1, False),
        (None, 0x744C, False),
        (None, 0x9874, True),
        (None, 0x98E4, True),
        (None, 0x13FE, True),
        ("gfx1100", 0x0000, False),
        (None, 0x0000, None),
        ("gfx9999", 0x0000, None),
    ],
)
def test_integrated_by_either_or_not_known(
    target: str | None, device_id: int, expected: bool | None
) -> None:
    assert amd_ids.is_integrated(target, device_id) is expected


def test_a_name_by_revision_then_by_id() -> None:
    assert amd_ids.product(0x67DF, 0xE7) == "AMD Radeon RX 580 Series"
    by_id = amd_ids.product(0x67DF, None)
    assert by_id is not None and "RX 470" in by_id
    assert amd_ids.product(0x67DF, 0xFF) != amd_ids.product(0x67DF, 0xE7)
    assert amd_ids.product(0x0000, 0) is None


def test_what_the_id_alone_tells() -> None:
    for device_id, target in amd_ids._TARGETS.items():
        assert amd_ids.target(device_id) == target
    for device_id, (units, dies) in amd_ids._SIZES.items():
        assert amd_ids.compute_units(device_id) == units
        assert units > 0
        assert amd_ids.dies(device_id) == dies
    assert (amd_ids.dies(0x74A1), amd_ids.dies(0x74A2), amd_ids.dies(0x74A0)) == (8, 4, 6)
    for fact in (amd_ids.target, amd_ids.compute_units, amd_ids.dies):
        assert fact(0x0000) is None
