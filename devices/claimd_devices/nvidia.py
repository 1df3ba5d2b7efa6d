"""Reads NVIDIA GPUs from the kernel driver's files in /proc/driver/nvidia, without NVML.

The open and the proprietary kernel module show the same files. Facts that only NVML knows stay
unknown.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from . import drm, nvidia_ids, sysfs, values
from .gpu import NOT_READY, Detail, DeviceNode, NotUsable, Part, Roots, Setup
from .pci import DISPLAY, Function

if TYPE_CHECKING:
    from . import libraries

NAME = "nvidia"
VENDOR_ID = 0x10DE
DRIVERS = ("nvidia",)
GPU_CLASSES = (DISPLAY,)
DEVICE_PLUGIN_RESOURCES = ("nvidia.com/gpu", "nvidia.com/mig-")

# NVIDIA's own container hook adds GPUs by this variable, which many images set to `all`. `void`
# stops it.
_ENVIRONMENT = (("NVIDIA_VISIBLE_DEVICES", "void"),)

_PROPRIETARY = "proprietary"
_MAJOR = 195  # fixed; /proc/devices has several names for it
_CONTROL, _MODESET = 255, 254
_VERSION = re.compile(r"NVRM version:.*Module.*?\s(\d+\.\d+(?:\.\d+)?)(?:\s|$)")
_UUID = re.compile(r"GPU-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")

# NVIDIA A10-4Q and GRID A100D-1-10C: a guest's share of a board, with the board's id. The number is
# the GiB of the share, and 0 means a half.
_VGPU = re.compile(r"-([0-9]{1,4})[ABCQ]4?$")
_MACHINE_MEMORY = re.compile(r"MemTotal:\s*([0-9]{1,15}) kB")


def describe(roots: Roots, function: Function) -> Detail:
    """Returns what the driver shows about a GPU that it is bound to, and about its MIG instances.

    A value that cannot be read is None and is noted. Raises NotUsable if the GPU cannot be
    allocated.
    """
    from . import libraries, mig  # only where there is such a GPU: they would cost every start

    notes: list[str] = []
    if function.physical is not None:
        raise NotUsable("a virtual function, for virtual machines (vGPU)", expected=True)

    # Facts of this GPU.
    path = os.path.join(roots.proc, "driver/nvidia/gpus", function.address, "information")
    information = _information(path, notes)
    if information.get("GPU Excluded", information.get("Blacklisted")) == "Yes":
        raise NotUsable("the NVIDIA driver was told to leave it alone (GPU Excluded: Yes)")
    minor = _minor(path, information)
    product = _product(path, information, notes)
    uuid = _uuid(path, information, notes)
    family, architecture = nvidia_ids.family(function.device_id)

    # Facts that all GPUs share are read once in a scan.
    majors = function.cache.read_once("/proc/devices", lambda notes: _majors(roots, notes), notes)
    driver = function.cache.read_once("nvidia version", lambda notes: _driver(roots, notes), notes)
    version = driver.version
    host = function.cache.read_once(
        "nvidia libraries", lambda notes: libraries.look(roots, version), []
    )

    # A program opens a MIG instance by the nodes of its GPU and by two nodes of the instance.
    common = _nodes(roots, function, minor, majors, notes)
    integrated = nvidia_ids.is_integrated(function.device_id)
    memory = (
        _machine_memory(roots, function, notes)
        if integrated
        else _memory(function.device_id, product)
    )
    board = mig.Board.from_ids(function.device_id, architecture, memory)
    instances = mig.parts(roots, minor, board, common, majors.get("nvidia-caps"), notes)
    parts = _with_libraries(instances, host)

    return Detail(
        nodes=_all_nodes(common, drm.nodes(function.folder, notes), parts),
        driver_version=version,
        product=product,
        uuid=uuid,
        libraries=libraries.choose(host, uuid, f"/dev/nvidia{minor}"),
        memory=memory,
        family=family,
        architecture=architecture,
        vbios=_vbios(information.get("Video BIOS")),
        integrated=integrated,
        setup=_setup(driver.setup, information),
        counters=((mig.COUNTER, len(parts)),) if parts else (),
        parts=parts,
        environment=_ENVIRONMENT,
        notes=tuple(notes),
    )


def _information(path: str, notes: list[str]) -> dict[str, str]:
    """Returns the values in the driver's file of the GPU, by key.

    The driver makes the file when it has initialized the GPU, so a missing file raises NotUsable
    with NOT_READY. An unreadable one raises NotUsable too.
    """
    lines = sysfs.lines(path, notes)
    if lines is None and notes:
        raise NotUsable(notes[-1], is_unread=True)
    if lines is None:
        raise NotUsable(f"{NOT_READY}{path}: missing, the driver has not taken it up yet")

    values = {}
    for line in lines:
        key, _, value = line.partition(":")
        values[key.strip()] = value.strip()
    return values


def _minor(path: str, information: dict[str, str]) -> int:
    """Returns the number of the GPU's node: 0 for /dev/nvidia0."""
    minor = information.get("Device Minor", "")
    if not minor.isdecimal() or int(minor) >= _MODESET:
        raise NotUsable(f"{path}: Device Minor {minor[:40]!r} is not a number below {_MODESET}")
    return int(minor)


