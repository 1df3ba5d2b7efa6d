from __future__ import annotations

from pathlib import Path

import pytest

from claimd.node.report import health_state
from claimd_devices import health
from claimd_devices.gpu import Roots
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
    "content",
    ["", "{", '{"x":' * 50_000, '{"boot": "boot"}', '{"boot": "boot", "memory": {"events": [{}]}}'],
)
def test_a_damaged_file_costs_only_this_knowledge(
    tmp_path: Path, content: str, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / health_state.FILE).write_text(content)
    assert health_state.load(tmp_path, "boot") == health.HealthState()
    assert "what was known of sick GPUs is lost" in caplog.text


def test_a_damaged_file_of_clearings_costs_no_other_knowledge(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    health_state.save(tmp_path, "boot", KNOWN)
    (tmp_path / "cleared.json").write_text("{")
    assert health_state.load(tmp_path, "boot") == KNOWN
    assert "what people cleared is lost" in caplog.text


def test_a_folder_that_cannot_be_written_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    health_state.save(tmp_path / "nowhere", "boot", KNOWN)
    assert "will not outlive this process" in caplog.text


def test_a_file_of_no_boot_is_believed_on_none(tmp_path: Path) -> None:
    """The kernel did not tell which boot it was, neither then nor now."""
    health_state.save(tmp_path, "", KNOWN)
    assert health_state.load(tmp_path, "") == health.HealthState()


def test_a_file_that_cannot_be_read_is_an_error_to_those_who_want_to_know(tmp_path: Path) -> None:
    assert health_state.read_file(tmp_path / "nowhere", "boot") == health.HealthState()
    (tmp_path / health_state.FILE).mkdir()
    with pytest.raises(OSError):
        health_state.read_file(tmp_path, "boot")
    (tmp_path / health_state.FILE).rmdir()
    (tmp_path / health_state.FILE).write_text("{")
    with pytest.raises(ValueError, match=r"health\.json: "):
        health_state.read_file(tmp_path, "boot")


def test_the_boot_is_the_kernels_word(tmp_path: Path) -> None:
    roots = Roots.in_folder(tmp_path)
    assert health_state.boot_id(roots) == ""
    path = roots.proc / "sys/kernel/random/boot_id"
    path.parent.mkdir(parents=True)
    path.write_text("1234-5678\n")
    assert health_state.boot_id(roots) == "1234-5678"


def test_to_have_nothing_to_keep_is_no_trouble(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    health_state.save(tmp_path, "boot", health.HealthState())
    assert list(tmp_path.iterdir()) == []
    assert caplog.text == ""


def test_what_cannot_be_replaced_leaves_nothing_beside_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / health_state.FILE).mkdir()
    health_state.save(tmp_path, "boot", KNOWN)
    assert [path.name for path in tmp_path.iterdir()] == [health_state.FILE]
    assert "will not outlive this process" in caplog.text
