"""Images of four kinds, made of Debian's packages: folders that stand for root file systems.

debian      has ldconfig, its cache and Debian's folders
rhel        has ldconfig, its cache and a loader that looks in /usr/lib64 alone
distroless  has glibc and nothing else: no shell, no ldconfig, no cache
musl        has musl and nothing else

And one more, which is large: triton is debian with Python and the package triton.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

from . import build

CACHE = Path(os.environ.get("RIG_CACHE", Path.home() / ".cache/rig")) / "containers"
KINDS = ("debian", "rhel", "distroless", "musl")
_FOLDERS = ("etc", "dev", "proc", "sys", "tmp", "run", "usr/bin", "usr/sbin", "usr/lib")


TRITON = "3.4.0"
_PYTHON_PACKAGES = (
    "python3.11-minimal",
    "libpython3.11-minimal",
    "libpython3.11-stdlib",
    "libbz2-1.0",
    "libcrypt1",
    "libexpat1",
    "libffi8",
    "libgcc-s1",
    "liblzma5",
    "libssl3",
    "libstdc++6",
    "libuuid1",
    "zlib1g",
)


def folder(kind: str) -> Path:
    """The root file system of an image with the container check in it; nobody may write there."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        image = CACHE / "images" / kind
        if not (image / "complete").exists():
            shutil.rmtree(image, ignore_errors=True)
            _make(image, kind)
            (image / "complete").touch()
        shutil.copy(build.container_check("musl" if kind == "musl" else "glibc"), image / "check")
    return image


def _make(image: Path, kind: str) -> None:
    for path in _FOLDERS:
        (image / path).mkdir(parents=True)
    (image / "lib").symlink_to("usr/lib")
    (image / "bin").symlink_to("usr/bin")
    (image / "sbin").symlink_to("usr/sbin")
    (image / "etc/passwd").write_text("root:x:0:0:root:/:/bin/sh\n")

    if kind == "musl":
        shutil.copy(_unpacked("musl") / "lib/x86_64-linux-musl/libc.so", image / "usr/lib")
        (image / "lib/ld-musl-x86_64.so.1").symlink_to("libc.so")
        return

    (image / "usr/lib64").mkdir()
    (image / "lib64").symlink_to("usr/lib64")
    if kind == "rhel":
        # glibc as Debian's 32-bit release has it for 64 bits: it looks in /lib64.
        _copy(_unpacked("libc6-amd64-i386-cross") / "usr/i686-linux-gnu/lib64", image / "lib64")
    else:
        _copy(_unpacked("libc6") / "lib", image / "lib")
        _copy(_unpacked("libc6") / "lib64", image / "lib64")
    if kind == "distroless":
        return

    _copy(_unpacked("libc-bin") / "etc", image / "etc")
    shutil.copy(_unpacked("libc-bin") / "sbin/ldconfig", image / "usr/sbin/ldconfig")
    if kind == "rhel":
        shutil.rmtree(image / "etc/ld.so.conf.d")
        (image / "etc/ld.so.conf").write_text("/lib64\n/usr/lib64\n")
    if kind == "triton":
        for package in _PYTHON_PACKAGES:
            for place in ("usr/bin", "usr/lib", "lib"):
                if (_unpacked(package) / place).exists():
                    _copy(_unpacked(package) / place, image / place)
        _install_triton(image / "opt/triton")
    subprocess.run(["chroot", image, "/sbin/ldconfig"], check=True)


def _install_triton(place: Path) -> None:
    options = ("--quiet", "--disable-pip-version-check", "--no-deps", "--target")
    subprocess.run(
        [sys.executable, "-m", "pip", "install", *options, place, f"triton=={TRITON}"], check=True
    )


def _unpacked(package: str) -> Path:
    place = CACHE / "packages" / package
    if not (place / "complete").exists():
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        subprocess.run(
            ["apt-get", "download", "-q", package], cwd=place, check=True, capture_output=True
        )
        (file,) = place.glob("*.deb")
        subprocess.run(["dpkg-deb", "-x", file, place], check=True)
        (place / "complete").touch()
    return place


def _copy(source: Path, target: Path) -> None:
    subprocess.run(["cp", "-a", f"{source}/.", target], check=True)
