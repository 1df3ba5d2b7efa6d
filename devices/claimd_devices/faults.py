"""Injects faults into a fake tree, which then looks like a sick machine.

`FAULTS` is the table of faults. `check` checks whether a fault can be injected, and `inject`
injects it. The files change first; then listeners get a uevent in the kernel's form. The readers of
the tree decide what the files mean.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import os
import re
import shutil
import stat
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from . import fake, uevents, values
from .gpu import name_of

_SAVED = ".claimd-faults"  # a file next to sys/ with the original files

# A file of the real kernel whose read fails with EIO.
_UNREADABLE = fake.UNREADABLE

# The bits of a mode that may be restored. A manipulated _SAVED must not make set-uid files of root.
_PERMISSIONS = 0o777

# The counters in aer_dev_fatal, except the total in its last line.
_AER_FATAL = (
    "Undefined DLP SDES TLP FCP CmpltTO CmpltAbrt UnxCmplt RxOF MalfTLP ECRC UnsupReq ACSViol UncorrIntErr "
    "BlockedTLP AtomicOpBlocked TLPBlockedErr PoisonTLPBlocked"
)

# The words of NVIDIA's driver for what a GPU needs, by the value of the fault `recovery`.
_RECOVERIES = {
    "none": "0x0 (None)",
    "reset": "0x1 (GPU Reset Required)",
    "reboot": "0x2 (Node Reboot Required)",
    "drain-p2p": "0x3 (Drain P2P)",
    "drain-and-reset": "0x4 (Drain and Reset)",
}

# The lines of a driver that cannot reset its GPU.
_RESET_FAILED = {
    "amdgpu": ("amdgpu: GPU reset(1) failed", "amdgpu: GPU reset end with ret = -110"),
    "i915": ("[drm] *ERROR* GT0: Failed to reset chip",),
    "xe": ("[drm] *ERROR* GT0: reset failed (-ETIMEDOUT)",),
}

_SWITCH = "0000:05:00.0"  # the address of an NVSwitch in lines of the log
_XID_VALUE = re.compile(r"([0-9]{1,6})?(?:,?instance=([0-9]{1,3}))?")
_NAME = re.compile(r"gpu-([0-9a-f]{4,8})-([0-9a-f]{2})-([0-9a-f]{2})-([0-7])(-[a-z0-9-]+)?")
_LISTED = 16  # the most GPUs in an error message


@values.dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A change that can be made to one GPU of a fake tree."""

    name: str
    sentence: str
    value: str = ""  # a description of its VALUE; empty: it takes no value
    apply: Callable[[_Target], None]
    accepts: Callable[[str], bool] = lambda value: not value
    drivers: tuple[str, ...] = ()  # whose GPUs can have it; empty: all


@values.dataclass(frozen=True, slots=True, kw_only=True)
class _Target:
    """The GPU that a fault is injected into."""

    tree: Path
    address: str
    value: str

    @property
    def link(self) -> Path:
        return self.tree / "sys/bus/pci/devices" / self.address

    @property
    def folder(self) -> Path:
        return self.link.resolve()

    @property
    def slot(self) -> str:
        """The address without the function, as NVIDIA's driver writes it."""
        return self.address.rpartition(".")[0]

    @property
    def path(self) -> str:
        """The path of the GPU in uevents."""
        return "/" + str(self.folder.relative_to((self.tree / "sys").resolve()))

    @property
    def driver(self) -> str:
        link = self.folder / "driver"
        return link.readlink().name if link.is_symlink() else ""

    def drm_names(self) -> list[str]:
        return sorted(path.name for path in self.folder.glob("drm/*") if not path.is_symlink())

    def send_uevent(
        self, action: str, subsystem: str = "pci", below: str = "", **fields: str
    ) -> None:
        message = uevents.message(action, self.path + below, subsystem, **fields)
        uevents.broadcast(self.tree, message)

    def log(self, text: str) -> None:
        """Adds a line to the log of the tree, in the format of /dev/kmsg."""
        path = self.tree / "dev/kmsg"

        # The time is also the number, so that the numbers of a log that is written again go on.
        microseconds = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(path, flags, 0o644), "a") as file:
            file.write(f"6,{microseconds},{microseconds},-;{text}\n")


def enable(tree: Path) -> None:
    """Makes the folder in which readers of the tree listen for uevents. May be repeated.

    A reader that was started before sees faults only in its periodic scans.
    """
    (tree / uevents.SOCKETS).mkdir(exist_ok=True)


