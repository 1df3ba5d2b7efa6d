"""Reads the symptoms of a GPU from the kernel's files, in one check.

The files are the same for all vendors. `log_lines` understands the kernel's log. `health` decides
how many checks make a finding.

A check must not wake a sleeping GPU. Reads of its configuration space and its link (config,
current_link_*, max_link_width) would wake it, and reads of its sensors may.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable

from . import deadline, pci, sysfs
from .gpu import Gpu, Roots
from .health import DEGRADED, FAILED, LOST, NOTE, UNKNOWN, Symptom

_SLEEPING_STATES = ("D3hot", "D3cold")
_NO_LANES = 255  # the width of a missing link

_SPEED = re.compile(r"([0-9]{1,3}(?:\.[0-9])?) GT/s")
_UNCORRECTED = re.compile(r"^ue: ([0-9]{1,18})$", re.M)
SENSOR = re.compile(r"temp[0-9]+_input")

# The errors of a sensor whose controller does not answer.
_SILENCE = (errno.ETIME, errno.ETIMEDOUT, errno.EREMOTEIO, errno.ENODEV)

# Pages of memory that amdgpu found bad: address, size, and R (reserved, so that nobody uses it),
# P (to be reserved) or F (cannot be reserved).
_BAD_PAGES = "gpu_vram_bad_pages"
_BAD_PAGE = re.compile(r"^0x[0-9a-f]{1,16} : 0x[0-9a-f]{1,16} : ([RPF])$", re.M)


def read_gpu(roots: Roots, address: str) -> tuple[Symptom, ...]:
    """Returns all symptoms that one check shows.

    Counters of errors are always among them, so that `health` can see their growth. Faults of the
    GPU do not make it raise; LookFailedError means that we could not look. A read of a GPU
    that hangs blocks, unless the caller runs this in `deadline.run`.
    """
    folder = f"{roots.sys}/bus/pci/devices/{address}"
    if deadline.is_hung(folder):
        return (unresponsive(),)

    files = Files(folder)
    symptoms: list[Symptom] = []
    if not is_asleep(files):
        # The other files of a GPU that has fallen off the bus show nonsense.
        if not _answers(files):
            return (_lost(address),)
        symptoms += _link_symptoms(files)
        symptoms += _counter_symptoms(files)
        symptoms += _sensor_symptoms(files)
        symptoms += _xe_symptoms(files)
    return files.with_errors(symptoms)


def read_gpus(roots: Roots, gpus: Iterable[Gpu]) -> dict[str, tuple[Symptom, ...]]:
    """Returns the symptoms of each GPU, by its name.

    A GPU that hangs delays the result by two seconds, once, and does not affect other GPUs.
    """
    address_of = {gpu.name: gpu.address for gpu in gpus}

    def read_all() -> dict[str, tuple[Symptom, ...]]:
        # Partitions have the address of their GPU, and its symptoms. Each address is read once.
        addresses = sorted(set(address_of.values()))
        by_address = {address: read_gpu(roots, address) for address in addresses}
        return {name: by_address[address] for name, address in address_of.items()}

    return deadline.run(read_all)


def read_lost(roots: Roots, gpus: Iterable[Gpu]) -> dict[str, Symptom]:
    """Returns the symptom of each of these GPUs that does not answer on the bus, by its name.

    Unlike `read_gpus`, it wakes sleeping GPUs.
    """
    address_of = {gpu.name: gpu.address for gpu in gpus}

    def read_all() -> dict[str, Symptom]:
        found = {}
        for name, address in address_of.items():
            if not answers(roots, address):
                found[name] = _lost(address)
        return found

    return deadline.run(read_all) if address_of else {}


def answers(roots: Roots, address: str) -> bool:
    """Returns False if the device does not answer on the bus. Wakes a sleeping device."""
    return _answers(Files(f"{roots.sys}/bus/pci/devices/{address}"))


def unresponsive() -> Symptom:
    """Returns the symptom of a GPU whose files hang."""
    sentence = (
        "the kernel's files of this GPU do not answer: "
        f"a read has not come back for {deadline.READ_TIMEOUT:g} s"
    )
    return Symptom(kind="unresponsive", severity=UNKNOWN, sentence=sentence)


class Files:
    """The files in the folder of one GPU. It collects the names of those that fail with EIO."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.last_errno = 0  # of the last read; 0 if it succeeded
        self._failed: list[str] = []

    def bytes(self, name: str) -> bytes:
        """Returns the content of a file; empty if the file is missing or not readable.

        Only EIO is a symptom: it comes from the device. LookFailedError is raised if we could not
        look.
        """
        self.last_errno = 0
        try:
            return sysfs.read(f"{self.folder}/{name}")
        except OSError as error:
            self.last_errno = error.errno or 0
            if error.errno == errno.EIO:
                self._failed.append(name)
        return b""

    def text(self, name: str) -> str:
        """Returns the text of a file without white space around it; empty as for `bytes`."""
        return self.bytes(name).rstrip(sysfs.PADDING).decode(errors="replace").strip()

    def number(self, name: str) -> int | None:
        """Returns the decimal number in a file.

        None if the file is missing, unreadable or no number.
        """
        value = self.text(name)
        return int(value) if value.lstrip("-").isdecimal() and len(value) < 19 else None

    def names(self, name: str) -> list[str]:
        """Returns the sorted names in a folder; empty if the folder is missing or not readable."""
        return sysfs.names(f"{self.folder}/{name}", []) or []

    def with_errors(self, symptoms: list[Symptom]) -> tuple[Symptom, ...]:
        """Returns the symptoms, and one for files that fail with EIO."""
        if self._failed:
            sentence = (
                f"reading {', '.join(self._failed)} fails with input/output errors: "
                "the GPU does not answer"
            )
            symptoms = [*symptoms, Symptom(kind="unreadable", severity=FAILED, sentence=sentence)]
        return tuple(symptoms)


