"""Installs the Debian packages that the rig needs, and checks that Go is there.

The rig installs nothing else on the machine.
"""

from __future__ import annotations

import os
import shutil
import subprocess

from .places import RigError, run

PACKAGES = {
    "runc": "runs containers",
    "conmon": "watches over CRI-O's containers",
    "containernetworking-plugins": "the pod network",
    "busybox-static": "the busybox image",
    "openssl": "certificates",
    "gcc": "the pause image, CRI-O",
    "libc6-dev": "the pause image, CRI-O",
    "podman": "builds images",
    "mmdebstrap": "the python image, crun",
    "patchelf": "crun",
    "iptables": "the pod network",
}
OLDEST_GO = (1, 26)


def missing() -> list[str]:
    """Returns the packages that are not installed."""
    absent = []
    for package in PACKAGES:
        answer = run(
            "dpkg-query",
            "-W",
            "-f",
            "${db:Status-Status}",
            package,
            check=False,
            capture_output=True,
            text=True,
        )
        if answer.stdout != "installed":
            absent.append(package)
    return absent


def install() -> None:
    """Installs the missing packages. If no package is missing, no network is needed."""
    absent = missing()
    if absent:
        print(f"installing {' '.join(absent)}", flush=True)
        quiet = {
            "stdout": subprocess.DEVNULL,
            "env": {**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
        }
        run("apt-get", "update", "-q", **quiet)
        run("apt-get", "install", "-q", "-y", "--no-install-recommends", *absent, **quiet)
    check_go()


def check_go() -> None:
    """Raises RigError if there is no Go on PATH, or if it is too old."""
    if not shutil.which("go"):
        raise RigError(
            f"there is no `go` on PATH, but the binaries are built from source; install Go "
            f"{_oldest_go()} or newer"
        )
    version = run("go", "env", "GOVERSION", capture_output=True, text=True).stdout.strip()
    numbers = tuple(int(part) for part in version.removeprefix("go").split("-")[0].split(".")[:2])
    if numbers < OLDEST_GO:
        raise RigError(
            f"`go` is {version}, but Kubernetes needs {_oldest_go()} or newer; install it and put "
            "it first on PATH"
        )


def _oldest_go() -> str:
    return ".".join(str(number) for number in OLDEST_GO)