def check(tree: Path, fault: str, device: str, value: str = "") -> None:
    """Checks whether `inject` would accept these arguments. Changes nothing.

    `fault` may contain the value, as in xid=79. `device` is the PCI address or the name of a GPU. Raises ValueError, which says what is wrong
    and suggests valid arguments.
    """
    _target(tree, fault, device, value)


def inject(tree: Path, fault: str, device: str, value: str = "") -> None:
    """Injects a fault of `FAULTS` into one GPU of a tree. Raises ValueError as `check`.

    Most faults may be injected repeatedly. The fault `heal` reverts all of them. Raises OSError if
    the tree cannot be written; some files may have changed then, and `heal` reverts these as well.
    """
    target = _target(tree, fault, device, value)
    FAULTS[fault.partition("=")[0]].apply(target)


# ---------------------------------------------------------------- the arguments


def _target(tree: Path, fault: str, device: str, value: str) -> _Target:
    fault, separator, inner = fault.partition("=")
    if separator and value:
        raise ValueError(f"{fault} has two values, {inner!r} and {value!r}")
    value = value or inner
    if fault not in FAULTS:
        raise ValueError(
            f"{fault!r} is no fault{_did_you_mean(fault, FAULTS)}: expected one of {', '.join(FAULTS)}"
        )
    if not FAULTS[fault].accepts(value):
        if not FAULTS[fault].value:
            raise ValueError(f"{fault} takes no value, not {value!r}")
        raise ValueError(f"{fault}: {value!r} is not {FAULTS[fault].value}")
    if not (tree / fake.MARKER).exists():
        raise ValueError(f"{tree} was not written by claimd fake")

    # Root may write into a tree of another user, who could have put links into it.
    _check_links(tree)
    _read_saved(tree)
    target = _Target(tree=tree, address=_address(tree, fault, device), value=value)
    drivers = FAULTS[fault].drivers
    if drivers and target.driver not in drivers:
        raise ValueError(
            f"{fault}: the driver of {device} is {target.driver or 'missing'}, "
            f"not {' or '.join(drivers)}"
        )
    return target


def _check_links(tree: Path) -> None:
    """Raises ValueError if a link leads out of the tree, so that a write could follow it."""
    inside = os.path.realpath(tree)
    for folder, folders, files in os.walk(tree):
        for name in (*folders, *files):
            path = f"{folder}/{name}"
            if not os.path.islink(path) or os.readlink(path) in fake.KERNEL_FILES:
                continue
            target = os.path.realpath(path)
            if not f"{target}/".startswith(f"{inside}/"):
                raise ValueError(f"{path} leads out of the tree, to {target}")


def _address(tree: Path, fault: str, device: str) -> str:
    """Returns the PCI address of the GPU. Raises ValueError if it cannot have the fault now."""
    match = _NAME.fullmatch(device)
    if match is not None and match[5]:
        whole = device.removesuffix(match[5])
        raise ValueError(f"{device} is a part of {whole}: a fault is injected into the whole GPU")
    address = "{}:{}:{}.{}".format(*match.groups()) if match is not None else device

    addresses = fake.gpu_addresses(tree)
    plugged = [one for one in addresses if (tree / "sys/bus/pci/devices" / one).is_symlink()]
    if fault != "plug":
        if address not in plugged:
            raise ValueError(
                f"no {device} is plugged into {tree}{_choice(device, plugged, 'its GPUs are')}"
            )
    elif address in plugged:
        raise ValueError(f"{device} is plugged in already")
    elif address not in addresses:
        unplugged = [one for one in addresses if one not in plugged]
        raise ValueError(
            f"no {device} was unplugged from {tree}{_choice(device, unplugged, 'unplugged are')}"
        )
    return address


def _choice(device: str, addresses: list[str], heading: str) -> str:
    """Lists the GPUs that could be meant, as addresses or names like `device`."""
    by_address = ":" in device
    devices = addresses if by_address else [name_of(address) for address in addresses]
    if not devices:
        return f"; {heading} none"

    if len(devices) > _LISTED:
        nearest = difflib.get_close_matches(device, devices, n=_LISTED, cutoff=0)
        return f"; {heading} {', '.join(nearest)} and {len(devices) - _LISTED} more"
    return f"; {heading} {', '.join(devices)}"


def _did_you_mean(word: str, choices: Iterable[str]) -> str:
    close = difflib.get_close_matches(word, list(choices), n=2)
    return f", did you mean {' or '.join(close)}?" if close else ""


# ---------------------------------------------------------------- the faults


