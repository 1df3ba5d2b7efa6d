"""Writes a believable /sys, /proc and /dev under a folder from a few words, and unplugs and plugs its GPUs.

The one scanner reads it like a machine's own. What real trees lack (a Radeon's product_name, the version of a module
of the kernel's own tree) is lacking here too. No second scanner and no value that no kernel prints must go in.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from .models import MODELS, Model

MARKER = ".claimd-fake"
_UVM_MAJOR, _KFD_MAJOR, _NVIDIA_MAJOR, _DRM_MAJOR = 511, 235, 195, 226
_NVIDIA_VERSION = "570.172.08"
_VERSIONS = {"nvidia": _NVIDIA_VERSION, "amdgpu": "6.12.12"}  # i915 and xe come with the kernel and have none
_WITHOUT_DRM = ("", "vfio-pci", "virtio-pci")
_CARD_ONLY = ("ast", "mgag200", "bochs-drm")
_ON_BOARD = ("bmc", "virtual", "intel:uhd770")  # on the first root complex, with no bridge before them

_KEYS = ("roots", "numa", "boot_id", "devices")
_DEVICE_KEYS = ("model", "count", "driver", "console", "domain")


@dataclass(slots=True)
class _Function:
    """One GPU, and its place once that is known."""

    model: Model
    driver: str  # empty: bound to none
    console: bool
    domain: int
    address: str = ""
    bridges: tuple[str, ...] = ("pci0000:00",)  # the root complex, and the port below it
    numa: int = -1  # not told
    card: int = 0
    render: int = 0
    minor: int = 0  # NVIDIA's own count

    @property
    def folder(self) -> str:
        return "/".join(("sys/devices", *self.bridges, self.address))

    @property
    def drm(self) -> dict[str, int]:
        if self.driver in _WITHOUT_DRM:
            return {}
        card = {f"card{self.card}": self.card}
        return card if self.driver in _CARD_ONLY else card | {f"renderD{self.render}": self.render}


def parse(words: Sequence[str]) -> dict[str, object]:
    """A description from words like `nvidia:h100=4`, `nvidia:l4,driver=nouveau`, `bmc:aspeed`, `roots=2`, `numa=2`."""
    description: dict[str, object] = {}
    devices: list[dict[str, object]] = []
    for word in words:
        head, *options = word.split(",")
        name, _, value = head.partition("=")
        if name in _KEYS:
            description[name] = value
            continue
        device: dict[str, object] = {"model": name, "count": value or "1"}
        for option in options:
            key, given, value = option.partition("=")
            device[key] = value if given else True
        devices.append(device)
    description["devices"] = devices
    _functions(description)
    return description


def write(folder: Path, description: Mapping[str, object]) -> bool:
    """The whole tree; False if it stands there already, so that two pods can share one that is being read.

    `devices` lists models with `count`, `driver` (another one, or `none`), `console` and `domain`;
    `roots` is how many GPUs share a PCIe root (0: all on the first, as in a cloud), `numa` the number of NUMA nodes
    (0: the firmware does not tell). A folder that is neither empty nor written by this is refused.
    """
    functions = _functions(description)
    if folder.exists() and any(folder.iterdir()) and not (folder / MARKER).exists():
        raise ValueError(f"{folder} is neither empty nor a fake tree: give a folder of its own")
    marker, words = folder / MARKER, json.dumps(description, indent=1, sort_keys=True)
    if marker.exists() and marker.read_text() == f"{words}\n":
        return False
    _put(marker, "not finished")
    for name in ("sys", "proc", "dev"):
        if (folder / name).exists():
            shutil.rmtree(folder / name)
    _machine(folder, functions, str(description.get("boot_id") or uuid.uuid5(uuid.NAMESPACE_DNS, "boot.claimd.dev")))
    for function in functions:
        _plug(folder, function)
    _put(marker, words)
    return True


def unplug(folder: Path, address: str) -> None:
    """The GPU is gone from the bus, and with it all that its driver made."""
    function = _find(folder, address)
    (folder / f"sys/bus/pci/devices/{address}").unlink()
    for path in (*_links(function), *_node_numbers(function)):
        (folder / path).unlink(missing_ok=True)
    shutil.rmtree(folder / f"proc/driver/nvidia/gpus/{address}", ignore_errors=True)
    shutil.rmtree(folder / function.folder)
    if function.model.sound != "-":
        (folder / f"sys/bus/pci/devices/{address[:-1]}1").unlink()
        shutil.rmtree(folder / f"{function.folder[:-1]}1")


def plug(folder: Path, address: str) -> None:
    """The GPU is back in its place, with the numbers that it had."""
    function = _find(folder, address)
    if (folder / f"sys/bus/pci/devices/{address}").is_symlink():
        raise ValueError(f"{address} is plugged in already")
    _plug(folder, function)


def _find(folder: Path, address: str) -> _Function:
    functions = _functions(json.loads((folder / MARKER).read_text()))
    for function in functions:
        if function.address == address:
            return function
    raise ValueError(f"no {address} in {folder}: it has {', '.join(function.address for function in functions)}")


def _functions(description: Mapping[str, object]) -> list[_Function]:
    _known(description, _KEYS)
    shared, numa = (_number(name, description.get(name, 1)) for name in ("roots", "numa"))
    devices = description.get("devices", [])
    if not isinstance(devices, list):
        _refuse("devices", devices, "a list")
    functions = [function for device in devices for function in _wanted(device)]
    first = [function for function in functions if function.model.name.startswith(_ON_BOARD) or shared == 0]
    if len(first) > 30:
        raise ValueError(f"{len(first)} GPUs do not fit on the first PCIe root: it has room for 30")
    for slot, function in enumerate(first, 2):
        function.address, function.numa = f"0000:00:{slot:02x}.0", 0 if numa else -1
    _place([function for function in functions if not function.address], shared, numa)
    functions.sort(key=lambda function: function.address)
    _give_numbers(functions)
    return functions


def _wanted(device: object) -> list[_Function]:
    if not isinstance(device, dict):
        _refuse("devices", device, "a mapping")
    _known(device, _DEVICE_KEYS)
    model = MODELS.get(str(device.get("model")))
    if model is None:
        _refuse("model", device.get("model"), f"one of {', '.join(MODELS)}")
    driver = str(device.get("driver", model.driver))
    console = device.get("console", False) in (True, "true", "yes")
    if console and not model.class_code.startswith("0300"):
        raise ValueError(f"{model.name} has no screen: it cannot be the console")
    domain = _number("domain", device.get("domain", 0), 16)
    count = _number("count", device.get("count", 1))
    return [_Function(model, "" if driver == "none" else driver, console, domain) for _ in range(count)]


def _place(functions: Sequence[_Function], shared: int, numa: int) -> None:
    """Each on a bus of its own, `shared` of them below one root complex, these spread over the NUMA nodes."""
    groups: list[list[_Function]] = []
    for function in functions:
        if not groups or len(groups[-1]) >= shared or groups[-1][0].domain != function.domain:
            groups.append([])
        groups[-1].append(function)
    next_bus: dict[int, int] = {}
    for index, group in enumerate(groups):
        domain = group[0].domain
        root = next_bus.get(domain, 0x10)
        next_bus[domain] = root + len(group) + 1
        if root + len(group) > 0xFF or len(group) > 0x1F:
            raise ValueError(f"the buses of PCI domain {domain:04x} do not suffice: put some GPUs into another domain")
        for port, function in enumerate(group, 1):
            function.address = f"{domain:04x}:{root + port:02x}:00.0"
            function.bridges = f"pci{domain:04x}:{root:02x}", f"{domain:04x}:{root:02x}:{port:02x}.0"
            function.numa = index * numa // len(groups) if numa else -1


def _give_numbers(functions: Sequence[_Function]) -> None:
    """As drivers count: DRM in the order of the bus; NVIDIA by itself, and not always in that order."""
    extended = 192  # past 64 GPUs, DRM goes on from here with both kinds of node
    for index, function in enumerate(function for function in functions if function.driver not in _WITHOUT_DRM):
        function.card, function.render = index, 128 + index
        if index >= 64:
            function.render, function.card, extended = extended, extended + 1, extended + 2
    ours = [function for function in functions if function.driver == "nvidia"]
    for index, function in enumerate(reversed(ours)):
        function.minor = index
    screens = [function for function in functions if function.model.class_code.startswith("0300")]
    if screens and not any(function.console for function in screens):
        screens[0].console = True


def _known(mapping: Mapping[str, object], keys: Sequence[str]) -> None:
    for key in mapping:
        if key not in keys:
            _refuse("description", key, f"one of {', '.join(keys)}")


def _number(name: str, value: object, base: int = 10) -> int:
    try:
        number = int(str(value), base)
    except ValueError:
        number = -1
    return number if number >= 0 else _refuse(name, value, "a number")


def _refuse(name: str, value: object, expected: str) -> NoReturn:
    raise ValueError(f"{name}: {value!r} is not {expected}")


def _machine(folder: Path, functions: Sequence[_Function], boot_id: str) -> None:
    """Everything that is not one GPU's own."""
    (folder / "sys/bus/pci/devices").mkdir(parents=True)
    (folder / "sys/class/drm").mkdir(parents=True)
    (folder / "dev/dri").mkdir(parents=True)
    _put(folder / "proc/sys/kernel/random/boot_id", boot_id)
    drivers = {function.driver for function in functions} - {""}
    majors = {"mem": 1, "ttyS": 4, "misc": 10, "drm": _DRM_MAJOR}
    for driver in drivers:
        (folder / f"sys/bus/pci/drivers/{driver}").mkdir(parents=True)
        module = folder / f"sys/module/{driver.replace('-', '_')}"
        module.mkdir(parents=True)
        if driver in _VERSIONS:
            _put(module / "version", _VERSIONS[driver])
    if "nvidia" in drivers:
        majors |= {"nvidia": _NVIDIA_MAJOR, "nvidia-uvm": _UVM_MAJOR}
        for name in ("nvidia_uvm", "nvidia_modeset", "nvidia_drm"):
            _put(folder / f"sys/module/{name}/version", _NVIDIA_VERSION)
        line = f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {_NVIDIA_VERSION}  Release Build  (root@host)"
        _put(folder / "proc/driver/nvidia/version", f"{line}  \nGCC version:  gcc version 13.3.0")
        for name, minor in {"ctl": 255, "-modeset": 254, "-uvm": 0, "-uvm-tools": 1}.items():
            _node(folder / f"dev/nvidia{name}", _NVIDIA_MAJOR if minor > 1 else _UVM_MAJOR, minor)
    if "amdgpu" in drivers:
        majors["kfd"] = _KFD_MAJOR
        _put(folder / "sys/devices/virtual/kfd/kfd/dev", f"{_KFD_MAJOR}:0")
        _link(folder, "sys/class/kfd/kfd", "sys/devices/virtual/kfd/kfd")
        _node(folder / "dev/kfd", _KFD_MAJOR, 0)
    listed = "\n".join(f"{major:3} {name}" for name, major in sorted(majors.items(), key=lambda item: item[1]))
    _put(folder / "proc/devices", f"Character devices:\n{listed}\n\nBlock devices:\n  7 loop\n259 blkext")


