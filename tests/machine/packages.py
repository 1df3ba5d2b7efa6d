"""The Debian packages that virtual machines need. Nothing else is installed on the machine."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

# The programs by which a package is found missing.
PACKAGES = {
    "qemu-system-x86": "qemu-system-x86_64",
    "kmod": "depmod",
    "cpio": "cpio",
    "busybox-static": "busybox",
    "e2fsprogs": "mke2fs",
    "xfsprogs": "mkfs.xfs",
}


class MachineError(Exception):
    """Raised if a virtual machine cannot be made, or does not do what it should."""


def install() -> None:
    """Installs what is missing; does nothing, and needs no network, when all is there."""
    missing = [package for package, program in PACKAGES.items() if shutil.which(program) is None]
    if not missing:
        return
    if os.geteuid():
        raise MachineError(f"{', '.join(missing)} missing, and only root can install them")
    print(f"installing {' '.join(missing)}", flush=True)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    run("apt-get", "update", "-q", environment=environment)
    run(
        "apt-get",
        "install",
        "-q",
        "-y",
        "--no-install-recommends",
        *missing,
        environment=environment,
    )


def run(
    *words: object, cwd: Path | None = None, environment: Mapping[str, str] | None = None
) -> str:
    """Runs a program and returns its output. Raises MachineError if it fails."""
    command = [str(word) for word in words]
    done = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        said = (done.stderr or done.stdout).strip()
        raise MachineError(f"{' '.join(command)} ended with {done.returncode}: {said[-2000:]}")
    return done.stdout
