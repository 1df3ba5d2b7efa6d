"""A capture of the machine shows the same GPUs as the machine itself."""

from __future__ import annotations

import base64
import subprocess
import sys
from pathlib import Path

from . import guest
from .kernel import ROOT

RULES = "--vfio-bind=*:*"


def test_a_capture_shows_the_gpus_of_the_machine(machine: guest.Guest, tmp_path: Path) -> None:
    machine.run(f"python3 -m claimd capture '{RULES}' /tmp/machine.tar", check=True)
    text = machine.run("base64 -w 0 /tmp/machine.tar", check=True).output
    capture = tmp_path / "machine.tar"
    capture.write_bytes(base64.b64decode(text))

    command = ["-m", "claimd", "devices", RULES, "-o", "json"]
    there = machine.run(f"python3 {' '.join(command)}", check=True).output
    here = subprocess.run(
        [sys.executable, *command, f"--root={capture}"],
        env={"PYTHONPATH": f"{ROOT}/plugin:{ROOT}/devices"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert here.stdout == there
