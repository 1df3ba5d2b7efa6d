"""The machine whose GPUs a command reads."""

from pathlib import Path

import pytest

from claimd.node import config
from claimd.tools.cli import machine
from claimd_devices import sysfs


@pytest.mark.parametrize("command", [("devices",), ("slices",), ("capture", "x.tar")])
def test_a_root_that_is_not_there(claimd, tmp_path, command):
    code, out, err = claimd(*command, "--root", str(tmp_path / "nowhere"))
    assert (code, out) == (1, "")
    assert err.startswith(f"claimd: {tmp_path}/nowhere: there is no such folder or capture")


def test_a_file_that_is_no_capture(claimd, tmp_path):
    (tmp_path / "x.tar").write_text("no")
    code, _, err = claimd("devices", "--root", str(tmp_path / "x.tar"))
    assert code == 2
    assert "x.tar is no capture" in err


def test_people_see_what_the_link_has_now(claimd, tmp_path):
    assert claimd("fake", "write", str(tmp_path / "node"), "nvidia:h100")[0] == 0
    code, out, _ = claimd("devices", "--root", str(tmp_path / "node"), "-o", "json")
    assert code == 0
    assert '"link_width_now": 16' in out


@pytest.mark.parametrize("command", ["devices", "slices"])
def test_a_rule_that_is_none_is_told(claimd, tree, command):
    code, out, err = claimd(command, "--root", tree, "--include", "gpu number 2")
    assert (code, out) == (2, "")
    assert "gpu number 2" in err


def test_nothing_of_a_capture_is_left_when_it_was_read(claimd, tree, tmp_path):
    claimd("fake", "fault", tree, "eio", "gpu-0000-11-00-0")
    claimd("capture", "--root", tree, str(tmp_path / "node.tar"))
    replayed = []
    with machine.open_machine(config.load({"root": str(tmp_path / "node.tar")}, {})) as here:
        folder = Path(here.settings.root)
        assert folder.is_dir()
        assert len(here.scan().gpus) == 3
        replayed += sysfs._replayed_errors
    assert not folder.exists()
    assert replayed
    assert not sysfs._replayed_errors


def test_a_root_that_cannot_be_read_is_told(claimd):
    code, out, err = claimd("devices", "--root", f"/{'x' * 300}")
    assert (code, out) == (1, "")
    assert "File name too long" in err


def test_a_folder_is_read_where_it_lies(tree):
    settings = config.load({"root": tree}, {})
    with machine.open_machine(settings) as here:
        assert (here.settings, here.replay) == (settings, None)
    with machine.open_machine(config.load({}, {})) as here:
        assert here.replay is None