def _plug(folder: Path, function: _Function) -> None:
    """The link that the scanner starts from comes last: before it, there is no GPU."""
    for name, value in _values(function).items():
        _put(folder / function.folder / name, value)
    for path, ids in _neighbours(function).items():
        for name, value in zip(("vendor", "device", "class"), ids, strict=True):
            _put(folder / path / name, f"0x{value}")
        _link(folder, f"sys/bus/pci/devices/{Path(path).name}", path)
    if function.driver:
        _link(folder, f"{function.folder}/driver", f"sys/bus/pci/drivers/{function.driver}")
    for name, minor in function.drm.items():
        _put(folder / function.folder / f"drm/{name}/dev", f"{_DRM_MAJOR}:{minor}")
        (folder / function.folder / f"drm/{name}/device").symlink_to(f"../../../{function.address}")
    if function.driver == "nvidia":
        _put(folder / f"proc/driver/nvidia/gpus/{function.address}/information", _information(function))
    for path, (major, minor) in _node_numbers(function).items():
        _node(folder / path, major, minor)
    for path, target in _links(function).items():
        _link(folder, path, target)
    _link(folder, f"sys/bus/pci/devices/{function.address}", function.folder)


def _neighbours(function: _Function) -> dict[str, tuple[str, str, str]]:
    """Functions beside it that are no GPUs, by folder: the port before it and the sound of its screen."""
    found = {}
    if len(function.bridges) > 1:
        found["/".join(("sys/devices", *function.bridges))] = ("8086", "352a", "060400")
    if function.model.sound != "-":
        found[f"{function.folder[:-1]}1"] = (function.model.ids[:4], function.model.sound, "040300")
    return found


