"""Gives a GPU's functions to vfio-pci, and back to the drivers that had them: the only writes to the
kernel's trees.

Every step may be repeated, and looks at what is there: a process that died in the middle is taken
up by the next. A write may block for as long as somebody uses the GPU, so callers run this in a
thread of its own (`deadline.run_in_thread`) and give it up. Who may have a GPU is not decided here.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
import time
from collections.abc import Callable, Iterable, Sequence

from . import drm, sysfs, values, vfio
from .gpu import NotUsable, Roots

log = logging.getLogger(__name__)

SETTLE = 5.0  # seconds for what a write has begun to be seen
TAKEN_BY = vfio.DRIVER  # the driver_override of a function that was taken
_STEP = 0.005
_NVIDIA_MAJOR = 195
_NO_OVERRIDE = ("", "(null)")


class Refused(Exception):
    """The GPU is not given to vfio-pci, or not given back. The message is the reason."""


class InUse(Refused):
    """The same, because somebody still uses the GPU: it may pass."""


class _GivenUp(Exception):
    """Nobody waits for this attempt any more."""


@values.dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """What a function was bound to, so that it can be given back."""

    address: str
    driver: str = ""  # empty: none
    override: str = ""  # the only driver that the administrator lets have it; empty: any
    device: str = ""  # which device it is, such as 10de:27b8; empty: not known


class Attempt:
    """One call of `take` or `give_back`. Given up, it does nothing more once it can go on."""

    def __init__(self, roots: Roots) -> None:
        self.roots = roots
        self.given_up = False

    def write(self, path: str, value: str) -> None:
        """Refused if the kernel does not take it; _GivenUp if nobody waits for it any more."""
        if self.given_up:
            raise _GivenUp
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_TRUNC)
            try:
                os.write(descriptor, f"{value}\n".encode())
            finally:
                os.close(descriptor)
        except OSError as error:
            raise Refused(f"{value or 'nothing'!r} > {path}: {error.strerror}") from error

    def wait_until(self, fact: Callable[[], bool]) -> bool:
        """Whether it has become true in time. A driver may be probed after the write has returned."""
        end = time.monotonic() + SETTLE
        while not fact():
            if time.monotonic() > end:
                return False
            time.sleep(_STEP)
        return True


# ---------------------------------------------------------------- before it


def bindings(roots: Roots, address: str) -> tuple[Binding, ...]:
    """What the GPU's functions are bound to now, the GPU's own first: all that must be known to give
    them back.

    Refused if they cannot be given to vfio-pci, or must not, and InUse if somebody uses the GPU.
    Changes nothing.
    """
    folder = _folder(roots, address)
    if not os.path.isdir(folder):
        raise Refused("the kernel shows no such device")
    try:
        vfio.check_loaded(roots)
        together = vfio.functions_of_group(roots, address)
    except NotUsable as error:
        raise Refused(str(error)) from error

    virtual = sysfs.decimal(f"{folder}/sriov_numvfs", [])
    if virtual:
        raise Refused(f"it is divided into {virtual} virtual functions")
    for one in together:
        path = f"{_folder(roots, one)}/driver_override"
        if not os.access(path, os.W_OK):
            raise Refused(
                f"claimd must not write {path}: the node's claimd needs deploy/components/vfio"
            )
    check_unused(roots, address)
    return tuple(_binding(roots, one) for one in together)


def check_same(roots: Roots, functions: Iterable[Binding]) -> None:
    """Refused if another device stands at the address of one of them by now."""
    for function in functions:
        other = _other_device(roots, function)
        if other:
            raise Refused(
                f"at {function.address} is another device by now, {other} in place of "
                f"{function.device}"
            )


def renew_bindings(
    roots: Roots, known: Sequence[Binding], found: Sequence[Binding]
) -> tuple[Binding, ...]:
    """What has to be undone, by what stands written down of an earlier try and what is there now.

    What was written down stands: the function may show by now what we did to it. But a driver that
    is neither ours nor that of then has been bound since, by somebody who wants it so.
    """
    before = {function.address: function for function in known}
    addresses = [now.address for now in found]
    right = [
        now if _is_foreign(before.get(now.address), now) else before[now.address] for now in found
    ]
    left = [
        function
        for function in known
        if function.address not in addresses and os.path.isdir(_folder(roots, function.address))
    ]
    return (*right, *left)


def _is_foreign(before: Binding | None, now: Binding) -> bool:
    """Whether somebody else has bound it to what it has now."""
    return before is None or now.driver not in ("", before.driver, *vfio.DRIVERS)


def check_unused(roots: Roots, address: str) -> None:
    """InUse if a program has a node of the GPU open, or somebody works at its screen."""
    folder = _folder(roots, address)
    if sysfs.decimal(f"{folder}/boot_vga", []) == 1 and drm.has_screen(folder):
        raise InUse("it shows the node's console, and a screen is connected")

    programs = _programs_with(roots, _nodes(roots, address))
    if programs:
        raise InUse(f"{', '.join(programs)} still has it open on the node")


def is_taken(roots: Roots, functions: Iterable[Binding]) -> bool:
    """Whether vfio-pci has all of them, and keeps them."""
    return all(_is_taken(roots, function) for function in functions)


def _is_taken(roots: Roots, function: Binding) -> bool:
    now = _binding(roots, function.address)
    if now.driver not in vfio.DRIVERS:
        return False
    return now.override == vfio.DRIVER or function.driver in vfio.DRIVERS


# ---------------------------------------------------------------- the deed


def take(attempt: Attempt, functions: Sequence[Binding]) -> None:
    """Binds all functions to vfio-pci; those that it has already are left alone.

    Refused if one cannot be bound; then all are given back as far as that goes. What was not
    written down before can not be given back: the caller has stored `functions`.
    """
    try:
        for function in functions:
            _take(attempt, function)
    except Refused as error:
        try:
            give_back(attempt, functions)
        except Refused as other:
            raise Refused(f"{error}; and it could not be given back: {other}") from error
        raise


def give_back(attempt: Attempt, functions: Sequence[Binding]) -> None:
    """Gives all functions back to what they were bound to; what is right already is left alone.

    Refused, with each reason, if one could not be. A function that is gone from the bus is no
    failure; neither is a driver that is not loaded now: the kernel binds it when it comes. Another
    device at its address is not touched, nor a driver that somebody has bound since.
    """
    ours = [function for function in functions if not _is_other_device(attempt.roots, function)]
    for function in ours[:1]:
        programs = _programs_with(attempt.roots, _vfio_nodes(attempt.roots, function.address))
        if programs and _driver(attempt.roots, function.address) in vfio.DRIVERS:
            raise InUse(f"{', '.join(programs)} still has it open on the node")

    reasons = []
    for function in ours:
        try:
            _give_back(attempt, function)
        except Refused as error:
            reasons.append(str(error))
    if reasons:
        raise Refused("; ".join(reasons))


def _take(attempt: Attempt, function: Binding) -> None:
    roots, address = attempt.roots, function.address
    check_same(roots, [function])
    if _is_taken(roots, function):
        return

    # From here on the kernel lets no other driver have it, whatever is probed meanwhile.
    attempt.write(f"{_folder(roots, address)}/driver_override", vfio.DRIVER)
    if _driver(roots, address) in vfio.DRIVERS:
        return
    _unbind(attempt, address)
    attempt.write(f"{roots.sys}/bus/pci/drivers_probe", address)
    if not attempt.wait_until(lambda: _driver(roots, address) in vfio.DRIVERS):
        raise Refused(f"{vfio.DRIVER} does not take {address}; the kernel's log may say why")


def _give_back(attempt: Attempt, function: Binding) -> None:
    roots, address = attempt.roots, function.address
    folder = _folder(roots, address)
    if not os.path.isdir(folder):
        return
    now = _binding(roots, address)
    if (now.driver, now.override) == (function.driver, function.override):
        return
    if _is_foreign(function, now):
        log.warning(
            "%s is left to %s, which it was bound to meanwhile; before the claim it had %s",
            address,
            now.driver,
            function.driver or "no driver",
        )
        if now.override == vfio.DRIVER:
            attempt.write(f"{folder}/driver_override", "")
        return
    if now.driver == function.driver:
        _unlock_nvidia(attempt, address)
        attempt.write(f"{folder}/driver_override", function.override)
        return

    attempt.write(f"{folder}/driver_override", function.override)
    _unbind(attempt, address)

    # Of several drivers that could have it, this one had it: the kernel is not left the choice.
    driver = f"{roots.sys}/bus/pci/drivers/{function.driver}"
    if not function.driver or not os.path.isdir(driver):
        return
    attempt.write(f"{driver}/bind", address)
    if not attempt.wait_until(lambda: _driver(roots, address) == function.driver):
        raise Refused(f"{function.driver} does not take {address} back")


def _unbind(attempt: Attempt, address: str) -> None:
    roots = attempt.roots
    driver = _driver(roots, address)
    if not driver:
        return
    _lock_nvidia(attempt, address)
    attempt.write(f"{roots.sys}/bus/pci/drivers/{driver}/unbind", address)
    if not attempt.wait_until(lambda: _driver(roots, address) != driver):
        raise Refused(f"{driver} does not let go of {address}")


def _lock_nvidia(attempt: Attempt, address: str) -> None:
    """NVIDIA's driver waits in the kernel for ever for who still uses the GPU. It has a lock that is
    given only while nobody does, and lets nobody in from then on.
    """
    path = _nvidia_lock(attempt.roots, address)
    if not os.path.exists(path):
        return
    attempt.write(path, "1")
    if sysfs.decimal(path, []) != 1:
        raise InUse("NVIDIA's driver says that it is still used; nvidia-persistenced may be it")


def _unlock_nvidia(attempt: Attempt, address: str) -> None:
    """After a try that went no further, or nobody could use the GPU."""
    path = _nvidia_lock(attempt.roots, address)
    if sysfs.decimal(path, []) == 1:
        attempt.write(path, "0")


def _nvidia_lock(roots: Roots, address: str) -> str:
    return f"{roots.proc}/driver/nvidia/gpus/{address}/unbindLock"


# ---------------------------------------------------------------- what is there


def _folder(roots: Roots, address: str) -> str:
    return f"{roots.sys}/bus/pci/devices/{address}"


def _driver(roots: Roots, address: str) -> str:
    return vfio.driver_of(roots, address)


def _binding(roots: Roots, address: str) -> Binding:
    path = f"{_folder(roots, address)}/driver_override"
    override = sysfs.text(path, [], may_be_empty=True) or ""
    return Binding(
        address=address,
        driver=_driver(roots, address),
        override="" if override in _NO_OVERRIDE else override,
        device=_device(roots, address),
    )


def _device(roots: Roots, address: str) -> str:
    folder = _folder(roots, address)
    vendor = sysfs.hexadecimal(f"{folder}/vendor", [])
    device = sysfs.hexadecimal(f"{folder}/device", [])
    return f"{vendor:04x}:{device:04x}" if vendor is not None and device is not None else ""


def _other_device(roots: Roots, function: Binding) -> str:
    """Which other device stands at the address now; empty if none does, as far as is known."""
    now = _device(roots, function.address)
    return now if function.device and now != function.device else ""


def _is_other_device(roots: Roots, function: Binding) -> bool:
    other = _other_device(roots, function)
    if other:
        log.warning("%s is not touched: %s is there now", function.address, other)
    return bool(other)


# Nodes by their paths on the host, with their numbers, of which some may not be known.
_Nodes = dict[str, tuple[int, int] | None]


def _nodes(roots: Roots, address: str) -> _Nodes:
    """Those that are the GPU's own while its driver has it, and none that others share with it."""
    found: _Nodes = {}
    folder = _folder(roots, address)
    for kind in ("drm", "accel"):
        for name in sysfs.names(f"{folder}/{kind}", []) or ():
            place = "/dev/dri" if kind == "drm" else "/dev/accel"
            found[f"{place}/{name}"] = drm.device_numbers(f"{folder}/{kind}/{name}/dev", [])

    path = f"{roots.proc}/driver/nvidia/gpus/{address}/information"
    for line in sysfs.lines(path, []) or ():
        name, _, value = line.partition(":")
        if name == "Device Minor" and value.strip().isdecimal():
            minor = int(value)
            found[f"/dev/nvidia{minor}"] = _NVIDIA_MAJOR, minor
    return found


