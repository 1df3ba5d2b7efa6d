"""Changes a fake tree while it is being read, as a sick machine would: `give` does one order to one
GPU.

Files change first, then whoever listens is told by a uevent in the kernel's form. `heal` takes back
all that was done to a GPU, but for its numbers. What a fault means is judged by those who read the
tree.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from . import fake, uevents

_SAVED = ".claimd-faults"  # beside sys/: what the files were before
_DEAD = "/proc/self/mem"  # a file that cannot be read where we read it: EIO, from the kernel itself
_FATAL = (  # lines of aer_dev_fatal
    "Undefined DLP SDES TLP FCP CmpltTO CmpltAbrt UnxCmplt RxOF MalfTLP ECRC UnsupReq ACSViol UncorrIntErr "
    "BlockedTLP AtomicOpBlocked TLPBlockedErr PoisonTLPBlocked"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Target:
    """The GPU that an order is about."""

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
    def path(self) -> str:
        """As uevents name it."""
        return "/" + str(self.folder.relative_to((self.tree / "sys").resolve()))

    @property
    def driver(self) -> str:
        link = self.folder / "driver"
        return link.readlink().name if link.is_symlink() else ""

    def drm(self) -> list[str]:
        return sorted(path.name for path in self.folder.glob("drm/*"))

    def tell(self, action: str, subsystem: str = "pci", below: str = "", **more: str) -> None:
        uevents.announce(self.tree, uevents.message(action, self.path + below, subsystem, **more))

    def log(self, text: str) -> None:
        """A record in the kernel's log, as /dev/kmsg has it."""
        path = self.tree / "dev/kmsg"
        number = len(path.read_bytes().splitlines()) if path.exists() else 0
        with path.open("a") as file:
            file.write(
                f"6,{number},{time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000},-;{text}\n"
            )


def accept(tree: Path) -> None:
    """Makes the folder in which readers of the tree wait for news; those that began before do
    without.
    """
    (tree / uevents.SOCKETS).mkdir(exist_ok=True)


def give(tree: Path, order: str, device: str, value: str = "") -> None:
    """ValueError if there is no such order or no such GPU in the tree."""
    if order not in ORDERS:
        raise ValueError(f"{order!r} is no order: expected one of {', '.join(ORDERS)}")
    named = re.fullmatch(r"gpu-([0-9a-f]{4,8})-([0-9a-f]{2})-([0-9a-f]{2})-([0-7])", device)
    address = "{}:{}:{}.{}".format(*named.groups()) if named else device
    target = _Target(tree=tree, address=address, value=value)
    if not (tree / fake.MARKER).exists():
        raise ValueError(f"{tree} was not written by claimd fake")
    if order != "plug" and not target.link.is_symlink():
        there = sorted(path.name for path in (tree / "sys/bus/pci/devices").glob("*"))
        raise ValueError(f"no {device} is plugged into {tree}; on its bus are {', '.join(there)}")
    ORDERS[order](target)


def _unplug(target: _Target) -> None:
    path, folder = target.path, target.folder
    _restore(target)
    for name in target.drm():  # which may have got other numbers
        (target.tree / "dev/dri" / name).unlink(missing_ok=True)
    for link in (target.tree / "sys/class/drm").glob("*"):
        if folder in link.resolve().parents:
            link.unlink()
    fake.unplug(target.tree, target.address)
    for action in ("unbind", "remove"):
        uevents.announce(target.tree, uevents.message(action, path, "pci"))


def _plug(target: _Target) -> None:
    fake.plug(target.tree, target.address)
    target.tell("add")
    target.tell("bind")
    for name in target.drm():
        target.tell("add", "drm", f"/drm/{name}")


def _wedge(target: _Target) -> None:
    target.log(f"{target.driver} {target.address}: [drm] device wedged, needs recovery")
    cards = [f"/drm/{name}" for name in target.drm() if name.startswith("card")]
    target.tell(
        "change", "drm", cards[0] if cards else "", WEDGED=target.value or "rebind,bus-reset"
    )


def _heal(target: _Target) -> None:
    """All is as it was, by a driver that was bound anew."""
    _restore(target)
    target.tell("unbind")
    target.log(f"{target.driver} {target.address}: enabling device (0000 -> 0003)")
    target.tell("bind")


def _hot(target: _Target) -> None:
    found = sorted(target.folder.glob("hwmon/hwmon*/temp*_crit"))
    if not found:
        monitor = target.folder / "hwmon/hwmon0"
        for name, value in (
            ("name", target.driver),
            ("temp1_crit", "100000"),
            ("temp1_input", "45000"),
        ):
            _change(target, monitor / name, value)
        found = [monitor / "temp1_crit"]
    now = found[0].with_name(found[0].name.replace("_crit", "_input"))
    _change(target, now, str(int(found[0].read_text()) + 3000))
    target.tell("change")


def _aer(target: _Target) -> None:
    kind = target.value or "fatal"
    if kind not in ("fatal", "nonfatal"):
        raise ValueError(f"aer: {kind!r} is neither fatal nor nonfatal")
    path = target.folder / f"aer_dev_{kind}"
    total = f"TOTAL_ERR_{kind.upper()}"
    lines = (
        path.read_text().split("\n")
        if path.exists()
        else [*(f"{name} 0" for name in _FATAL.split()), f"{total} 0"]
    )
    count = next((int(line.split()[1]) for line in lines if line.startswith(total)), 0) + 1
    text = "\n".join(
        f"{line.split()[0]} {count}" if line.startswith(("TLP ", total)) else line for line in lines
    )
    _change(target, path, text.rstrip("\n"))
    target.tell("change")


