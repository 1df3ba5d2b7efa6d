"""NVIDIA's user space as each kind of node has it: a tree of files below a folder that stands for
the host's root. What is in the files, the caller says; their names and links are the real ones.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

VERSION = "580.95.05"
X86, ARM, I386 = 0x0303, 0x0A03, 0x0003

# File without version, and the name by which programs load it ("" is with the version).
LIBRARIES = {
    "libcuda": "1",
    "libcudadebugger": "1",
    "libnvidia-allocator": "1",
    "libnvidia-cfg": "1",
    "libnvidia-gpucomp": "",
    "libnvidia-ml": "1",
    "libnvidia-nvvm": "4",
    "libnvidia-opencl": "1",
    "libnvidia-pkcs11-openssl3": "",
    "libnvidia-ptxjitcompiler": "1",
    "libnvidia-sandboxutils": "1",
    "libnvcuvid": "1",
    "libnvidia-encode": "1",
    "libnvidia-opticalflow": "1",
    "libEGL_nvidia": "0",
    "libGLX_nvidia": "0",
    "libnvidia-eglcore": "",
    "libnvidia-glcore": "",
    "libnvidia-glsi": "",
    "libnvidia-rtcore": "",
    "libnvidia-tls": "",
    "libnvoptix": "1",
    "libnvidia-ngx": "1",
}
PROGRAMS = (
    "nvidia-smi",
    "nvidia-debugdump",
    "nvidia-persistenced",
    "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server",
)
DATA = (
    "etc/OpenCL/vendors/nvidia.icd",
    "etc/vulkan/icd.d/nvidia_icd.json",
    "usr/share/glvnd/egl_vendor.d/10_nvidia.json",
    "usr/share/nvidia/nvoptix.bin",
)

Fill = Callable[[Path, str], None]


def text(path: Path, soname: str) -> None:
    """What suffices for who only looks at names."""
    path.write_text(f"stands for {soname}\n")
    path.chmod(0o755)


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Where one kind of node has the driver."""

    root: str = ""  # below which the rest lies
    libraries: str
    links: str = ""  # to the libraries from another folder, if the links do not lie beside them
    programs: str = "/usr/bin"
    data: str = ""
    firmware: str = "/usr/lib/firmware"
    cache: str = "/etc/ld.so.cache"  # "" if the loader knows nothing of it


LAYOUTS = {
    "debian": Layout(
        libraries="/usr/lib/x86_64-linux-gnu/nvidia/current",
        links="/usr/lib/x86_64-linux-gnu",
        programs="/usr/lib/nvidia/current",
    ),
    "ubuntu": Layout(libraries="/usr/lib/x86_64-linux-gnu"),
    "rhel": Layout(libraries="/usr/lib64"),
    "operator": Layout(root="/run/nvidia/driver", libraries="/usr/lib/x86_64-linux-gnu"),
    "gke": Layout(
        root="/home/kubernetes/bin/nvidia",
        libraries="/lib64",
        programs="/bin",
        firmware="/firmware",
        cache="",
    ),
    "cos": Layout(
        root="/var/lib/nvidia",
        libraries="/lib64",
        programs="/bin",
        firmware="/firmware",
        cache="",
    ),
    "talos": Layout(libraries="/usr/local/lib", programs="/usr/local/bin"),
    "talos-1.9": Layout(
        libraries="/usr/local/lib",
        programs="/usr/local/bin",
        cache="/usr/local/glibc/etc/ld.so.cache",
    ),
    "bottlerocket": Layout(
        libraries="/usr/lib/nvidia/tesla", programs="/usr/libexec/nvidia/tesla/bin"
    ),
    "flatcar": Layout(libraries="/opt/nvidia/current/usr/lib64", programs="/opt/bin"),
    "nixos": Layout(
        root="/run/opengl-driver",
        libraries="/lib",
        programs="/../current-system/sw/bin",
        firmware="/firmware",
        cache="",
    ),
    "aks": Layout(
        root="/usr/local/nvidia",
        libraries="/lib64",
        programs="/bin",
        firmware="/firmware",
        cache="",
    ),
}