def _product(path: str, information: dict[str, str], notes: list[str]) -> str | None:
    product = information.get("Model")
    if product is None:
        return None
    if not product.isprintable() or "?" in product or product == "Unknown":
        notes.append(f"{path}: Model {product[:40]!r} is no name")
        return None
    return product


def _uuid(path: str, information: dict[str, str], notes: list[str]) -> str | None:
    value = information.get("GPU UUID", "")
    if _UUID.fullmatch(value):
        return value
    if "?" in value:
        notes.append(f"{path}: GPU UUID is not known until the GPU is first used after a boot")
    else:
        notes.append(f"{path}: GPU UUID {value[:40]!r} is none")
    return None


def _memory(device_id: int, product: str | None) -> int | None:
    """Returns the bytes of a GPU's own memory that the driver can use; None if that is not known.

    A vGPU has the id of its board, and its name says how much of the board's memory it has.
    """
    share = _VGPU.search(product or "")
    if share is None:
        return nvidia_ids.memory(device_id, product)

    gibibytes = int(share[1])
    named = gibibytes << 30 if gibibytes else 1 << 29
    of_board = nvidia_ids.memory(device_id, None)
    return min(named, of_board) if of_board else named


def _machine_memory(roots: Roots, function: Function, notes: list[str]) -> int | None:
    """Returns the bytes of the machine's memory, which a GPU in a processor's package uses."""
    lines = function.cache.read_once(
        "/proc/meminfo", lambda notes: sysfs.lines(f"{roots.proc}/meminfo", notes), notes
    )
    for line in lines or ():
        if match := _MACHINE_MEMORY.match(line):
            return int(match[1]) << 10
    return None


def _vbios(value: str | None) -> str | None:
    if value and value.isprintable() and "?" not in value and value != "N/A":
        return value
    return None


@values.dataclass(frozen=True, slots=True, kw_only=True)
class _Driver:
    """The facts of the kernel module that all GPUs share."""

    version: str | None
    setup: Setup


def _driver(roots: Roots, notes: list[str]) -> _Driver:
    version, kind = None, None
    for line in sysfs.lines(f"{roots.proc}/driver/nvidia/version", notes) or ():
        if match := _VERSION.match(line):
            version = match[1]
            kind = "open" if " Open Kernel Module" in line else _PROPRIETARY
            break
    version = version or sysfs.text(f"{roots.sys}/module/nvidia/version", notes)
    setup = Setup(
        cuda=nvidia_ids.cuda(version), kernel_module=kind, gpu_direct=_gpu_direct(roots, kind)
    )
    return _Driver(version=version, setup=setup)