def _link(target: _Target) -> None:
    folder = fake.slot_end(
        target.tree, target.address
    ).resolve()  # of the board, if it has a switch
    for which, value in (("max", "16"), ("current", target.value or "4")):
        if which == "current" or not (folder / "max_link_width").exists():
            _change(target, folder / f"{which}_link_width", value)
    target.tell("change")


def _xid(target: _Target) -> None:
    code = target.value or "79"
    if not code.isdecimal():
        raise ValueError(f"xid: {code!r} is not a number")
    target.log(
        f"NVRM: Xid (PCI:{target.address[:-2]}): {code}, pid=4711, name=python3, as given by an order"
    )
    target.tell("change")


def _eio(target: _Target) -> None:
    for path in (target.folder / "config", *target.folder.glob("hwmon/hwmon*/temp*_input")):
        _save(target, path)
        path.unlink(missing_ok=True)
        path.symlink_to(_DEAD)
    target.tell("change")


def _hang(target: _Target) -> None:
    for name in ("numa_node", "config"):
        path = target.folder / name
        if path.is_fifo():
            continue
        _save(target, path)
        path.unlink(missing_ok=True)
        os.mkfifo(path)
    target.tell("change")


def _renumber(target: _Target) -> None:
    """Its DRM nodes get other numbers, as when a driver is loaded anew."""
    taken = {
        int(re.sub(r"\D", "", path.name)) for path in (target.tree / "sys/class/drm").glob("*[0-9]")
    }
    for name in target.drm():
        kind = name.rstrip("0123456789")
        number = int(name.removeprefix(kind)) + 1
        while number in taken:
            number += 1
        taken.add(number)
        old, new = target.folder / "drm" / name, target.folder / "drm" / f"{kind}{number}"
        numbers = old.joinpath("dev").read_text().strip().split(":")
        old.rename(new)
        _put(new / "dev", f"{numbers[0]}:{number}\n")
        (target.tree / "sys/class/drm" / name).unlink(missing_ok=True)
        link = target.tree / "sys/class/drm" / new.name
        link.symlink_to(os.path.relpath(new, link.parent.resolve()))
        (target.tree / "dev/dri" / name).unlink(missing_ok=True)
        _node(target.tree / "dev/dri" / new.name, int(numbers[0]), number)
        target.tell("remove", "drm", f"/drm/{name}")
        target.tell("add", "drm", f"/drm/{new.name}")


def _node(path: Path, major: int, minor: int) -> None:
    """A device node where that is allowed, else a file of its name, as in all of a fake tree."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(major, minor))
    except PermissionError:
        path.touch()


ORDERS: dict[str, Callable[[_Target], None]] = {
    "unplug": _unplug,
    "plug": _plug,
    "wedge": _wedge,
    "heal": _heal,
    "hot": _hot,
    "aer": _aer,
    "link": _link,
    "xid": _xid,
    "renumber": _renumber,
    "eio": _eio,
    "hang": _hang,
}


# ---------------------------------------------------------------- what the files were

_Before = list[str | int] | None  # what was in it, and its mode; None: it was not there


def _change(target: _Target, path: Path, value: str) -> None:
    _save(target, path)
    path.parent.mkdir(parents=True, exist_ok=True)
    _put(path, f"{value}\n")


def _put(path: Path, text: str) -> None:
    """Root without any capability cannot write what is read-only, but can put another in its place."""
    mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o444
    path.unlink(missing_ok=True)
    path.write_text(text)
    path.chmod(mode)


def _save(target: _Target, path: Path) -> None:
    saved = _saved(target.tree)
    files = saved.setdefault(target.address, {})
    key = os.path.relpath(path, target.folder)
    if key not in files:
        files[key] = (
            [path.read_bytes().decode("latin-1"), path.stat().st_mode] if path.exists() else None
        )
        _write(target.tree, saved)


def _restore(target: _Target) -> None:
    saved = _saved(target.tree)
    for name, before in saved.pop(target.address, {}).items():
        path = target.folder / name
        if path.is_fifo():
            with contextlib.suppress(OSError):  # nobody waits
                os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
        path.unlink(missing_ok=True)
        if before is not None:
            path.write_bytes(str(before[0]).encode("latin-1"))
            path.chmod(stat.S_IMODE(int(before[1])))
    if (target.folder / "hwmon").is_dir() and not any(
        path.is_file() for path in target.folder.rglob("hwmon/*/*")
    ):
        shutil.rmtree(target.folder / "hwmon")
    _write(target.tree, saved)


def _saved(tree: Path) -> dict[str, dict[str, _Before]]:
    with contextlib.suppress(FileNotFoundError):
        found: dict[str, dict[str, _Before]] = json.loads((tree / _SAVED).read_text())
        return found
    return {}


def _write(tree: Path, saved: dict[str, dict[str, _Before]]) -> None:
    (tree / _SAVED).write_text(json.dumps(saved, indent=1, sort_keys=True))
