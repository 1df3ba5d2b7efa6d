"""Trees of fake GPUs, and their faults, from the command line."""

from pathlib import Path

import pytest

from claimd.tools import cli
from claimd_devices import uevents


def test_fake_refuses_a_folder_that_is_not_its_own(claimd, tmp_path):
    (tmp_path / "precious").touch()
    code, _, err = claimd("fake", "write", str(tmp_path), "nvidia:h100")
    assert code == 2
    assert "neither empty nor a fake tree" in err
    assert (tmp_path / "precious").exists()


def test_fake_refuses_an_unknown_model_and_names_the_known(claimd, tmp_path):
    code, _, err = claimd("fake", "write", str(tmp_path / "t"), "nvidia:h1000")
    assert code == 2
    assert "nvidia:h100" in err


def test_a_fault_is_injected_by_name(claimd, tree):
    device = "gpu-0000-11-00-0"
    assert claimd("fake", "fault", tree, "aer", device, "nonfatal")[1] == (
        f"done: aer {device} nonfatal\n"
    )
    assert claimd("fake", "fault", tree, "unplug", device) == (0, f"done: unplug {device}\n", "")
    code, out, _ = claimd("devices", "--root", tree)
    assert (code, device in out) == (0, False)


def test_a_misspelt_fault_is_no_model(claimd, tree):
    code, _, err = claimd("fake", "fault", tree, "wedg", "gpu-0000-11-00-0")
    assert code == 2
    assert "did you mean wedge?" in err


@pytest.mark.parametrize("device", ["gpu-0000-11-00-1", "0000:11:00.1"])
def test_a_wrong_device_is_answered_with_gpus_spelt_alike(claimd, tree, device):
    code, _, err = claimd("fake", "fault", tree, "wedge", device)
    assert code == 2
    assert device.replace("1", "1")[:-1] + "0" in err
    assert "10-01" not in err
    assert "10:01" not in err, "a bridge"


def test_a_tree_that_stands_there_is_left_alone(claimd, tmp_path):
    folder = str(tmp_path / "t")
    look = f"{folder}; look at it with: claimd devices --root {folder}\n"
    assert claimd("fake", "write", folder, "nvidia:l4") == (0, f"wrote {look}", "")
    assert claimd("fake", "write", folder, "nvidia:l4") == (0, f"nothing to change in {look}", "")
    assert claimd("fake", "write", folder, "nvidia:l4=2") == (0, f"wrote {look}", "")
    assert (tmp_path / "t" / uevents.SOCKETS).is_dir(), "where readers listen"


def test_a_tree_that_cannot_be_written_or_changed(claimd, tmp_path, tree):
    (tmp_path / "file").touch()
    code, out, err = claimd("fake", "write", str(tmp_path / "file/t"), "nvidia:l4")
    assert (code, out) == (1, "")
    assert err == f"claimd: cannot write the fake tree {tmp_path}/file/t: Not a directory\n"

    (Path(tree) / uevents.SOCKETS).mkdir(exist_ok=True)
    kmsg = Path(tree) / "dev/kmsg"
    kmsg.mkdir(parents=True)
    code, out, err = claimd("fake", "fault", tree, "xid", "gpu-0000-11-00-0")
    assert (code, out) == (1, "")
    assert err.startswith(f"claimd: cannot change the fake tree {tree}: Is a directory")


def test_a_tree_that_is_not_there(claimd, tmp_path):
    code, _, err = claimd("fake", "fault", str(tmp_path / "no"), "wedge", "gpu-0000-11-00-0")
    assert code == 2
    assert "was not written by claimd fake" in err


def test_the_form_of_old_manifests(claimd, tmp_path):
    folder = str(tmp_path / "t")
    code, out, err = claimd("fake", folder, "nvidia:h100")
    assert (code, out.startswith(f"wrote {folder};")) == (0, True)
    assert err == "claimd: `claimd fake FOLDER …` is now: claimd fake write FOLDER …\n"
    code, _, err = claimd("fake", folder, "roots=2", "nvidia:h100")
    assert (code, "fake write" in err) == (0, True)
    assert claimd("fake", folder)[0] == 0
    claimd("fake", "write", folder, "nvidia:h100")
    code, out, err = claimd("fake", folder, "wedge", "gpu-0000-11-00-0")
    assert (code, out) == (0, "done: wedge gpu-0000-11-00-0\n")
    assert "claimd fake fault FOLDER" in err
    code, _, err = claimd("fake", folder, "wedg", "gpu-0000-11-00-0")
    assert (code, "did you mean wedge?" in err) == (2, True)


@pytest.mark.parametrize(
    ("command", "lines"),
    [
        (
            "write",
            ("nvidia:h100 NVIDIA H100", "machine:dgx-h100 nvidia:h100=8", "mode=cpx"),
        ),
        ("fault", ("wedge the GPU hangs", "VALUE is fatal or nonfatal", "heal ")),
    ],
)
def test_help_lists_what_there_is(capsys, command, lines):
    with pytest.raises(SystemExit) as ended:
        cli.main(["fake", command, "--help"])
    assert ended.value.code == 0
    words = " ".join(capsys.readouterr().out.split())
    for line in lines:
        assert line in words
