"""Card and render nodes of a function, with the numbers from sysfs. /dev is never read."""

from __future__ import annotations

import re

from . import sysfs
from .gpu import NOT_READY, DeviceNode, NotUsable

MAJOR = 226

_NODE = re.compile(r"(card|renderD)([0-9]+)")  # card0-HDMI-A-1 is a connector
_NUMBERS = re.compile(r"([0-9]{1,4}):([0-9]{1,7})")


def nodes(folder: str, notes: list[str]) -> tuple[DeviceNode, ...]:
    """Returns the DRM nodes of a function.

    Leaves out and notes nodes whose numbers are unreadable.
    """
    found = []

    # A missing folder means that the driver makes no nodes, or has not made them yet. An unreadable
    # folder is noted.
    for name in sysfs.names(f"{folder}/drm", notes) or ():
        match = _NODE.fullmatch(name)
        if match is None:
            continue
        path = f"{folder}/drm/{name}/dev"

        # Without a note the file is not there: the driver has not finished the node.
        noted = len(notes)
        numbers = device_numbers(path, notes)
        if numbers is None:
            if len(notes) == noted:
                notes.append(f"{NOT_READY}{path}: missing")
            continue

        # A node with other numbers would be a node of another device.
        major, minor = numbers
        if major != MAJOR:
            notes.append(f"{path}: {major} is not DRM's major number {MAJOR}")
        elif minor != int(match[2]):
            notes.append(f"{path}: {minor} is not the number of {name}")
        else:
            found.append(DeviceNode(path=f"/dev/dri/{name}", major=major, minor=minor))
    return tuple(found)


def card_and_render(folder: str) -> tuple[DeviceNode, ...]:
    """Returns the nodes of a GPU, which needs both a card and a render node.

    Raises NotUsable while one is missing: a driver is bound before it has registered its nodes.
    """
    return _require_nodes(folder, ("card", "renderD"))


def card_or_render(folder: str) -> tuple[DeviceNode, ...]:
    """Returns the nodes of a virtual function, which may lack one of the two.

    Raises NotUsable if both are missing.
    """
    return _require_nodes(folder, ("",))


def has_screen(folder: str) -> bool:
    """Returns True if a screen is connected, or was connected at some time since the driver was
    bound.

    A screen in standby may look unplugged. But for the first screen the kernel makes the frame
    buffer of its console, and keeps it. Both files contain the last known state: a read probes no
    connector and wakes no device.
    """
    if any(name.startswith("fb") for name in sysfs.names(f"{folder}/graphics", []) or ()):
        return True
    for card in sysfs.names(f"{folder}/drm", []) or ():
        if not card.startswith("card"):
            continue
        for name in sysfs.names(f"{folder}/drm/{card}", []) or ():
            is_connector = name.startswith(f"{card}-")
            if is_connector and sysfs.text(f"{folder}/drm/{card}/{name}/status", []) == "connected":
                return True
    return False


def device_numbers(path: str, notes: list[str]) -> tuple[int, int] | None:
    """Returns the major and minor number in a `dev` file; None if it is missing or unreadable."""
    value = sysfs.text(path, notes)
    if value is None:
        return None
    match = _NUMBERS.fullmatch(value)
    if match is None:
        notes.append(f"{path}: {value[:40]!r} is not MAJOR:MINOR")
        return None
    return int(match[1]), int(match[2])


def _require_nodes(folder: str, kinds: tuple[str, ...]) -> tuple[DeviceNode, ...]:
    """Returns the nodes. Raises NotUsable if one is unreadable, or none of a kind is there."""
    notes: list[str] = []
    found = nodes(folder, notes)
    if notes:
        # While the driver finishes a node, nothing is unreadable.
        is_unread = any(not note.startswith(NOT_READY) for note in notes)
        raise NotUsable("; ".join(notes), is_unread=is_unread)
    for kind in kinds:
        if not any(node.path.startswith(f"/dev/dri/{kind}") for node in found):
            raise NotUsable(f"{NOT_READY}the driver has made no drm/{kind}* yet")
    return found
