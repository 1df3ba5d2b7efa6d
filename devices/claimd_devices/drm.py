"""Card and render nodes of a function, with the numbers that the kernel gave them. /dev is never
asked.
"""

from __future__ import annotations

import re

from . import sysfs
from .gpu import NOT_READY, DeviceNode, NotUsable

MAJOR = 226

_NODE = re.compile(r"(card|renderD)([0-9]+)")  # card0-HDMI-A-1 is a connector
_NUMBERS = re.compile(r"([0-9]{1,4}):([0-9]{1,7})")


def nodes(folder: str, notes: list[str]) -> tuple[DeviceNode, ...]:
    """Those that are there. A node whose numbers cannot be read is left out and noted."""
    found = []
    for name in sysfs.names(f"{folder}/drm", notes) or ():
        match = _NODE.fullmatch(name)
        if match is None:
            continue
        path = f"{folder}/drm/{name}/dev"
        noted = len(notes)
        numbers = device_numbers(path, notes)
        if numbers is None:
            if len(notes) == noted:
                notes.append(f"{NOT_READY}{path}: missing")
            continue

        # Anything else is another device's node.
        major, minor = numbers
        if major != MAJOR:
            notes.append(f"{path}: {major} is not DRM's major number {MAJOR}")
        elif minor != int(match[2]):
            notes.append(f"{path}: {minor} is not the number of {name}")
        else:
            found.append(DeviceNode(path=f"/dev/dri/{name}", major=major, minor=minor))
    return tuple(found)


def card_and_render(folder: str) -> tuple[DeviceNode, ...]:
    """The nodes of a GPU that is of no use without both.

    NotUsable until they are there: the driver is bound before it registers them.
    """
    return _require_nodes(folder, ("card", "renderD"))


def card_or_render(folder: str) -> tuple[DeviceNode, ...]:
    """The nodes of a virtual function, which may lack one of them. NotUsable if it lacks both."""
    return _require_nodes(folder, ("",))


def has_screen(folder: str) -> bool:
    """Whether a screen is connected to the function, or was since its driver took it up.

    A screen in standby may look as if it were unplugged. But the kernel makes the frame buffer of its
    console for the first screen, and keeps it. It answers with what it saw last: nothing is probed,
    and nothing that sleeps is woken.
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
    """Major and minor from a `dev` file."""
    value = sysfs.text(path, notes)
    if value is None:
        return None
    match = _NUMBERS.fullmatch(value)
    if match is None:
        notes.append(f"{path}: {value[:40]!r} is not MAJOR:MINOR")
        return None
    return int(match[1]), int(match[2])


def _require_nodes(folder: str, kinds: tuple[str, ...]) -> tuple[DeviceNode, ...]:
    notes: list[str] = []
    found = nodes(folder, notes)
    if notes:
        raise NotUsable("; ".join(notes))
    for kind in kinds:
        if not any(node.path.startswith(f"/dev/dri/{kind}") for node in found):
            raise NotUsable(f"{NOT_READY}the driver has made no drm/{kind}* yet")
    return found
