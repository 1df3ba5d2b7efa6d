from __future__ import annotations

import pytest

from claimd_devices import nvidia_ids


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
        (0x2E13, "Blackwell", "sm_121"),
        (0x31C2, "Blackwell", "sm_103"),
        (0xFFFF, "unknown", None),
    ],
)
def test_the_row_that_an_id_is_in(device_id: int, family: str, architecture: str | None) -> None:
    assert nvidia_ids.family(device_id) == (family, architecture)


@pytest.mark.parametrize(
    ("device_id", "expected"),
    [(0x2B00, True), (0x2E12, True), (0x2330, False), (0x2684, False), (0xFFFF, None)],
)
def test_integrated(device_id: int, expected: bool | None) -> None:
    assert nvidia_ids.is_integrated(device_id) is expected


@pytest.mark.parametrize(
    ("device_id", "product", "gib"),
    [
        (0x2330, "NVIDIA H100 80GB HBM3", 80),
        (0x2330, None, 80),
        (0x1E30, "Quadro RTX 6000", 24),
        (0x1E30, "Quadro RTX 8000", 48),
        (0x1E30, None, None),
        (0x2BB3, "NVIDIA RTX PRO 5000 72GB Blackwell", 72),
        (0x2E12, "NVIDIA GB10", None),
        (0xFFFF, "NVIDIA L40S", None),
        (0xFFFF, "NVIDIA X", None),
    ],
)
def test_memory_by_name_then_by_id(device_id: int, product: str | None, gib: int | None) -> None:
    assert nvidia_ids.memory(device_id, product) == (gib << 30 if gib else None)
