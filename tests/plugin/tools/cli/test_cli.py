"""The command line as a whole: exit codes, help, messages on stderr."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import claimd
import claimd_devices
from claimd.tools import cli

# The node image leaves these out.
NOT_IN_IMAGE = ("sim", "kubernetes/api/objects", "kubernetes/structured.py")

# Imports all that is there, save the three commands that need what is left out.
IMPORT_EVERYTHING = """
import importlib, pkgutil, claimd

needs_sim = {f"claimd.tools.cli.{command}" for command in ("convert", "demo", "sim")}
for module in pkgutil.walk_packages(claimd.__path__, "claimd."):
    if module.name not in needs_sim:
        importlib.import_module(module.name)
        print(module.name)
"""


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("a: [1\nb: }\n", "line 2, column 2: expected ',' or ']', but got ':'"),
        ("a: \x01", "character 4: special characters are not allowed"),
    ],
)
@pytest.mark.parametrize(
    "command", [("devices", "--config"), ("convert", "-f"), ("explain", "x", "-f")]
)
def test_a_file_that_is_no_yaml_is_named_with_the_place(claimd, tmp_path, command, content, words):
    (tmp_path / "bad.yaml").write_text(content)
    code, _, err = claimd(*command, str(tmp_path / "bad.yaml"))
    assert code in (1, 2)
    (line,) = err.splitlines()
    assert f"{tmp_path}/bad.yaml" in line
    assert line.endswith(words)


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


def test_hardware_that_cannot_be_looked_at_is_a_sentence(claimd, tmp_path):
    (tmp_path / "sys/bus/pci").mkdir(parents=True)
    (tmp_path / "sys/bus/pci/devices").write_text("no folder")
    code, out, err = claimd("devices", "--root", str(tmp_path))
    assert (code, out) == (1, "")
    expected = f"{tmp_path}/sys/bus/pci/devices: Not a directory"
    assert err == f"claimd: the hardware cannot be looked at: {expected}\n"


def test_a_wrong_flag_is_argparses(claimd):
    with pytest.raises(SystemExit) as ended:
        cli.main(["devices", "--nod", "x", "--no-such"])
    assert ended.value.code == 2


def test_version(capsys):
    with pytest.raises(SystemExit):
        cli.main(["--version"])
    assert capsys.readouterr().out.startswith("claimd 0.")


def test_help_names_every_command():
    help_text = subprocess.run(
        [sys.executable, "-m", "claimd", "--help"], capture_output=True, text=True, check=True
    ).stdout
    for command in ("run", "devices", "slices", "fake", "capture", "convert", "explain", "probe"):
        assert f"\n    {command} " in help_text


def test_ctrl_c_before_anything_is_up(tmp_path):
    os.mkfifo(tmp_path / "story")
    command = [sys.executable, "-m", "claimd", "demo", str(tmp_path / "story")]
    heeds = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)  # noqa: E731 - who runs the tests may not
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, preexec_fn=heeds) as demo:
        with (tmp_path / "story").open("w"):  # open once it is read
            demo.send_signal(signal.SIGINT)
            assert demo.wait(60) == cli.FAILED
        assert demo.stderr.read() == "claimd: stopped\n"


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a Python that has the packages of the node image and no others of ours."""
    folder = tmp_path_factory.mktemp("image")
    ignore = shutil.ignore_patterns("__pycache__")
    for package in (claimd, claimd_devices):
        place = Path(package.__file__).parent
        shutil.copytree(place, folder / place.name, ignore=ignore)
    for name in NOT_IN_IMAGE:
        place = folder / "claimd" / name
        if place.is_dir():
            shutil.rmtree(place)
        else:
            place.unlink()
    return os.environ | {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}


def test_the_image_leaves_these_out():
    containerfile = Path(__file__).parents[4] / "deploy/Containerfile"
    assert f"claimd && rm -r {' '.join(NOT_IN_IMAGE)}\n" in containerfile.read_text()


@pytest.mark.parametrize("arguments", [["demo"], ["sim"], ["convert", "-f", "-"]])
def test_an_image_without_the_simulator_says_where_to_get_it(image, tmp_path, arguments):
    command = [sys.executable, "-m", "claimd", *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, input="{}", env=image, cwd=tmp_path, check=False
    )
    assert done.returncode == cli.USAGE
    assert done.stdout == ""
    assert done.stderr == (
        f"claimd: this image has no simulator, which `claimd {arguments[0]}` needs: "
        "`pip install claimd` has it, and so has a checkout (`make demo`)\n"
    )


@pytest.mark.slow
def test_every_other_module_loads_in_an_image_without_the_simulator(image, tmp_path):
    command = [sys.executable, "-c", IMPORT_EVERYTHING]
    done = subprocess.run(
        command, capture_output=True, text=True, env=image, cwd=tmp_path, check=False
    )
    assert (done.stderr, done.returncode) == ("", 0)
    names = done.stdout.split()
    assert "claimd.tools.cli.doctor" in names
    assert not [
        name for name in names if name.startswith(("claimd.sim", "claimd.kubernetes.api.o"))
    ]


def test_another_missing_module_is_no_fault_of_the_image(monkeypatch):
    def lacks(arguments):
        raise ModuleNotFoundError("No module named 'msgspec'", name="msgspec")

    monkeypatch.setattr("claimd.tools.cli.fake.write", lacks)
    with pytest.raises(ModuleNotFoundError, match="msgspec"):
        cli.main(["fake", "write", "x", "nvidia:h100"])


def test_garbage_is_collected_while_a_command_runs():
    code = """
import gc, sys
from claimd import __main__
from claimd.tools.cli import devices
devices.run = lambda arguments: print(gc.isenabled()) or 0
sys.argv = ["claimd", "devices"]
__main__.main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"
