from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from claimd_devices import log_lines, xids
from claimd_devices.health import DEGRADED, FAILED, NOTE
from claimd_devices.kmsg import Line


def test_every_row_of_the_table_is_found_and_whole() -> None:
    rows = xids.read_all()
    assert [row.code for row in rows] == sorted({row.code for row in rows})
    assert len(rows) >= 176
    for row in rows:
        assert xids.find(row.code) == row
        assert row.severity in (NOTE, DEGRADED, FAILED)
        assert row.mnemonic and row.meaning and row.advice


# By NVIDIA's immediate action.
SEVERITIES = {
    "RESET_GPU": FAILED,
    "RESTART_BM": FAILED,
    "RESTART_VM": FAILED,
    "WORKFLOW_XID_48": FAILED,
    "WORKFLOW_NVLINK_ERR": FAILED,
    "WORKFLOW_NVLINK5_ERR": DEGRADED,
    "CONTACT_SUPPORT": DEGRADED,
    "CHECK_MECHANICALS": DEGRADED,
    "CHECK_UVM": DEGRADED,
    "UPDATE_SWFW": DEGRADED,
    "RESTART_APP": NOTE,
    "WORKFLOW_XID_45": NOTE,
    "XID_154": NOTE,
    "IGNORE": NOTE,
}


def test_every_code_is_judged_by_nvidias_action() -> None:
    for row in xids.read_all():
        if row.action and row.code not in (61, 92):
            assert row.severity == SEVERITIES[row.action], row


@pytest.mark.parametrize("place", ["PCI:0000:41:00", "PCI:0000:41:00 GPU-I:03 GPU-CI:01"])
@pytest.mark.parametrize(
    "program", ["", "pid=4711, name=python3, ", "pid='<unknown>', name=<unknown>, "]
)
def test_a_line_with_any_code_is_judged_as_the_table_says(place: str, program: str) -> None:
    for row in xids.read_all():
        text = f"NVRM: Xid ({place}): {row.code}, {program}words of the driver"
        event = log_lines.event_of(Line(at=1.0, text=text))
        assert event is not None
        assert (event.value, event.severity) == (str(row.code), row.severity)

        names_instance = "GPU-I" in place and not row.is_of_whole_gpu
        assert event.instance == (3 if names_instance else None)


@pytest.mark.parametrize(
    ("code", "severity"),
    [(109, FAILED), (110, FAILED), (151, FAILED), (158, FAILED), (167, FAILED), (92, DEGRADED)],
)
def test_some_codes_of_the_catalog(code: int, severity: str) -> None:
    assert xids.find(code).severity == severity


def test_a_code_that_nobody_knows_is_a_note() -> None:
    unknown = xids.find(185)
    assert (unknown.severity, unknown.mnemonic) == (NOTE, "")
    assert unknown.advice


def test_without_the_table_each_code_is_a_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(xids, "_TABLE", tmp_path / "none")
    xids.find.cache_clear()
    try:
        assert xids.find(79) == xids.Xid(code=79)
    finally:
        xids.find.cache_clear()


def test_a_node_without_xids_loads_no_table() -> None:
    code = (
        "import sys; from claimd_devices import log_lines, monitor; from claimd_devices.kmsg import Line;"
        "log_lines.event_of(Line(at=1.0, text='NVRM: loading NVIDIA UNIX Open Kernel Module'));"
        "print('claimd_devices.xids' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "False\n"
