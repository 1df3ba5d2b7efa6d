"""Writes a realistic /sys, /proc and /dev from a short description, for the same scanner.

    tree                        writes a tree to disk; unplugs and plugs its GPUs
    layout                      makes GPUs of words, with places on the bus and numbers
    vendors                     the table of the vendors, and of all models and machines
    nvidia, amd, intel          the files of one vendor's driver, and its models
    amd_models                  the models of AMD
    screens                     display controllers that are no GPUs
    gpu                         the files of every function on the bus

Files that are missing in real trees are missing here too: a Radeon's product_name, the version of a
module of the kernel's own tree. The package must not contain a second scanner, nor a value that no
kernel prints.
"""

from .layout import MACHINE_OPTIONS, parse
from .tree import (
    KERNEL_FILES,
    MARKER,
    UNREADABLE,
    add_vfio_variant,
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
    "add_vfio_variant",
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