def write(
    host: Path, name: str, version: str = VERSION, fill: Fill = text, flags: int = X86
) -> None:
    """The driver of a layout below `host`. `fill` writes a library, given its path and soname."""
    layout = LAYOUTS[name]
    root = _made(host, layout.root)
    if layout.firmware.startswith("/usr/lib/"):
        _made(root, "/usr/lib")
        _link(root / "lib", "usr/lib")

    # The libraries, and the links that ldconfig makes.
    folder = _made(root, layout.libraries)
    links = _made(root, layout.links or layout.libraries)
    sonames = {}
    for stem, end in LIBRARIES.items():
        file = f"{stem}.so.{version}"
        soname = f"{stem}.so.{end}" if end else file
        fill(folder / file, soname)
        sonames[soname] = f"{layout.links or layout.libraries}/{soname}"
        if links != folder or soname != file:
            _link(links / soname, _way(links, folder, file))
    fill(folder / "libnvidia-nvvm70.so.4", "libnvidia-nvvm70.so.4")
    sonames["libnvidia-nvvm70.so.4"] = f"{layout.libraries}/libnvidia-nvvm70.so.4"
    _link(links / "libcuda.so", "libcuda.so.1")
    vdpau = _made(links, "vdpau")
    fill(vdpau / f"libvdpau_nvidia.so.{version}", "libvdpau_nvidia.so.1")
    _link(vdpau / "libvdpau_nvidia.so.1", f"libvdpau_nvidia.so.{version}")

    # Everything else.
    programs = _made(root, layout.programs)
    for program in PROGRAMS:
        fill(programs / program, program)
    if layout.programs == "/usr/lib/nvidia/current":
        for program in PROGRAMS:
            _link(_made(root, "/usr/bin") / program, f"{layout.programs}/{program}")
    for path in DATA:
        (_made(root, str(Path(path).parent)) / Path(path).name).write_text("{}\n")
    firmware = _made(root, f"{layout.firmware}/nvidia/{version}")
    for blob in ("gsp_ga10x.bin", "gsp_tu10x.bin"):
        (firmware / blob).write_text("firmware\n")

    if layout.cache:
        path = _made(root, str(Path(layout.cache).parent)) / Path(layout.cache).name
        path.write_bytes(cache(*((flags, soname, place) for soname, place in sonames.items())))


def cache(*entries: tuple[int, str, str], old: bool = False) -> bytes:
    """An ld.so.cache with an entry for each of flags, soname and path."""
    texts, table = b"", b""
    start = 48 + 24 * len(entries)
    for flags, soname, path in sorted(entries, key=lambda entry: entry[1], reverse=True):
        key = start + len(texts)
        texts += soname.encode() + b"\0"
        value = start + len(texts)
        texts += path.encode() + b"\0"
        table += struct.pack("=iIIIQ", flags, key, value, 0, 0)
    head = b"glibc-ld.so.cache1.1" + struct.pack("=IIB3xI12x", len(entries), len(texts), 2, 0)
    before = b""
    if old:
        before = b"ld.so-1.7.0\0" + struct.pack("=I", len(entries)) + bytes(12 * len(entries))
        before += bytes(-len(before) % 8)
    return before + head + table + texts


def cdi_yaml(kind: str, devices: Iterable[tuple[str, str]], files: Iterable[str]) -> str:
    """A spec as NVIDIA's tools write YAML: name and node of each device, and what is mounted."""
    lines = ["---", "cdiVersion: 0.5.0", "containerEdits:", "  deviceNodes:"]
    lines += ["  - path: /dev/nvidiactl", "  env:", "  - NVIDIA_VISIBLE_DEVICES=void", "  mounts:"]
    for path in files:
        lines += [f"  - containerPath: {path}", f"    hostPath: {path}", "    options:"]
        lines += [f"    - {option}" for option in ("ro", "nosuid", "nodev", "rbind", "rprivate")]
    lines += ["devices:"]
    for name, node in devices:
        lines += ["- containerEdits:", "    deviceNodes:", f"    - path: {node}"]
        lines += [f'  name: "{name}"']
    return "\n".join([*lines, f"kind: {kind}", ""])


def _made(root: Path, folder: str) -> Path:
    path = Path(f"{root}/{folder}")
    path.mkdir(parents=True, exist_ok=True)
    return path.resolve()


def _way(start: Path, folder: Path, file: str) -> str:
    """From the folder of a link to a file."""
    return file if start == folder else os.path.relpath(folder / file, start)


def _link(link: Path, target: str) -> None:
    link.unlink(missing_ok=True)
    link.symlink_to(target)
