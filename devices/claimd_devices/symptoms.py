"""What the kernel's files and its log show of a GPU's health, by one check. The same for every
vendor, as far as files go; lines of the log are those of each vendor's driver (Xids are NVIDIA's).

Reads only: how many checks make a finding is `health`'s. Of a GPU that sleeps nothing is read that
would wake it: its configuration space and its link (config, current_link_*, max_link_width) resume
it, and so may its sensors.
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

_SLEEPING_STATES = ("D3hot", "D3cold")
_NO_LANES = 255  # what a width says where there is no link

_SPEED = re.compile(r"([0-9]{1,3}(?:\.[0-9])?) GT/s")
_UNCORRECTED = re.compile(r"^ue: ([0-9]{1,18})$", re.M)
SENSOR = re.compile(r"temp[0-9]+_input")

# Lines of the kernel's log. They are matched from their first character on: within a line there may
# be text of anybody's, such as the name of a program that has crashed.
_SLOT = r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}"

# NVIDIA's driver names the MIG instance if one is to blame: the GPU instance, and perhaps the
# compute instance in it.
_XID = re.compile(
    rf"NVRM: Xid \(PCI:({_SLOT})(?:\.[0-7])?"
    r"(?: GPU-I:([0-9]{1,3})(?: GPU-CI:[0-9]{1,3})?)?\): ([0-9]{1,6})(?:,|$)",
    re.I,
)

# From r570 on the driver says itself what a GPU needs. `None` means that nothing is needed any more.
_RECOVERY = re.compile(
    r"NVRM: Xid \([^)]*\): 154, GPU recovery action changed "
    r"from 0x[0-9a-f]{1,8} \([A-Za-z0-9 ]{1,40}\) to 0x[0-9a-f]{1,8} \(([A-Za-z0-9 ]{1,40})\)"
)
_NO_RECOVERY = "None"
_DRAIN_P2P = "Drain P2P"  # the GPU works; other GPUs must not reach it
_WEDGED = re.compile(
    rf"[a-z0-9_-]+ ({_SLOT}\.[0-7]): \[drm\](?: \*ERROR\*)? device wedged, needs recovery"
)
_BOUND = (
    re.compile(
        rf"(?!vfio-pci )[a-z0-9_-]+ ({_SLOT}\.[0-7]): "
        r"enabling device \([0-9a-f]{4} -> [0-9a-f]{4}\)"
    ),
    re.compile(
        rf"(?:[a-z0-9_-]+ {_SLOT}\.[0-7]: )?\[drm\] Initialized \S+ [0-9.]+ (?:\S+ )?"
        rf"for ({_SLOT}\.[0-7]) on"
    ),
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


# Xids that stop the whole GPU, also if the line names the instance in which they began.
_XIDS_OF_WHOLE_GPU = frozenset({62, 64, 74, 79, 95, 119, 120, 136, 143})


def read_gpu(roots: Roots, address: str) -> tuple[Symptom, ...]:
    """All that one check shows. Counters are always among them, so that their growth can be seen.

    Never raises for what is wrong with the GPU. Whoever must not wait for one that hangs runs this
    by `deadline.run`.
    """
    folder = f"{roots.sys}/bus/pci/devices/{address}"
    if deadline.is_hung(folder):
        return (unresponsive(),)

    files = Files(folder)
    symptoms: list[Symptom] = []
    if not is_asleep(files):
        head = files.bytes("config")[:4]
        if head and not head.strip(b"\xff"):
            return (_lost(address),)
        symptoms += _link_symptoms(files)
        symptoms += _counter_symptoms(files)
        symptoms += _sensor_symptoms(files)
        symptoms += _xe_symptoms(files)
    return files.with_errors(symptoms)


def read_gpus(roots: Roots, gpus: Iterable[Gpu]) -> dict[str, tuple[Symptom, ...]]:
    """Of each GPU by its name. A GPU that hangs costs two seconds once, and the others nothing."""
    address_of = {gpu.name: gpu.address for gpu in gpus}

    def read_all() -> dict[str, tuple[Symptom, ...]]:
        # Parts have their GPU's address, and are as it is.
        addresses = sorted(set(address_of.values()))
        by_address = {address: read_gpu(roots, address) for address in addresses}
        return {name: by_address[address] for name, address in address_of.items()}

    return deadline.run(read_all)


def unresponsive() -> Symptom:
    """That of a GPU whose files hang."""
    sentence = (
        "the kernel's files of this GPU do not answer: "
        f"a read has not come back for {deadline.READ_TIMEOUT:g} s"
    )
    return Symptom(kind="unresponsive", severity=UNKNOWN, sentence=sentence)


class Files:
    """Files below one GPU's folder, and what could not be read for an error of input or output."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._failed: list[str] = []
        self._is_hung = False

    def bytes(self, name: str) -> bytes:
        """Empty if it is missing or cannot be read."""
        try:
            return sysfs.read(f"{self.folder}/{name}")
        except deadline.DeadlineExceeded:
            self._is_hung = True
        except OSError as error:
            if error.errno == errno.EIO:
                self._failed.append(name)
        return b""

    def text(self, name: str) -> str:
        return self.bytes(name).rstrip(sysfs.PADDING).decode(errors="replace").strip()

    def number(self, name: str) -> int | None:
        value = self.text(name)
        return int(value) if value.lstrip("-").isdecimal() and len(value) < 19 else None

    def names(self, name: str) -> list[str]:
        return sysfs.names(f"{self.folder}/{name}", []) or []

    def with_errors(self, symptoms: list[Symptom]) -> tuple[Symptom, ...]:
        """The symptoms, and what is wrong with the files themselves."""
        if self._is_hung:
            return (unresponsive(),)
        if self._failed:
            sentence = (
                f"reading {', '.join(self._failed)} fails with input/output errors: "
                "the GPU does not answer"
            )
            symptoms = [*symptoms, Symptom(kind="unreadable", severity=FAILED, sentence=sentence)]
        return tuple(symptoms)


