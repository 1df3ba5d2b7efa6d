"""A kernel that plays along in a fake tree: what is written to driver_override, unbind, bind and
drivers_probe has the effect that it has in a real one. Links change, and nodes come and go.

The files that are only written are pipes, so that a write is noticed, and waits for ever where
nobody reads. Another process may write as well.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import os
import select
import stat
import termios
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from claimd_devices import fake, rebind, uevents
from claimd_devices.fake.gpu import VFIO
from claimd_devices.gpu import Roots
from tests.support import progress

SOUND = "snd_hda_intel"
_NVIDIA = {
    "nvidia0": (195, 0),
    "nvidia1": (195, 1),
    "nvidiactl": (195, 255),
    "nvidia-uvm": (511, 0),
}


class PlayingKernel:
    """Plays until `close`. It may be told to misbehave, by the driver that does."""

    def __init__(self, folder: Path, *, has_vfio: bool = True) -> None:
        self.folder = folder
        self.stubborn: set[str] = set()  # drivers that do not let go
        self.unwilling: set[str] = set()  # drivers that fail to set up what they are given
        self.done: list[tuple[str, str, str]] = []  # what, by which driver, which function
        self._bus = folder / "sys/bus/pci"
        if has_vfio:
            fake.load_vfio(folder)
        (folder / uevents.SOCKETS).mkdir(exist_ok=True)

        # A driver's own functions, to which it is bound unless an override says otherwise.
        self._home: dict[str, str] = {}
        for address in fake.gpu_addresses(folder):
            self._home[address] = self.driver(address)

        # GPUs whose driver is a link and no more: it is none that a fake tree has nodes for.
        self._plain: set[str] = set()

        self._pipes: dict[Path, int] = {}
        self._waker, self._wake = os.pipe()
        self._lock = threading.RLock()
        self._noticed = threading.Event()  # which pipes are open now
        self._open(self._bus / "drivers_probe")
        for driver in (self._bus / "drivers").iterdir():
            self._add_driver(driver.name)
        self._thread = threading.Thread(target=self._play, name="kernel", daemon=True)
        self._thread.start()

    def close(self) -> None:
        os.write(self._wake, b"!")
        self._thread.join()
        for descriptor in (*self._pipes.values(), self._waker, self._wake):
            os.close(descriptor)

    def finish(self) -> None:
        """Returns when everything that was written has had its effect.

        In a real kernel a process cannot die, nor another one follow it, before its write has had
        its effect.
        """
        patience = progress.Patience(10.0)
        while not patience.over():
            with self._lock:
                if not any(_waiting(pipe) for pipe in self._pipes.values()):
                    return

    def driver(self, address: str) -> str:
        """Returns the driver that a function is bound to; empty if it is bound to none."""
        with contextlib.suppress(OSError):
            return os.path.basename(os.readlink(self._bus / "devices" / address / "driver"))
        return ""

    def override(self, address: str) -> str:
        path = self._bus / "devices" / address / "driver_override"
        text = path.read_text()

        # A plain file is empty for a moment before it has what is written; the kernel's never is.
        patience = progress.Patience(10.0)
        while not text and not patience.over():
            text = path.read_text()
        return "" if text == "(null)\n" else text.strip()

    def state(self) -> dict[str, tuple[str, str]]:
        """Returns driver and override of every function that has ever been bound."""
        return {
            address: (self.driver(address), self.override(address))
            for address in sorted(self._home)
            if (self._bus / "devices" / address).exists()
        }

    # ------------------------------------------------------------------ what the test does

    def become(self, address: str, *, ids: str, driver: str, class_code: str) -> None:
        """Replaces the GPU at the address by another device, with its driver."""
        self.add_driver(driver)
        with self._lock:
            self._set_driver(address, "")
            self._home[address] = driver
            self._plain.add(address)
            self._set_driver(address, driver)
            place = (self._bus / "devices" / address).resolve()
            vendor, device = ids.split(":")
            values = {"vendor": vendor, "device": device, "class": class_code}
            for name, value in values.items():
                (place / name).unlink()
                (place / name).write_text(f"0x{value}\n")
            (place / "driver_override").write_text("(null)\n")

    def add_driver(self, driver: str) -> None:
        (self._bus / "drivers" / driver).mkdir(exist_ok=True)
        with self._lock:
            self._add_driver(driver)
        os.write(self._wake, b".")

    def bind(self, address: str, driver: str) -> None:
        """Binds the GPU to this driver, as an administrator does, whatever the override says."""
        self.add_driver(driver)
        with self._lock:
            self._plain.add(address)
            self._set_driver(address, driver)

    def add_neighbour(self, address: str, *, of: str, driver: str, class_code: str) -> None:
        """Adds another function to the IOMMU group of a GPU."""
        gpu = (self._bus / "devices" / of).resolve()
        group = (gpu / "iommu_group").resolve()
        place = gpu.parent / address
        place.mkdir(exist_ok=True)
        (place / "class").unlink(missing_ok=True)
        (place / "class").write_text(f"0x{class_code}\n")
        (place / "driver_override").write_text("(null)\n")
        (place / "iommu_group").symlink_to(group)
        link = self._bus / "devices" / address
        if not link.is_symlink():
            link.symlink_to(place)
        (group / "devices" / address).symlink_to(place)
        self._home[address] = driver
        if driver:
            self.add_driver(driver)
            (place / "driver").symlink_to(self._bus / "drivers" / driver)

    def open_by(self, pid: int, name: str, *paths: str) -> None:
        """A program of the node has these nodes open.

        The kernel's links lead to the open file itself, so that of a GPU's node is a node here. Only
        root can make one.
        """
        process = self.folder / "proc" / str(pid)
        (process / "fd").mkdir(parents=True)
        (process / "comm").write_text(f"{name}\n")
        (process / "fd/3").symlink_to("socket:[4026]")
        for descriptor, path in enumerate(paths, 4):
            place = process / "fd" / str(descriptor)
            numbers = self._numbers(path)
            if numbers is None:
                place.symlink_to(path)
            elif os.geteuid():
                pytest.skip("only root makes device nodes")
            else:
                os.mknod(place, 0o600 | stat.S_IFCHR, os.makedev(*numbers))

    def _numbers(self, path: str) -> tuple[int, int] | None:
        """The numbers of a GPU's node in the tree; None for a node of this machine."""
        name = os.path.basename(path)
        places = [*self._bus.glob("devices/*/*/*/dev"), *self.folder.glob("sys/class/vfio/*/dev")]
        for place in places:
            if place.parent.name == name:
                major, minor = place.read_text().split(":")
                return int(major), int(minor)
        return _NVIDIA.get(name)

    def end(self, pid: int) -> None:
        process = self.folder / "proc" / str(pid)
        for descriptor in (process / "fd").iterdir():
            descriptor.unlink()

    def hang(self, driver: str) -> None:
        """Makes the driver hang: a process that unbinds a GPU from it waits until `resume`."""
        with self._lock:
            closed = self._pipes.pop(self._bus / "drivers" / driver / "unbind")
            self._noticed.clear()

        # While it is being waited for, it is not closed, whatever is said of its descriptor.
        os.write(self._wake, b".")
        assert self._noticed.wait(10)
        os.close(closed)

    def resume(self, driver: str) -> None:
        with self._lock:
            self._open(self._bus / "drivers" / driver / "unbind")
        os.write(self._wake, b".")

    def reboot(self, boot_id: str) -> None:
        """Binds every function to its own driver again, and forgets every override."""
        path = self.folder / "proc/sys/kernel/random/boot_id"
        path.unlink()
        path.write_text(f"{boot_id}\n")
        self.rebind()

    def rebind(self) -> None:
        """Every function is bound to its driver, as if nothing had ever been done."""
        with self._lock:
            for address, driver in self._home.items():
                (self._bus / "devices" / address / "driver_override").write_text("(null)\n")
                self._set_driver(address, driver)

    # ------------------------------------------------------------------ what the kernel does

    def _add_driver(self, driver: str) -> None:
        for name in ("bind", "unbind"):
            path = self._bus / "drivers" / driver / name
            if path not in self._pipes:
                self._open(path)

    def _open(self, path: Path) -> None:
        if not path.is_fifo():
            os.mkfifo(path)

        # Open both ways: writers come and go, and it is never at its end.
        self._pipes[path] = os.open(path, os.O_RDWR | os.O_NONBLOCK)

    def _play(self) -> None:
        while True:
            with self._lock:
                pipes = {descriptor: path for path, descriptor in self._pipes.items()}
                self._noticed.set()
            ready, _, _ = select.select([self._waker, *pipes], [], [])
            if self._waker in ready and os.read(self._waker, 64).endswith(b"!"):
                return
            with self._lock:
                for descriptor in ready:
                    if self._pipes.get(pipes.get(descriptor, Path())) == descriptor:
                        for address in os.read(descriptor, 4096).decode().split():
                            self._written(pipes[descriptor], address)

    def _written(self, path: Path, address: str) -> None:
        what, driver = path.name, path.parent.name
        now = self.driver(address)
        if what == "unbind" and now == driver and driver not in self.stubborn:
            self._change(what, driver, address, "")
        elif what == "bind" and not now and self.override(address) in ("", driver):
            self._change(what, driver, address, driver)
        elif what == "drivers_probe" and not now:
            driver = self.override(address) or self._home[address]
            self._change(what, driver, address, driver)

    def _change(self, what: str, driver: str, address: str, to: str) -> None:
        self.done.append((what, driver, address))
        if to in self.unwilling or (to and not (self._bus / "drivers" / to).is_dir()):
            return
        self._set_driver(address, to)
        action = "bind" if to else "unbind"
        place = (self._bus / "devices" / address).resolve()
        path = f"/{place.relative_to(self.folder.resolve() / 'sys')}"
        fields = {"PCI_SLOT_NAME": address}
        if to:
            fields["DRIVER"] = to
        uevents.broadcast(self.folder, uevents.message(action, path, "pci", **fields))

    def _set_driver(self, address: str, driver: str) -> None:
        if address in fake.gpu_addresses(self.folder) and address not in self._plain:
            if self.driver(address) != driver:
                fake.bind(self.folder, address, driver)
            return
        link = self._bus / "devices" / address / "driver"
        link.unlink(missing_ok=True)
        if driver:
            link.symlink_to(self._bus / "drivers" / driver)


class Attempt(rebind.Attempt):
    """Waits for nothing longer than the kernel that plays along needs."""

    def __init__(self, kernel: PlayingKernel) -> None:
        super().__init__(Roots.in_folder(kernel.folder))
        self.kernel = kernel

    def wait_until(self, fact: Callable[[], bool]) -> bool:
        self.kernel.finish()
        return fact()


def _waiting(descriptor: int) -> int:
    """Returns how many bytes in a pipe nobody has read."""
    count = array.array("i", [0])
    fcntl.ioctl(descriptor, termios.FIONREAD, count)
    return count[0]


@contextlib.contextmanager
def playing(folder: Path, *, has_vfio: bool = True) -> Iterator[PlayingKernel]:
    """A kernel that plays along in the tree until the block ends."""
    kernel = PlayingKernel(folder, has_vfio=has_vfio)
    try:
        yield kernel
    finally:
        kernel.close()


__all__ = ["SOUND", "VFIO", "Attempt", "PlayingKernel", "playing"]
