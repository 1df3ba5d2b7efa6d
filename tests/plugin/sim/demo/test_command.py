"""The options of `claimd demo`. The demo itself is in test_demo."""

import shutil
import subprocess
import sys

import pytest

from claimd.sim.demo.command import DemoOptions, so_that_claimd_is_found


@pytest.mark.parametrize(
    ("speed", "at_a_terminal", "elsewhere"), [(None, 1.0, 0.0), (0.0, 0.0, 0.0), (2.0, 2.0, 2.0)]
)
def test_how_fast_texts_follow_each_other(speed, at_a_terminal, elsewhere):
    options = DemoOptions(speed=speed)
    assert options.speed_at(is_live=True) == at_a_terminal
    assert options.speed_at(is_live=False) == elsewhere


def test_claimd_can_be_typed_where_it_is_not_on_the_path(tmp_path):
    """It is next to the Python that runs it, or in a source tree whose path may contain spaces."""
    lonely = tmp_path / "a folder/python"
    lonely.parent.mkdir()
    lonely.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    lonely.chmod(0o755)
    for python in (sys.executable, str(lonely)):
        lines = so_that_claimd_is_found("/nowhere", python)
        script = "\n".join(["shopt -s expand_aliases", *lines, "claimd --version"])
        command = [shutil.which("bash"), "-c", script]
        done = subprocess.run(command, cwd="/", env={}, capture_output=True, text=True, check=True)
        assert done.stdout.startswith("claimd ")


def test_nothing_needs_to_be_said_where_claimd_is_on_the_path(tmp_path):
    program = tmp_path / "claimd"
    program.touch(mode=0o755)
    assert so_that_claimd_is_found(str(tmp_path), "/usr/bin/python3") == []
