"""The Debian packages that the rig needs. Nothing else is installed on the machine; Go is expected
to be there.
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
    """Installs what is missing; does nothing, and needs no network, when all is there."""
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
    if not shutil.which("go"):
        raise RigError(
            f"no `go` on PATH; the binaries are built from source: install Go {_dotted()} or newer"
        )
    version = run("go", "env", "GOVERSION", capture_output=True, text=True).stdout.strip()
    numbers = tuple(int(part) for part in version.removeprefix("go").split("-")[0].split(".")[:2])
    if numbers < OLDEST_GO:
        raise RigError(
            f"`go` is {version}; Kubernetes needs {_dotted()} or newer: install it and put it first on PATH"
        )


def _dotted() -> str:
    return ".".join(str(number) for number in OLDEST_GO)