def is_asleep(files: Files) -> bool:
    """Neither file wakes it."""
    if files.text("power/runtime_status") == "suspended":
        return True
    return files.text("power_state") in _SLEEPING_STATES


def _lost(address: str) -> Symptom:
    sentence = (
        f"{address} does not answer on the PCI bus any more: its configuration space reads all ones"
    )
    return Symptom(kind="lost", severity=FAILED, sentence=sentence)


def _link_symptoms(files: Files) -> list[Symptom]:
    """The link to the slot against the most that both of its ends can do."""
    vendor_id = sysfs.hexadecimal(f"{files.folder}/vendor", [])
    target = sysfs.link(files.folder, [])
    path, port_path = pci.ends(files.folder, target, vendor_id or 0)
    if path is None:
        return []
    link = files if path == files.folder else Files(path)
    port = Files(port_path or path)

    # A port without a link is inside of a package.
    width, most = link.number("current_link_width"), link.number("max_link_width")
    if port_path is not None and not port.number("current_link_width"):
        return []

    symptoms = []
    if width and most:
        most = min(most, port.number("max_link_width") or most)
        if 0 < width < most < _NO_LANES:
            sentence = (
                f"its PCIe link has {width} of {most} lanes: "
                "check the slot, the riser and the seating"
            )
            narrow = Symptom(kind="link", severity=DEGRADED, sentence=sentence, value=str(width))
            symptoms.append(narrow)

    speed, fastest = _link_speed(link, "current_link_speed"), _link_speed(link, "max_link_speed")
    if speed and fastest:
        fastest = min(fastest, _link_speed(port, "max_link_speed") or fastest)
        if speed < fastest:
            sentence = (
                f"its PCIe link runs at {speed:g} of {fastest:g} GT/s, "
                "which is usual while a GPU saves power"
            )
            symptoms.append(Symptom(kind="link-speed", severity=NOTE, sentence=sentence))
    return symptoms


def _link_speed(files: Files, name: str) -> float:
    """In GT/s; 0 if it is not known."""
    match = _SPEED.match(files.text(name))
    return float(match[1]) if match else 0.0


def _counter_symptoms(files: Files) -> list[Symptom]:
    fatal = "the PCIe port has reported fatal errors of the GPU (AER)"
    nonfatal = "the PCIe port has reported errors of the GPU that were not fatal (AER)"
    symptoms = []
    for kind, severity, sentence in (("fatal", FAILED, fatal), ("nonfatal", DEGRADED, nonfatal)):
        total = re.compile(rf"^TOTAL_ERR_{kind.upper()} ([0-9]{{1,18}})$", re.M)
        match = total.search(files.text(f"aer_dev_{kind}"))
        if match is not None:
            count = int(match[1])
            symptom = Symptom(kind=f"aer-{kind}", severity=severity, sentence=sentence, count=count)
            symptoms.append(symptom)

    counts = []
    for name in files.names("ras"):
        if name.endswith("_err_count"):
            match = _UNCORRECTED.search(files.text(f"ras/{name}"))
            if match is not None:
                counts.append(int(match[1]))
    if counts:
        sentence = "its memory or its engines had errors that could not be corrected (amdgpu RAS)"
        symptoms.append(Symptom(kind="ras", severity=FAILED, sentence=sentence, count=sum(counts)))
    return symptoms


