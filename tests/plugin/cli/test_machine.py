"""Where the GPUs are that a command looks at."""

import pytest


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
