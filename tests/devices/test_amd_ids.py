from __future__ import annotations

import pytest

from devices import amd_ids


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
    ("target", "device_id", "apu"),
    [
        (None, 0x150E, True),
        ("gfx1150", 0x0000, True),
        ("gfx942", 0x74A0, True),
        ("gfx942", 0x74A1, False),
        (None, 0x744C, False),
    ],
)
def test_an_apu_by_either(target: str | None, device_id: int, apu: bool) -> None:
    assert amd_ids.is_apu(target, device_id) is apu
