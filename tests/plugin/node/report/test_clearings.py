from __future__ import annotations

from pathlib import Path

import pytest

from claimd.node.report import clearings, health_state
from claimd_devices import health

CLEARING = clearings.Clearing(
    device="gpu-0000-41-00-0", address="0000:41:00.0", at=100.0, by="ann", reason="new riser"
)
OF_INSTANCE = clearings.Clearing(
    device="gpu-0000-41-00-0-mig-7-0", address="0000:41:00.0", instance=7, at=200.0, by="bob"
)


def test_clearings_hold_for_the_same_boot_alone(tmp_path: Path) -> None:
    assert clearings.read_file(tmp_path, "boot") == ()
    clearings.add(tmp_path, "boot", CLEARING)
    clearings.add(tmp_path, "boot", OF_INSTANCE)
    assert clearings.read_file(tmp_path, "boot") == (CLEARING, OF_INSTANCE)
    assert clearings.read_file(tmp_path, "another") == ()
    assert clearings.read_file(tmp_path, "") == ()

    clearings.add(tmp_path, "another", OF_INSTANCE)
    assert clearings.read_file(tmp_path, "another") == (OF_INSTANCE,)
    assert [path.name for path in tmp_path.iterdir()] == [clearings.FILE]


def test_a_clearing_ends_what_was_before_it() -> None:
    assert CLEARING.event() == health.Event(address="0000:41:00.0", kind=health.BOUND, at=100.0)
    assert OF_INSTANCE.event().instance == 7


def test_the_oldest_clearings_are_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clearings, "_MOST", 1)
    clearings.add(tmp_path, "boot", CLEARING)
    clearings.add(tmp_path, "boot", OF_INSTANCE)
    assert clearings.read_file(tmp_path, "boot") == (OF_INSTANCE,)


def test_a_running_claimd_reads_the_file_when_it_has_changed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    reader = clearings.Reader(tmp_path, "boot")
    assert reader.read_events() == ()
    clearings.add(tmp_path, "boot", CLEARING)
    assert reader.read_events() == (CLEARING.event(),)
    assert reader.read_events() == ()
    clearings.add(tmp_path, "boot", OF_INSTANCE)
    assert reader.read_events() == (CLEARING.event(), OF_INSTANCE.event())
    assert caplog.messages == [
        "gpu-0000-41-00-0: its findings were cleared by ann: new riser",
        "gpu-0000-41-00-0-mig-7-0: its findings were cleared by bob",
    ]


def test_a_damaged_file_ends_nothing_and_is_replaced(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / clearings.FILE).write_text("{")
    with pytest.raises(ValueError, match=r"cleared\.json"):
        clearings.read_file(tmp_path, "boot")
    reader = clearings.Reader(tmp_path, "boot")
    assert reader.read_events() == ()
    assert "what a person has cleared is not known" in caplog.text
    clearings.add(tmp_path, "boot", CLEARING)
    assert reader.read_events() == (CLEARING.event(),)


def test_the_state_of_an_earlier_process_has_what_was_cleared(tmp_path: Path) -> None:
    clearings.add(tmp_path, "boot", CLEARING)
    assert health_state.load(tmp_path, "boot").events == (CLEARING.event(),)
    wedged = health.Event(address="0000:41:00.0", kind="wedged", at=50.0, severity=health.FAILED)
    health_state.save(tmp_path, "boot", health.HealthState(events=(wedged,)))
    assert health_state.load(tmp_path, "boot").events == (wedged, CLEARING.event())