def _sensor_symptoms(files: Files) -> list[Symptom]:
    """The first sensor that is at its critical temperature, or above."""
    for monitor in files.names("hwmon"):
        for name in files.names(f"hwmon/{monitor}"):
            if not SENSOR.fullmatch(name):
                continue
            sensor = f"hwmon/{monitor}/{name.removesuffix('_input')}"
            now = files.number(f"{sensor}_input")
            critical = files.number(f"{sensor}_crit")
            if now is not None and critical and now >= critical > 0:
                what = files.text(f"{sensor}_label") or "its temperature"
                sentence = (
                    f"{what} is {now / 1000:.0f} °C, "
                    f"at or above the critical {critical / 1000:.0f} °C"
                )
                return [Symptom(kind="hot", severity=DEGRADED, sentence=sentence)]
    return []


def _xe_symptoms(files: Files) -> list[Symptom]:
    if files.text("survivability_mode") in ("", "0", "disabled"):
        return []
    sentence = (
        "the xe driver has found the firmware unfit for use (survivability mode): "
        "it must be flashed anew"
    )
    return [Symptom(kind="survivability", severity=FAILED, sentence=sentence)]


# ---------------------------------------------------------------- what the kernel says once


def event_of(line: Line) -> Event | None:
    """What a line of the kernel's log says of a GPU's health; None if nothing.

    A line that is known to be about another device than it names says nothing.
    """
    event = _event_of_text(line.text, line.at)
    if event is None or line.device not in ("", f"+pci:{event.address}"):
        return None
    return event


def _event_of_text(text: str, at: float) -> Event | None:
    match = _XID.match(text)
    if match is not None:
        address, code = f"{match[1].lower()}.0", int(match[3])
        recovery = _RECOVERY.match(text)
        if recovery is not None:
            return _recovery(address, recovery[1], at)
        instance = None
        if match[2] is not None and code not in _XIDS_OF_WHOLE_GPU:
            instance = int(match[2])
        return _xid(address, code, at, instance)
    match = _WEDGED.fullmatch(text)
    if match is not None:
        return wedged_event(match[1], "", at)
    for pattern in _BOUND:
        match = pattern.match(text)
        if match is not None:
            return Event(address=match[1], kind=BOUND, at=at)
    return None


def wedged_event(address: str, methods: str, at: float) -> Event | None:
    """The kernel's word that a GPU hangs, by uevent (with what would help) or log; None if it has
    helped itself.
    """
    ways = [way for way in methods.split(",") if way and way != "none"]
    if methods and not ways:
        return None
    advice = f"; the kernel advises: {', '.join(ways)}" if ways else ""
    sentence = f"the GPU hangs and its driver could not recover it (wedged){advice}"
    return Event(address=address, kind="wedged", at=at, severity=FAILED, sentence=sentence)


def _recovery(address: str, action: str, at: float) -> Event:
    """Returns what follows from the driver's own verdict (Xid 154)."""
    if action == _NO_RECOVERY:
        # The GPU was reset, so everything that was reported before is over.
        return Event(address=address, kind=BOUND, at=at)
    return Event(
        address=address,
        kind="xid",
        at=at,
        severity=DEGRADED if action == _DRAIN_P2P else FAILED,
        sentence=f"the NVIDIA driver says what the GPU needs (Xid 154): {action}",
        value="154",
    )


def _xid(address: str, code: int, at: float, instance: int | None) -> Event:
    if code in XIDS_OF_PROGRAMS:
        severity, lasts = NOTE, ERROR_WINDOW
        meaning = "a fault of the program that used it, not of the GPU"
    elif code in XIDS_OF_HARDWARE:
        severity, lasts = FAILED, RESET_WINDOW
        meaning = XIDS_OF_HARDWARE[code]
    else:
        severity, lasts = DEGRADED, ERROR_WINDOW
        meaning = "see NVIDIA's list of Xid errors"
    return Event(
        address=address,
        kind="xid",
        at=at,
        severity=severity,
        sentence=f"the NVIDIA driver reported Xid {code}: {meaning}",
        value=str(code),
        lasts=lasts,
        instance=instance,
    )
