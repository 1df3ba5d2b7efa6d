"""The peer that the limits are about: kubernetes-sigs/dra-example-driver, by default and with the
status of a claim's devices reported as claimd reports it.
"""

from __future__ import annotations

import dataclasses
import re
import shutil
import subprocess
from pathlib import Path

from .errors import BenchError
from .figures import GO, GO_WITH_STATUS
from .turn import Driver

MOST = 128  # devices: it puts all of them into one slice, which may have so many
PACKAGE = "./cmd/dra-example-kubeletplugin"
FLAGS = (
    "--node-name={node}",
    "--kubeconfig={kubeconfig}",
    "--cdi-root={cdi}",
    "--kubelet-registrar-directory-path={kubelet}/plugins_registry",
    "--kubelet-plugins-directory-path={kubelet}/plugins",
    "--num-devices={devices}",
    # Else its client waits for its turn most of the time, 5 requests a second.
    "--kube-api-qps=1000",
    "--kube-api-burst=2000",
)


def drivers(place: Path, folder: Path) -> list[Driver]:
    """Both, from a program that is built, or from a clone of the repository: then it is built into
    the folder.
    """
    program, version = place, _stamp(place)
    if place.is_dir():
        program, version = folder / "dra-example-kubeletplugin", _commit(place)
        _build(place, program)
    command = (str(program.absolute()), *FLAGS)
    plain = Driver(name=GO, command=command, most=MOST, version=version)
    reporting = dataclasses.replace(
        plain, name=GO_WITH_STATUS, command=(*command, "--gpu-device-status")
    )
    return [reporting, plain]


def _build(clone: Path, program: Path) -> None:
    if not shutil.which("go"):
        raise BenchError(f"Go is needed to build {clone}; or give a program that is built")
    command = ["go", "build", "-o", str(program), PACKAGE]
    done = subprocess.run(command, cwd=clone, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BenchError(f"{' '.join(command)} in {clone}: {done.stderr.strip()[-500:]}")


def _commit(clone: Path) -> str:
    """Empty if it is no clone."""
    command = ["git", "-C", str(clone), "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def _stamp(program: Path) -> str:
    """The commit as Go writes it into what it builds in a clone; empty if it did not, or there is
    no Go to ask.
    """
    if not shutil.which("go"):
        return ""
    command = ["go", "version", "-m", str(program)]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    match = re.search(r"vcs\.revision=([0-9a-f]{7})", said)
    return match[1] if match else ""
