"""Understands lines of the kernel's log that report about the health of a GPU.

`kmsg` reads the lines. The drivers of all vendors write them; Xids are NVIDIA's. `health` decides
how long an event counts.

The expressions match from the first character of a line on, because later parts may contain text
that any program chose, such as the name of a program that has crashed.
"""

from __future__ import annotations

import re

from .health import (
    BOUND,
    DEGRADED,
    ERROR_WINDOW,
    FAILED,
    NOTE,
    UNINITIALIZED,
    Event,
)
from .kmsg import Line

# What nobody sees on a node whose log cannot be read.
UNSEEN = "Xid and SXid errors, resets that failed and hardware errors are not seen"

_SLOT = r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}"

_QUOTED = 60  # the most characters of a line that a sentence quotes

# NVIDIA's driver names the MIG instance if one is to blame: the GPU instance, and perhaps the
# compute instance in it. The program follows if it is known. Its name may be any text, so a name
# with a space or a comma is not skipped.
_XID = re.compile(
    rf"NVRM: Xid \((?:PCI:)?({_SLOT})(?:\.[0-7])?"
    r"(?: GPU-I:([0-9]{1,3})(?: GPU-CI:[0-9]{1,3})?)?\): ([0-9]{1,6})(?:$|,)"
    r"(?: pid=[^ ,]{1,16}, name=[^ ,]{1,64},)? ?",
    re.I,
)

# From r570 on the driver says itself what a GPU needs. `None` means that nothing is needed any
# more.
_RECOVERY = re.compile(
    r"GPU recovery action changed "
    r"from 0x[0-9a-f]{1,8} \([A-Za-z0-9 ]{1,40}\) to 0x[0-9a-f]{1,8} \(([A-Za-z0-9 ]{1,40})\)"
)
_RECOVERY_CODE = 154
_NO_RECOVERY = "None"

# The GPU works, but other GPUs must not reach its memory.
_MILD_RECOVERIES = ("Drain P2P", "Recover IMEX Domain")

# An error of NVLink 5 says how severe it is, after the name of the part that reports it. The
# expression is longer than the name of a program may be (15 bytes), so no program can imitate it.
_NVLINK_CODES = range(144, 151)
_IS_FATAL = re.compile(r"[A-Za-z0-9_/]+ +Fatal +XC[0-9]+ i[0-9]+ Link")

_OF_NVIDIA_GPU = re.compile(rf"NVRM: GPU ({_SLOT}\.[0-7]): ")
_INIT_FAILED = re.compile(r"RmInitAdapter failed!|rm_init_adapter failed")
_FALLEN_OFF = re.compile(r"GPU has fallen off the bus")

# One record of /dev/kmsg with three lines. The kernel escapes the line ends in it.
_FALLEN_OFF_AT_START = re.compile(
    rf"NVRM: The NVIDIA GPU ({_SLOT}\.[0-7])\\x0aNVRM: \(PCI ID: [0-9a-f]{{4}}:[0-9a-f]{{4}}\) "
    r"installed in this system has\\x0aNVRM: fallen off the bus"
)
_CODE_OF_FALLEN_OFF = 79

# NVSwitches have drivers and addresses of their own.
_SXID = re.compile(
    rf"nvidia-nvswitch[0-9]{{1,3}}: SXid \(PCI:({_SLOT}\.[0-7])\): ([0-9]{{1,6}}), (Fatal,)?"
)

# A line about a device begins with its driver and its address.
_OF_DEVICE = re.compile(
    rf"([a-z0-9_-]{{1,32}}) ({_SLOT}\.[0-7]): (?:amdgpu: )?(?:\[drm\] )?(?:\*ERROR\* )?"
)
_WEDGED = re.compile(r"device wedged, needs recovery$")
_ENABLED = re.compile(r"enabling device \([0-9a-f]{4} -> [0-9a-f]{4}\)")
_INITIALIZED = re.compile(
    rf"(?:[a-z0-9_-]+ {_SLOT}\.[0-7]: )?\[drm\] Initialized \S+ [0-9.]+ (?:\S+ )?"
    rf"for ({_SLOT}\.[0-7]) on"
)

