"""What the kernel's files and its log show of a GPU's health, by one look. The same for every
vendor.

Reads only: how many looks make a finding is `health`'s. Nothing is read that would wake a sleeping
GPU.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterable

from . import deadline, pci, sysfs
from .gpu import Gpu, Roots
from .health import (
    BOUND,
    DEGRADED,
    ERROR_WINDOW,
    FAILED,
    NOTE,
    RESET_WINDOW,
    UNKNOWN,
    Event,
    Symptom,
)
from .kmsg import Line

_ADDRESS = r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"
_XID = re.compile(
    r"NVRM: Xid \(PCI:([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2})(?:\.[0-7])?\): (\d+)(?:, (.*))?", re.I
)
_WEDGED = re.compile(rf"({_ADDRESS}): \[drm\].*device wedged, needs recovery")
_BOUND = re.compile(
    rf"({_ADDRESS}): enabling device \(|\[drm\].* Initialized \S+ \S+ (?:\S+ )?for ({_ADDRESS}) on"
)

# Xids that the program on the GPU brings about: the GPU is well, and the next program will not meet
# them.
XIDS_OF_PROGRAMS = frozenset({13, 31, 43, 45, 68, 69, 109})
# Xids after which a GPU is not fit for use before it is reset, by what NVIDIA says they mean.
XIDS_OF_HARDWARE = {
    46: "the GPU has stopped processing",
    48: "an error in the memory that could not be corrected",
    61: "the GPU's own controller has stopped",
    62: "the GPU's own controller has halted",
    64: "bad memory could not be retired or remapped",
    74: "an NVLink error",
    79: "the GPU has fallen off the bus",
    95: "an error in the memory that reached more than one program",
    119: "the GPU's own processor (GSP) does not answer",
    120: "the GPU's own processor (GSP) has failed",
    136: "the link training of NVLink has failed",
    140: "an error in the memory that could not be corrected",
    143: "the GPU did not start",
}


def read(roots: Roots, address: str) -> tuple[Symptom, ...]:
    """All that one look shows. Counters are always among them, so that their growth can be seen."""
    folder = f"{roots.sys}/bus/pci/devices/{address}"
    if deadline.is_hung(folder):
        return (unresponsive(),)
    look = _Look(folder)
    found: list[Symptom] = []
    if look.text("power/runtime_status") == "suspended" or look.text("power_state") in (
        "D3hot",
        "D3cold",
    ):
        return look.errors(found)
    head = look.bytes("config")[:4]
    if head and head.strip(b"\xff") == b"":
        sentence = f"{address} does not answer on the PCI bus any more: its configuration space reads all ones"
        return (Symptom(kind="lost", severity=FAILED, sentence=sentence),)
    found += _links(look)
    found += _counters(look)
    found += _temperatures(look)
    mode = look.text("survivability_mode")
    if mode and mode.strip() not in ("0", "disabled"):
        sentence = "the xe driver has found the firmware unfit for use (survivability mode): it must be flashed anew"
        found.append(Symptom(kind="survivability", severity=FAILED, sentence=sentence))
    return look.errors(found)


def all_of(roots: Roots, gpus: Iterable[Gpu]) -> dict[str, tuple[Symptom, ...]]:
    """Of each GPU by its name. A GPU that hangs costs two seconds once, and the others nothing."""
    wanted = {gpu.name: gpu for gpu in gpus}

    def look() -> dict[str, tuple[Symptom, ...]]:
        addresses = sorted({gpu.address for gpu in wanted.values()})  # parts have their GPU's
        shown = {address: read(roots, address) for address in addresses}
        return {name: shown[gpu.address] for name, gpu in wanted.items()}

    return deadline.run(look)


def unresponsive() -> Symptom:
    sentence = f"the kernel's files of this GPU do not answer: a read has not come back for {deadline.READ_TIMEOUT:g} s"
    return Symptom(kind="unresponsive", severity=UNKNOWN, sentence=sentence)


class _Look:
    """Files below one GPU's folder, and what could not be read for an error of input or output."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._failed: list[str] = []
        self._hangs = False

    def bytes(self, name: str) -> bytes:
        path = f"{self.folder}/{name}"
        try:
            return sysfs.read(path)
        except deadline.DeadlineExceeded:
            self._hangs = True
        except OSError as error:
            if error.errno == errno.EIO:
                self._failed.append(name)
        return b""

    def text(self, name: str) -> str:
        return self.bytes(name).decode(errors="replace").strip()

    def number(self, name: str) -> int | None:
        value = self.text(name)
        return int(value) if value.lstrip("-").isdecimal() and len(value) < 19 else None

    def names(self, name: str) -> list[str]:
        return sysfs.names(f"{self.folder}/{name}", []) or []

    def errors(self, found: list[Symptom]) -> tuple[Symptom, ...]:
        if self._hangs:
            return (unresponsive(),)
        if self._failed:
            sentence = f"reading {', '.join(self._failed)} fails with input/output errors: the GPU does not answer"
            found.append(Symptom(kind="unreadable", severity=FAILED, sentence=sentence))
        return tuple(found)


