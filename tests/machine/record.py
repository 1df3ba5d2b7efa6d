"""Records what real kernels show of GPUs, for the tests that run without a virtual machine.

`python -m tests.machine.record` starts a guest with each kernel, and writes into
tests/cases/machine a capture of each state and the kernel's log of the errors:

- free: no driver has a GPU; the sound function of the card has its driver.
- bound: vfio-pci has the GPUs, with all functions of the card.
- failed: a driver has failed to take a GPU, another one uses a function of the card, and a device
  and a port have reported errors.
"""

from __future__ import annotations

import base64
import gzip
import tempfile
from pathlib import Path

from . import conftest, guest, kernel, pci
from .conftest import BEHIND, DISPLAY, NETWORK, SOUND
from .test_4_errors import READ_LOG, next_number, wait_for_recovery

FOLDER = kernel.ROOT / "tests/cases/machine"
_MODULES = "vfio-pci vfio_iommu_type1 snd-hda-intel snd-hda-codec-generic"


def main() -> None:
    for suite in (kernel.STABLE, kernel.TESTING):
        linux = kernel.fetch(suite)
        folder = FOLDER / ".".join(linux.release.split(".")[:2])
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as place:
            machine = guest.Guest(
                linux, Path(place), devices=conftest.DEVICES, arguments=conftest.ARGUMENTS
            )
            try:
                machine.start()
                record(machine, folder)
            finally:
                machine.kill()
        print(f"{linux.release}: {folder.relative_to(kernel.ROOT)}")


def record(machine: guest.Guest, folder: Path) -> None:
    """Brings the guest into each of the states."""
    bus = pci.Bus(machine)
    machine.run(f"modprobe -a {_MODULES}", check=True)
    _capture(machine, folder / "free.tar.gz")

    for address in (DISPLAY, SOUND, NETWORK, BEHIND):
        if bus.state(address).driver:
            bus.unbind(address)
        _take(machine, bus, address, "vfio-pci")
    _capture(machine, folder / "bound.tar.gz")

    for address in (DISPLAY, SOUND, NETWORK, BEHIND):
        bus.unbind(address)
    begin = next_number(machine)
    machine.run("modprobe e1000", check=True)
    _take(machine, bus, NETWORK, "e1000")
    _take(machine, bus, BEHIND, "e1000", error="EIO")
    for id_, error in (("failing", "COMP_TIME"), ("failing", "DLP"), ("port3", "COMP_TIME")):
        number = next_number(machine)
        machine.monitor(f"pcie_aer_inject_error {id_} {error}")
        wait_for_recovery(machine, number)
    _capture(machine, folder / "failed.tar.gz")
    (folder / "failed.log").write_text(_log_from(machine, begin))


def _take(machine: guest.Guest, bus: pci.Bus, address: str, driver: str, error: str = "") -> None:
    """Lets a driver take a function, as claimd and administrators do. Expects this error."""
    machine.run(f"echo {driver} > {pci.BUS}/devices/{address}/driver_override", check=True)
    answer = bus.bind(address, driver)
    assert answer == error, f"{driver} takes {address}: {answer or 'no error'}"


def _capture(machine: guest.Guest, path: Path) -> None:
    machine.run("python3 -m claimd capture --redact /tmp/capture.tar", check=True)
    read = "import base64; print(base64.b64encode(open('/tmp/capture.tar', 'rb').read()).decode())"
    content = base64.b64decode(machine.python(read))
    path.write_bytes(gzip.compress(content, mtime=0))


def _log_from(machine: guest.Guest, begin: int) -> str:
    """Returns the records of the kernel's log from a number on, with their lines about devices."""
    kept, is_new = [], False
    for line in machine.python(READ_LOG).splitlines():
        if not line.startswith(" "):
            is_new = int(line.split(",")[1]) >= begin
        if is_new:
            kept.append(f"{line}\n")
    return "".join(kept)


if __name__ == "__main__":
    main()
