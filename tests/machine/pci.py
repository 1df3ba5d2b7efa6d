"""The PCI functions of a guest, and their states as its kernel shows them."""

from __future__ import annotations

from typing import NamedTuple

from . import guest

BUS = "/sys/bus/pci"

# What a virtual machine does with a GPU: it opens the group, and the function through it.
OPEN_FUNCTION = """
import ctypes, fcntl, os, socket, struct
container = os.open("/dev/vfio/vfio", os.O_RDWR)
group = os.open("/dev/vfio/{group}", os.O_RDWR)
fcntl.ioctl(group, 0x3B68, struct.pack("i", container))  # VFIO_GROUP_SET_CONTAINER
fcntl.ioctl(container, 0x3B66, 3)  # VFIO_SET_IOMMU: type 1, version 2
function = ctypes.CDLL(None).ioctl(group, 0x3B6A, b"{address}\\0")  # VFIO_GROUP_GET_DEVICE_FD
assert function >= 0
opened = [function, group, container]
"""

# Changes bits in the register by which a port controls its slot. Each change starts from the bits
# that the register had at first, so the change (0, 0) restores them.
_CONTROL_SLOT = """
import os
descriptor = os.open("{bus}/devices/{port}/config", os.O_RDWR)
place = os.pread(descriptor, 1, 0x34)[0]
while os.pread(descriptor, 1, place)[0] != 0x10:  # the capabilities of PCI Express
    place = os.pread(descriptor, 1, place + 1)[0]
had = int.from_bytes(os.pread(descriptor, 2, place + 0x18), "little")
for without, with_ in {changes}:
    os.pwrite(descriptor, (had & ~without | with_).to_bytes(2, "little"), place + 0x18)
os.close(descriptor)
"""
_REPORTS, _LAMP_OFF, _POWER_OFF = 0x20, 0x300, 0x400


class State(NamedTuple):
    """The driver and the driver_override of a function; empty if it has none."""

    driver: str
    override: str


class Bus:
    """The PCI bus of a guest."""

    def __init__(self, machine: guest.Guest) -> None:
        self.guest = machine

    def state(self, address: str) -> State:
        """Returns the state of a function."""
        folder = f"{BUS}/devices/{address}"
        link = self.guest.run(f"readlink {folder}/driver").output.strip()
        override = self.guest.read(f"{folder}/driver_override")
        return State(link.rpartition("/")[2], "" if override == "(null)" else override)

    def group(self, address: str) -> str:
        """Returns the number of the function's IOMMU group."""
        link = self.guest.run(f"readlink {BUS}/devices/{address}/iommu_group", check=True).output
        return link.strip().rpartition("/")[2]

    def bind(self, address: str, driver: str) -> str:
        """Binds a function, as an administrator does. Returns the name of the error, if any."""
        return self.guest.write(f"{BUS}/drivers/{driver}/bind", address)

    def unbind(self, address: str) -> str:
        """Unbinds a function from its driver. Returns the name of the error, if any."""
        driver = self.state(address).driver
        return self.guest.write(f"{BUS}/drivers/{driver}/unbind", address)

    def remove(self, address: str) -> None:
        """Removes a function from the bus, as if it were unplugged."""
        self.guest.run(f"echo 1 > {BUS}/devices/{address}/remove", check=True)

    def rescan(self) -> None:
        """Lets the kernel look for devices."""
        self.guest.run(f"echo 1 > {BUS}/rescan", check=True)

    def set_power(self, port: str, *, on: bool) -> None:
        """Switches the power of a port's slot. The kernel does not notice that."""
        self._control(port, (_POWER_OFF, 0 if on else _POWER_OFF))

    def pull(self, port: str) -> None:
        """Pulls the device out of a port's slot while it is in use. The device cannot come back.

        QEMU removes the device when power and lamp of the slot are off. The port must not report
        that before the power is on again: the kernel would believe that it had switched the power
        off itself.
        """
        self._control(port, (_REPORTS, _LAMP_OFF | _POWER_OFF), (0, 0))

    def _control(self, port: str, *changes: tuple[int, int]) -> None:
        self.guest.python(_CONTROL_SLOT.format(bus=BUS, port=port, changes=changes))

    def exists(self, address: str) -> bool:
        """Returns True if the bus has the function."""
        return self.guest.run(f"test -e {BUS}/devices/{address}").rc == 0
