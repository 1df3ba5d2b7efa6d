"""Finds the files of NVIDIA's driver on the host that a container needs.

A driver is installed in the host's own folders, in the root of a driver container, or in a folder
of its own. docs/nvidia-libraries.md compares the tables below with those of NVIDIA's own generator.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator
from dataclasses import field

from . import ld_so_cache, values
from .gpu import COMPUTE, DISPLAY, GRAPHICS, NGX, UTILITY, VIDEO, Mount
from .host_files import HostFiles

# The roots where a driver may be installed, in the order of the search. "" is the host's own root.
ROOTS = (
    "",
    "/run/nvidia/driver",  # the GPU Operator's driver container
    "/home/kubernetes/bin/nvidia",  # GKE
    "/var/lib/nvidia",  # Container-Optimized OS, and GKE's installer for Ubuntu
    "/opt/nvidia/current",  # Flatcar
    "/run/opengl-driver",  # NixOS
    "/usr/local/nvidia",  # AKS, and what nvidia-docker once made
)

# Folders of a root, which are searched if the loader's cache does not have the driver.
_LIBRARY_FOLDERS = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib/x86_64-linux-gnu/nvidia/current",
    "/usr/lib/aarch64-linux-gnu/nvidia/current",
    "/usr/local/lib",  # Talos
    "/usr/local/glibc/usr/lib",  # Talos before 1.10
    "/usr/lib/nvidia/tesla",  # Bottlerocket
    "/usr/lib",
)

# Further folders of a root that is no root file system.
_LIBRARY_FOLDERS_BESIDE = ("/lib64", "/lib", "/")
_CACHES = (ld_so_cache.PATH, "/usr/local/glibc/etc/ld.so.cache")
_PROGRAM_FOLDERS = (
    "/usr/bin",
    "/usr/local/bin",
    "/bin",
    "/usr/sbin",
    "/usr/libexec/nvidia/tesla/bin",  # Bottlerocket
)
_HOST_PROGRAM_FOLDERS = ("/opt/bin", "/run/current-system/sw/bin")  # Flatcar, NixOS
_FIRMWARE_FOLDERS = ("/lib/firmware", "/firmware")  # the second one is GKE's
_DATA_FOLDERS = ("/etc", "/usr/local/share", "/usr/share", "/share", "")

# The capability of each library, and the end of the name by which programs load it. If the end is
# empty, the name ends in the driver's version: only the driver's own libraries load such a library.
_LIBRARIES = {
    "libcuda": (COMPUTE, "1"),
    "libcudadebugger": (COMPUTE, "1"),
    "libnvidia-allocator": (COMPUTE, "1"),
    "libnvidia-compiler": (COMPUTE, ""),
    "libnvidia-fatbinaryloader": (COMPUTE, ""),
    "libnvidia-gpucomp": (COMPUTE, ""),
    "libnvidia-nvvm": (COMPUTE, "4"),
    "libnvidia-nvvm70": (COMPUTE, "4"),
    "libnvidia-opencl": (COMPUTE, "1"),
    "libnvidia-pkcs11": (COMPUTE, ""),
    "libnvidia-pkcs11-openssl3": (COMPUTE, ""),
    "libnvidia-ptxjitcompiler": (COMPUTE, "1"),
    "libnvidia-tileiras": (COMPUTE, ""),
    "libnvidia-cfg": (UTILITY, "1"),
    "libnvidia-ml": (UTILITY, "1"),
    "libnvidia-nscq": (UTILITY, "2"),
    "libnvidia-sandboxutils": (UTILITY, "1"),
    "libnvsdm": (UTILITY, "1"),
    "libnvcuvid": (VIDEO, "1"),
    "libnvidia-encode": (VIDEO, "1"),
    "libnvidia-opticalflow": (VIDEO, "1"),
    "libvdpau_nvidia": (VIDEO, "1"),
    "libEGL_nvidia": (GRAPHICS, "0"),
    "libGLESv1_CM_nvidia": (GRAPHICS, "1"),
    "libGLESv2_nvidia": (GRAPHICS, "2"),
    "libGLX_nvidia": (GRAPHICS, "0"),
    "libnvidia-cbl": (GRAPHICS, ""),
    "libnvidia-egl-gbm": (GRAPHICS, "1"),
    "libnvidia-egl-wayland": (GRAPHICS, "1"),
    "libnvidia-egl-wayland2": (GRAPHICS, "1"),
    "libnvidia-egl-xcb": (GRAPHICS, "1"),
    "libnvidia-egl-xlib": (GRAPHICS, "1"),
    "libnvidia-eglcore": (GRAPHICS, ""),
    "libnvidia-fbc": (GRAPHICS, "1"),
    "libnvidia-glcore": (GRAPHICS, ""),
    "libnvidia-glsi": (GRAPHICS, ""),
    "libnvidia-glvkspirv": (GRAPHICS, ""),
    "libnvidia-ifr": (GRAPHICS, "1"),
    "libnvidia-present": (GRAPHICS, ""),
    "libnvidia-rtcore": (GRAPHICS, ""),
    "libnvidia-tls": (GRAPHICS, ""),
    "libnvidia-vksc-core": (GRAPHICS, "1"),
    "libnvidia-vulkan-producer": (GRAPHICS, ""),
    "libnvidia-wayland-client": (GRAPHICS, ""),
    "libnvoptix": (GRAPHICS, "1"),
    "libglxserver_nvidia": (DISPLAY, ""),
    "libnvidia-gtk2": (DISPLAY, ""),
    "libnvidia-gtk3": (DISPLAY, ""),
    "libnvidia-ngx": (NGX, "1"),
}

# Libraries of the driver that have versions of their own.
_OWN_VERSIONS = (
    "libnvidia-nvvm70",
    "libnvidia-egl-gbm",
    "libnvidia-egl-wayland",
    "libnvidia-egl-wayland2",
    "libnvidia-egl-xcb",
    "libnvidia-egl-xlib",
)

# Further names by which some programs load a library.
_OTHER_NAMES = {
    "libcuda": "libcuda.so",
    "libnvidia-opticalflow": "libnvidia-opticalflow.so",
    "libGLX_nvidia": "libGLX_indirect.so.0",
    "libnvidia-vulkan-producer": "libnvidia-vulkan-producer.so",
}

# A folder without these libraries has no driver.
_ESSENTIAL = ("libcuda", "libnvidia-ml")

_PROGRAMS = {
    "nvidia-smi": UTILITY,
    "nvidia-debugdump": UTILITY,
    "nvidia-persistenced": UTILITY,
    "nvidia-cuda-mps-control": COMPUTE,
    "nvidia-cuda-mps-server": COMPUTE,
    "nvidia-ngx-updater": NGX,
    "nvidia-xconfig": DISPLAY,
}

# Data files by their path in one of the data folders, with the folder of a container and the
# capability.
_DATA = {
    "OpenCL/vendors/nvidia.icd": ("/etc", COMPUTE),
    "vulkan/icd.d/nvidia_icd.json": ("/etc", GRAPHICS),
    "vulkan/icd.d/nvidia_icd.x86_64.json": ("/etc", GRAPHICS),
    "vulkan/icd.d/nvidia_icd.aarch64.json": ("/etc", GRAPHICS),
    "vulkan/icd.d/nvidia_layers.json": ("/etc", GRAPHICS),
    "vulkan/implicit_layer.d/nvidia_layers.json": ("/etc", GRAPHICS),
    "egl/egl_external_platform.d/09_nvidia_wayland2.json": ("/usr/share", GRAPHICS),
    "egl/egl_external_platform.d/10_nvidia_wayland.json": ("/usr/share", GRAPHICS),
    "egl/egl_external_platform.d/15_nvidia_gbm.json": ("/usr/share", GRAPHICS),
    "egl/egl_external_platform.d/20_nvidia_xcb.json": ("/usr/share", GRAPHICS),
    "egl/egl_external_platform.d/20_nvidia_xlib.json": ("/usr/share", GRAPHICS),
    "glvnd/egl_vendor.d/10_nvidia.json": ("/usr/share", GRAPHICS),
    "nvidia/nvoptix.bin": ("/usr/share", GRAPHICS),
    "X11/xorg.conf.d/10-nvidia.conf": ("/usr/share", DISPLAY),
    "X11/xorg.conf.d/nvidia-drm-outputclass.conf": ("/usr/share", DISPLAY),
}
_SOCKETS = {
    "/run/nvidia-persistenced/socket": UTILITY,
    "/run/nvidia-fabricmanager/socket": COMPUTE,
}

# Modules of the X server, in the folder of the libraries or in one of these. Their paths stay the
# same.
_XORG_MODULES = ("drivers/nvidia_drv.so", "extensions/libglxserver_nvidia.so.{version}")
_XORG_FOLDERS = ("/usr/lib/xorg/modules", "/usr/lib64/xorg/modules")

_FILE = re.compile(r"(lib[\w+-]+)\.so\.([\w.]+)")


@values.dataclass(frozen=True, slots=True, kw_only=True)
class Driver:
    """The user space of a driver on the host: its root, and the files that a container needs."""

    root: str
    version: str
    mounts: tuple[Mount, ...]  # sorted
    libraries: int


@values.dataclass(slots=True, kw_only=True)
class _Libraries:
    """The driver's libraries in one root, by the names that programs load."""

    triplet: str
    folder: str  # of libcuda, as programs of the root call it

    # The path of the file, and its capability.
    files: dict[str, tuple[str, str]] = field(default_factory=dict)

    def add(self, soname: str, real: str) -> None:
        """Adds a library. One that is in no table counts as compute: a newer driver may need it."""
        stem = soname.partition(".so")[0]
        capability, _ = _LIBRARIES.get(stem, (COMPUTE, ""))
        self.files.setdefault(soname, (real, capability))
        if stem in _OTHER_NAMES:
            self.files.setdefault(_OTHER_NAMES[stem], (real, capability))

    def is_driver(self) -> bool:
        """Returns True if the essential libraries of a driver are there."""
        return any(f"{stem}.so.1" in self.files for stem in _ESSENTIAL)