def _links(function: _Function) -> dict[str, str]:
    """What points to the function from elsewhere, the bus aside."""
    links = {f"sys/class/drm/{name}": f"{function.folder}/drm/{name}" for name in function.drm}
    if function.driver:
        links[f"sys/bus/pci/drivers/{function.driver}/{function.address}"] = function.folder
    return links


def _node_numbers(function: _Function) -> dict[str, tuple[int, int]]:
    nodes = {f"dev/dri/{name}": (_DRM_MAJOR, minor) for name, minor in function.drm.items()}
    if function.driver == "nvidia":
        nodes[f"dev/nvidia{function.minor}"] = (_NVIDIA_MAJOR, function.minor)
    return nodes


def _values(function: _Function) -> dict[str, str]:
    """Files of the function's folder."""
    model = function.model
    vendor, device = model.ids.split(":")
    board_vendor, board = model.board.split(":")
    driver = f"DRIVER={function.driver}\n" if function.driver else ""
    ids = tuple(number.upper() for number in (vendor, device, board_vendor, board))
    kind = tuple(model.class_code[at : at + 2] for at in (0, 2, 4))
    modalias = "pci:v0000{}d0000{}sv0000{}sd0000{}".format(*ids) + "bc{}sc{}i{}".format(*kind)
    values = {
        "vendor": f"0x{vendor}",
        "device": f"0x{device}",
        "subsystem_vendor": f"0x{board_vendor}",
        "subsystem_device": f"0x{board}",
        "class": f"0x{model.class_code}",
        "revision": f"0x{model.revision}",
        "numa_node": str(function.numa),
        "driver_override": "(null)",
        "enable": "1",
        "modalias": modalias,
        "uevent": f"{driver}PCI_CLASS={model.class_code.lstrip('0').upper()}\nPCI_ID={model.ids.upper()}\n"
        f"PCI_SUBSYS_ID={model.board.upper()}\nPCI_SLOT_NAME={function.address}\nMODALIAS={modalias}",
    }
    if len(function.bridges) > 1:
        for which in ("current", "max"):
            values |= {f"{which}_link_speed": "32.0 GT/s PCIe", f"{which}_link_width": "16"}
    if model.class_code.startswith("0300"):
        values["boot_vga"] = "1" if function.console else "0"
    if function.driver == "amdgpu":
        values["mem_info_vram_total"] = model.memory
        values["unique_id"] = hashlib.sha256(function.address.encode()).hexdigest()[:16]
        if model.product != "-":
            values["product_name"] = model.product
    if function.driver == "i915" and model.memory != "-":
        values[f"drm/card{function.card}/lmem_total_bytes"] = model.memory
    if function.driver == "xe":
        values["tile0/gt0/freq0/max_freq"] = "2850"
    return values


def _information(function: _Function) -> str:
    """As the NVIDIA driver prints it, tabs and all."""
    gpu_uuid = uuid.uuid5(uuid.NAMESPACE_DNS, f"{function.address}.claimd.dev")
    return (
        f"Model: \t\t {function.model.product}\nIRQ:   \t\t {64 + function.minor}\nGPU UUID: \t GPU-{gpu_uuid}\n"
        f"Video BIOS: \t 96.00.89.00.01\nBus Type: \t PCIe\nDMA Size: \t 52 bits\n"
        f"DMA Mask: \t 0xfffffffffffff\nBus Location: \t {function.address}\nDevice Minor: \t {function.minor}\n"
        f"GPU Firmware: \t {_NVIDIA_VERSION}\nGPU Excluded:\t No"
    )


def _put(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content + "\n")


def _link(folder: Path, path: str, target: str) -> None:
    """Relative, as the kernel's links are."""
    link = folder / path
    link.parent.mkdir(parents=True, exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(os.path.relpath(target, Path(path).parent))


def _node(path: Path, major: int, minor: int) -> None:
    """A real node with the right numbers where that is allowed, else a file of its name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(major, minor))
    except PermissionError:
        path.touch()
    path.chmod(0o666)