def _vfio_nodes(roots: Roots, address: str) -> _Nodes:
    """Those that are its own while vfio-pci has it."""
    folder = _folder(roots, address)
    group = os.path.basename(sysfs.link(f"{folder}/iommu_group", []) or "")
    found: _Nodes = {
        f"/dev/vfio/{group}": drm.device_numbers(f"{roots.sys}/class/vfio/{group}/dev", [])
    }
    for name in sysfs.names(f"{folder}/vfio-dev", []) or ():
        numbers = drm.device_numbers(f"{folder}/vfio-dev/{name}/dev", [])
        found[f"/dev/vfio/devices/{name}"] = numbers
    return found


def _programs_with(roots: Roots, nodes: _Nodes) -> list[str]:
    """The programs that have one of these nodes open, as people know them.

    As far as they can be seen: a pod sees those of the node only if it shares its processes.
    """
    found: list[str] = []
    if not nodes:
        return found
    numbers = {pair for pair in nodes.values() if pair is not None}
    for pid in sysfs.names(str(roots.proc), []) or ():
        if pid.isdecimal() and _has_open(f"{roots.proc}/{pid}/fd", set(nodes), numbers):
            name = sysfs.text(f"{roots.proc}/{pid}/comm", []) or "a program"
            found.append(f"{name} (pid {pid})")
    return found


def _has_open(folder: str, paths: set[str], numbers: set[tuple[int, int]]) -> bool:
    """Whether one of a process's descriptors is of such a node. One that has ended has none open."""
    try:
        descriptors = os.listdir(folder)
    except PermissionError as error:
        raise Refused(
            f"claimd must not see who uses the GPU ({folder}): "
            "the node's claimd needs deploy/components/vfio"
        ) from error
    except OSError:
        return False

    for descriptor in descriptors:
        # A container's own paths say little, and what is no file has none.
        with contextlib.suppress(OSError):
            target = os.readlink(f"{folder}/{descriptor}")
            if target in paths:
                return True
            if target.startswith("/") and _numbers(f"{folder}/{descriptor}") in numbers:
                return True
    return False


def _numbers(path: str) -> tuple[int, int] | None:
    """Those of the device that a descriptor is of. The device itself is not touched."""
    status = os.stat(path)
    if not stat.S_ISCHR(status.st_mode):
        return None
    return os.major(status.st_rdev), os.minor(status.st_rdev)