def roots(host: str, root: str = "") -> list[HostFiles]:
    """Returns the existing roots where a driver may be installed; only `root`, if it is set."""
    candidates = (root.rstrip("/"),) if root else ROOTS
    places = [HostFiles(host, candidate) for candidate in candidates]
    return [files for files in places if not files.root or files.real("") is not None]


def find(places: list[HostFiles], version: str) -> Driver | None:
    """Returns the user space of the driver with this exact version, from the first place with it.

    None if no place has it. Files that are missing there are left out: no container needs a file
    that an older driver or a smaller package does not have.
    """
    for files in places:
        libraries = _find_by_cache(files, version) or _find_by_folder(files, version)
        if libraries is None:
            continue

        # Two files may have the same path in the container. The first one wins.
        mounts: dict[str, Mount] = {}
        for mount in _mounts(files, version, libraries):
            mounts.setdefault(mount.target, mount)
        return Driver(
            root=files.root or "/",
            version=version,
            mounts=tuple(sorted(mounts.values(), key=lambda mount: (mount.source, mount.target))),
            libraries=len({real for real, _ in libraries.files.values()}),
        )
    return None


def other_versions(places: list[HostFiles]) -> dict[str, str]:
    """Returns the versions of other drivers and their roots, for a message."""
    versions: dict[str, str] = {}
    for files in places:
        for folder in _folders(files):
            for stem in _ESSENTIAL:
                match = _FILE.fullmatch(
                    posixpath.basename(files.real(f"{folder}/{stem}.so.1") or "")
                )
                if match is not None and "." in match[2]:
                    versions.setdefault(match[2], files.root or "/")
    return versions


