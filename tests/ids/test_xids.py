from __future__ import annotations

from pathlib import Path

import pytest

from . import xid_facts, xids

SHEET = (
    "Type\tCode\tMnemonic\tDescription\tA100\tH100\tB100\tGB200\tImmediate\tInvestigatory\n"
    "XID\t79\tROBUST_CHANNEL_GPU_HAS_FALLEN_OFF_THE_BUS\tx\tYES\tYES\tYES\tYES\tRESTART_BM\ty\n"
    "XID\t13\tROBUST_CHANNEL_GR_EXCEPTION / ROBUST_CHANNEL_GR_ERROR_SW_NOTIFY\tx\t\t\t\t\tRESTART_APP\n"
    "XID\t162\tPSHC_REENGAGED\tx\n"
    "SXID\t11001\tNONE\tx\n"
)
HEADER = (
    "#define ROBUST_CHANNEL_GR_EXCEPTION                     (13)\n"
    "#define C2C_FATAL_LINK_FAILURE                          (173)\n"
    "#define ROBUST_CHANNEL_LAST_ERROR                       (176)\n"
    "#define ROBUST_CHANNEL_ERROR_RECOVERY_LEVEL_FATAL     (2)\n"
)


def test_the_sheet_and_the_header_are_understood() -> None:
    catalog = xids.parse_catalog(SHEET)
    assert catalog == {
        79: ("ROBUST_CHANNEL_GPU_HAS_FALLEN_OFF_THE_BUS", "RESTART_BM"),
        13: ("ROBUST_CHANNEL_GR_EXCEPTION", "RESTART_APP"),
        162: ("PSHC_REENGAGED", ""),
    }
    xids.add_from_header(catalog, HEADER)
    assert sorted(catalog) == [13, 79, 162, 173]
    assert catalog[173] == ("C2C_FATAL_LINK_FAILURE", "")


def test_the_table_is_what_the_generator_writes() -> None:
    comments, catalog = xids.read()
    assert len(comments) == 2
    assert "\n".join([*comments, *xids.rows(catalog)]) + "\n" == xids.TABLE.read_text()


def test_a_table_is_made_from_lists_and_keeps_the_rows_of_those_that_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(xids, "TABLE", tmp_path / "xids.tsv")
    sheet, header = tmp_path / "sheet", tmp_path / "header"
    sheet.write_text(SHEET)
    header.write_text(HEADER)
    xids.update(sheet, None, "2025-10-29")
    xids.update(None, header, "2026-03-05")

    comments, catalog = xids.read()
    assert sorted(catalog) == [13, 79, 162, 173]
    assert comments[0].endswith("of 2025-10-29")
    assert comments[1].endswith("of 2026-03-05")
    assert "written: 4 Xids" in capsys.readouterr().out


def test_every_exception_has_a_reason_and_every_code_a_meaning() -> None:
    _, catalog = xids.read()
    assert set(xid_facts.EXCEPTIONS) <= set(catalog)
    assert all(reason for _, reason in xid_facts.EXCEPTIONS.values())
    assert set(xid_facts.MEANINGS) == set(catalog)
    assert set(catalog) >= xid_facts.OF_WHOLE_GPU
