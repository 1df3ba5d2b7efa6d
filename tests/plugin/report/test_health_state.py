from __future__ import annotations

from pathlib import Path

import pytest

from devices import health
from plugin.report import health_state
from tests.support.worlds import gpu

EVENT = health.Event(
    address="0000:41:00.0", kind="wedged", at=7.5, severity=health.FAILED, sentence="it hangs"
)
KNOWN = health.HealthState(gone=((gpu(1), 12.5),), events=(EVENT,))


def test_what_is_saved_is_loaded_on_the_same_boot_alone(tmp_path: Path) -> None:
    health_state.save(tmp_path, "boot", KNOWN)
    assert health_state.load(tmp_path, "boot") == KNOWN
    assert health_state.load(tmp_path, "another") == health.HealthState()
    assert health_state.load(tmp_path, "") == health.HealthState()


def test_when_all_is_well_there_is_no_file(tmp_path: Path) -> None:
    health_state.save(tmp_path, "boot", KNOWN)
    health_state.save(tmp_path, "boot", health.HealthState())
    assert list(tmp_path.iterdir()) == []
    assert health_state.load(tmp_path, "boot") == health.HealthState()


@pytest.mark.parametrize(
    "content", ["", "{", '{"boot": "boot"}', '{"boot": "boot", "memory": {"events": [{}]}}']
)
def test_a_damaged_file_costs_only_this_knowledge(
    tmp_path: Path, content: str, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / health_state.FILE).write_text(content)
    assert health_state.load(tmp_path, "boot") == health.HealthState()
    assert "what was known of sick GPUs is lost" in caplog.text


def test_a_folder_that_cannot_be_written_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    health_state.save(tmp_path / "nowhere", "boot", KNOWN)
    assert "will not outlive this process" in caplog.text
