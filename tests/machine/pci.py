"""The PCI functions of a guest, and their states as its kernel shows them."""

from __future__ import annotations

from typing import NamedTuple

from . import guest

BUS = "/sys/bus/pci"


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

    def exists(self, address: str) -> bool:
        """Returns True if the bus has the function."""
        return self.guest.run(f"test -e {BUS}/devices/{address}").rc == 0
