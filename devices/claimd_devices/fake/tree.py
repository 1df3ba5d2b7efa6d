"""Writes the tree of a machine to disk, and unplugs and plugs its GPUs.

`layout`, `gpu` and the vendors decide the content. This module only writes files, links and nodes.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from . import gpu, layout, vendors
from .gpu import DRM_MAJOR, VFIO, VFIO_MAJOR, Entries, Function, is_for_virtual_machines

MARKER = ".claimd-fake"
_UNFINISHED = "not finished"

# A write-only file of the kernel. A read of a link to it fails with a permission error, even for
# root.
_WRITE_ONLY = "/proc/sys/vm/compact_memory"

# A file of the kernel that can be opened, and whose read at offset 0 fails with EIO.
UNREADABLE = "/proc/self/mem"

# The release of the kernel of a tree with vfio-pci, and the list of its modules.
_RELEASE = "6.14.0"
_ALIASES = f"lib/modules/{_RELEASE}/modules.alias"

# The only targets of links that are outside of the tree.
KERNEL_FILES = frozenset({_WRITE_ONLY, UNREADABLE})


def write(folder: Path, description: Mapping[str, object]) -> bool:
    """Writes the whole tree. Returns False and writes nothing if it is there already.

    So two pods can share a tree, although one of them reads it.

    `devices` lists models with `count`, `driver` (another one, or `none`), `console` and `domain`,
    `mode` and `memory_mode` of an AMD GPU that can be divided, `mig` instances, `vfs` virtual
    functions; `iommu` gives groups; `roots` is how many GPUs share a PCIe root (0: all on the
    first, as in a cloud), `numa` the number of NUMA nodes (0: the firmware does not tell).

    Raises ValueError for a description that cannot be written, and for a folder that is neither
    empty nor a fake tree. If a call is interrupted, the next one writes the whole tree again.
    """
    functions = layout.functions(description)
    if folder.exists() and any(folder.iterdir()) and not (folder / MARKER).exists():
        raise ValueError(f"{folder} is neither empty nor a fake tree: give a folder of its own")

    marker = folder / MARKER
    text = json.dumps(description, indent=1, sort_keys=True)
    if marker.exists() and marker.read_text() == f"{text}\n":
        return False

    # The marker holds the description only once the tree is whole.
    _write_file(marker, _UNFINISHED)
    for name in ("sys", "proc", "dev"):
        if (folder / name).exists():
            shutil.rmtree(folder / name)
    _write_machine(folder, description, functions)
    for function in functions:
        _plug(folder, function)
    _write_file(marker, text)
    return True


def unplug(folder: Path, address: str) -> None:
    """Removes a GPU from the bus, with everything that its driver made and its virtual functions.

    Raises ValueError for a GPU that the tree never had, and FileNotFoundError for one that is not
    plugged in.
    """
    function = _find(folder, address)
    for virtual in _virtual_of(folder, function):
        _unplug(folder, virtual)
    _unplug(folder, function)


def plug(folder: Path, address: str) -> None:
    """Puts a GPU back into its place, with the numbers that it had.

    Raises ValueError for a GPU that the tree never had, and for one that is plugged in.
    """
    function = _find(folder, address)
    if (folder / _bus_link(address)).is_symlink():
        raise ValueError(f"{address} is plugged in already")
    for part in (function, *_virtual_of(folder, function)):
        _plug(folder, part)


def bind(folder: Path, address: str, driver: str) -> None:
    """Binds a function to another driver, or to none if the name is empty.

    Removes everything that the old driver made. Raises ValueError for a function that the tree
    never had.
    """
    function = _find(folder, address)
    link = folder / function.folder / "driver"
    old_driver = os.path.basename(os.readlink(link)) if link.is_symlink() else ""
    old = _entries(replace(function, driver=old_driver))
    new = _entries(replace(function, driver=driver))

    for path in (*old.links, *old.nodes, *old.files):
        if path not in new.links and path not in new.nodes and path not in new.files:
            (folder / path).unlink(missing_ok=True)
    for path in set(old.folders) - set(new.folders):
        shutil.rmtree(folder / path, ignore_errors=True)

    # Files that do not depend on the driver keep their content, which may have been changed since.
    new.files = {
        path: content for path, content in new.files.items() if old.files.get(path) != content
    }
    if driver:
        (folder / "sys/bus/pci/drivers" / driver).mkdir(parents=True, exist_ok=True)
    _write_entries(folder, new)


def load_vfio(folder: Path) -> None:
    """Loads vfio-pci. A tree with a function that is bound to it has it from the start."""
    (folder / "sys/bus/pci/drivers" / VFIO).mkdir(parents=True, exist_ok=True)
    _write_entries(folder, _vfio())


def add_vfio_variant(folder: Path, ids: str, module: str) -> None:
    """Adds a module to the kernel's list, as the variant of vfio-pci for devices of these ids.

    The module is not loaded. The tree must have vfio-pci.
    """
    vendor, device = ids.upper().split(":")
    path = folder / _ALIASES
    added = f"alias vfio_pci:v0000{vendor}d0000{device}sv*sd*bc*sc*i* {module}\n"
    content = path.read_text() + added
    path.unlink()
    _write_file(path, content.rstrip("\n"))


def gpu_addresses(folder: Path) -> list[str]:
    """Returns the addresses of all GPUs, unplugged ones and virtual functions included."""
    return [function.address for function in _read_functions(folder) if function.model.is_gpu]


def slot_end(folder: Path, address: str) -> Path:
    """Returns the folder with the width and speed of the link to the slot.

    It is the GPU's own folder, or the folder of the switch before the GPU.
    """
    function = _find(folder, address)
    place = folder / function.folder
    if function.model.switch is not None and len(function.bridges) > 2:
        return place.parent.parent
    return place


def _read_functions(folder: Path) -> list[Function]:
    return layout.functions(json.loads((folder / MARKER).read_text()))


def _find(folder: Path, address: str) -> Function:
    functions = _read_functions(folder)
    for function in functions:
        if function.address == address:
            return function
    addresses = ", ".join(function.address for function in functions)
    raise ValueError(f"no {address} in {folder}: it has {addresses}")


def _virtual_of(folder: Path, physical: Function) -> Iterator[Function]:
    for function in _read_functions(folder):
        if function.physical is not None and function.physical.address == physical.address:
            yield function


# ---------------------------------------------------------------- one function


def _entries(function: Function) -> Entries:
    entries = gpu.function_entries(function)
    entries.add(vendors.vendor_of_model(function.model).function_entries(function))
    return entries


def _plug(folder: Path, function: Function) -> None:
    entries = _entries(function)
    bus_links = {}
    if function.sound:
        bus_links[_bus_link(Path(function.sound).name)] = function.sound
    for port, files in gpu.ports(function).items():
        entries.files |= files
        bus_links[_bus_link(Path(port).name)] = port
    _write_entries(folder, entries)

    # A scan starts from the link on the bus, so it is made last, when the GPU is complete.
    bus_links[_bus_link(function.address)] = function.folder
    for path, target in bus_links.items():
        _link(folder, path, target)


def _unplug(folder: Path, function: Function) -> None:
    (folder / _bus_link(function.address)).unlink()
    if function.sound:
        (folder / _bus_link(Path(function.sound).name)).unlink()

    entries = _entries(function)
    for path in (*entries.links, *entries.nodes):
        (folder / path).unlink(missing_ok=True)
    for path in entries.folders:
        shutil.rmtree(folder / path, ignore_errors=True)


def _bus_link(address: str) -> str:
    return f"sys/bus/pci/devices/{address}"


# ---------------------------------------------------------------- the machine


def _write_machine(
    folder: Path, description: Mapping[str, object], functions: Sequence[Function]
) -> None:
    """Writes everything that does not belong to one GPU."""
    for name in ("sys/bus/pci/devices", "sys/class/drm", "dev/dri"):
        (folder / name).mkdir(parents=True)
    drivers = {function.driver for function in functions} - {""}
    for driver in drivers:
        (folder / "sys/bus/pci/drivers" / driver).mkdir(parents=True)
        (folder / "sys/module" / driver.replace("-", "_")).mkdir(parents=True)

    boot_id = description.get("boot_id") or uuid.uuid5(uuid.NAMESPACE_DNS, "boot.claimd.dev")
    _write_file(folder / "proc/sys/kernel/random/boot_id", str(boot_id))
    processors = layout.processors(description)
    _write_processors(folder, processors)

    entries = Entries(
        files={"sys/class/drm/version": "drm 1.1.0 20060810"},
        majors={"mem": 1, "ttyS": 4, "misc": 10, "drm": DRM_MAJOR},
    )
    if any(map(is_for_virtual_machines, drivers)):
        entries.add(_vfio())
    for vendor in vendors.VENDORS:
        ours = [
            function for function in functions if vendors.vendor_of_model(function.model) is vendor
        ]
        entries.add(vendor.machine_entries(ours, processors))
    entries.files["proc/devices"] = _proc_devices(entries.majors)
    _write_entries(folder, entries)


def _vfio() -> Entries:
    device = "sys/devices/virtual/misc/vfio"
    return Entries(
        files={
            f"{device}/dev": "10:196",
            "proc/sys/kernel/osrelease": _RELEASE,
            _ALIASES: "# Aliases extracted from modules themselves.\n"
            "alias vfio_pci:v*d*sv*sd*bc*sc*i* vfio_pci",
        },
        links={"sys/class/misc/vfio": device},
        nodes={"dev/vfio/vfio": (10, 196)},
        majors={"vfio": VFIO_MAJOR},
    )


def _proc_devices(majors: Mapping[str, int]) -> str:
    rows = sorted((major, name) for name, major in majors.items())
    listed = "\n".join(f"{major:3} {name}" for major, name in rows)
    return f"Character devices:\n{listed}\n\nBlock devices:\n  7 loop\n259 blkext"


def _write_processors(folder: Path, nodes: int) -> None:
    """Writes NUMA nodes of eight processors each, spread over two sockets."""
    system = folder / "sys/devices/system"
    sockets = [node * min(nodes, 2) // nodes for node in range(nodes)]
    _write_file(system / "node/online", f"0-{nodes - 1}" if nodes > 1 else "0")
    for node in range(nodes):
        row = " ".join(_distance(sockets, node, other) for other in range(nodes))
        _write_file(system / f"node/node{node}/distance", row)
        _write_file(system / f"node/node{node}/cpulist", f"{node * 8}-{node * 8 + 7}")
        _write_file(system / f"cpu/cpu{node * 8}/topology/physical_package_id", str(sockets[node]))


def _distance(sockets: Sequence[int], node: int, other: int) -> str:
    if node == other:
        return "10"
    return "12" if sockets[node] == sockets[other] else "32"


# ---------------------------------------------------------------- files, links, nodes


def _write_entries(folder: Path, entries: Entries) -> None:
    for path, content in entries.files.items():
        _write_file(folder / path, content)
    for path in entries.closed:
        _close(folder / path)
    for path, (major, minor) in entries.nodes.items():
        make_node(folder / path, major, minor, gpu.mode_of_node(path))
    for path, target in entries.links.items():
        _link(folder, path, target)


def _write_file(path: Path, content: str | bytes) -> None:
    if isinstance(content, str):
        content = f"{content}\n".encode()

    # The file may be read-only, as real ones are. Root without capabilities cannot write into it,
    # but can replace it.
    path.unlink(missing_ok=True)
    try:
        path.write_bytes(content)
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    if path.name != MARKER:
        path.chmod(gpu.mode_of(path.name))


def _close(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.symlink_to(_WRITE_ONLY)


def _link(folder: Path, path: str, target: str) -> None:
    """Makes a relative link, because the kernel's links are relative."""
    link = folder / path
    link.parent.mkdir(parents=True, exist_ok=True)

    # The kernel's links to a folder above go up to its parent and down again.
    relative = os.path.relpath(target, Path(path).parent)
    if relative.endswith(".."):
        relative = f"{relative}/../{Path(target).name}"

    # A change of the driver leaves the other links alone, and somebody may be looking.
    if link.is_symlink() and os.readlink(link) == relative:
        return
    link.unlink(missing_ok=True)
    link.symlink_to(relative)


def make_node(path: Path, major: int, minor: int, mode: int = 0o666) -> None:
    """Makes a device node with these numbers, or an empty file if that is not permitted."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    try:
        os.mknod(path, stat.S_IFCHR | mode, os.makedev(major, minor))
    except PermissionError:
        path.touch()
    path.chmod(mode)
