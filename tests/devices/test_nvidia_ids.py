from __future__ import annotations

import pytest

from devices import nvidia_ids


@pytest.mark.parametrize(
    ("device_id", "family", "architecture"),
    [
        (0x0000, "unknown", None),
        (0x15EF, "unknown", None),
        (0x15F0, "Pascal", "sm_60"),
        (0x15F8, "Pascal", "sm_60"),
        (0x1600, "unknown", None),
        (0x1BB3, "Pascal", "sm_61"),
        (0x1DB4, "Volta", "sm_70"),
        (0x1EB8, "Turing", "sm_75"),
        (0x20B2, "Ampere", "sm_80"),
        (0x2100, "unknown", None),
        (0x2236, "Ampere", "sm_86"),
        (0x2330, "Hopper", "sm_90"),
        (0x2684, "Ada Lovelace", "sm_89"),
        (0x2901, "Blackwell", "sm_100"),
        (0x2B85, "Blackwell", "sm_120"),
        (0x2E11, "unknown", None),
        (0x2E12, "Blackwell", "sm_121"),
        (0x2E13, "unknown", None),
        (0x31C2, "Blackwell", "sm_103"),
        (0xFFFF, "unknown", None),
    ],
)
def test_the_row_that_an_id_is_in(device_id: int, family: str, architecture: str | None) -> None:
    assert nvidia_ids.family(device_id) == (family, architecture)


def test_integrated() -> None:
    assert set(nvidia_ids.INTEGRATED) == {0x2B00, 0x2E12}
