"""Writes a believable /sys, /proc and /dev under a folder from a few words, and unplugs and plugs
its GPUs.

The one scanner reads it like a machine's own. What real trees lack (a Radeon's product_name, the
version of a module of the kernel's own tree) is lacking here too. No second scanner and no value
that no kernel prints must go in.
"""

from __future__ import annotations

import difflib
import json
import os
import shutil
import stat
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from . import fake_gpu
from .fake_gpu import DRM_MAJOR, KFD_MAJOR, NVIDIA_MAJOR, NVIDIA_VERSION, UVM_MAJOR, WITHOUT_DRM
from .fake_gpu import Function as _Function
from .models import MACHINES, MODELS

MARKER = ".claimd-fake"
_VERSIONS = {
    "nvidia": NVIDIA_VERSION,
    "amdgpu": "6.12.12",
}  # i915 and xe come with the kernel and have none
_ON_BOARD = (
    "bmc",
    "virtual",
    "intel:uhd770",
)  # on the first root complex, with no bridge before them
_MODES = ("", "SPX", "DPX", "TPX", "QPX", "CPX")

_KEYS = ("roots", "numa", "boot_id", "iommu", "devices")
_DEVICE_KEYS = (
    "model",
    "count",
    "driver",
    "console",
    "domain",
    "mode",
    "memory_mode",
    "mig",
    "vfs",
)


# What may follow a model, behind a comma each.
OPTIONS = {
    "driver=NAME": "the kernel driver that it is bound to, none for no driver",
    "console": "its screen shows the boot",
    "domain=HEX": "the PCI domain that it is in",
    "mode=cpx": "how an AMD GPU is divided: spx, dpx, tpx, qpx or cpx",
    "memory_mode=nps4": "how the memory of a divided AMD GPU is",
    "mig=NUMBER": "how many MIG instances an NVIDIA GPU is divided into",
    "vfs=NUMBER": "how many virtual functions it has",
}

# What may be said of the machine, as words of their own.
MACHINE_OPTIONS = {
    "roots=NUMBER": "how many GPUs share a PCIe root; 0: all are on the first, as in a cloud",
    "numa=NUMBER": "how many NUMA nodes there are; 0: the firmware does not tell",
    "boot_id=TEXT": "the id of the boot",
    "iommu=1": "the GPUs are in IOMMU groups",
}


def models() -> dict[str, str]:
    """Every model that can be written, with what people call it."""
    return {model.name: model.title for model in MODELS.values()}


def machines() -> dict[str, str]:
    """Every machine that can be written, with the words that it stands for."""
    return {name: " ".join(words) for name, words in MACHINES.items()}