def _unplug(target: _Target) -> None:
    path, folder = target.path, target.folder
    _restore(target)

    # The fault `renumber` may have changed the nodes and links, which `fake` does not know.
    for name in target.drm_names():
        (target.tree / "dev/dri" / name).unlink(missing_ok=True)
    for link in (target.tree / "sys/class/drm").glob("*"):
        if folder in link.resolve().parents:
            link.unlink()
    fake.unplug(target.tree, target.address)

    for action in ("unbind", "remove"):
        uevents.broadcast(target.tree, uevents.message(action, path, "pci"))


def _plug(target: _Target) -> None:
    fake.plug(target.tree, target.address)
    target.send_uevent("add")
    target.send_uevent("bind")
    for name in target.drm_names():
        target.send_uevent("add", "drm", f"/drm/{name}")


def _wedge(target: _Target) -> None:
    target.log(f"{target.driver} {target.address}: [drm] device wedged, needs recovery")
    cards = [f"/drm/{name}" for name in target.drm_names() if name.startswith("card")]
    recovery = target.value or "rebind,bus-reset"
    target.send_uevent("change", "drm", cards[0] if cards else "", WEDGED=recovery)


def _heal(target: _Target) -> None:
    """Restores all files, and reports that the driver was bound again."""
    _restore(target)
    target.send_uevent("unbind")
    target.log(f"{target.driver} {target.address}: enabling device (0000 -> 0003)")
    target.send_uevent("bind")


def _hot(target: _Target) -> None:
    # A GPU without a sensor gets one. `_restore` removes it again.
    limits = sorted(target.folder.glob("hwmon/hwmon*/temp*_crit"))
    if not limits:
        sensor = target.folder / "hwmon/hwmon0"
        _change(target, sensor / "name", target.driver)
        _change(target, sensor / "temp1_crit", "100000")
        _change(target, sensor / "temp1_input", "45000")
        limits = [sensor / "temp1_crit"]

    reading = limits[0].with_name(limits[0].name.replace("_crit", "_input"))
    _change(target, reading, str(int(limits[0].read_text()) + 3000))
    target.send_uevent("change")


def _aer(target: _Target) -> None:
    # The counters of the tree, or new ones for a GPU without them.
    kind = target.value or "fatal"
    path = target.folder / f"aer_dev_{kind}"
    total = f"TOTAL_ERR_{kind.upper()}"
    counters = dict.fromkeys([*_AER_FATAL.split(), total], 0)
    if path.exists():
        rows = (line.split() for line in path.read_text().splitlines())
        counters = {name: int(count) for name, count in rows}

    counters["TLP"] = counters[total] = counters[total] + 1
    _change(target, path, "\n".join(f"{name} {count}" for name, count in counters.items()))
    target.send_uevent("change")


def _link(target: _Target) -> None:
    folder = fake.slot_end(target.tree, target.address).resolve()
    if not (folder / "max_link_width").exists():
        _change(target, folder / "max_link_width", "16")
    _change(target, folder / "current_link_width", target.value or "4")
    target.send_uevent("change")


def _xid(target: _Target) -> None:
    match = _XID_VALUE.fullmatch(target.value)
    code, instance = match.groups() if match is not None else (None, None)
    place = f"PCI:{target.slot}"
    if instance is not None:
        place += f" GPU-I:{int(instance):02} GPU-CI:00"
    target.log(f"NVRM: Xid ({place}): {code or 79}, pid=4711, name=python3, from claimd fake")
    target.send_uevent("change")


def _recovery(target: _Target) -> None:
    action = target.value or "reset"
    before = _RECOVERIES["reset" if action == "none" else "none"]
    change = f"GPU recovery action changed from {before} to {_RECOVERIES[action]}"
    target.log(f"NVRM: Xid (PCI:{target.slot}): 154, {change}")
    target.send_uevent("change")


def _sxid(target: _Target) -> None:
    code = target.value or "20034"
    target.log(
        f"nvidia-nvswitch0: SXid (PCI:{_SWITCH}): {int(code):05}, Fatal, Link 30 LTSSM Fault Up"
    )
    target.send_uevent("change")


def _init_failed(target: _Target) -> None:
    path = target.tree / "proc/driver/nvidia/gpus" / target.address / "information"
    unknown = re.sub(
        r"GPU-[0-9a-f-]+", "GPU-????????-????-????-????-????????????", path.read_text()
    )
    _change(target, path, unknown.rstrip("\n"))
    target.log(f"NVRM: GPU {target.address}: RmInitAdapter failed! (0x62:0x55:2344)")
    target.log(f"NVRM: GPU {target.address}: rm_init_adapter failed, device minor number 0")
    target.send_uevent("change")