_AMD_RESET = re.compile(r"GPU reset\([0-9]{1,9}\) succeeded!")
_AMD_RESET_FAILED = re.compile(
    r"GPU reset\([0-9]{1,9}\) failed"
    r"|GPU reset end with ret = -[0-9]"
    r"|GPU (?:smu |psp )?mode[0-9] reset failed"
    r"|GPU pre asic reset failed with err, -[0-9]"
    r"|GPU Recovery Failed: -[0-9]"
    r"|ASIC reset failed with error, -[0-9]"
    r"|device lost from bus!"
)
_AMD_BAD_PAGES = re.compile(
    r"RAS records:[0-9]{1,9} exceeds? |Saved bad pages [0-9]{1,9} reaches threshold value"
)
_INTEL_WEDGED = re.compile(
    rf"CRITICAL: Xe has declared device {_SLOT}\.[0-7] as wedged"
    r"|(?:GT[0-9]: )?Failed to initialize GPU, declaring it wedged"
    r"|(?:GT[0-9]: )?Failed to idle engines, declaring wedged"
    r"|GPU recovery timed out, cancelling all in-flight rendering"
)
_INTEL_RESET_FAILED = re.compile(
    r"(?:Tile[0-9]: )?GT[0-9]: reset failed|(?:GT[0-9]: )?Failed to reset chip"
)
_INTEL_ERROR = re.compile(r"\[Hardware Error\]: tile[0-9] reported (FATAL|NONFATAL) error", re.I)


def event_of(line: Line) -> Event | None:
    """Returns the event that a line of the kernel's log reports about a GPU's health, or None.

    A line is ignored if the kernel attributes it to another device than the one in its text.
    """
    event = _event_of_text(line.text, line.at)
    if event is None or line.device not in ("", f"+pci:{event.address}"):
        return None
    return event


def _event_of_text(text: str, at: float) -> Event | None:
    if text.startswith("NVRM: "):
        return _event_of_nvidia(text, at)

    match = _OF_DEVICE.match(text)
    if match is not None:
        event = _event_of_device(match[1], match[2], text[match.end() :], at)
        if event is not None:
            return event

    match = _INITIALIZED.match(text)
    if match is not None:
        return Event(address=match[1], kind=BOUND, at=at)
    match = _SXID.match(text)
    return _sxid(match, at) if match is not None else None


def _event_of_nvidia(text: str, at: float) -> Event | None:
    match = _XID.match(text)
    if match is not None:
        return _xid(match, text[match.end() :], at)

    match = _FALLEN_OFF_AT_START.match(text)
    if match is not None:
        return _event_of_code(match[1], _CODE_OF_FALLEN_OFF, at)
    match = _OF_NVIDIA_GPU.match(text)
    if match is None:
        return None
    address, words = match[1], text[match.end() :]
    if _INIT_FAILED.match(words):
        return Event(
            address=address,
            kind=UNINITIALIZED,
            at=at,
            severity=FAILED,
            sentence=(
                "the NVIDIA driver cannot initialize the GPU (RmInitAdapter failed); "
                "see the lines before it in the kernel's log"
            ),
        )
    if _FALLEN_OFF.match(words):
        return _event_of_code(address, _CODE_OF_FALLEN_OFF, at)
    return None


def _event_of_device(driver: str, address: str, words: str, at: float) -> Event | None:
    """Returns the event of a line about a device. `words` follow the names of driver and device."""
    if _WEDGED.match(words):
        return wedged_event(address, "", at)
    if _ENABLED.match(words) and driver != "vfio-pci":
        return Event(address=address, kind=BOUND, at=at)

    if driver == "amdgpu":
        return _event_of_amdgpu(address, words, at)
    if driver in ("i915", "xe"):
        return _event_of_intel(address, words, at)
    return None


def _event_of_amdgpu(address: str, words: str, at: float) -> Event | None:
    if _AMD_RESET.match(words):
        return Event(address=address, kind=BOUND, at=at)
    if _AMD_RESET_FAILED.match(words):
        return _reset_failed(address, words, at)
    if _AMD_BAD_PAGES.match(words):
        sentence = "its memory has too many bad pages (amdgpu RAS): replace the GPU"
        return Event(address=address, kind="bad-pages", at=at, severity=DEGRADED, sentence=sentence)
    return None


