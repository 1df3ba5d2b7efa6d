"""NVIDIA GPUs by the kernel driver's own files in /proc/driver/nvidia, without NVML.

The open and the proprietary module tell the same. What NVML alone knows must not be guessed here.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace

from . import drm, libraries, mig, nvidia_ids, sysfs
from .gpu import NOT_READY, Detail, DeviceNode, NotUsable, Roots
from .pci import Function

NAME = "nvidia"
VENDOR_ID = 0x10DE
DRIVERS = ("nvidia",)
DEVICE_PLUGIN_RESOURCES = ("nvidia.com/gpu", "nvidia.com/mig-")

_MAJOR = 195  # fixed; /proc/devices has several names for it
_CONTROL, _MODESET = 255, 254
_VERSION = re.compile(r"NVRM version:.*Module.*?\s(\d+\.\d+(?:\.\d+)?)(?:\s|$)")
_UUID = re.compile(r"GPU-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_VGPU = re.compile(r"-\d+[ABCQ]$")  # NVIDIA A10-4Q: a guest's share of a board, with the board's id

_GIB = 1 << 30
# What is soldered on the board; a program finds a little less. Only ids of which there is one size.
_MEMORY = {
    device_id: size * _GIB
    for size, device_ids in {
        8: (0x1BB3,),
        12: (0x15F7,),
        16: (0x15F8, 0x15F9, 0x1DB1, 0x1DB4, 0x1EB8, 0x25B6),
        24: (0x1B38, 0x2204, 0x20B7, 0x2236, 0x2237, 0x2684, 0x26B8, 0x27B6, 0x27B8),
        32: (0x1DB5, 0x1DB6, 0x1DB8, 0x1DF6, 0x2B85),
        40: (0x20B0, 0x20B1, 0x20BD, 0x20F1, 0x20F6),
        48: (0x2230, 0x2235, 0x26B1, 0x26B5, 0x26B9),
        64: (0x20B3, 0x2337),
        80: (0x20B2, 0x20B5, 0x20F3, 0x20F5, 0x2322, 0x2324, 0x2330, 0x2331),
        94: (0x2321, 0x2339, 0x233A),
        96: (0x2338,),
        141: (0x2335, 0x233B),
        180: (0x2901,),
        186: (0x2941,),
    }.items()
    for device_id in device_ids
}


def describe(roots: Roots, function: Function) -> Detail:
    notes: list[str] = []
    path = os.path.join(roots.proc, "driver/nvidia/gpus", function.address, "information")
    card = _information(path, notes)
    if card.get("GPU Excluded", card.get("Blacklisted")) == "Yes":
        raise NotUsable("the NVIDIA driver was told to leave it alone (GPU Excluded: Yes)")
    minor = card.get("Device Minor", "")
    if not minor.isdecimal() or int(minor) >= _MODESET:
        raise NotUsable(f"{path}: Device Minor {minor[:40]!r} is not a number below {_MODESET}")
    product = card.get("Model")
    if product is not None and (
        not product.isprintable() or "?" in product or product == "Unknown"
    ):
        notes.append(f"{path}: Model {product[:40]!r} is no name")
        product = None
    memory = None if product and _VGPU.search(product) else _MEMORY.get(function.device_id)
    majors = function.cache.read_once("/proc/devices", lambda said: _majors(roots, said), notes)
    common = _nodes(roots, int(minor), majors, notes)
    parts = mig.parts(roots, int(minor), common, majors.get("nvidia-caps"), notes)
    family, architecture = nvidia_ids.family(function.device_id)
    version = function.cache.read_once(
        "nvidia version", lambda said: _driver_version(roots, said), notes
    )
    uuid = _uuid(path, card.get("GPU UUID"), notes)
    host = function.cache.read_once(
        "nvidia libraries", lambda said: libraries.look(roots, version), []
    )
    host_cdi, mounts, loadable = libraries.choose(host, uuid, f"/dev/nvidia{minor}")
    _, part_mounts, part_loadable = libraries.choose(replace(host, specs=()), None, "")
    parts = tuple(replace(part, mounts=part_mounts, libraries=part_loadable) for part in parts)
    return Detail(
        nodes=tuple(
            {
                *common,
                *drm.nodes(function.folder, notes),
                *(node for part in parts for node in part.nodes),
            }
        ),
        driver_version=version,
        product=product,
        uuid=uuid,
        host_cdi=host_cdi,
        mounts=mounts,
        libraries=loadable,
        memory=memory,
        family=family,
        architecture=architecture,
        vbios=_vbios(card.get("Video BIOS")),
        integrated=function.device_id in nvidia_ids.INTEGRATED,
        counters=((mig.COUNTER, len(parts)),) if parts else (),
        parts=parts,
        # NVIDIA's own container hook hands out GPUs by this variable, which images set to `all`.
        environment=(("NVIDIA_VISIBLE_DEVICES", "void"),),
        notes=tuple(notes),
    )


def _information(path: str, notes: list[str]) -> dict[str, str]:
    lines = sysfs.lines(path, notes)
    if lines is None:
        raise NotUsable(
            notes[-1]
            if notes
            else f"{NOT_READY}{path}: missing, the driver has not taken it up yet"
        )
    pairs = (line.partition(":") for line in lines)
    return {key.strip(): value.strip() for key, _, value in pairs}


def _uuid(path: str, value: str | None, notes: list[str]) -> str | None:
    if value is not None and _UUID.fullmatch(value):
        return value
    if value is not None and "?" in value:
        notes.append(f"{path}: GPU UUID is not known until the GPU is first used after a boot")
    else:
        notes.append(f"{path}: GPU UUID {(value or '')[:40]!r} is none")
    return None


def _driver_version(roots: Roots, notes: list[str]) -> str | None:
    for line in sysfs.lines(f"{roots.proc}/driver/nvidia/version", notes) or ():
        if match := _VERSION.match(line):
            return match[1]
    return sysfs.text(f"{roots.sys}/module/nvidia/version", notes)


def _vbios(value: str | None) -> str | None:
    return value if value and value.isprintable() and "?" not in value and value != "N/A" else None


def _nodes(
    roots: Roots, minor: int, majors: dict[str, int], notes: list[str]
) -> tuple[DeviceNode, ...]:
    """Those that the kernel knows, whether or not somebody has made them in /dev yet."""
    nodes = [
        DeviceNode(path=f"/dev/nvidia{minor}", major=_MAJOR, minor=minor),
        DeviceNode(path="/dev/nvidiactl", major=_MAJOR, minor=_CONTROL),
    ]
    if sysfs.is_folder(f"{roots.sys}/module/nvidia_modeset"):
        nodes.append(DeviceNode(path="/dev/nvidia-modeset", major=_MAJOR, minor=_MODESET))
    uvm = majors.get("nvidia-uvm")
    if uvm is None:
        notes.append("no /dev/nvidia-uvm: the module nvidia-uvm is not loaded, CUDA will not work")
    else:
        nodes.append(DeviceNode(path="/dev/nvidia-uvm", major=uvm, minor=0))
        nodes.append(DeviceNode(path="/dev/nvidia-uvm-tools", major=uvm, minor=1))
    return tuple(nodes)


def _majors(roots: Roots, notes: list[str]) -> dict[str, int]:
    """The major numbers of character devices, which the kernel chooses anew at every boot."""
    found: dict[str, int] = {}
    for line in sysfs.lines(f"{roots.proc}/devices", notes) or ():
        if line.startswith("Block"):
            break
        number, _, owner = line.strip().partition(" ")
        if number.isdecimal() and len(number) < 10:
            found.setdefault(owner, int(number))
    return found