def is_asleep(files: Files) -> bool:
    """Returns True if the GPU sleeps. The two files that it reads do not wake the GPU."""
    if files.text("power/runtime_status") == "suspended":
        return True
    return files.text("power_state") in _SLEEPING_STATES


def _answers(files: Files) -> bool:
    """Returns False if each read of the configuration space gives all ones."""
    head = files.bytes("config")[:4]
    return not head or bool(head.strip(b"\xff"))


def _lost(address: str) -> Symptom:
    sentence = (
        f"{address} does not answer on the PCI bus any more: its configuration space reads all ones"
    )
    return Symptom(kind=LOST, severity=FAILED, sentence=sentence)


def _link_symptoms(files: Files) -> list[Symptom]:
    """Compares the link to the slot with the most that both of its ends support."""
    vendor_id = sysfs.hexadecimal(f"{files.folder}/vendor", [])
    target = sysfs.link(files.folder, [])
    path, port_path = pci.ends(files.folder, target, vendor_id or 0)
    if path is None:
        return []
    link = files if path == files.folder else Files(path)
    port = Files(port_path or path)

    # A port without a link is inside a package, where the files of the GPU's link mean nothing.
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
    """Returns the speed in a file in GT/s; 0 if it is unknown."""
    match = _SPEED.match(files.text(name))
    return float(match[1]) if match else 0.0


def _counter_symptoms(files: Files) -> list[Symptom]:
    """Returns the counters of errors that the PCIe port (AER) and amdgpu (RAS) keep."""
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

    # amdgpu has one file for each block of the chip. Their sum is one counter.
    counts = []
    names = files.names("ras")
    for name in names:
        if name.endswith("_err_count"):
            match = _UNCORRECTED.search(files.text(f"ras/{name}"))
            if match is not None:
                counts.append(int(match[1]))
    if counts:
        sentence = "its memory or its engines had errors that could not be corrected (amdgpu RAS)"
        symptoms.append(Symptom(kind="ras", severity=FAILED, sentence=sentence, count=sum(counts)))
    if _BAD_PAGES in names:
        symptoms += _bad_page_symptoms(files)
    return symptoms


def _bad_page_symptoms(files: Files) -> list[Symptom]:
    """Returns a symptom for the pages of memory that amdgpu found bad."""
    pages = _BAD_PAGE.findall(files.text(f"ras/{_BAD_PAGES}"))
    if not pages:
        return []

    # Reserved pages do no harm. A program may still get the others.
    unreserved = len(pages) - pages.count("R")
    sentence = f"bad pages of its memory: {len(pages)}; not reserved: {unreserved}"
    severity = DEGRADED if unreserved else NOTE
    return [Symptom(kind="bad-pages", severity=severity, sentence=sentence)]


def _sensor_symptoms(files: Files) -> list[Symptom]:
    """Returns a symptom for the first sensor at or above its critical temperature.

    If no sensor answers, the controller that reads them hangs, and that is the symptom.
    """
    silent = ""  # a sensor that does not answer, and why
    has_answer = False
    for monitor in files.names("hwmon"):
        for name in files.names(f"hwmon/{monitor}"):
            if not SENSOR.fullmatch(name):
                continue
            sensor = f"hwmon/{monitor}/{name.removesuffix('_input')}"
            now = files.number(f"{sensor}_input")
            if now is not None:
                has_answer = True
            elif files.last_errno in _SILENCE:
                silent = f"{sensor}_input ({os.strerror(files.last_errno)})"
            critical = files.number(f"{sensor}_crit")
            if now is not None and critical and now >= critical > 0:
                what = files.text(f"{sensor}_label") or "its temperature"
                sentence = (
                    f"{what} is {now / 1000:.0f} °C, "
                    f"at or above the critical {critical / 1000:.0f} °C"
                )
                return [Symptom(kind="hot", severity=DEGRADED, sentence=sentence)]

    if silent and not has_answer:
        sentence = f"no sensor answers, such as {silent}: the GPU's power controller hangs"
        return [Symptom(kind="unreadable", severity=FAILED, sentence=sentence)]
    return []


def _xe_symptoms(files: Files) -> list[Symptom]:
    """Returns a symptom if the xe driver found the firmware broken."""
    if files.text("survivability_mode") in ("", "0", "disabled"):
        return []
    sentence = (
        "the xe driver has found the firmware unfit for use (survivability mode): "
        "it must be flashed again"
    )
    return [Symptom(kind="survivability", severity=FAILED, sentence=sentence)]