def _links(look: _Look) -> list[Symptom]:
    """The link to the slot against the most that both of its ends can do."""
    found: list[Symptom] = []
    vendor = sysfs.hexadecimal(f"{look.folder}/vendor", [])
    path, above = pci.ends(look.folder, sysfs.link(look.folder, []), vendor or 0)
    if path is None:
        return found
    link, port = look if path == look.folder else _Look(path), _Look(above or path)
    width, most = link.number("current_link_width"), link.number("max_link_width")
    if above is not None and not port.number("current_link_width"):
        return found  # inside of a package
    if width and most:
        port_most = port.number("max_link_width")
        most = min(most, port_most) if port_most else most
        if 0 < width < most < 255:
            sentence = f"its PCIe link has {width} of {most} lanes: check the slot, the riser and the seating"
            found.append(
                Symptom(kind="link", severity=DEGRADED, sentence=sentence, value=str(width))
            )
    speed, fastest = _speed(link.text("current_link_speed")), _speed(link.text("max_link_speed"))
    if speed and fastest:
        fastest = min(fastest, _speed(port.text("max_link_speed")) or fastest)
        if speed < fastest:
            sentence = f"its PCIe link runs at {speed:g} of {fastest:g} GT/s, which is usual while a GPU saves power"
            found.append(Symptom(kind="link-speed", severity=NOTE, sentence=sentence))
    return found


def _speed(text: str) -> float:
    match = re.match(r"(\d{1,3}(?:\.\d)?) GT/s", text)
    return float(match[1]) if match else 0.0


def _counters(look: _Look) -> list[Symptom]:
    found = []
    for severity, kind, words in (
        (FAILED, "fatal", "the PCIe port has reported fatal errors of the GPU (AER)"),
        (
            DEGRADED,
            "nonfatal",
            "the PCIe port has reported errors of the GPU that were not fatal (AER)",
        ),
    ):
        match = re.search(
            rf"^TOTAL_ERR_{kind.upper()} (\d{{1,18}})$", look.text(f"aer_dev_{kind}"), re.M
        )
        if match:
            found.append(
                Symptom(kind=f"aer-{kind}", severity=severity, sentence=words, count=int(match[1]))
            )
    blocks = [name for name in look.names("ras") if name.endswith("_err_count")]
    counts = [re.search(r"^ue: (\d{1,18})$", look.text(f"ras/{name}"), re.M) for name in blocks]
    if any(counts):
        total_ue = sum(int(match[1]) for match in counts if match)
        words = "its memory or its engines had errors that could not be corrected (amdgpu RAS)"
        found.append(Symptom(kind="ras", severity=FAILED, sentence=words, count=total_ue))
    return found


def _temperatures(look: _Look) -> list[Symptom]:
    for monitor in look.names("hwmon"):
        for name in look.names(f"hwmon/{monitor}"):
            if not re.fullmatch(r"temp\d+_input", name):
                continue
            stem = f"hwmon/{monitor}/{name.removesuffix('_input')}"
            now, critical = look.number(f"{stem}_input"), look.number(f"{stem}_crit")
            if now is not None and critical and now >= critical > 0:
                what = look.text(f"{stem}_label") or "its temperature"
                sentence = f"{what} is {now / 1000:.0f} °C, at or above the critical {critical / 1000:.0f} °C"
                return [Symptom(kind="hot", severity=DEGRADED, sentence=sentence)]
    return []


def event_of(line: Line) -> Event | None:
    """What a line of the kernel's log says of a GPU's health."""
    text = line.text
    if match := _XID.search(text):
        return _xid(f"{match[1].lower()}.0", int(match[2]), match[3] or "", line.at)
    if match := _WEDGED.search(text):
        return wedged(match[1], "", line.at)
    if match := _BOUND.search(text):
        return Event(address=match[1] or match[2], kind=BOUND, at=line.at)
    return None


def wedged(address: str, methods: str, at: float) -> Event | None:
    """The kernel's word that a GPU hangs, by uevent (with what would help) or log; None if it has
    helped itself.
    """
    ways = [way for way in methods.split(",") if way and way != "none"]
    if methods and not ways:
        return None
    advice = f"; the kernel advises: {', '.join(ways)}" if ways else ""
    sentence = f"the GPU hangs and its driver could not recover it (wedged){advice}"
    return Event(address=address, kind="wedged", at=at, severity=FAILED, sentence=sentence)


def _xid(address: str, code: int, detail: str, at: float) -> Event:
    if code in XIDS_OF_PROGRAMS:
        severity, words, lasts = (
            NOTE,
            "a fault of the program that used it, not of the GPU",
            ERROR_WINDOW,
        )
    elif code in XIDS_OF_HARDWARE:
        severity, words, lasts = FAILED, XIDS_OF_HARDWARE[code], RESET_WINDOW
    else:
        severity, words, lasts = DEGRADED, "see NVIDIA's list of Xid errors", ERROR_WINDOW
    sentence = f"the NVIDIA driver reported Xid {code}: {words}"
    return Event(
        address=address,
        kind="xid",
        at=at,
        severity=severity,
        sentence=sentence,
        value=str(code),
        lasts=lasts,
    )