def parse(words: Sequence[str]) -> dict[str, object]:
    """A description from words like `machine:dgx-h100`, `nvidia:h100=4`,
    `nvidia:l4,driver=nouveau`, `roots=2`.
    """
    description: dict[str, object] = {}
    devices: list[dict[str, object]] = []
    for word in [inner for given in words for inner in MACHINES.get(given, (given,))]:
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
    """The whole tree; False if it stands there already, so that two pods can share one that is
    being read.

    `devices` lists models with `count`, `driver` (another one, or `none`), `console` and `domain`,
    `mode` and `memory_mode` of an AMD GPU that can be divided, `mig` instances, `vfs` virtual
    functions; `iommu` gives groups; `roots` is how many GPUs share a PCIe root (0: all on the
    first, as in a cloud), `numa` the number of NUMA nodes (0: the firmware does not tell). A folder
    that is neither empty nor written by this is refused.
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
    boot_id = str(description.get("boot_id") or uuid.uuid5(uuid.NAMESPACE_DNS, "boot.claimd.dev"))
    _machine(folder, functions, boot_id, _number("numa", description.get("numa", 1)))
    for function in functions:
        _plug(folder, function)
    _put(marker, words)
    return True


def unplug(folder: Path, address: str) -> None:
    """The GPU is gone from the bus, and with it all that its driver made, virtual functions as
    well.
    """
    function = _find(folder, address)
    for virtual in _virtual_of(folder, function):
        _remove(folder, virtual)
    _remove(folder, function)


def _remove(folder: Path, function: _Function) -> None:
    (folder / f"sys/bus/pci/devices/{function.address}").unlink()
    for path in (*fake_gpu.links(function), *fake_gpu.nodes(function)):
        (folder / path).unlink(missing_ok=True)
    if sound := fake_gpu.sound_of(function):
        (folder / f"sys/bus/pci/devices/{Path(sound).name}").unlink()
    for place in fake_gpu.places(function):
        shutil.rmtree(folder / place, ignore_errors=True)


def plug(folder: Path, address: str) -> None:
    """The GPU is back in its place, with the numbers that it had."""
    function = _find(folder, address)
    if (folder / f"sys/bus/pci/devices/{address}").is_symlink():
        raise ValueError(f"{address} is plugged in already")
    for part in (function, *_virtual_of(folder, function)):
        _plug(folder, part)


def _find(folder: Path, address: str) -> _Function:
    functions = _written(folder)
    for function in functions:
        if function.address == address:
            return function
    raise ValueError(
        f"no {address} in {folder}: it has {', '.join(function.address for function in functions)}"
    )


def slot_end(folder: Path, address: str) -> Path:
    """Where the width and speed of the link to the slot stand: the GPU's own folder, or that of a
    switch before it.
    """
    function = _find(folder, address)
    place = folder / function.folder
    return (
        place.parent.parent if function.model.more.switch and len(function.bridges) > 2 else place
    )


def gpu_addresses(folder: Path) -> list[str]:
    """Where the tree has GPUs when all of them are plugged in, virtual functions among them."""
    functions = _written(folder)
    return [function.address for function in functions if function.model.is_gpu]


def _virtual_of(folder: Path, function: _Function) -> list[_Function]:
    return [
        f
        for f in _written(folder)
        if f.physical is not None and f.physical.address == function.address
    ]


def _written(folder: Path) -> list[_Function]:
    return _functions(json.loads((folder / MARKER).read_text()))


def _functions(description: Mapping[str, object]) -> list[_Function]:
    _known(description, _KEYS)
    shared, numa = (_number(name, description.get(name, 1)) for name in ("roots", "numa"))
    devices = description.get("devices", [])
    if not isinstance(devices, list):
        _refuse("devices", devices, "a list")
    functions = [function for device in devices for function in _wanted(device)]
    first = [
        function
        for function in functions
        if function.model.name.startswith(_ON_BOARD) or shared == 0
    ]
    if len(first) > 30:
        raise ValueError(f"{len(first)} GPUs do not fit on the first PCIe root: it has room for 30")
    for slot, function in enumerate(first, 2):
        function.address, function.numa = f"0000:00:{slot:02x}.0", 0 if numa else -1
    _place([function for function in functions if not function.address], shared, numa)
    functions += [part for function in functions for part in _virtual(function)]
    functions.sort(key=lambda function: function.address)
    _give_numbers(functions, max(numa, 1))
    if description.get("iommu") or any(function.driver == "vfio-pci" for function in functions):
        for group, function in enumerate(functions, 20):
            function.group = group
    return functions


def _wanted(device: object) -> list[_Function]:
    if not isinstance(device, dict):
        _refuse("devices", device, "a mapping")
    _known(device, _DEVICE_KEYS)
    model = MODELS.get(str(device.get("model")))
    if model is None:
        _refuse_model(device.get("model"))
    driver = str(device.get("driver", model.driver))
    console = device.get("console", False) in (True, "true", "yes")
    if console and not model.class_code.startswith("0300"):
        raise ValueError(f"{model.name} has no screen: it cannot be the console")
    domain = _number("domain", device.get("domain", 0), 16)
    count, instances, virtual = (
        _number(key, device.get(key, default)) for key, default in _COUNTS.items()
    )
    mode, memory_mode = (
        str(device.get(key, default)).upper()
        for key, default in (("mode", ""), ("memory_mode", "NPS1"))
    )
    if mode not in _MODES or (mode and not model.more.modes):
        _refuse("mode", device.get("mode"), f"a way to divide {model.name}")
    if virtual > model.more.virtual:
        _refuse(
            "vfs",
            virtual,
            f"at most the {model.more.virtual} virtual functions that {model.name} can have",
        )
    if instances and (instances > 7 or model.name not in _WITH_MIG):
        _refuse("mig", instances, f"a number of instances of {model.name}")
    return [
        _Function(
            model,
            "" if driver == "none" else driver,
            console,
            domain,
            mode=mode,
            memory_mode=memory_mode,
            instances=instances if driver == "nvidia" else 0,
            virtual=virtual,
        )
        for _ in range(count)
    ]


_COUNTS = {"count": 1, "mig": 0, "vfs": 0}
_WITH_MIG = ("nvidia:a100", "nvidia:h100", "nvidia:gb200")


def _place(functions: Sequence[_Function], shared: int, numa: int) -> None:
    """Each on a bus of its own, `shared` of them below one root complex, these spread over the NUMA
    nodes.
    """
    groups: list[list[_Function]] = []
    for function in functions:
        if not groups or len(groups[-1]) >= shared or groups[-1][0].domain != function.domain:
            groups.append([])
        groups[-1].append(function)
    next_bus: dict[int, int] = {}
    for index, group in enumerate(groups):
        domain, arm = group[0].domain, _on_arm(group[0])  # there, each root has a domain of its own
        bus = root = next_bus.get(domain, 0 if arm else 0x10)
        for port, function in enumerate(group, 0 if arm else 1):
            bus += 1
            function.bridges = (
                f"pci{domain:04x}:{root:02x}",
                f"{domain:04x}:{root:02x}:{port:02x}.0",
            )
            if switch := function.model.more.switch:
                function.bridges += (
                    f"{domain:04x}:{bus:02x}:00.0",
                    f"{domain:04x}:{bus + 1:02x}:{switch[2]:02x}.0",
                )
                bus += 2
            function.address = f"{domain:04x}:{bus:02x}:00.0"
            function.numa = index * numa // len(groups) if numa else -1
        if bus > 0xFF or len(group) > 0x1F:
            raise ValueError(
                f"the buses of PCI domain {domain:04x} do not suffice: put some GPUs into another domain"
            )
        next_bus[domain] = bus + 1


def _on_arm(function: _Function) -> bool:
    return function.model.more.port.startswith("10de:")


def _virtual(function: _Function) -> list[_Function]:
    """Its virtual functions, which follow it on its bus."""
    bus = function.address.rpartition(":")[0]
    return [
        _Function(
            function.model,
            function.driver,
            False,
            function.domain,
            physical=function,
            index=index,
            address=f"{bus}:{index + 1 >> 3:02x}.{index + 1 & 7}",
            bridges=function.bridges,
            numa=function.numa,
        )
        for index in range(function.virtual)
    ]


def _give_numbers(functions: Sequence[_Function], processors: int) -> None:
    """As drivers count: DRM in the order of the bus; NVIDIA by itself, and not always in that
    order.
    """
    taken = 0

    def numbers() -> tuple[int, int]:
        nonlocal taken
        taken += 1
        if taken <= 64:
            return taken - 1, 127 + taken
        extended = 192 + 2 * (
            taken - 65
        )  # past 64 GPUs, DRM goes on from here with both kinds of node
        return extended + 1, extended

    agents, divided = processors, 0
    for function in functions:
        if function.driver not in WITHOUT_DRM:
            function.card, function.render = numbers()
        if function.driver == "amdgpu":
            function.agent = agents
            agents += function.parts
            for _ in range(function.parts - 1):
                function.partitions.append((divided, *numbers()))
                divided += 1
    ours = [
        function
        for function in functions
        if function.driver == "nvidia" and function.physical is None
    ]
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


def _refuse_model(name: object) -> NoReturn:
    """Names what may be meant: nvidia:h100 for h100, machine:dgx-h100 for machine:dgx-h10."""
    word = str(name)
    names = [*MODELS, *MACHINES]
    close = [other for other in names if other.endswith(f":{word}")]
    close = close or difflib.get_close_matches(word, [*names, *_KEYS], n=2)
    meant = f", did you mean {' or '.join(close)}?" if close else ""
    raise ValueError(
        f"model: {name!r} is unknown{meant}: expected one of {', '.join(MODELS)}, "
        f"or a machine, one of {', '.join(MACHINES)}"
    )


def _machine(folder: Path, functions: Sequence[_Function], boot_id: str, numa: int) -> None:
    """Everything that is not one GPU's own."""
    (folder / "sys/bus/pci/devices").mkdir(parents=True)
    (folder / "sys/class/drm").mkdir(parents=True)
    (folder / "dev/dri").mkdir(parents=True)
    _put(folder / "proc/sys/kernel/random/boot_id", boot_id)
    _processors(folder, max(numa, 1))
    drivers = {function.driver for function in functions} - {""}
    majors = {"mem": 1, "ttyS": 4, "misc": 10, "drm": DRM_MAJOR}
    for driver in drivers:
        (folder / f"sys/bus/pci/drivers/{driver}").mkdir(parents=True)
        module = folder / f"sys/module/{driver.replace('-', '_')}"
        module.mkdir(parents=True)
        # Servers have AMD's own module; that of the kernel's tree has no version.
        bare = driver == "amdgpu" and not any(
            f.model.product != "-" for f in functions if f.driver == driver
        )
        if driver in _VERSIONS and not bare:
            _put(module / "version", _VERSIONS[driver])
    if "nvidia" in drivers:
        majors |= {"nvidia": NVIDIA_MAJOR, "nvidia-uvm": UVM_MAJOR}
        majors["nvidia-caps"] = fake_gpu.CAPS_MAJOR
        _nvidia(folder, "aarch64" if any(map(_on_arm, functions)) else "x86_64")
    if "amdgpu" in drivers:
        majors["kfd"] = KFD_MAJOR
        _kfd(folder, max(numa, 1))
    if "vfio-pci" in drivers:
        majors["vfio"] = fake_gpu.VFIO_MAJOR
        _put(folder / "sys/devices/virtual/misc/vfio/dev", "10:196")
        _link(folder, "sys/class/misc/vfio", "sys/devices/virtual/misc/vfio")
        _node(folder / "dev/vfio/vfio", 10, 196)
    listed = "\n".join(
        f"{major:3} {name}" for name, major in sorted(majors.items(), key=lambda item: item[1])
    )
    _put(
        folder / "proc/devices",
        f"Character devices:\n{listed}\n\nBlock devices:\n  7 loop\n259 blkext",
    )


