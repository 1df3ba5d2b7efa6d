"""The settings of each command: it uses all that it lists, and no others."""

import argparse
import contextlib
import os
import re
import subprocess
import sys

import pytest

from claimd.common import errors
from claimd.node import config
from claimd.tools import cli
from claimd.tools.cli import parser


def flags_of(capsys, *command):
    with pytest.raises(SystemExit):
        cli.main([*command, "--help"])
    words = capsys.readouterr().out.split()
    flags = {word.rstrip(",") for word in words if word.startswith("--")}
    return {name for name in config.NAMES if f"--{config.key_of(name)}" in flags}


@pytest.mark.parametrize("command", parser.SETTINGS)
def test_help_lists_the_settings_of_the_command(capsys, command):
    assert flags_of(capsys, command) == set(parser.SETTINGS[command])


@pytest.mark.parametrize("command", [("fake", "write"), ("fake", "fault"), ("convert",), ("demo",)])
def test_commands_without_settings(capsys, command):
    assert flags_of(capsys, *command) == set()


def test_the_help_of_the_demo_says_that_containers_are_plain_processes(capsys):
    with pytest.raises(SystemExit):
        cli.main(["demo", "--help"])
    out = " ".join(capsys.readouterr().out.split())
    assert (
        "Containers run as plain processes with the rights of the user who starts the demo" in out
    )


def test_run_takes_all_settings():
    assert set(parser.SETTINGS["run"]) == set(config.NAMES)


COMMANDS = {
    "devices": [["devices", "-o", "wide"], ["devices", "-o", "wide", "--root", "{tree}"]],
    "clear": [
        ["clear", "x"],
        ["clear", "gpu-0000-11-00-0", "--root", "{tree}", "--kubelet-dir", "{new}"],
    ],
    "slices": [["slices"], ["slices", "--root", "{tree}"], ["slices", "--template", "node:x"]],
    "capture": [["capture", "{new}"], ["capture", "{new}", "--root", "{tree}"]],
    "probe": [["probe", "live", "--endpoint", "unix:/nowhere"]],
    "explain": [["explain", "x"]],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_uses_the_settings_that_it_lists(command, tree, tmp_path, monkeypatch):
    """Notes every setting that is read. A machine without GPUs needs fewer."""
    used = set()

    class Noting(config.Config):
        def __getattribute__(self, name):
            if name in config.NAMES:
                used.add(name)
            return super().__getattribute__(name)

    load = config.load

    def load_noting(flags):
        loaded = load(flags)
        return Noting(**{name: getattr(loaded, name) for name in config.NAMES})

    monkeypatch.setattr(config, "load", load_noting)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    for arguments in COMMANDS[command]:
        filled = [word.format(tree=tree, new=tmp_path / "new.tar") for word in arguments]
        with contextlib.suppress(errors.Fatal):
            cli._run(parser.parse(filled))
    assert used == set(parser.SETTINGS[command])


def test_a_flag_that_was_not_given_leaves_no_trace():
    parsed = parser.parse(["devices"])
    assert isinstance(parsed, argparse.Namespace)
    assert set(vars(parsed)) == {"command", "output"}


def test_what_was_not_said_of_the_simulator():
    parsed = parser.parse(["sim"])
    assert (parsed.profile, parsed.port, parsed.db, parsed.kubeconfig) == ("1.37", 0, None, None)


def test_a_flag_of_another_command_is_refused(capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["probe", "live", "--node-name", "n"])
    assert ended.value.code == 2
    assert "unrecognized arguments: --node-name n" in capsys.readouterr().err


def test_the_environment_may_have_settings_of_other_commands(claimd, tree, monkeypatch):
    monkeypatch.setenv("CLAIMD_NODE_NAME", "n")
    assert claimd("devices", "--root", tree)[0] == 0


@pytest.mark.parametrize("text", ["0", "-1", "inf", "nan", "soon"])
def test_a_time_limit_that_is_none_is_told(text):
    done = subprocess.run(
        [sys.executable, "-m", "claimd", "explain", "pod/p", f"--timeout={text}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert f"argument --timeout: expected seconds above 0, got {text!r}" in " ".join(
        done.stderr.split()
    )


def test_one_command_is_told_as_all_of_them_are(capsys):
    """Only its own grammar is built. An error in the first word names all commands."""

    def error_of(*words):
        with contextlib.suppress(SystemExit):
            cli.main(list(words))
        return capsys.readouterr().err

    names = re.findall(r"'(\w+)'", error_of("nonsense").partition("choose from")[2])
    assert names[0] == "run"
    assert {"devices", "fake", "probe", "demo"} <= set(names)
    for name in names:
        alone = parser._build(name)
        assert list(choices(alone)) == [name]
        assert choices(alone)[name].format_help() == choices(parser._build(""))[name].format_help()


def choices(built):
    (commands,) = (
        action for action in built._actions if isinstance(action, argparse._SubParsersAction)
    )
    return commands.choices


@pytest.mark.parametrize(("columns", "width"), [("60", 60), ("200", 200), ("", 80), ("wide", 80)])
def test_help_is_as_wide_as_the_terminal(columns, width):
    done = subprocess.run(
        [sys.executable, "-m", "claimd", "run", "--help"],
        env={**os.environ, "COLUMNS": columns},
        capture_output=True,
        text=True,
        check=True,
    )
    longest = max(len(line) for line in done.stdout.splitlines())
    assert width - 20 < longest <= width - 2


def test_a_command_loads_nothing_for_help_that_nobody_asks_for():
    code = """
import sys
from claimd.tools.cli import parser
before = set(sys.modules)
parser.parse(["probe", "live"])
print("shutil" in set(sys.modules) - before)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
