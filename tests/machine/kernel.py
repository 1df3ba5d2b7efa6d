"""Debian's kernels, and the initramfs from which a guest runs.

A guest has no disk of its own. Its root is the initramfs: busybox, the kernel's modules that the
tests need, this Python with the packages of `claimd run`, and the checkout's claimd. The kernel
unpacks several archives one after the other, so each part is an archive that is made once. A guest
that has this machine's files as its root needs only the first part.

Everything stays in a folder that outlives clones: $MACHINE_CACHE, or ~/.cache/machine.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.metadata
import lzma
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from .packages import MachineError, install, run

ROOT = Path(__file__).resolve().parents[2]
CACHE = Path(os.environ.get("MACHINE_CACHE") or Path.home() / ".cache/machine")
_DAY = 86400.0
STABLE, TESTING = "", "testing"

# The modules that a guest can load. Those that it needs to reach its agent come first.
BOOT_MODULES = ("virtio_pci", "virtio_net", "virtio_blk", "ext4", "crc32c_generic")
MODULES = (
    *BOOT_MODULES,
    "vfio-pci",
    "vfio_iommu_type1",
    "pci-stub",
    "radeon",
    "virtio-gpu",
    "snd-hda-intel",
    "snd-hda-codec-generic",
    "e1000",
    "e1000e",
    "xfs",
    "dm-mod",
    "dm-flakey",
    "loop",
    "overlay",
    "9p",
    "9pnet_virtio",
    "veth",
)


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """An unpacked kernel."""

    release: str  # such as 6.1.0-56-amd64
    image: Path
    folder: Path  # with lib/modules


def fetch(suite: str = STABLE) -> Kernel:
    """Returns the newest kernel of this machine's Debian, or of another suite of its mirror.

    Needs the network only for a kernel that is not in the cache.
    """
    install()
    folder = CACHE / f"kernel-{suite or 'stable'}"
    _make_once(folder, lambda new: _unpack(new, suite))
    (modules,) = (folder / "lib/modules").iterdir()
    images = [folder / f"boot/vmlinuz-{modules.name}", modules / "vmlinuz"]
    (image,) = [path for path in images if path.exists()]
    return Kernel(release=modules.name, image=image, folder=folder)


def small_initramfs(kernel: Kernel) -> Path:
    """Returns the initramfs of a guest that has this machine's files."""
    return _archive(
        f"modules-{kernel.release}", _key(_recipe()), lambda new: _add_modules(new, kernel)
    )


def initramfs(kernel: Kernel) -> Path:
    """Returns the initramfs with the checkout's claimd. Its parts come from the cache."""
    python = [*_recipe(), sys.version, _lock().read_text()]
    parts = [
        small_initramfs(kernel),
        _archive("python", _key(python), _add_python),
        _archive("claimd", _key_of_sources(), _add_claimd),
    ]
    whole = CACHE / f"initramfs-{_key(map(str, parts))}.cpio"

    def join(new: Path) -> None:
        with new.open("wb") as target:
            for part in parts:
                with part.open("rb") as source:
                    shutil.copyfileobj(source, target)

    _make_once(whole, join)
    return whole


def _recipe() -> list[str]:
    return [Path(__file__).read_text(), Path(__file__).with_name("init.sh").read_text()]


# ---------------------------------------------------------------- the cache


