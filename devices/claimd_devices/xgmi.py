"""Reads which AMD GPUs are joined by XGMI, from amdgpu's files in sysfs.

GPUs that are joined form a hive. The reads wake no GPU and need no rights.
"""

from __future__ import annotations

import posixpath
import re

from . import sysfs
from .gpu import Fabric
from .pci import Function

_NODE = re.compile(r"node([0-9]{1,4})")
_HIVE = re.compile(r"[0-9]{1,20}")


def hive(function: Function, notes: list[str]) -> int | None:
    """Returns the number of the hive that a GPU is in; None if it is in none."""
    value = sysfs.text(f"{function.folder}/xgmi_hive_info/xgmi_hive_id", notes)
    return int(value) or None if value is not None and _HIVE.fullmatch(value) else None


def fabric(function: Function, hive: int | None, notes: list[str]) -> Fabric | None:
    """Returns the links of a GPU in a hive, and the GPU's position in it; None without a hive."""
    if hive is None:
        return None

    # All GPUs of a hive show the same folder, which is read once in a scan.
    info = f"{function.folder}/xgmi_hive_info"
    members = function.cache.read_once(f"hive {hive}", lambda notes: _members(info, notes), notes)
    return Fabric(
        domain=f"xgmi-0x{hive:016x}",
        size=len(members) or None,
        position=members.get(function.address),
    )


def _members(info: str, notes: list[str]) -> dict[str, int]:
    """Returns the positions of the GPUs of a hive, by their PCI addresses.

    A GPU whose link cannot be read counts as a member without an address.
    """
    members = {}
    for name in sysfs.names(info, notes) or ():
        match = _NODE.fullmatch(name)
        if match is not None:
            target = sysfs.link(f"{info}/{name}", notes)
            members[posixpath.basename(target) if target else name] = int(match[1])
    return members