def _reset_failed(target: _Target) -> None:
    for words in _RESET_FAILED[target.driver]:
        target.log(f"{target.driver} {target.address}: {words}")
    target.send_uevent("change")


def _eio(target: _Target) -> None:
    for path in (target.folder / "config", *target.folder.glob("hwmon/hwmon*/temp*_input")):
        _save(target, path)
        path.unlink(missing_ok=True)
        path.symlink_to(_UNREADABLE)
    target.send_uevent("change")


def _hang(target: _Target) -> None:
    """Replaces files by FIFOs without a writer, so that opening them blocks for ever."""
    for name in ("numa_node", "config"):
        path = target.folder / name
        if path.is_fifo():
            continue
        _save(target, path)
        path.unlink(missing_ok=True)
        os.mkfifo(path)
    target.send_uevent("change")


def _renumber(target: _Target) -> None:
    """Gives the DRM nodes the next free numbers, as when a driver is loaded again."""
    classes = target.tree / "sys/class/drm"
    taken = {int(re.sub(r"\D", "", path.name)) for path in classes.glob("*[0-9]")}
    for name in target.drm_names():
        kind = name.rstrip("0123456789")
        number = int(name.removeprefix(kind)) + 1
        while number in taken:
            number += 1
        taken.add(number)
        _rename_node(target, name, f"{kind}{number}", number)


def _rename_node(target: _Target, old_name: str, new_name: str, number: int) -> None:
    old, new = target.folder / "drm" / old_name, target.folder / "drm" / new_name
    major = int(old.joinpath("dev").read_text().partition(":")[0])

    # The kernel makes the device's folder first, then the link of its class, then the node.
    old.rename(new)
    _replace_file(new / "dev", f"{major}:{number}\n")
    for link in old.parent.glob("controlD*"):
        if os.readlink(link) == old_name:
            link.unlink()
            (old.parent / f"controlD{number + 64}").symlink_to(new_name)
    (target.tree / "sys/class/drm" / old_name).unlink(missing_ok=True)
    link = target.tree / "sys/class/drm" / new_name
    link.symlink_to(os.path.relpath(new, link.parent.resolve()))
    (target.tree / "dev/dri" / old_name).unlink(missing_ok=True)
    fake.make_node(target.tree / "dev/dri" / new_name, major, number)

    target.send_uevent("remove", "drm", f"/drm/{old_name}")
    target.send_uevent("add", "drm", f"/drm/{new_name}")


_LIST = (
    Fault(name="unplug", sentence="the GPU is gone from the bus", apply=_unplug),
    Fault(name="plug", sentence="a GPU that was unplugged is back in its place", apply=_plug),
    Fault(
        name="wedge",
        sentence="the GPU hangs and its driver could not recover it",
        value="what the kernel advises, such as rebind,bus-reset",
        apply=_wedge,
        accepts=lambda value: re.fullmatch(r"[a-z,-]*", value) is not None,
    ),
    Fault(name="hot", sentence="a sensor is 3 °C above its critical temperature", apply=_hot),
    Fault(
        name="aer",
        sentence="the PCIe port has reported an error of the GPU",
        value="fatal or nonfatal (default: fatal)",
        apply=_aer,
        accepts=lambda value: value in ("", "fatal", "nonfatal"),
    ),
    Fault(
        name="link",
        sentence="the PCIe link has fewer lanes than its two ends can do",
        value="a number of lanes (default: 4)",
        apply=_link,
        accepts=lambda value: not value or value.isdecimal(),
    ),
    Fault(
        name="xid",
        sentence="the NVIDIA driver has reported an Xid in the kernel's log",
        value="its number (default: 79), and perhaps ,instance= with the number of a MIG instance",
        apply=_xid,
        accepts=lambda value: _XID_VALUE.fullmatch(value) is not None,
    ),
    Fault(
        name="recovery",
        sentence="the NVIDIA driver has reported what the GPU needs (Xid 154)",
        value=f"{', '.join(_RECOVERIES)} (default: reset)",
        apply=_recovery,
        accepts=lambda value: not value or value in _RECOVERIES,
        drivers=("nvidia",),
    ),
    Fault(
        name="sxid",
        sentence="an NVSwitch has reported a fatal SXid, which concerns all NVIDIA GPUs",
        value="its number (default: 20034)",
        apply=_sxid,
        accepts=lambda value: not value or (value.isdecimal() and len(value) < 7),
        drivers=("nvidia",),
    ),
    Fault(
        name="init-failed",
        sentence="the NVIDIA driver cannot initialize the GPU, so its UUID is unknown",
        apply=_init_failed,
        drivers=("nvidia",),
    ),
    Fault(
        name="reset-failed",
        sentence="the driver could not reset the GPU",
        apply=_reset_failed,
        drivers=tuple(_RESET_FAILED),
    ),
    Fault(
        name="renumber",
        sentence="the GPU's nodes in /dev/dri have other numbers, as after a driver was reloaded",
        apply=_renumber,
    ),
    Fault(
        name="eio",
        sentence="some of the GPU's files fail with input/output errors",
        apply=_eio,
    ),
    Fault(name="hang", sentence="a read of some of the GPU's files never returns", apply=_hang),
    Fault(
        name="heal",
        sentence="all that was injected is taken back, and the driver is bound again",
        apply=_heal,
    ),
)
FAULTS = {fault.name: fault for fault in _LIST}