def _folders(files: HostFiles) -> list[str]:
    """Returns the existing folders that may have the libraries."""
    folders = list(_LIBRARY_FOLDERS)
    if files.root:
        folders += _LIBRARY_FOLDERS_BESIDE
    return [folder for folder in folders if files.real(folder) is not None]


def _find_by_cache(files: HostFiles, version: str) -> _Libraries | None:
    """Finds the libraries in the loader's cache of the root, as the programs of the root do."""
    for path in _CACHES:
        content = files.content(path, [])
        if content is None:
            continue
        libraries = None
        for entry in ld_so_cache.entries(content):
            # A cache has a thousand libraries, and it takes long to follow the links of each.
            if "nv" not in entry.soname and not entry.soname.startswith("libcuda"):
                continue
            real = files.real(entry.path)
            if real is None or not _is_driver_library(real, version):
                continue
            if libraries is None:
                folder = posixpath.dirname(entry.path)
                libraries = _Libraries(triplet=entry.triplet, folder=folder)
            libraries.add(entry.soname, real)
            if entry.soname == "libcuda.so.1":
                libraries.folder = posixpath.dirname(entry.path)
        if libraries is not None and libraries.is_driver():
            return libraries
    return None


def _find_by_folder(files: HostFiles, version: str) -> _Libraries | None:
    """Finds the libraries by the names of files, in the first folder that has the driver."""
    for folder in _folders(files):
        if not any(files.real(f"{folder}/{stem}.so.{version}") for stem in _ESSENTIAL):
            continue
        libraries = _Libraries(triplet=_triplet_of(folder), folder=folder)
        place, names = files.names(folder)
        for name in names:
            real = files.real(f"{folder}/{name}") if _is_driver_library(name, version) else None
            if real is not None:
                libraries.add(_soname(files, place, name, names), real)
        return libraries
    return None


