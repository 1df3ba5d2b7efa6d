"""Reads Intel GPUs from the files of i915 and xe in sysfs.

Neither driver shows a product name, so the names come from a table.
"""

from __future__ import annotations

import posixpath
import re

from . import drm, intel_ids, sysfs
from .gpu import Detail, DeviceNode, Roots
from .pci import DISPLAY, Function

NAME = "intel"
VENDOR_ID = 0x8086
DRIVERS = ("i915", "xe")
GPU_CLASSES = (DISPLAY,)  # its accelerators are NPUs
DEVICE_PLUGIN_RESOURCES = ("gpu.intel.com/",)

_TILE = re.compile(r"tile[0-9]+")


def describe(roots: Roots, function: Function) -> Detail:
    """Returns what i915 or xe shows about a GPU or a virtual function.

    Raises NotUsable while its nodes are missing.
    """
    is_virtual = function.physical is not None
    if is_virtual:
        nodes = drm.card_or_render(function.folder)
    else:
        nodes = drm.card_and_render(function.folder)

    notes: list[str] = []
    if function.driver == "i915":
        memory = _i915_memory(function, nodes, notes)
        tiles = intel_ids.tiles(function.device_id)
    else:
        memory, tiles = _xe_memory_and_tiles(function, notes)
    if memory is None and not is_virtual:
        memory = intel_ids.memory(function.device_id)

    product = intel_ids.product(function.device_id)
    return Detail(
        nodes=nodes + _by_path_nodes(function, nodes),
        driver_version=sysfs.module_version(roots, function.driver, function.cache, notes),
        product=product.name,
        family=product.family,
        architecture=product.architecture,
        integrated=intel_ids.is_integrated(function.device_id, function.address),
        memory=memory,
        tiles=tiles,
        notes=tuple(notes),
    )


def _by_path_nodes(function: Function, nodes: tuple[DeviceNode, ...]) -> tuple[DeviceNode, ...]:
    """Returns the nodes under the names by which Intel's user space looks for them.

    On a host, udev makes links with these names. In a container they are further nodes with the
    same numbers, so that neither udev nor a hook is needed.
    """
    by_path = []
    for node in nodes:
        kind = "card" if "/card" in node.path else "render"
        path = f"/dev/dri/by-path/pci-{function.address}-{kind}"
        by_path.append(DeviceNode(path=path, major=node.major, minor=node.minor))
    return tuple(by_path)


def _i915_memory(function: Function, nodes: tuple[DeviceNode, ...], notes: list[str]) -> int | None:
    """Returns the local memory.

    Only the data-centre build of i915 shows it, in one of two folders.
    """
    cards = [f"drm/{posixpath.basename(node.path)}" for node in nodes if "/card" in node.path]
    for folder in ("", *cards):
        size = sysfs.decimal(f"{function.folder}/{folder}/lmem_total_bytes", notes)
        if size is not None and size > 0:
            return size
    return None


def _xe_memory_and_tiles(function: Function, notes: list[str]) -> tuple[int | None, int | None]:
    """Returns the memory of all tiles together, and the number of tiles.

    The memory is None if one tile does not show its size, because the sum would be too small. The
    xe driver of the mainline kernel shows no sizes.
    """
    names = sysfs.names(function.folder, notes) or ()
    tiles = [name for name in names if _TILE.fullmatch(name)]
    sizes = []
    for tile in tiles:
        size = sysfs.decimal(f"{function.folder}/{tile}/physical_vram_size_bytes", notes)
        if size and size > 0:
            sizes.append(size)
    memory = sum(sizes) if sizes and len(sizes) == len(tiles) else None
    return memory, len(tiles) or None