# ---------------------------------------------------------------- the original files

# The content and the mode of a file; None if the file was not there.
_Before = list[str | int] | None
_Saved = dict[str, dict[str, _Before]]


def _change(target: _Target, path: Path, value: str) -> None:
    _save(target, path)
    path.parent.mkdir(parents=True, exist_ok=True)
    _replace_file(path, f"{value}\n")


def _replace_file(path: Path, text: str) -> None:
    """Replaces a file, because root without capabilities cannot write into a read-only file."""
    mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o444
    path.unlink(missing_ok=True)
    path.write_text(text)
    path.chmod(mode)


def _save(target: _Target, path: Path) -> None:
    """Saves the original file for `heal`, unless an earlier fault has saved it already."""
    saved = _read_saved(target.tree)
    files = saved.setdefault(target.address, {})
    key = os.path.relpath(path, target.folder)
    if key in files:
        return

    before: _Before = None
    if path.exists():
        before = [path.read_bytes().decode("latin-1"), path.stat().st_mode]
    files[key] = before
    _write_saved(target.tree, saved)


def _restore(target: _Target) -> None:
    saved = _read_saved(target.tree)
    for name, before in saved.pop(target.address, {}).items():
        path = _saved_path(target.folder, name)

        # Opening the FIFO for writing wakes blocked readers. It fails with ENXIO without a reader.
        if path.is_fifo():
            with contextlib.suppress(OSError):
                os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))

        path.unlink(missing_ok=True)
        if before is not None:
            path.write_bytes(str(before[0]).encode("latin-1"))
            path.chmod(int(before[1]) & _PERMISSIONS)

    # The fault `hot` may have made the sensors. Then only empty folders are left of them.
    sensors = target.folder / "hwmon"
    if sensors.is_dir() and not any(path.is_file() for path in sensors.rglob("*")):
        shutil.rmtree(sensors)

    _write_saved(target.tree, saved)


def _read_saved(tree: Path) -> _Saved:
    """Returns the original files, by the GPU's address and the path relative to the GPU's folder.

    Raises ValueError if `_write_saved` did not write the file: it must name only files of the tree.
    """
    file = tree / _SAVED
    try:
        saved = json.loads(file.read_text())
    except FileNotFoundError:
        return {}
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{file} cannot be understood: {error}; write the tree again") from error

    try:
        for address, files in saved.items():
            for name, before in files.items():
                _check_saved(tree, address, name, before)
    except (ValueError, AttributeError) as error:
        raise ValueError(f"{file} is none that claimd fake has written: {error}") from error
    read: _Saved = saved
    return read


def _check_saved(tree: Path, address: str, name: str, before: object) -> None:
    folder = (tree / "sys/bus/pci/devices" / address).resolve()
    path, root = _saved_path(folder, name), tree.resolve()
    if not path.is_relative_to(root / "sys") and not path.is_relative_to(root / "proc"):
        raise ValueError(f"{address}: {name!r} is no file of the tree")

    match before:
        case None:
            pass
        case [str() as text, int()]:
            text.encode("latin-1")
        case _:
            raise ValueError(f"{address}: {name!r} was nothing that a file can be")


def _saved_path(folder: Path, name: str) -> Path:
    """Returns the path without `..`, which would lead elsewhere behind a link."""
    return Path(os.path.normpath(folder / name))


def _write_saved(tree: Path, saved: _Saved) -> None:
    (tree / _SAVED).write_text(json.dumps(saved, indent=1, sort_keys=True))
