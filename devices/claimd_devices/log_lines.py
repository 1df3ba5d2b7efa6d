"""Understands lines of the kernel's log that report about the health of a GPU.

`kmsg` reads the lines. The drivers of all vendors write them; Xids are NVIDIA's. `health` decides
how long an event counts.

The expressions match from the first character of a line on, because later parts may contain text
that any program chose, such as the name of a program that has crashed.
"""

from __future__ import annotations

import re

from .health import BOUND, DEGRADED, ERROR_WINDOW, FAILED, RESET_WINDOW, Event
from .kmsg import Line

_SLOT = r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}"

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
        match = _XID.match(text)
        return _xid(match, text[match.end() :], at) if match is not None else None

    match = _WEDGED.fullmatch(text)
    if match is not None:
        return wedged_event(match[1], "", at)
    for pattern in _BOUND:
        match = pattern.match(text)
        if match is not None:
            return Event(address=match[1], kind=BOUND, at=at)
    return None


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

    # Imported late, because most nodes never see an Xid and then need not load it.
    from . import xids

    known = xids.find(code)
    severity = known.severity
    if code in _NVLINK_CODES and _IS_FATAL.match(details):
        severity = FAILED
    name = f" ({known.mnemonic})" if known.mnemonic else ""
    return Event(
        address=address,
        kind="xid",
        at=at,
        severity=severity,
        sentence=f"the NVIDIA driver reported Xid {code}{name}: {known.meaning}; {known.advice}",
        value=str(code),
        lasts=RESET_WINDOW if severity == FAILED else ERROR_WINDOW,
        instance=int(match[2]) if match[2] and not known.is_of_whole_gpu else None,
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
