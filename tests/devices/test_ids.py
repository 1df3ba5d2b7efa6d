from __future__ import annotations

import functools
from pathlib import Path

import pytest

from claimd_devices import ids
from claimd_devices.failures import LookFailedError
from claimd_devices.ids import Known
from tests.support.limits import without_descriptors


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Provides an own table, and clears the cache before and after the test."""
    path = tmp_path / "ids.tsv"
    monkeypatch.setattr(ids, "_TABLE", path)
    monkeypatch.setattr(ids, "_look_up", functools.lru_cache(ids._look_up.__wrapped__))
    return path


def test_a_row_with_all_and_one_with_nothing(table: Path) -> None:
    table.write_text(
        "#from x\ty\n10de:0001\tNVIDIA X\tHopper\tsm_90\tdiscrete\t80\n10de:0002\t\t\t\t\t\n"
    )
    assert ids.find_device(0x10DE, 1) == Known("NVIDIA X", "Hopper", "sm_90", False, 80 << 30)
    assert ids.find_device(0x10DE, 2) == Known()
    assert ids.find_device(0x10DE, 3) == Known()


def test_a_revision_and_a_name_are_rows_of_their_own(table: Path) -> None:
    table.write_text("#\n1002:744c:c8\tAMD X\t\t\t\t\n10de:1e30:Quadro RTX 8000\t\t\t\t\t48\n")
    assert ids.find_revision(0x1002, 0x744C, 0xC8).name == "AMD X"
    assert ids.find_revision(0x1002, 0x744C, 0xC9) == Known()
    assert ids.find_board(0x10DE, 0x1E30, "Quadro RTX 8000").memory == 48 << 30
    for odd in ("Quadro", "", "\udcff"):
        assert ids.find_board(0x10DE, 0x1E30, odd) == Known()


def test_places(table: Path) -> None:
    for place, integrated, is_package in (
        ("discrete", False, False),
        ("integrated", True, False),
        ("package", True, True),
        ("", None, False),
    ):
        ids._look_up.cache_clear()
        table.write_text(f"#\n10de:0001\tX\t\t\t{place}\t\n")
        known = ids.find_device(0x10DE, 1)
        assert (known.integrated, known.is_package) == (integrated, is_package)


def test_without_the_table_nothing_is_known(table: Path) -> None:
    assert not table.exists()
    assert ids.find_device(0x10DE, 0x2330) == Known()


def test_an_id_is_looked_for_once(table: Path) -> None:
    table.write_text("#\n10de:0001\tX\t\t\t\t\n")
    first = ids.find_device(0x10DE, 1)
    table.unlink()
    assert ids.find_device(0x10DE, 1) is first


@pytest.mark.parametrize(
    ("vendor_id", "device_id", "expected"),
    [
        (0x10DE, 0x2330, Known("NVIDIA H100 80GB HBM3", "Hopper", "sm_90", False, 80 << 30)),
        (0x10DE, 0x2E12, Known("NVIDIA GB10", "Blackwell", "sm_121", True, None)),
        (0x1002, 0x9874, Known("AMD Radeon R5/R6/R7 Graphics", "GCN", None, True, None)),
        (0x1002, 0x67DF, Known(None, "Polaris", None, False, None)),
        (0x8086, 0x3E9B, Known("UHD Graphics 630", "HD, UHD and Iris Graphics", "gen9.5", True)),
    ],
)
def test_the_shipped_table(vendor_id: int, device_id: int, expected: Known) -> None:
    known = ids.find_device(vendor_id, device_id)
    assert (known.family, known.architecture, known.integrated, known.memory) == (
        expected.family,
        expected.architecture,
        expected.integrated,
        expected.memory,
    )
    assert expected.name in (known.name, None)


def test_a_table_that_cannot_be_read_now_is_read_the_next_time(table: Path) -> None:
    table.write_text("#\n10de:0001\tX\t\t\t\t\n")
    with without_descriptors(), pytest.raises(LookFailedError, match=r"ids.tsv: Too many open"):
        ids.find_device(0x10DE, 1)
    assert ids.find_device(0x10DE, 1).name == "X"
