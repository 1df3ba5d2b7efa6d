"""Binds the functions of a GPU to vfio-pci, and later to their former drivers again.

If the kernel has a variant of vfio-pci for a function, the function is bound to that one. It is
meant where this module speaks of vfio-pci.

This module does the only writes to the kernel's trees. Every step may be repeated and checks the
current state first, so the next process can continue after a crash. A write may block as long as a
program uses the GPU, so callers run it in a thread of its own (`deadline.run_in_thread`) and give
it up after a time. The module does not decide who may have a GPU.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Sequence

from . import drm, failures, open_files, symptoms, sysfs, values, vfio, vfio_aliases
from .failures import LookFailedError
from .gpu import NotUsable, Roots

log = logging.getLogger(__name__)

SETTLE = 5.0  # seconds until the effect of a write must be visible

# The former driver of a function if it is not known: the kernel chooses one.
KERNELS_CHOICE = "*"
_STEP = 0.005
_NVIDIA_MAJOR = 195
_NO_OVERRIDE = ("", "(null)")


class Refused(Exception):
    """Raised if the GPU cannot be bound to vfio-pci, or not given back.

    The message is the reason.
    """


class InUse(Refused):
    """Raised if a program still uses the GPU, so that a later try may succeed."""


class _GivenUp(Exception):
    """Raised in an attempt that its caller has given up."""


@values.dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """The driver of a function before it was taken, so that it can be given back."""

    address: str
    driver: str = ""  # empty: none, or KERNELS_CHOICE
    override: str = ""  # its driver_override, set by the administrator; empty: none
    device: str = ""  # vendor and device id, such as 10de:27b8; empty: unknown


class Attempt:
    """One call of `take` or `give_back`. After `given_up` is set, it writes no more."""

    def __init__(self, roots: Roots) -> None:
        self.roots = roots
        self.given_up = False

    def write(self, path: str, value: str) -> None:
        """Writes to a file of sysfs or procfs.

        Raises Refused if the write fails, for whatever error, and _GivenUp if the attempt was given
        up.
        """
        if self.given_up:
            raise _GivenUp
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_TRUNC)
            try:
                os.write(descriptor, f"{value}\n".encode())
            finally:
                os.close(descriptor)
        except OSError as error:
            # The file is not there, not writable, or refuses the value, or we could not open it.
            raise Refused(f"{value or 'nothing'!r} > {path}: {error.strerror}") from error

    def wait_until(self, fact: Callable[[], bool]) -> bool:
        """Waits until a fact is true, because a driver may be probed after the write has returned.

        Returns False if it is not true within SETTLE seconds.
        """
        end = time.monotonic() + SETTLE
        while not fact():
            if time.monotonic() > end:
                return False
            time.sleep(_STEP)
        return True


# ---------------------------------------------------------------- before the change


def bindings(roots: Roots, address: str) -> tuple[Binding, ...]:
    """Returns the current bindings of the GPU's functions, its own function first.

    The bindings are all that is needed to give the functions back. Raises Refused if the functions
    cannot or must not be given to vfio-pci, and InUse if a program uses the GPU. Changes nothing.

    In this module, a file that is there and cannot be read makes every function raise Refused, and
    LookFailedError means that we could not look.
    """
    folder = _folder(roots, address)

    if not sysfs.is_folder(folder):
        raise Refused("the kernel shows no such device")

    # The kernel binds such a device, and a virtual machine then fails to open it.
    if not symptoms.answers(roots, address):
        raise Refused(
            "it does not answer on the PCI bus: its configuration space reads all ones; "
            "power-cycle the node"
        )
    try:
        aliases = vfio_aliases.read_aliases(roots, [])
        vfio.check_loaded(roots, address, aliases)
        together = vfio.functions_of_group(roots, address)
        for other in together[1:]:
            vfio.check_loaded(roots, other, aliases)
    except NotUsable as error:
        raise Refused(str(error)) from error

    notes: list[str] = []
    virtual = sysfs.decimal(f"{folder}/sriov_numvfs", notes)
    _check_readable(notes)
    if virtual:
        raise Refused(f"it is divided into {virtual} virtual functions")
    for one in together:
        path = f"{_folder(roots, one)}/driver_override"

        # The file is read-only or not there. Errors of ours count as that too.
        if not os.access(path, os.W_OK):
            raise Refused(
                f"claimd must not write {path}: the node's claimd needs deploy/components/vfio"
            )
    check_unused(roots, address)
    return tuple(_binding(roots, one) for one in together)


def check_same(roots: Roots, functions: Iterable[Binding]) -> None:
    """Raises Refused if there is another device now at the address of a function."""
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
    """Merges the stored bindings of an earlier try with the current ones, for a later `give_back`.

    A stored binding wins, because the function may be bound to vfio-pci by now through that try.
    But if the current driver is neither vfio-pci nor the stored one, somebody else has bound it on
    purpose, and the current binding wins.
    """
    before = {function.address: function for function in known}
    addresses = [now.address for now in found]
    right = [
        now if _is_foreign(before.get(now.address), now) else before[now.address] for now in found
    ]

    # Functions that were taken in the earlier try and would not be taken now must be given back
    # too.
    left = [
        function
        for function in known
        if function.address not in addresses and sysfs.is_folder(_folder(roots, function.address))
    ]
    return (*right, *left)


def _is_foreign(before: Binding | None, now: Binding) -> bool:
    """Returns True if somebody else has bound the function to its current driver.

    Without a stored binding, the current one counts as somebody else's.
    """
    if before is None:
        return True
    return now.driver not in ("", before.driver) and not vfio.is_driver(now.driver)


def check_unused(roots: Roots, address: str) -> None:
    """Raises InUse if a program has a node of the GPU open, or it shows the console on a screen."""
    folder = _folder(roots, address)
    notes: list[str] = []
    is_console = sysfs.decimal(f"{folder}/boot_vga", notes) == 1
    _check_readable(notes)
    if is_console and drm.has_screen(folder):
        raise InUse("it shows the node's console, and a screen is connected")

    programs = _programs_with(roots, _nodes(roots, address))
    if programs:
        raise InUse(f"{', '.join(programs)} still has it open on the node")


def is_taken(roots: Roots, functions: Iterable[Binding]) -> bool:
    """Returns True if vfio-pci has all functions, and no other driver can be bound to them."""
    return all(_is_taken(roots, function) for function in functions)


def _is_taken(roots: Roots, function: Binding) -> bool:
    now = _binding(roots, function.address)
    if not vfio.is_driver(now.driver):
        return False
    return vfio.is_driver(now.override) or vfio.is_driver(function.driver)


# ---------------------------------------------------------------- the change


def take(attempt: Attempt, functions: Sequence[Binding]) -> None:
    """Binds all functions to vfio-pci, except those that are bound to it already.

    The caller must have stored `functions` on disk before, because a later process needs them to
    give the functions back. Raises Refused or LookFailedError if one function cannot be bound; then
    as many as possible are given back first.
    """
    try:
        for function in functions:
            _take(attempt, function)
    except (Refused, LookFailedError) as error:
        try:
            give_back(attempt, functions)
        except (Refused, LookFailedError) as other:
            raise Refused(f"{error}; and it could not be given back: {other}") from error
        raise


def give_back(attempt: Attempt, functions: Sequence[Binding]) -> None:
    """Binds all functions to their former drivers again, except those that are right already.

    Raises Refused, with all reasons, if a function could not be given back. These are no failures:
    a function that is gone from the bus, and a driver that is not loaded, which the kernel binds
    when it is loaded. Another device at the address stays untouched, and so does a driver that
    somebody else has bound meanwhile.
    """
    ours = [function for function in functions if not _is_other_device(attempt.roots, function)]
    # A virtual machine that still runs has the nodes of the GPU's own function, the first one,
    # open.
    for function in ours[:1]:
        programs = _programs_with(attempt.roots, _vfio_nodes(attempt.roots, function.address))
        if programs and vfio.is_driver(_driver(attempt.roots, function.address)):
            raise InUse(f"{', '.join(programs)} still has it open on the node")

    # One function that fails must not keep the others from being given back.
    reasons = []
    for function in ours:
        try:
            _give_back(attempt, function)
        except (Refused, LookFailedError) as error:
            reasons.append(str(error))
    if reasons:
        raise Refused("; ".join(reasons))


def _take(attempt: Attempt, function: Binding) -> None:
    roots, address = attempt.roots, function.address
    check_same(roots, [function])
    if _is_taken(roots, function):
        return

    now = _driver(roots, address)
    driver = now if vfio.is_driver(now) else _driver_for(roots, address)

    # With this override the kernel binds no other driver, whatever is probed meanwhile. So it comes
    # before the unbind.
    attempt.write(f"{_folder(roots, address)}/driver_override", driver)
    if vfio.is_driver(_driver(roots, address)):
        return
    _unbind(attempt, address)
    attempt.write(f"{roots.sys}/bus/pci/drivers_probe", address)
    if not attempt.wait_until(lambda: vfio.is_driver(_driver(roots, address))):
        raise Refused(f"{driver} does not take {address}; the kernel's log may say why")


def _driver_for(roots: Roots, address: str) -> str:
    notes: list[str] = []
    try:
        driver = vfio.driver_for(roots, address, vfio_aliases.read_aliases(roots, notes))
    except NotUsable as error:
        raise Refused(str(error)) from error
    for note in notes:
        log.warning("%s: %s", address, note)
    return driver


def _give_back(attempt: Attempt, function: Binding) -> None:
    roots, address = attempt.roots, function.address
    folder = _folder(roots, address)

    if not sysfs.is_folder(folder):
        return
    now = _binding(roots, address)
    if (now.driver, now.override) == (function.driver, function.override):
        return
    if function.driver == KERNELS_CHOICE and now.driver and not vfio.is_driver(now.driver):
        if vfio.is_driver(now.override):
            attempt.write(f"{folder}/driver_override", "")
        return

    # Somebody else has bound another driver. It stays, and only our override is removed.
    if _is_foreign(function, now):
        log.warning(
            "%s is left to %s, which it was bound to meanwhile; before the claim it had %s",
            address,
            now.driver,
            function.driver or "no driver",
        )
        if vfio.is_driver(now.override):
            attempt.write(f"{folder}/driver_override", "")
        return
    # The function was never unbound: an earlier try got no further than the override or the lock.
    if now.driver == function.driver:
        _unlock_nvidia(attempt, address)
        attempt.write(f"{folder}/driver_override", function.override)
        return

    # The former override comes first, so that the kernel allows the former driver.
    attempt.write(f"{folder}/driver_override", function.override)
    _unbind(attempt, address)

    if function.driver == KERNELS_CHOICE:
        attempt.write(f"{roots.sys}/bus/pci/drivers_probe", address)
        return

    # Several drivers may support the device, so the former driver is bound explicitly instead of
    # letting the kernel choose one.
    driver = f"{roots.sys}/bus/pci/drivers/{function.driver}"
    if not function.driver or not sysfs.is_folder(driver):
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
    """Takes the lock of NVIDIA's driver before an unbind. Raises InUse if the GPU is in use.

    Without the lock, the unbind would wait in the kernel for the last user, maybe for ever. The
    driver grants the lock only while the GPU is unused, and refuses new users from then on.
    """
    path = _nvidia_lock(attempt.roots, address)

    # Only NVIDIA's driver has the file.
    if not sysfs.exists(path):
        return
    attempt.write(path, "1")
    if sysfs.decimal(path, []) != 1:
        raise InUse("NVIDIA's driver says that it is still used; nvidia-persistenced may be it")


def _unlock_nvidia(attempt: Attempt, address: str) -> None:
    """Releases the lock after a try that did not unbind the GPU, so that it can be used again."""
    path = _nvidia_lock(attempt.roots, address)
    if sysfs.decimal(path, []) == 1:
        attempt.write(path, "0")


def _nvidia_lock(roots: Roots, address: str) -> str:
    return f"{roots.proc}/driver/nvidia/gpus/{address}/unbindLock"


# ---------------------------------------------------------------- the current state


def _folder(roots: Roots, address: str) -> str:
    return f"{roots.sys}/bus/pci/devices/{address}"


def _driver(roots: Roots, address: str) -> str:
    try:
        return vfio.driver_of(roots, address)
    except NotUsable as error:
        raise Refused(str(error)) from error


def _check_readable(notes: Sequence[str]) -> None:
    """Raises Refused if there is a note: a file is there and cannot be read."""
    if notes:
        raise Refused(notes[0])


def _binding(roots: Roots, address: str) -> Binding:
    path = f"{_folder(roots, address)}/driver_override"

    # A missing file counts as no override.
    notes: list[str] = []
    override = sysfs.text(path, notes, may_be_empty=True) or ""
    _check_readable(notes)
    return Binding(
        address=address,
        driver=_driver(roots, address),
        override="" if override in _NO_OVERRIDE else override,
        device=_device(roots, address),
    )


def _device(roots: Roots, address: str) -> str:
    folder = _folder(roots, address)
    notes: list[str] = []
    vendor = sysfs.hexadecimal(f"{folder}/vendor", notes)
    device = sysfs.hexadecimal(f"{folder}/device", notes)
    _check_readable(notes)
    return f"{vendor:04x}:{device:04x}" if vendor is not None and device is not None else ""


def _other_device(roots: Roots, function: Binding) -> str:
    """Returns the ids of another device at the function's address, or an empty string.

    Also empty if the ids of one of the two are unknown.
    """
    now = _device(roots, function.address)
    return now if function.device and now != function.device else ""


def _is_other_device(roots: Roots, function: Binding) -> bool:
    other = _other_device(roots, function)
    if other:
        log.warning("%s is not touched: %s is there now", function.address, other)
    return bool(other)


# Nodes by their paths on the host, with their numbers; None if these are unknown.
_Nodes = dict[str, tuple[int, int] | None]


def _nodes(roots: Roots, address: str) -> _Nodes:
    """Returns the nodes that belong only to this GPU while its own driver has it."""
    found: _Nodes = {}
    notes: list[str] = []
    folder = _folder(roots, address)
    for kind in ("drm", "accel"):
        for name in sysfs.names(f"{folder}/{kind}", notes) or ():
            place = "/dev/dri" if kind == "drm" else "/dev/accel"
            found[f"{place}/{name}"] = drm.device_numbers(f"{folder}/{kind}/{name}/dev", notes)

    path = f"{roots.proc}/driver/nvidia/gpus/{address}/information"
    for line in sysfs.lines(path, notes) or ():
        name, _, value = line.partition(":")
        if name == "Device Minor" and value.strip().isdecimal():
            minor = int(value)
            found[f"/dev/nvidia{minor}"] = _NVIDIA_MAJOR, minor
    _check_readable(notes)
    return found


def _vfio_nodes(roots: Roots, address: str) -> _Nodes:
    """Returns the nodes that belong only to this GPU while vfio-pci has it."""
    folder = _folder(roots, address)
    notes: list[str] = []
    group = os.path.basename(sysfs.link(f"{folder}/iommu_group", notes) or "")
    found: _Nodes = {
        f"/dev/vfio/{group}": drm.device_numbers(f"{roots.sys}/class/vfio/{group}/dev", notes)
    }
    for name in sysfs.names(f"{folder}/vfio-dev", notes) or ():
        numbers = drm.device_numbers(f"{folder}/vfio-dev/{name}/dev", notes)
        found[f"/dev/vfio/devices/{name}"] = numbers
    _check_readable(notes)
    return found


def _programs_with(roots: Roots, nodes: _Nodes) -> list[str]:
    """Returns the programs that have one of these nodes open, with their names and pids.

    A pod sees the programs of the node only with hostPID.
    """
    found: list[str] = []
    if not nodes:
        return found
    notes: list[str] = []
    pids = sysfs.names(str(roots.proc), notes) or ()
    _check_readable(notes)
    for pid in pids:
        if pid.isdecimal() and _has_open(f"{roots.proc}/{pid}/fd", nodes):
            name = sysfs.text(f"{roots.proc}/{pid}/comm", []) or "a program"
            found.append(f"{name} (pid {pid})")
    return found


def _has_open(folder: str, nodes: _Nodes) -> bool:
    """Returns True if a process has such a node open.

    Raises Refused if claimd may not see the descriptors of the process, and LookFailedError if we
    could not look.
    """
    try:
        descriptors = os.listdir(folder)
    except PermissionError as error:
        raise Refused(
            f"claimd must not see who uses the GPU ({folder}): "
            "the node's claimd needs deploy/components/vfio"
        ) from error
    except OSError as error:
        # Otherwise the process is not there any more.
        failures.check(folder, error)
        return False
    return any(_is_node(f"{folder}/{descriptor}", nodes) for descriptor in descriptors)


def _is_node(descriptor: str, nodes: _Nodes) -> bool:
    """Returns True if a descriptor of a process is one of the nodes.

    The numbers of the device decide. A container may have the node under another path, and another
    file under the node's path. A path decides only for a node whose numbers are unknown.
    """
    try:
        # The device is not opened.
        numbers = open_files.device_numbers(descriptor)
        if numbers is None:
            return False
        if numbers in nodes.values():
            return True

        without_numbers = [path for path, known in nodes.items() if known is None]
        return bool(without_numbers) and os.readlink(descriptor) in without_numbers
    except OSError as error:
        # Otherwise the descriptor or the process is gone by now.
        failures.check(descriptor, error)
        return False
