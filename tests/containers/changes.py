"""Changes of an image's root file system before it is run, by name.

Those of HOSTILE try to have a file of the machine written or shown, or code of their own run there.
`SECRET` is a file of the machine that the image must neither read nor change, `TRAP` one that only
code of the image on the machine would make, `FOLDER` one with a cache of the machine's.
"""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from . import build

SECRET = "/etc/secret-of-the-machine"
TRAP = "/trap-has-sprung"
FOLDER = "/folder-of-the-machine"


def _cache_is_a_link(root: Path) -> None:
    (root / "etc/ld.so.cache").unlink()
    (root / "etc/ld.so.cache").symlink_to(SECRET)


def _cache_is_a_link_upwards(root: Path) -> None:
    (root / "etc/ld.so.cache").unlink()
    (root / "etc/ld.so.cache").symlink_to("../" * 20 + SECRET.lstrip("/"))


def _etc_leads_out(root: Path) -> None:
    """Makes a link that leads to a folder of the image in the container, and out of it for us."""
    shutil.move(root / "etc", root / FOLDER.lstrip("/"))
    (root / "etc").symlink_to("../" * 20 + FOLDER.lstrip("/"))


def _cache_is_by_proc(root: Path) -> None:
    (root / "etc/ld.so.cache").unlink()
    (root / "etc/ld.so.cache").symlink_to(f"/proc/1/root{SECRET}")


def _unfinished_is_a_link(root: Path) -> None:
    (root / "etc/.claimd-ld-cache").symlink_to(SECRET)


def _unfinished_is_a_folder(root: Path) -> None:
    (root / "etc/.claimd-ld-cache/x").mkdir(parents=True)


def _cache_is_a_pipe(root: Path) -> None:
    (root / "etc/ld.so.cache").unlink()
    os.mkfifo(root / "etc/ld.so.cache")
    shutil.copy(build.hook(), root / "static")


def _cache_is_a_folder(root: Path) -> None:
    (root / "etc/ld.so.cache").unlink()
    (root / "etc/ld.so.cache").mkdir()


def _cache_is_huge(root: Path) -> None:
    os.truncate(root / "etc/ld.so.cache", 1 << 40)


def _cache_is_noise(root: Path) -> None:
    path = root / "etc/ld.so.cache"
    path.write_bytes(path.read_bytes()[:48] + os.urandom(100_000))


def _configuration_leads_out(root: Path) -> None:
    folder = root / "etc/ld.so.conf.d"
    shutil.rmtree(folder, ignore_errors=True)
    folder.symlink_to("../" * 20 + "etc")
    (root / "etc/ld.so.conf").write_text("include /proc/1/root/etc/*\n/../../../etc\n")


def _ldconfig_is_a_trap(root: Path) -> None:
    for name in ("ldconfig", "ldconfig.real"):
        path = root / "usr/sbin" / name
        path.unlink(missing_ok=True)
        path.write_text(f"#!/bin/sh\ntouch {TRAP} /proc/1/root{TRAP}\n")
        path.chmod(0o755)


def _compat_leads_out(root: Path) -> None:
    (root / "usr/local/cuda").mkdir(parents=True)
    (root / "usr/local/cuda/compat").symlink_to("../" * 20 + "etc")


def _libraries_lead_out(root: Path) -> None:
    """The folders that libraries are mounted into, and one of the files."""
    folder = root / "usr/lib/x86_64-linux-gnu"
    (folder / "libcuda.so.1").unlink(missing_ok=True)
    (folder / "libcuda.so.1").symlink_to("../" * 20 + SECRET.lstrip("/"))


HOSTILE: dict[str, Callable[[Path], None]] = {
    change.__name__.lstrip("_"): change
    for change in (
        _cache_is_a_link,
        _cache_is_a_link_upwards,
        _etc_leads_out,
        _cache_is_by_proc,
        _unfinished_is_a_link,
        _unfinished_is_a_folder,
        _cache_is_a_pipe,
        _cache_is_a_folder,
        _cache_is_huge,
        _cache_is_noise,
        _configuration_leads_out,
        _ldconfig_is_a_trap,
        _compat_leads_out,
        _libraries_lead_out,
    )
}


def _cuda(version: str, root: Path) -> None:
    """Adds the libraries of the driver that CUDA came with, as CUDA's images have them."""
    compat = root / "usr/local/cuda-13/compat"
    compat.mkdir(parents=True)
    (root / "usr/local/cuda").symlink_to("cuda-13")
    build.fill(version, compat / f"libcuda.so.{version}", "libcuda.so.1")
    (compat / "libcuda.so.1").symlink_to(f"libcuda.so.{version}")


NEWER, OLDER = "590.44.01", "570.10.02"
HARMLESS: dict[str, Callable[[Path], None]] = {
    "newer_cuda": functools.partial(_cuda, NEWER),
    "older_cuda": functools.partial(_cuda, OLDER),
}


def apply(root: Path, change: str) -> None:
    """Applies a change by its name; `library:FILE` puts a library of the image's own into its root."""
    name, _, file = change.partition(":")
    if name == "library":
        shutil.copy(file, root / Path(file).name)
    else:
        (HOSTILE | HARMLESS)[name](root)
