"""What the tests run, built once for each state of its sources: stub libraries and our programs."""

from __future__ import annotations

import fcntl
import functools
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
SOURCES = Path(__file__).resolve().parent
BUILT = ROOT / "build/containers"
HOOK_SOURCE = ROOT / "deploy/ld-cache/claimd-ld-cache.c"
CHECK_SOURCE = ROOT / "deploy/container-check/claimd-container-check.c"


def missing() -> str | None:
    """Returns the tools that are missing, or None."""
    for tool in ("gcc", "musl-gcc", "unshare", "pivot_root", "dpkg-deb", "apt-get", "go"):
        if shutil.which(tool) is None:
            return f"no {tool} here"
    if not any(map(shutil.which, ("runc", "crun"))):
        return "neither runc nor crun is here"
    return None


def hook() -> Path:
    """The program that makes a container's loader know its libraries, as the image has it."""
    return _compiled("claimd-ld-cache", HOOK_SOURCE, ("gcc", "-static", "-Os"))


def container_check(libc: str) -> Path:
    """Builds the program for images with `glibc` or `musl`."""
    compiler = {"glibc": "gcc", "musl": "musl-gcc"}[libc]
    return _compiled(f"container-check-{libc}", CHECK_SOURCE, (compiler, "-ldl"))


def fill(version: str, path: Path, soname: str) -> None:
    """Writes a library of a driver; a program gets what stands for it."""
    if ".so" not in path.name:
        path.write_text(f"#!/bin/sh\necho {path.name} {version}\n")
        path.chmod(0o755)
        return
    shutil.copy(_stub(version, soname), path)


@functools.cache
def _stub(version: str, soname: str) -> Path:
    flags = ("-shared", "-fPIC", f"-Wl,-soname,{soname}", f'-DVERSION="{version}"')
    needs = ("-Wl,--no-as-needed", "-lc")
    return _compiled(f"stub-{version}-{soname}", SOURCES / "stub.c", ("gcc", *flags), needs)


def _compiled(name: str, source: Path, command: Sequence[str], last: Sequence[str] = ()) -> Path:
    """Two test processes take turns."""
    BUILT.mkdir(parents=True, exist_ok=True)
    binary = BUILT / name
    with open(BUILT / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not binary.exists() or binary.stat().st_mtime < source.stat().st_mtime:
            words = [command[0], str(source), *command[1:], "-o", str(binary), *last]
            done = subprocess.run(words, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
    return binary