def _triplet_of(folder: str) -> str:
    """Returns the platform, such as x86_64-linux-gnu, from a folder's path or of this machine."""
    for triplet in ld_so_cache.TRIPLETS.values():
        if triplet in folder:
            return triplet
    return f"{os.uname().machine}-linux-gnu"


def _is_driver_library(path: str, version: str) -> bool:
    """Returns True if a library belongs to the driver of this version."""
    match = _FILE.fullmatch(posixpath.basename(path))
    return match is not None and (match[2] == version or match[1] in _OWN_VERSIONS)


def _soname(files: HostFiles, place: str, name: str, names: list[str]) -> str:
    """Returns the name by which programs load a file of a folder.

    The table has most names. For another library it is the link to the file, which ldconfig makes
    from the soname in the file. A file without a link is loaded by its own name.
    """
    stem = name.partition(".so.")[0]
    if stem in _LIBRARIES:
        _, end = _LIBRARIES[stem]
        return f"{stem}.so.{end}" if end else name
    for other in names:
        if not other.startswith(f"{stem}.so.") or other == name:
            continue
        if files.link_name(f"{place}/{other}") == name:
            return other
    return name


def _mounts(files: HostFiles, version: str, libraries: _Libraries) -> Iterator[Mount]:
    """Yields everything that a container needs of the driver."""
    # Loaders search these folders by default, in images like Debian and in images like Fedora. A
    # library is mounted into both.
    folders = (f"/usr/lib/{libraries.triplet}", "/usr/lib64")
    for name, (file, capability) in libraries.files.items():
        for folder in folders:
            yield Mount(source=file, target=f"{folder}/{name}", capability=capability)

    # Programs look for two libraries in folders of their own, and for the second by another name.
    vdpau = files.real(f"{libraries.folder}/vdpau/libvdpau_nvidia.so.{version}")
    allocator, _ = libraries.files.get("libnvidia-allocator.so.1", (None, ""))
    for folder in folders:
        if vdpau is not None:
            target = f"{folder}/vdpau/libvdpau_nvidia.so.1"
            yield Mount(source=vdpau, target=target, capability=VIDEO)
        if allocator is not None:
            target = f"{folder}/gbm/nvidia-drm_gbm.so"
            yield Mount(source=allocator, target=target, capability=GRAPHICS)

    # Modules of the X server keep their paths, because its configuration contains them.
    for folder in (f"{libraries.folder}/xorg/modules", *_XORG_FOLDERS):
        for name in _XORG_MODULES:
            path = f"{folder}/{name.format(version=version)}"
            real = files.real(path)
            if real is not None:
                yield Mount(source=real, target=path, capability=DISPLAY)

    yield from _programs(files)
    yield from _data(files)
    yield from _firmware(files, version)


def _programs(files: HostFiles) -> Iterator[Mount]:
    host = HostFiles(files.host)
    for name, capability in _PROGRAMS.items():
        real = _first(files, name, _PROGRAM_FOLDERS) or _first(host, name, _HOST_PROGRAM_FOLDERS)
        if real is not None:
            yield Mount(source=real, target=f"/usr/bin/{name}", capability=capability)


def _data(files: HostFiles) -> Iterator[Mount]:
    for name, (place, capability) in _DATA.items():
        real = _first(files, name, _DATA_FOLDERS)
        if real is not None:
            yield Mount(source=real, target=f"{place}/{name}", capability=capability)
    for path, capability in _SOCKETS.items():
        real = files.real(path)
        if real is not None:
            yield Mount(source=real, target=path, capability=capability)


def _firmware(files: HostFiles, version: str) -> Iterator[Mount]:
    """Yields the firmware.

    The kernel may load it in the context of the first program on the GPU.
    """
    for folder in _FIRMWARE_FOLDERS:
        place, names = files.names(f"{folder}/nvidia/{version}")
        for name in names:
            if name.startswith("gsp") and name.endswith(".bin"):
                target = f"/lib/firmware/nvidia/{version}/{name}"
                yield Mount(source=f"{place}/{name}", target=target, capability=COMPUTE)


def _first(files: HostFiles, name: str, folders: tuple[str, ...]) -> str | None:
    """Returns the real path of a file in the first folder that has it."""
    for folder in folders:
        real = files.real(f"{folder}/{name}")
        if real is not None:
            return real
    return None