def _event_of_intel(address: str, words: str, at: float) -> Event | None:
    if _INTEL_WEDGED.match(words):
        return wedged_event(address, "", at)
    if _INTEL_RESET_FAILED.match(words):
        return _reset_failed(address, words, at)
    match = _INTEL_ERROR.match(words)
    if match is None:
        return None
    is_fatal = match[1].upper() == "FATAL"
    return Event(
        address=address,
        kind="hardware-error",
        at=at,
        severity=FAILED if is_fatal else DEGRADED,
        sentence=(
            f"the GPU reported a hardware error that was {'' if is_fatal else 'not '}fatal; "
            f"{'reset it' if is_fatal else 'watch it'}"
        ),
        lasts=None if is_fatal else ERROR_WINDOW,
    )


def _reset_failed(address: str, words: str, at: float) -> Event:
    sentence = (
        f"its driver could not reset the GPU ({words[:_QUOTED].rstrip()}): "
        "bind the driver again, or reboot the node"
    )
    return Event(address=address, kind="reset-failed", at=at, severity=FAILED, sentence=sentence)


def _sxid(match: re.Match[str], at: float) -> Event:
    """Returns the event of an NVSwitch. It concerns all NVIDIA GPUs of the node.

    The switches of a node connect all of its GPUs. A fatal error breaks CUDA on each of them.
    """
    code, is_fatal = match[2], match[3] is not None
    advice = "reset the GPUs and restart the Fabric Manager, or reboot the node"
    return Event(
        address=match[1],
        vendor="nvidia",
        kind="sxid",
        at=at,
        severity=FAILED if is_fatal else NOTE,
        sentence=(
            f"an NVSwitch of the node reported SXid {code}, which is "
            f"{f'fatal: {advice}' if is_fatal else 'not fatal'}"
        ),
        value=code,
        lasts=None if is_fatal else ERROR_WINDOW,
    )


def wedged_event(address: str, methods: str, at: float) -> Event | None:
    """Returns the event of a GPU that hangs, as the kernel reports it by uevent or in its log.

    `methods` are the ways to recover the GPU that a uevent advises. Returns None if the uevent
    advises only "none": then the driver has recovered the GPU.
    """
    ways = [way for way in methods.split(",") if way and way != "none"]
    if methods and not ways:
        return None
    advice = f"; the kernel advises: {', '.join(ways)}" if ways else ""
    sentence = f"the GPU hangs and its driver could not recover it (wedged){advice}"
    return Event(address=address, kind="wedged", at=at, severity=FAILED, sentence=sentence)


def _xid(match: re.Match[str], details: str, at: float) -> Event:
    """Returns the event of an Xid. `details` is the text after the number and the program."""
    address, code = f"{match[1].lower()}.0", int(match[3])
    if code == _RECOVERY_CODE:
        recovery = _RECOVERY.fullmatch(details)
        if recovery is not None:
            return _recovery(address, recovery[1], at)

    is_fatal = code in _NVLINK_CODES and _IS_FATAL.match(details) is not None
    return _event_of_code(address, code, at, is_fatal=is_fatal, instance=match[2])


def _event_of_code(
    address: str, code: int, at: float, *, is_fatal: bool = False, instance: str | None = None
) -> Event:
    # Imported late, because most nodes never see an Xid and then need not load it.
    from . import xids

    known = xids.find(code)
    severity = FAILED if is_fatal else known.severity
    name = f" ({known.mnemonic})" if known.mnemonic else ""
    return Event(
        address=address,
        kind="xid",
        at=at,
        severity=severity,
        sentence=f"the NVIDIA driver reported Xid {code}{name}: {known.meaning}; {known.advice}",
        value=str(code),
        lasts=None if severity == FAILED else ERROR_WINDOW,
        instance=int(instance) if instance and not known.is_of_whole_gpu else None,
    )


def _recovery(address: str, action: str, at: float) -> Event:
    """Returns the event of the driver's own verdict on the GPU (Xid 154)."""
    if action == _NO_RECOVERY:
        # The GPU was reset, so everything that was reported before is over.
        return Event(address=address, kind=BOUND, at=at)
    return Event(
        address=address,
        kind="xid",
        at=at,
        severity=DEGRADED if action in _MILD_RECOVERIES else FAILED,
        sentence=f"the NVIDIA driver says what the GPU needs (Xid 154): {action}",
        value=str(_RECOVERY_CODE),
    )