def _processors(folder: Path, nodes: int) -> None:
    """NUMA nodes of eight processors each on two sockets, if there are so many."""
    system = folder / "sys/devices/system"
    sockets = [node * min(nodes, 2) // nodes for node in range(nodes)]
    _put(system / "node/online", f"0-{nodes - 1}" if nodes > 1 else "0")
    for node in range(nodes):
        row = (
            10 if other == node else 12 if sockets[other] == sockets[node] else 32
            for other in range(nodes)
        )
        _put(system / f"node/node{node}/distance", " ".join(map(str, row)))
        _put(system / f"node/node{node}/cpulist", f"{node * 8}-{node * 8 + 7}")
        _put(system / f"cpu/cpu{node * 8}/topology/physical_package_id", str(sockets[node]))


def _nvidia(folder: Path, processor: str) -> None:
    for name in ("nvidia_uvm", "nvidia_modeset", "nvidia_drm"):
        _put(folder / f"sys/module/{name}/version", NVIDIA_VERSION)
    line = f"NVRM version: NVIDIA UNIX Open Kernel Module for {processor}  {NVIDIA_VERSION}  Release Build  (root@host)"
    _put(folder / "proc/driver/nvidia/version", f"{line}  \nGCC version:  gcc version 13.3.0")
    for name, minor in {"ctl": 255, "-modeset": 254, "-uvm": 0, "-uvm-tools": 1}.items():
        _node(folder / f"dev/nvidia{name}", NVIDIA_MAJOR if minor > 1 else UVM_MAJOR, minor)


def _kfd(folder: Path, processors: int) -> None:
    """KFD itself, and the processors of its topology, which come before the GPUs."""
    kfd = folder / "sys/devices/virtual/kfd/kfd"
    _put(kfd / "dev", f"{KFD_MAJOR}:0")
    _put(kfd / "topology/generation_id", "1")
    for node in range(processors):
        _put(kfd / f"topology/nodes/{node}/gpu_id", "0")
        _put(
            kfd / f"topology/nodes/{node}/properties",
            "cpu_cores_count 8\nsimd_count 0\nmem_banks_count 1",
        )
    _link(folder, "sys/class/kfd/kfd", "sys/devices/virtual/kfd/kfd")
    _node(folder / "dev/kfd", KFD_MAJOR, 0)


def _plug(folder: Path, function: _Function) -> None:
    """The link that the scanner starts from comes last: before it, there is no GPU."""
    for path, content in fake_gpu.files(function).items():
        _put(folder / path, content)
    for path, (major, minor) in fake_gpu.nodes(function).items():
        _node(folder / path, major, minor)
    for path, target in fake_gpu.links(function).items():
        _link(folder, path, target)
    for path in fake_gpu.neighbours(function):
        _link(folder, f"sys/bus/pci/devices/{Path(path).name}", path)
    _link(folder, f"sys/bus/pci/devices/{function.address}", function.folder)


def _put(path: Path, content: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(
        missing_ok=True
    )  # it may be read-only, as real ones are, and we root without any capability
    path.write_bytes(content if isinstance(content, bytes) else f"{content}\n".encode())
    if path.name != MARKER:
        path.chmod(fake_gpu.mode_of(path.name))


def _link(folder: Path, path: str, target: str) -> None:
    """Relative, as the kernel's links are."""
    link = folder / path
    link.parent.mkdir(parents=True, exist_ok=True)
    link.unlink(missing_ok=True)
    # The kernel's `device` goes up to the device's own parent and down again.
    up = (
        f"../../../{Path(target).name}"
        if Path(path).name == "device"
        else os.path.relpath(target, Path(path).parent)
    )
    link.symlink_to(up)


def _node(path: Path, major: int, minor: int) -> None:
    """A real node with the right numbers where that is allowed, else a file of its name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(major, minor))
    except PermissionError:
        path.touch()
    path.chmod(0o666)