def _gpu_direct(roots: Roots, kind: str | None) -> str | None:
    """Returns how a network card can reach the memory of the GPUs.

    That is `dmabuf`, which only the open module has, `peermem`, a module of its own, both, or
    `none`.
    """
    if kind is None:
        return None
    ways = ["dmabuf"] if kind == "open" else []
    if sysfs.is_folder(f"{roots.sys}/module/nvidia_peermem"):
        ways.append("peermem")
    return "+".join(ways) or "none"


def _setup(setup: Setup, information: dict[str, str]) -> Setup:
    """Returns how the driver is set up for a GPU. The open module always uses the GPU's firmware."""
    if setup.kernel_module != _PROPRIETARY:
        return setup
    firmware = information.get("GPU Firmware", "N/A")
    if firmware == "N/A" or "?" in firmware:
        return setup
    return replace(setup, kernel_module=f"{_PROPRIETARY}-gsp")


def _majors(roots: Roots, notes: list[str]) -> dict[str, int]:
    """Returns the major numbers of character devices, by name. They may change at each boot."""
    majors: dict[str, int] = {}

    # A missing or unreadable file gives no numbers. The latter is noted, and `_nodes` then raises
    # NotUsable for every GPU, as one that could not be read.
    for line in sysfs.lines(f"{roots.proc}/devices", notes) or ():
        if line.startswith("Block"):
            break
        number, _, owner = line.strip().partition(" ")
        if number.isdecimal() and len(number) < 10:
            majors.setdefault(owner, int(number))
    return majors


def _with_libraries(instances: tuple[Part, ...], host: libraries.Host) -> tuple[Part, ...]:
    """Returns the MIG instances with their libraries, which are always mounted file by file."""
    from . import libraries

    if not instances:
        return ()
    mounted = libraries.choose(replace(host, devices=()), None, "")
    return tuple(replace(part, environment=_ENVIRONMENT, libraries=mounted) for part in instances)


def _nodes(
    roots: Roots, function: Function, minor: int, majors: dict[str, int], notes: list[str]
) -> tuple[DeviceNode, ...]:
    """Returns the nodes that the driver has, whether or not they exist in /dev yet."""
    uvm = majors.get("nvidia-uvm")
    if uvm is None:
        # CUDA needs the module, and a program in a container cannot load it.
        trouble = [note for note in notes if "/devices:" in note]
        if trouble:
            raise NotUsable(
                f"whether the module nvidia-uvm is loaded cannot be read: {trouble[0]}",
                is_unread=True,
            )
        raise NotUsable(
            f"{NOT_READY}the module nvidia-uvm is not loaded, and CUDA needs it: "
            "`modprobe nvidia-uvm` on the host loads it"
        )

    nodes = [
        DeviceNode(path=f"/dev/nvidia{minor}", major=_MAJOR, minor=minor),
        DeviceNode(path="/dev/nvidiactl", major=_MAJOR, minor=_CONTROL),
    ]
    has_modeset = function.cache.read_once(
        "nvidia_modeset", lambda _: sysfs.is_folder(f"{roots.sys}/module/nvidia_modeset"), notes
    )
    if has_modeset:
        nodes.append(DeviceNode(path="/dev/nvidia-modeset", major=_MAJOR, minor=_MODESET))

    nodes.append(DeviceNode(path="/dev/nvidia-uvm", major=uvm, minor=0))
    nodes.append(DeviceNode(path="/dev/nvidia-uvm-tools", major=uvm, minor=1))
    return tuple(nodes)


def _all_nodes(
    common: tuple[DeviceNode, ...], screens: tuple[DeviceNode, ...], parts: tuple[Part, ...]
) -> tuple[DeviceNode, ...]:
    """Returns the nodes of the whole GPU, including those of its instances."""
    nodes = {*common, *screens}
    for part in parts:
        nodes.update(part.nodes)
    return tuple(nodes)
