"""Makes images from a folder or a Containerfile and imports them into the container runtime.

No registry takes part.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

from . import runtimes
from .places import CACHE, PAUSE, STATE, Choices, RigError, run

BUSYBOX = "docker.io/library/busybox:latest"
PYTHON = "docker.io/library/python:3.11-slim-bookworm"
PYTHON_PACKAGES = "python3,python3-venv,ca-certificates,libstdc++6"
COMPILER = "localhost/claimd-compiler"
COMPILER_PACKAGES = "gcc,libc6-dev"
PODMAN_BUILD = (
    "podman",
    "build",
    "--pull=never",
    "--runtime=runc",
    "--network=host",
    "--ulimit=nofile=20000:20000",
    "--ulimit=nproc=1000:1000",
)
SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PAUSE_SOURCE = """#include <signal.h>
#include <unistd.h>
static void end(int number) { _exit(0); }
int main(void) {
  signal(SIGTERM, end);
  signal(SIGINT, end);
  signal(SIGCHLD, SIG_IGN);
  for (;;) pause();
}
"""


def load_folder(folder: Path, name: str, command: tuple[str, ...] = ("/bin/sh",)) -> None:
    """Makes an image with one layer from the folder of a root file system, and imports it."""
    if ":" not in name.rsplit("/", 1)[-1]:
        name += ":latest"
    archive = STATE / "image.tar"
    _write_archive(folder, name, command, archive)
    _load(archive, unpack=False)
    archive.unlink()


def load_archive(archive: Path) -> None:
    """Imports an OCI or Docker archive."""
    _load(archive)


def build(context: Path, file: Path, tag: str) -> None:
    """Builds a Containerfile and imports the image."""
    archive = save(context, file, tag)
    _load(archive)
    archive.unlink()


def save(context: Path, file: Path, tag: str) -> Path:
    """Builds a Containerfile with podman, and returns an archive of the image.

    The Containerfile may start from `PYTHON`, or from its arguments BASE and COMPILER. These base
    images are made from Debian's packages, because there is no registry.
    """
    if not file.exists():
        raise RigError(f"there is no {file}; pass the path of a Containerfile after the folder")
    _make_base(PYTHON, "python-image", PYTHON_PACKAGES, "RUN ln -sf python3 /usr/bin/python\n")
    _make_base(COMPILER, "compiler-image", COMPILER_PACKAGES)
    # The build reaches the package indexes in the same way as this machine does.
    trust = [
        f"--volume={path}:{path}:ro"
        for path in ("/etc/ssl/certs", "/etc/pip.conf")
        if Path(path).exists()
    ]
    asked = [
        f"--env={key}={os.environ[key]}"
        for key in ("PIP_CERT", "PIP_INDEX_URL")
        if key in os.environ
    ]
    bases = (f"--build-arg=BASE={PYTHON}", f"--build-arg=COMPILER={COMPILER}")
    run(*PODMAN_BUILD, *trust, *asked, *bases, "-t", tag, "-f", file, context)

    # podman would add the image to an archive that exists already.
    archive = STATE / "build.tar"
    archive.unlink(missing_ok=True)
    run("podman", "save", "-q", "--format=oci-archive", "-o", archive, tag)
    return archive


def load_own() -> None:
    """Makes and imports the images that every cluster needs: pause for sandboxes, busybox for pods."""
    work = STATE / "rootfs"
    shutil.rmtree(work, ignore_errors=True)
    load_folder(_pause(work / "pause"), PAUSE, ("/pause",))
    load_folder(_busybox(work / "busybox"), BUSYBOX)


def _pause(folder: Path) -> Path:
    folder.mkdir(parents=True)
    run(
        "gcc",
        "-O2",
        "-static",
        "-x",
        "c",
        "-o",
        folder / "pause",
        "-",
        input=PAUSE_SOURCE,
        text=True,
    )
    return folder


def _busybox(folder: Path) -> Path:
    for name in ("bin", "tmp", "etc", "proc", "sys", "dev"):
        (folder / name).mkdir(parents=True)
    shutil.copy("/bin/busybox", folder / "bin/busybox")
    for applet in run("/bin/busybox", "--list", capture_output=True, text=True).stdout.split():
        if applet != "busybox":
            (folder / "bin" / applet).symlink_to("busybox")
    return folder


def _make_base(name: str, folder: str, packages: str, more: str = "") -> None:
    """Makes an image from Debian's packages, unless podman has an image with this name already."""
    if run("podman", "image", "exists", name, check=False).returncode == 0:
        return
    work = CACHE / folder
    work.mkdir(parents=True, exist_ok=True)
    if not (work / "rootfs.tar").exists():
        print(f"making {name} from Debian's packages …", flush=True)
        sources = ("/etc/apt/sources.list.d/debian.sources", "/etc/apt/sources.list")
        known = [path for path in sources if Path(path).exists()][:1]
        options = (
            "--variant=essential",
            f"--include={packages}",
            "--aptopt=Apt::Install-Recommends false",
        )
        run("mmdebstrap", "--quiet", *options, "bookworm", work / "unfinished.tar", *known)
        (work / "unfinished.tar").rename(work / "rootfs.tar")
    (work / "Containerfile").write_text(f"FROM scratch\nADD rootfs.tar /\n{more}")
    run(*PODMAN_BUILD, "-q", "-t", name, work, stdout=subprocess.DEVNULL)


def _load(archive: Path, *, unpack: bool = True) -> None:
    choices = Choices.saved()
    runtimes.of(choices).load(choices, archive, unpack=unpack)


def _write_archive(folder: Path, name: str, command: tuple[str, ...], archive: Path) -> None:
    """Writes an OCI archive as https://github.com/opencontainers/image-spec defines it."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        tar.add(folder, arcname=".")
    layer = packed.getvalue()
    kind = "application/vnd.oci.image"
    settings = {"Env": [f"PATH={SEARCH_PATH}"], "Cmd": list(command)}
    layers = {"type": "layers", "diff_ids": [_digest(layer)]}
    config = _json({"architecture": "amd64", "os": "linux", "config": settings, "rootfs": layers})
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": f"{kind}.manifest.v1+json",
            "config": _descriptor(f"{kind}.config.v1+json", config),
            "layers": [_descriptor(f"{kind}.layer.v1.tar", layer)],
        }
    )
    names = {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name}
    listed = {**_descriptor(f"{kind}.manifest.v1+json", manifest), "annotations": names}
    entries = {f"blobs/sha256/{_digest(blob)[7:]}": blob for blob in (layer, config, manifest)}
    entries["oci-layout"] = _json({"imageLayoutVersion": "1.0.0"})
    entries["index.json"] = _json({"schemaVersion": 2, "manifests": [listed]})
    with tarfile.open(archive, "w") as tar:
        for path, content in entries.items():
            entry = tarfile.TarInfo(path)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))


def _descriptor(media_type: str, content: bytes) -> dict[str, object]:
    return {"mediaType": media_type, "digest": _digest(content), "size": len(content)}


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _json(document: object) -> bytes:
    return json.dumps(document).encode()