def _make_once(path: Path, make: Callable[[Path], None]) -> None:
    """Makes a file or folder under another name, and renames it when it is complete."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if path.exists():
            return
        new = path.with_name(f"{path.name}.new")
        shutil.rmtree(new, ignore_errors=True)
        new.unlink(missing_ok=True)
        make(new)
        new.rename(path)

        # Each change of claimd makes new archives. Those of today may be in use elsewhere.
        for old in CACHE.glob("*.cpio"):
            if old.stat().st_mtime < time.time() - _DAY:
                old.unlink()


def _archive(name: str, key: str, add: Callable[[Path], None]) -> Path:
    """Returns an archive of what `add` puts into a folder."""
    path = CACHE / f"{name}-{key}.cpio"

    def make(new: Path) -> None:
        stage = CACHE / f"{name}.stage"
        shutil.rmtree(stage, ignore_errors=True)
        stage.mkdir()
        add(stage)
        names = run("find", ".", cwd=stage)
        with new.open("wb") as target:
            command = ["cpio", "--quiet", "-o", "-H", "newc", "-R", "0:0"]
            subprocess.run(command, cwd=stage, input=names.encode(), stdout=target, check=True)
        shutil.rmtree(stage)

    _make_once(path, make)
    return path


def _key(texts: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]


# ---------------------------------------------------------------- the kernel


def _unpack(new: Path, suite: str) -> None:
    download = new.with_name(f"{new.name}-download")
    shutil.rmtree(download, ignore_errors=True)
    download.mkdir()
    options = _options_of_suite(download, suite) if suite else ()
    depends = run("apt-cache", *options, "depends", "linux-image-amd64")
    packages = re.findall(r"Depends: (linux-image-\S+)", depends)
    if not packages:
        raise MachineError(f"apt knows no kernel: {depends.strip()}")

    # Newer kernels have their modules in packages of their own.
    needs = run("apt-cache", *options, "depends", packages[0])
    packages += re.findall(r"Depends: (linux-(?:modules|binary)-\S+)", needs)
    print(f"fetching {' '.join(packages)}", flush=True)
    run("apt-get", *options, "download", "-q", *packages, cwd=download)

    new.mkdir()
    for package in download.glob("*.deb"):
        run("dpkg", "-x", package, new)
    shutil.rmtree(download)
    if not (new / "lib").exists():
        (new / "lib").symlink_to("usr/lib")
    for modules in (new / "lib/modules").iterdir():
        run("depmod", "-b", new, modules.name)


def _options_of_suite(folder: Path, suite: str) -> tuple[str, ...]:
    """Returns options by which apt sees only this suite of the mirror that it uses already."""
    form = "$(REPO_URI) $(ORIGIN) $(LABEL)"
    lines = run("apt-get", "indextargets", "--format", form, "Created-By: Packages").splitlines()
    mirrors = [line.split()[0] for line in lines if line.split()[1:] == ["Debian", "Debian"]]
    if not mirrors:
        raise MachineError("apt has no mirror of Debian")
    sources = folder / "sources.list"
    sources.write_text(f"deb {mirrors[0]} {suite} main\n")
    for name in ("lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True)
    options = {
        "Dir::Etc::SourceList": sources,
        "Dir::Etc::SourceParts": "/dev/null",
        "Dir::State::Lists": folder / "lists",
        "Dir::Cache": folder / "cache",
        "APT::Sandbox::User": "root",
    }
    words = tuple(word for name, value in options.items() for word in ("-o", f"{name}={value}"))
    run("apt-get", *words, "update", "-q")
    return words


# ---------------------------------------------------------------- what a guest has


def _add_modules(stage: Path, kernel: Kernel) -> None:
    """Adds busybox, and the modules with what they depend on."""
    for name in ("bin", "sbin", "proc", "sys", "dev", "run", "tmp", "var", "mnt", "etc"):
        (stage / name).mkdir()
    shutil.copy(shutil.which("busybox") or "busybox", stage / "bin/busybox")
    (stage / "sbin/modprobe").symlink_to("/bin/busybox")
    (stage / "var/run").symlink_to("../run")
    shutil.copy(Path(__file__).with_name("init.sh"), stage / "init")
    (stage / "init").chmod(0o755)

    source = kernel.folder / "lib/modules" / kernel.release
    target = stage / "lib/modules" / kernel.release
    target.mkdir(parents=True)
    for name in _with_dependencies(source, MODULES):
        plain = target / name.removesuffix(".xz")
        plain.parent.mkdir(parents=True, exist_ok=True)
        content = (source / name).read_bytes()
        plain.write_bytes(lzma.decompress(content) if name.endswith(".xz") else content)
    for name in ("modules.order", "modules.builtin", "modules.builtin.modinfo"):
        if (source / name).exists():
            shutil.copy(source / name, target / name)
    run("depmod", "-b", stage, kernel.release)


def _with_dependencies(modules: Path, wanted: Iterable[str]) -> list[str]:
    """Returns the files of modules and of their dependencies, below the kernel's folder.

    A module that this kernel does not have, or has built in, is left out.
    """
    rows: dict[str, list[str]] = {}
    for line in (modules / "modules.dep").read_text().splitlines():
        path, _, needs = line.partition(":")
        rows[Path(path).name.split(".ko")[0].replace("-", "_")] = [path, *needs.split()]
    found = []
    for name in wanted:
        found += rows.get(name.replace("-", "_"), [])
    return sorted(set(found))


def _lock() -> Path:
    return ROOT / "requirements.txt"


def _add_python(stage: Path) -> None:
    """Adds the running Python, the packages of requirements.txt, and the libraries of both."""
    version = f"python{sysconfig.get_python_version()}"
    binary = Path(sys.base_prefix) / "bin" / version
    library = Path(sysconfig.get_path("stdlib"))
    ignored = shutil.ignore_patterns(
        "test",
        "tests",
        "idlelib",
        "tkinter",
        "ensurepip",
        "site-packages",
        "config-*",
        "__pycache__",
    )
    shutil.copytree(library, _below(stage, library), ignore=ignored)
    _copy(stage, binary)
    (stage / "usr/bin").mkdir(parents=True, exist_ok=True)
    (stage / "usr/bin/python3").symlink_to(binary)

    packages = stage / "opt/packages"
    for name in re.findall(r"^([A-Za-z0-9_.-]+)==", _lock().read_text(), re.MULTILINE):
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # of another platform
        for file in distribution.files or ():
            if ".." not in file.parts and file.suffix != ".pyc":
                target = packages / file
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(str(distribution.locate_file(file)), target)
    _compile(stage, library.relative_to("/"), packages.relative_to(stage))

    # pyudev finds libudev by the loader's cache.
    objects = [path for path in stage.rglob("*") if path.is_file() and ".so" in path.suffixes]
    objects += [_below(stage, binary), *map(Path, _paths_of("libudev.so.1"))]
    for path in sorted(_libraries(objects) | set(_paths_of("libudev.so.1"))):
        _copy(stage, Path(path))
    _copy(stage, Path("/sbin/ldconfig"))
    (stage / "etc").mkdir(exist_ok=True)
    folders = {str(Path(path).parent) for path in _libraries(objects)}
    (stage / "etc/ld.so.conf").write_text("\n".join(sorted(folders)) + "\n")
    run("ldconfig", "-r", stage)


def _add_claimd(stage: Path) -> None:
    target = stage / "opt/claimd"
    target.mkdir(parents=True)
    ignored = shutil.ignore_patterns("__pycache__")
    for name in ("plugin/claimd", "devices/claimd_devices"):
        shutil.copytree(ROOT / name, target / Path(name).name, ignore=ignored)
    shutil.copy(Path(__file__).with_name("agent.py"), stage / "opt/agent.py")
    _compile(stage, Path("opt"))


def _key_of_sources() -> str:
    digest = hashlib.sha256(sys.version.encode())
    files = [*(ROOT / "plugin/claimd").rglob("*"), *(ROOT / "devices/claimd_devices").rglob("*")]
    for path in sorted([*files, Path(__file__).with_name("agent.py")]):
        if path.is_file() and "__pycache__" not in path.parts:
            digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def _compile(stage: Path, *folders: Path) -> None:
    """Compiles once here what every boot would compile, slowly."""
    command = [sys.executable, "-m", "compileall", "-q", "-s", str(stage), "-p", "/"]
    command += ["--invalidation-mode", "unchecked-hash"]
    command += [str(stage / folder) for folder in folders]
    subprocess.run(command, check=False, capture_output=True)


def _libraries(objects: Iterable[Path]) -> set[str]:
    """Returns the paths of the shared libraries that these files need, the loader included."""
    found: set[str] = set()
    for path in objects:
        done = subprocess.run(["ldd", path], capture_output=True, text=True, check=False)
        found |= set(re.findall(r"(/\S+) \(0x", done.stdout))
    return found


def _paths_of(library: str) -> list[str]:
    lines = run("ldconfig", "-p").splitlines()
    paths = [line.split()[-1] for line in lines if line.split()[:1] == [library]]
    if not paths:
        raise MachineError(f"{library} is not on this machine")
    return paths[:1]


def _copy(stage: Path, path: Path) -> None:
    target = _below(stage, path)
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(path, target)


def _below(stage: Path, path: Path) -> Path:
    return stage / path.relative_to("/")
