"""The command line as a whole: exit codes, help, what is said on stderr."""

import os
import signal
import subprocess
import sys

import pytest

from claimd.tools import cli


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("a: [1\nb: }\n", "line 2, column 2: expected ',' or ']', but got ':'"),
        ("a: \x01", "character 4: special characters are not allowed"),
    ],
)
@pytest.mark.parametrize(
    "command", [("devices", "--config"), ("convert", "-f"), ("explain", "x", "-f")]
)
def test_a_file_that_is_no_yaml_is_named_with_the_place(claimd, tmp_path, command, content, said):
    (tmp_path / "bad.yaml").write_text(content)
    code, _, err = claimd(*command, str(tmp_path / "bad.yaml"))
    assert code in (1, 2)
    (line,) = err.splitlines()
    assert f"{tmp_path}/bad.yaml" in line
    assert line.endswith(said)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["devices", "--include", "gpu7"], "gpu7"),
        (["run", "--log-level", "loud"], "--log-level: expected one of debug"),
        (["run"], "node-name is not set"),
        (["probe", "live"], "endpoint is not set"),
        (
            ["fake", "write", "/proc/x", "nvidia:h100"],
            "cannot write the fake tree /proc/x: No such",
        ),
    ],
)
def test_what_is_wrong_is_said_on_stderr(claimd, arguments, words):
    code, out, err = claimd(*arguments)
    assert code in (1, 2)
    assert out == ""
    assert err.startswith("claimd: ")
    assert words in err


def test_a_wrong_flag_is_argparses(claimd):
    with pytest.raises(SystemExit) as ended:
        cli.main(["devices", "--nod", "x", "--no-such"])
    assert ended.value.code == 2


def test_version(capsys):
    with pytest.raises(SystemExit):
        cli.main(["--version"])
    assert capsys.readouterr().out.startswith("claimd 0.")


def test_help_names_every_command():
    told = subprocess.run(
        [sys.executable, "-m", "claimd", "--help"], capture_output=True, text=True, check=True
    ).stdout
    for command in ("run", "devices", "slices", "fake", "capture", "convert", "explain", "probe"):
        assert f"\n    {command} " in told


def test_ctrl_c_before_anything_is_up(tmp_path):
    os.mkfifo(tmp_path / "story")
    command = [sys.executable, "-m", "claimd", "demo", str(tmp_path / "story")]
    heeds = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)  # noqa: E731 - who runs the tests may not
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, preexec_fn=heeds) as demo:
        with (tmp_path / "story").open("w"):  # open once it is read
            demo.send_signal(signal.SIGINT)
            assert demo.wait(60) == cli.FAILED
        assert demo.stderr.read() == "claimd: stopped\n"
