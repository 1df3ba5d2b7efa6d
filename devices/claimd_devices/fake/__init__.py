"""Writes a believable /sys, /proc and /dev from a few words; a scan reads it as a machine's own.

    tree                        on disk: writes a tree, unplugs and plugs its GPUs
    layout                      from words to GPUs, each with its place on the bus and its numbers
    vendors                     the table of those below, and of all models and machines
    nvidia, amd, intel          what one vendor's driver shows, and its models
    amd_models                  AMD's models, which are many
    screens                     display controllers that are no GPUs
    gpu                         what every function on the bus shows

What real trees lack (a Radeon's product_name, the version of a module of the kernel's own tree) is
lacking here too. No second scanner and no value that no kernel prints must go in.
"""

from .layout import MACHINE_OPTIONS, parse
from .tree import (
    KERNEL_FILES,
    MARKER,
    UNREADABLE,
    bind,
    gpu_addresses,
    load_vfio,
    make_node,
    plug,
    slot_end,
    unplug,
    write,
)
from .vendors import MACHINES, MODELS, OPTIONS, machines, models

__all__ = [
    "KERNEL_FILES",
    "MACHINES",
    "MACHINE_OPTIONS",
    "MARKER",
    "MODELS",
    "OPTIONS",
    "UNREADABLE",
    "bind",
    "gpu_addresses",
    "load_vfio",
    "machines",
    "make_node",
    "models",
    "parse",
    "plug",
    "slot_end",
    "unplug",
    "write",
]
